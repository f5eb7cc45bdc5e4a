"""Heads of requests and answers are read strictly, judged, and written anew.

Whoever is in front of us or behind us must see the same message as we do, so anything that two readers could
understand differently is refused: two lengths, a length beside chunks, folded lines, stray control
characters, spaces before a colon. What is passed on is composed of what was understood, never copied as it
came.

`read_forward` reads heads of requests to a forward proxy: CONNECT, or a whole URL whose host the Host header
repeats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEAD = 32 * 1024
MAX_TARGET = 16 * 1024
MAX_HEADERS = 128
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)\r\n")
# Possessive: what does not fit is refused without backtracking.
_HEADERS = re.compile(rb"(?:" + _TOKEN + rb"+:[\t\x20-\x7e\x80-\xff]*+\r\n)*+")
_FRAMING = (b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade")
_HOST = re.compile(rb"(?:[A-Za-z0-9_.\-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)([/?].*)?", re.IGNORECASE)
# Headers for one connection only (RFC 9110, 7.6.1), or that we set ourselves.
HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
# Who asked, and by which name; we set these ourselves.
FORWARDED = frozenset(
    {
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
        b"x-forwarded-server",
        b"x-real-ip",
    }
)
# Headers for the platform, which the code inside must not see.
PREVIEW_HEADER = b"x-sandboxer-preview"
TRAFFIC_HEADER = b"e2b-traffic-access-token"
_SIGNATURE = frozenset({b"x-signature", b"x-timestamp", b"x-nonce", b"x-content-sha256", b"x-api-key"})
CREDENTIALS = _SIGNATURE | {b"authorization", b"sign-in-with-x"}
_JUDGED = frozenset({b"content-length", b"host", b"expect", b"cookie", PREVIEW_HEADER, TRAFFIC_HEADER})
_OF_REQUESTS = HOP | FORWARDED | _JUDGED
# A Connection header cannot remove these.
_PROTECTED = frozenset({b"host", b"content-length", b"cookie", b"authorization"})
_OF_ANSWERS = HOP | {b"content-length"}
_NO_VALUES: tuple[bytes, ...] = ()
# Names are decided elsewhere; here the authority only must not hide anything.
_AUTHORITY = re.compile(rb"[A-Za-z0-9_.\-\[\]:%]{1,300}")
_ABSOLUTE_URL = re.compile(rb"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_SPECIAL = HOP | {b"content-length", b"host", b"expect"}


class BadHead(Exception):
    """A head that nobody may act on: `status` is what an asker is told."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(slots=True, kw_only=True)
class Head:
    """What is read of every head, of a request or an answer."""

    # Whole lines that are passed on unchanged.
    lines: list[bytes]
    # Bytes of body; None if it is chunked, or if the body of an answer lasts to the end of the connection.
    length: int | None
    # The connection may carry another request after this one.
    keeps_alive: bool
    is_websocket: bool


@dataclass(slots=True, kw_only=True)
class RequestHead(Head):
    method: bytes
    target: bytes
    is_1_1: bool
    # The host as sent, with its port.
    host: bytes
    # The values of the other headers, by lower-case name.
    judged: dict[bytes, list[bytes]]
    expects_continue: bool

    @property
    def has_body(self) -> bool:
        return self.length != 0

    def values(self, name: bytes) -> tuple[bytes, ...] | list[bytes]:
        return self.judged.get(name, _NO_VALUES)


@dataclass(slots=True, kw_only=True)
class AnswerHead(Head):
    status: int
    # The status with its reason phrase.
    line: bytes
    is_chunked: bool


@dataclass(slots=True, kw_only=True)
class ForwardHead(Head):
    method: str
    # `host` or `host:port` as sent; empty for a path inside opened TLS.
    authority: str
    # A path with its query; empty for CONNECT.
    path: str
    expects_continue: bool
    is_1_1: bool

    @property
    def is_connect(self) -> bool:
        return self.method == "CONNECT"


def judge_request(head: bytes, *, most_target: int) -> int | None:
    """Returns how long the body of this request is (None if chunked), for a reader that takes the head as it
    came.

    It is as strict as `read_request` and cheaper, since it takes nothing apart. Raises BadHead. HTTP/1.0 may
    come without a Host header, which it does not know, and health checks still use it.
    """
    end, method, target, is_1_1 = _request_line(head, most_target)
    if head.count(b"\r\n") - 2 > MAX_HEADERS:
        raise BadHead("it has too many headers", 431)
    if _HEADERS.fullmatch(head, end + 2, len(head) - 2) is None:
        raise BadHead("a header is malformed")
    judged: dict[bytes, list[bytes]] = {}
    low = head.lower()
    for name in _FRAMING:
        mark = b"\r\n" + name + b":"
        at = low.find(mark, end)
        while at >= 0:
            begin = at + len(mark)
            at = head.find(b"\r", begin)
            judged.setdefault(name, []).append(head[begin:at].strip(b" \t"))
            at = low.find(mark, at)
    host = b"" if not is_1_1 and b"host" not in judged else _host(judged)
    length = request_length(judged, is_1_1)
    if target[:1] != b"/":
        _origin_form(method, target, host)
    expects_continue(judged)
    if length != 0 and asks_websocket(judged):
        raise BadHead("a WebSocket is asked for without a body")
    return length


def read_request(head: bytes) -> RequestHead:
    """Reads a request; `head` ends with its empty line. Raises BadHead."""
    end, method, target, is_1_1 = _request_line(head, MAX_TARGET)
    lines, judged = split_headers(head[end + 2 : -2], _OF_REQUESTS)
    tokens = connection_words(judged, lines)
    host = _host(judged)
    length = request_length(judged, is_1_1)
    if target[:1] != b"/":
        target = _origin_form(method, target, host)
    is_websocket = is_1_1 and b"upgrade" in tokens and asks_websocket(judged) and method == b"GET"
    if is_websocket and length != 0:
        raise BadHead("a WebSocket is asked for without a body")
    return RequestHead(
        method=method,
        target=target,
        is_1_1=is_1_1,
        host=host,
        lines=lines,
        judged=judged,
        length=length,
        keeps_alive=b"close" not in tokens and (is_1_1 or b"keep-alive" in tokens),
        is_websocket=is_websocket,
        expects_continue=expects_continue(judged) and is_1_1,
    )


def read_answer(head: bytes) -> AnswerHead:
    """Reads an answer; `head` ends with its empty line. Raises BadHead."""
    end = head.find(b"\r\n")
    if (match := _STATUS_LINE.fullmatch(head, 0, end)) is None:
        raise BadHead("it does not begin with a status line of HTTP/1.1")
    minor, code, phrase = match.groups()
    lines, judged = split_headers(head[end + 2 : -2], _OF_ANSWERS)
    tokens = connection_words(judged, lines)
    is_chunked, lengths = _is_chunked(judged, minor == b"1"), judged.get(b"content-length")
    return AnswerHead(
        status=int(code),
        line=b"HTTP/1.1 " + code + b" " + (phrase or b"") + b"\r\n",
        lines=lines,
        length=None if lengths is None else _length(lengths),
        is_chunked=is_chunked,
        keeps_alive=minor == b"1" and b"close" not in tokens,
        is_websocket=b"upgrade" in tokens and asks_websocket(judged),
    )


def _request_line(head: bytes, most_target: int) -> tuple[int, bytes, bytes, bool]:
    """Returns where the line ends, its method and target, and whether it is of HTTP/1.1."""
    end = head.find(b"\r\n")
    if (match := REQUEST_LINE.fullmatch(head, 0, end)) is None:
        raise BadHead("the request line is not one of HTTP/1.1")
    method, target, minor = match.groups()
    if len(target) > most_target:
        raise BadHead("the URL is too long", 414)
    return end, method, target, minor == b"1"


def split_headers(block: bytes, special: frozenset[bytes]) -> tuple[list[bytes], dict[bytes, list[bytes]]]:
    """Returns the lines that are passed on, and the values of the others by name."""
    pairs: list[tuple[bytes, bytes]] = _HEADER.findall(block)
    if len(pairs) > MAX_HEADERS:
        raise BadHead("it has too many headers", 431)
    lines: list[bytes] = []
    judged: dict[bytes, list[bytes]] = {}
    read = 0
    for name, value in pairs:
        read += len(name) + len(value) + 3
        if (low := name.lower()) in special:
            judged.setdefault(low, []).append(value.strip(b" \t"))
        elif b"_" in low and low.replace(b"_", b"-") in special:
            # Programs that read CGI names take `X_Forwarded_For` for our header.
            continue
        else:
            lines.append(name + b":" + value + b"\r\n")
    if read != len(block):
        # Something between two headers is not a header: a folded line, a lone LF, a NUL, a space before the
        # colon.
        raise BadHead("a header is malformed")
    return lines, judged


def connection_words(judged: dict[bytes, list[bytes]], lines: list[bytes]) -> frozenset[bytes]:
    """Returns the words of Connection; headers that it names are not passed on."""
    if (given := judged.get(b"connection")) is None:
        return frozenset()
    tokens = frozenset(word.strip(b" \t").lower() for value in given for word in value.split(b","))
    if named := tokens - HOP - _PROTECTED - {b"close", b""}:
        lines[:] = [line for line in lines if line[: line.find(b":")].lower() not in named]
    return tokens


def _host(judged: dict[bytes, list[bytes]]) -> bytes:
    hosts = judged.get(b"host", [])
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        raise BadHead("it needs exactly one valid Host header")
    return hosts[0]


def request_length(judged: dict[bytes, list[bytes]], is_1_1: bool) -> int | None:
    """Returns how long a request's body is; None if it is chunked."""
    if _is_chunked(judged, is_1_1):
        return None
    lengths = judged.get(b"content-length")
    return 0 if lengths is None else _length(lengths)


def _is_chunked(judged: dict[bytes, list[bytes]], is_1_1: bool) -> bool:
    if (encodings := judged.get(b"transfer-encoding")) is None:
        return False
    if b"content-length" in judged:
        raise BadHead("it has both a Content-Length and a Transfer-Encoding")
    if len(encodings) != 1 or encodings[0].lower() != b"chunked" or not is_1_1:
        raise BadHead("its Transfer-Encoding is not `chunked`")
    return True


def _length(lengths: list[bytes]) -> int:
    if len(lengths) != 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise BadHead("its Content-Length is not one number")
    return int(lengths[0])


def _origin_form(method: bytes, target: bytes, host: bytes) -> bytes:
    if target == b"*" and method == b"OPTIONS":
        return target
    if (match := _ABSOLUTE.fullmatch(target)) is None or match[1].lower() != host.lower():
        raise BadHead("the URL must be a path, or name the same host as the Host header")
    rest: bytes = match[2] or b"/"
    return rest if rest[:1] == b"/" else b"/" + rest


def expects_continue(judged: dict[bytes, list[bytes]]) -> bool:
    if (expected := judged.get(b"expect")) is None:
        return False
    if len(expected) != 1 or expected[0].lower() != b"100-continue":
        raise BadHead("only `Expect: 100-continue` is understood", 417)
    return True


def asks_websocket(judged: dict[bytes, list[bytes]]) -> bool:
    upgrades = judged.get(b"upgrade", [])
    return len(upgrades) == 1 and upgrades[0].lower() == b"websocket"


def read_forward(head: bytes, *, is_opened: bool = False) -> ForwardHead:
    """Reads a request to a forward proxy; `head` ends with its empty line. `is_opened` means that it came out
    of TLS and asks for a path. Raises BadHead.
    """
    end, method, target, is_1_1 = _request_line(head, MAX_TARGET)
    lines, judged = split_headers(head[end + 2 : -2], _SPECIAL)
    tokens = connection_words(judged, lines)
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
    if (match := _ABSOLUTE_URL.fullmatch(target)) is None:
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
