"""A signed HTTP/1.1 client on a bare socket, so that we time the server and not a client library.

Blocking, kept alive, one connection per instance. It understands what our server answers: content-length
and chunked bodies. What the real SDK adds on top is measured on its own (`sdk overhead`).
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sandboxer.sdk.credentials import EMPTY_SHA256, Credentials, new_nonce, signed_headers

RECEIVE = 1 << 20


class BadAnswer(Exception):
    """The server refused what the bench asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes

    def json(self) -> Any:
        if self.status >= 400:
            raise BadAnswer(f"{self.status}: {self.body.decode(errors='replace')[:500]}")
        return json.loads(self.body) if self.body else None


class Wire:
    """One connection."""

    def __init__(
        self, host: str, port: int, key: Credentials, *, timeout_s: float = 120.0, address: str = ""
    ) -> None:
        """`address`: one of this machine's that it comes from; whichever the kernel takes if empty."""
        self._key = key
        self._host = f"{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=timeout_s, source_address=(address, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def close(self) -> None:
        self._socket.close()

    def ask(self, method: str, target: str, value: object = None) -> Reply:
        self.send(method, target, value)
        return self.receive()

    def send(self, method: str, target: str, value: object = None) -> None:
        self.send_prepared(self.prepare(method, target, value))

    def prepare(self, method: str, target: str, value: object = None) -> bytes:
        """A whole request, signed now, to be sent once and soon."""
        body = b"" if value is None else json.dumps(value).encode()
        digest = hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256
        kind = "content-type: application/json\r\n" if body else ""
        return self._head(method, target, digest, len(body), kind) + body

    def send_prepared(self, request: bytes) -> None:
        self._socket.sendall(request)

    def put(
        self, target: str, chunks: Iterable[bytes], digest: str, length: int, *, method: str = "PUT"
    ) -> Reply:
        """A large body, hashed by the caller beforehand."""
        kind = "content-type: application/octet-stream\r\n"
        self._socket.sendall(self._head(method, target, digest, length, kind))
        for chunk in chunks:
            self._socket.sendall(chunk)
        return self.receive()

    def drain(self, target: str) -> int:
        """GET and count the bytes, keeping none of them."""
        self._socket.sendall(self._head("GET", target, EMPTY_SHA256, 0, ""))
        status, headers = self._read_head()
        if status >= 400:
            raise BadAnswer(f"{status}: {bytes(self._read_body(headers))!r}")
        if "content-length" in headers:
            return self._count(int(headers["content-length"]))
        return self._count_chunks()

    def receive(self) -> Reply:
        status, headers = self._read_head()
        return Reply(status, bytes(self._read_body(headers)))

    def _head(self, method: str, target: str, digest: str, length: int, more: str) -> bytes:
        signed = signed_headers(
            self._key, method, target, digest, timestamp=int(time.time()), nonce=new_nonce()
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        start = f"{method} {target} HTTP/1.1\r\nhost: {self._host}\r\n"
        return f"{start}{lines}{more}content-length: {length}\r\n\r\n".encode()

    def _fill(self) -> None:
        chunk = self._socket.recv(RECEIVE)
        if not chunk:
            raise BadAnswer("the server closed the connection")
        self._buffer += chunk

    def _read_head(self) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._fill()
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        return int(lines[0].split(" ", 2)[1]), headers

    def _read_body(self, headers: dict[str, str]) -> bytearray:
        if headers.get("transfer-encoding") == "chunked":
            whole = bytearray()
            while chunk := self._read_chunk():
                whole += chunk
            return whole
        return self._take(int(headers.get("content-length", "0")))

    def _take(self, count: int) -> bytearray:
        while len(self._buffer) < count:
            self._fill()
        piece = self._buffer[:count]
        del self._buffer[:count]
        return piece

    def _read_chunk(self) -> bytearray:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._fill()
        size = int(self._buffer[:end], 16)
        del self._buffer[: end + 2]
        chunk = self._take(size + 2)
        return chunk[:size]

    def _count(self, expected: int) -> int:
        seen = len(self._buffer)
        self._buffer.clear()
        view = memoryview(bytearray(RECEIVE))
        while seen < expected:
            got = self._socket.recv_into(view)
            if not got:
                raise BadAnswer("the server closed the connection")
            seen += got
        return seen

    def _count_chunks(self) -> int:
        seen = 0
        while chunk := self._read_chunk():
            seen += len(chunk)
        return seen
