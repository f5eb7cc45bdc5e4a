"""A small HTTP server in a thread, for chains that live in this process."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# (method, path, body) -> (status, content type, body)
Answer = tuple[int, str, bytes]
Route = Callable[[str, str, bytes], Answer]


class HttpFace:
    """`stop` closes the port (the node is down), `start` opens the same one again."""

    def __init__(self, route: Route, *, user: str | None = None, password: str = "") -> None:
        self._route = route
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._expected = f"Basic {token}" if user is not None else None
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), self._request_class())
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _request_class(self) -> type[BaseHTTPRequestHandler]:
        face = self

        class Request(BaseHTTPRequestHandler):
            # No keep-alive: an open connection would outlive `stop`.
            protocol_version = "HTTP/1.0"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if face._expected and self.headers.get("authorization") != face._expected:
                    status, kind, out = 401, "text/plain", b""
                else:
                    status, kind, out = face._route(self.command, self.path, body)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(out)))
                self.end_headers()
                self.wfile.write(out)

            do_GET = do_POST = _answer

            def log_message(self, *_: object) -> None:
                pass

        return Request


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
