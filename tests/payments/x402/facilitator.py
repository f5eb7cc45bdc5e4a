"""A facilitator over HTTP that does what it should on the real chain, and stops dead where a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from x402 import x402FacilitatorSync
from x402.mechanisms.evm.exact.facilitator import ExactEvmScheme
from x402.mechanisms.evm.upto.facilitator import UptoEvmScheme
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.payments.x402.evm_schemes import Signer
from testchains.evm import KEYS, Anvil

# Where it can stop: before or after its work, with or without the answer sent.
STEPS = ("verify", "verified", "settle", "settled", "answered")


class Facilitator:
    def __init__(self, chain: Anvil) -> None:
        self._real = x402FacilitatorSync()
        signer = Signer(KEYS[3], chain.url, 10.0)
        self._real.register([chain.network], ExactEvmScheme(signer))
        self._real.register([chain.network], UptoEvmScheme(signer))
        self.address: str = signer.address
        self.url = ""
        self._stop_at: str | None = None
        self.reached = threading.Event()
        self._go_on = threading.Event()
        self.asked: list[str] = []

    def stop_at(self, step: str | None) -> None:
        self._stop_at = step
        self.reached.clear()
        self._go_on.clear()

    def go_on(self) -> None:
        self._stop_at = None
        self._go_on.set()

    def serve(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(path)
        payload = PaymentPayload.model_validate(body["paymentPayload"])
        requirements = PaymentRequirements.model_validate(body["paymentRequirements"])
        word = path.strip("/")
        self.pass_by(word)
        answer = getattr(self._real, word)(payload, requirements)
        self.pass_by({"verify": "verified", "settle": "settled"}[word])
        shown: dict[str, Any] = answer.model_dump(by_alias=True, exclude_none=True)
        return shown

    def pass_by(self, step: str) -> None:
        if step == self._stop_at:
            self.reached.set()
            self._go_on.wait(60)


@contextmanager
def running_facilitator(chain: Anvil) -> Iterator[Facilitator]:
    facilitator = Facilitator(chain)

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = json.dumps(facilitator.serve(self.path, body)).encode()
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                self.wfile.flush()
            except OSError:
                # Who asked was killed meanwhile.
                return
            if self.path == "/settle":
                facilitator.pass_by("answered")

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    server.daemon_threads = True
    facilitator.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield facilitator
    finally:
        facilitator.go_on()
        server.shutdown()
        server.server_close()
        thread.join()
