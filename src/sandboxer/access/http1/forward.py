"""Heads of requests to a forward proxy: CONNECT, or a whole URL whose host the Host header repeats."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandboxer.access.http1.heads import (
    HOP,
    MAX_TARGET,
    REQUEST_LINE,
    BadHead,
    asks_websocket,
    connection_words,
    expects_continue,
    request_length,
    split_headers,
)

# The authority is judged by whoever decides about names; here it only must not hide anything.
_AUTHORITY = re.compile(rb"[A-Za-z0-9_.\-\[\]:%]{1,300}")
_ABSOLUTE = re.compile(rb"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_SPECIAL = HOP | {b"content-length", b"host", b"expect"}


@dataclass(slots=True)
class ForwardHead:
    method: str
    # `host` or `host:port`, as it was sent; empty for a path inside opened TLS.
    authority: str
    # A path with its query; empty for CONNECT.
    path: str
    # Whole lines that go on as they came.
    lines: list[bytes]
    # Bytes of body; None: in chunks.
    length: int | None
    expects_continue: bool
    is_1_1: bool
    # The connection may carry another request after this one.
    keeps_alive: bool
    is_websocket: bool

    @property
    def is_connect(self) -> bool:
        return self.method == "CONNECT"


def read_forward(head: bytes, *, is_opened: bool = False) -> ForwardHead:
    """`head` ends with its empty line. `is_opened`: it came out of TLS, asks for a path. Raises BadHead."""
    end = head.find(b"\r\n")
    match = REQUEST_LINE.fullmatch(head, 0, end)
    if match is None:
        raise BadHead("the request line is not one of HTTP/1.1")
    method, target, minor = match.groups()
    if len(target) > MAX_TARGET:
        raise BadHead("the URL is too long", 414)
    lines, judged = split_headers(head[end + 2 : -2], _SPECIAL)
    tokens = connection_words(judged, lines)
    is_1_1 = minor == b"1"
    hosts = judged.get(b"host", [])
    if len(hosts) > 1 or (not hosts and is_1_1 and method != b"CONNECT"):
        raise BadHead("it needs exactly one Host header")
    length = request_length(judged, is_1_1)
    if is_opened:
        authority, path = _inside(target, hosts)
    elif method == b"CONNECT":
        authority, path = target, b""
        if length != 0:
            raise BadHead("CONNECT has no body")
    else:
        authority, path = _whole(target, hosts)
    if _AUTHORITY.fullmatch(authority) is None:
        raise BadHead("the host is malformed")
    is_websocket = is_1_1 and method == b"GET" and b"upgrade" in tokens and asks_websocket(judged)
    if is_websocket and length != 0:
        raise BadHead("a WebSocket is asked for without a body")
    return ForwardHead(
        method=method.decode(),
        authority=authority.decode(),
        path=path.decode("latin-1"),
        lines=lines,
        length=length,
        expects_continue=is_1_1 and expects_continue(judged),
        is_1_1=is_1_1,
        keeps_alive=is_1_1 and b"close" not in tokens,
        is_websocket=is_websocket,
    )


def _whole(target: bytes, hosts: list[bytes]) -> tuple[bytes, bytes]:
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise BadHead("a proxy is asked for a whole http:// URL, or with CONNECT")
    if hosts and _plain(hosts[0]) != _plain(match[1]):
        raise BadHead("the Host header names another host than the URL")
    path: bytes = match[2] or b"/"
    return match[1], path if path[:1] == b"/" else b"/" + path


def _inside(target: bytes, hosts: list[bytes]) -> tuple[bytes, bytes]:
    if target[:1] != b"/" or b"#" in target:
        raise BadHead("the URL must be a path")
    if not hosts:
        raise BadHead("it needs exactly one Host header")
    return hosts[0], target


def _plain(authority: bytes) -> bytes:
    return authority.lower().removesuffix(b":80")
