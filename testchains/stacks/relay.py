"""A sponsor relay like the public one, small: it checks a payment, signs as sponsor, broadcasts, and tells
what became of it. Its faults are real ones: an answer is dropped after the broadcast, not instead of it.

It runs in a thread of ours, so that a test may turn its knobs; a client sees only HTTP.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testchains.stacks.sponsoring import Desk, Faults

_MAX_BODY = 256 * 1024


class LocalRelay:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def faults(self) -> Faults:
        return self.desk.faults

    def start(self) -> None:
        """On the same port as before, so that who knew it finds it again."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _window(self.desk))
        self._server.daemon_threads = True
        self._port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> LocalRelay:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _window(desk: Desk) -> type[BaseHTTPRequestHandler]:
    class Window(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(*_read(desk, self.path))

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if length > _MAX_BODY:
                self._answer(413, {"error": "too large"})
                return
            try:
                body = json.loads(self.rfile.read(length))
            except ValueError:
                self._answer(400, {"success": False, "errorReason": "invalid_payload"})
                return
            if self.path == "/settle" and (fault := desk.faults.take("turn_away")):
                self._answer(int(fault), {"error": "busy"})
                return
            acts = {"/settle": desk.settle, "/verify": desk.verify}
            act = acts.get(self.path)
            self._finish(*act(body)) if act else self._answer(404, {"error": "no such route"})

        def _finish(self, status: int, body: dict[str, Any]) -> None:
            """Here, after everything was done, the answer may get lost."""
            if self.path == "/settle" and desk.faults.take("drop_answer"):
                self.close_connection = True
                self.connection.shutdown(2)
                return
            if self.path == "/settle" and (seconds := desk.faults.take("slow_answer")):
                time.sleep(seconds)
            self._answer(status, body)

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: tests read the desk's book."""

    return Window


def _read(desk: Desk, path: str) -> tuple[int, dict[str, Any]]:
    if path == "/supported":
        return 200, desk.supported()
    if path == "/health":
        return 200, {"status": "ok"}
    for prefix, look in (("/payment/", desk.payment), ("/settle/status/", desk.transaction)):
        if path.startswith(prefix):
            return look(path.removeprefix(prefix))
    return 404, {"error": "no such route"}
