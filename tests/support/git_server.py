"""Repositories at example.com, in the world of tests: git's own server, by CGI."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.access.egress.world import ADDRESS, listening


class _Git(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        env = {**os.environ, "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1"}
        env |= {"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command}
        env |= {"CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body))}
        env |= {"HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", "")}
        env |= {"GIT_PROTOCOL": self.headers.get("git-protocol", "")}
        said = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        head, _, content = said.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in (*fields.items(), ("content-length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def git_server(root: Path) -> Iterator[None]:
    """Serves the bare repositories of a folder until the block ends."""
    handler = type("Handler", (_Git,), {"root": root})
    server = ThreadingHTTPServer(("", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening(ADDRESS, 80)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
