"""The TypeScript client in a browser: a page and the platform's API at one origin, by a relay."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from eth_account import Account
from eth_account.messages import encode_defunct

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.languages import chromium
from tests.support.platforms import Up

pytestmark = pytest.mark.slow
PAGE = """<!doctype html><script type="module">
import { Sandboxer, calls } from "/client/index.js";
const asked = ASKED, url = location.origin, said = {};
try {
  for (const [how, settings] of Object.entries(asked.makers)) {
    const sandbox = await new Sandboxer({ url, ...settings }).create({ ttl: "10m" });
    await sandbox.files.write("/workspace/a b", new Blob(["from a page"]));
    let text = "";
    for await (const piece of sandbox.stream("cat '/workspace/a b'")) {
      if (piece.kind === "stdout") text += piece.text;
    }
    said[how] = [text, (await sandbox.run("exit 3")).exit_code, (await sandbox.destroy()).state];
  }
  said.session = (await new Sandboxer({ url, session: asked.session }).me()).account.id;
} catch (error) { said.error = String(error.stack ?? error); }
await fetch("/said", { method: "POST", body: JSON.stringify(said) });
</script>"""


@contextmanager
def relay(up: Up, client: Path, asked: dict[str, Any], said: Queue[Any]) -> Iterator[str]:
    """Serves the page and the client, and leads everything below /v1 to the platform."""

    class Door(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            if self.path == "/":
                self._answer(200, "text/html", PAGE.replace("ASKED", json.dumps(asked)).encode())
            elif self.path.startswith("/client/"):
                content = (client / self.path.removeprefix("/client/")).read_bytes()
                self._answer(200, "text/javascript", content)
            else:
                self._relay()

        def do_POST(self) -> None:
            if self.path == "/said":
                said.put(json.loads(self._body()))
                self._answer(200, "text/plain", b"")
            else:
                self._relay()

        def do_PUT(self) -> None:
            self._relay()

        def do_DELETE(self) -> None:
            self._relay()

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def _relay(self) -> None:
            head = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            address = up.url + self.path
            answer = httpx.request(self.command, address, headers=head, content=self._body(), timeout=30)
            self._answer(answer.status_code, answer.headers.get("content-type", ""), answer.content)

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def test_a_page_uses_sandboxes_with_a_token_a_key_and_a_session(
    typescript: Path, up: Up, tmp_path: Path
) -> None:
    program, environment = chromium()
    owner = json.loads(up.owner_file.read_text())
    wallet = Account.create()
    with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
        token = client.keys.issue_bearer(owner["public_key"]).bearer_token
        session = client.wallets.sign_in(
            lambda text: "0x" + wallet.sign_message(encode_defunct(text=text)).signature.hex()
        )
    key = {"publicKey": owner["public_key"], "secretKey": owner["secret_key"]}
    asked = {"makers": {"token": {"apiKey": token}, "key": key}, "session": session.token}
    said: Queue[Any] = Queue()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={tmp_path}"]
    with relay(up, typescript / "src", asked, said) as address:
        browser = subprocess.Popen([program, *flags, address], env=environment, stderr=subprocess.DEVNULL)
        try:
            told = said.get(timeout=60)
        finally:
            browser.kill()
            browser.wait()
    assert told.pop("session").startswith("acc_")
    assert told == {how: ["from a page", 3, "destroyed"] for how in ("token", "key")}
