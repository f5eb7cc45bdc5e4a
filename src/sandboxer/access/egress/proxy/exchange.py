"""One request and its answer between a program inside and the outside: both are read strictly and written
anew.

Neither side's framing reaches the other: what comes after a body belongs to the next request, which is
decided by itself, or to nobody. Bodies pass through by callbacks, without a task or a copy.

The proxy's own messages to a program inside name the rule, and how to ask for another one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http
import json
from collections.abc import Mapping, Sequence

from sandboxer.access.egress.policy import Ask, Deny
from sandboxer.access.egress.proxy.wire import Gone, Wire
from sandboxer.access.http1.framing import Body, Chunks, Counted, Endless, Rechunked
from sandboxer.access.http1.heads import AnswerHead, BadHead, ForwardHead, read_answer
from sandboxer.kernel.values import brief_value_class

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BODILESS = frozenset({204, 304})
# Interim answers before the final one.
_INTERIM = 8
_UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_PREFIX = "urn:sandboxer:problem:"


class BadAnswer(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Stale(Exception):
    """A connection that was kept hung up as it was taken: nobody has seen the request."""


@brief_value_class
class Timeouts:
    # Time for an answer to begin.
    answer_s: float
    # Time without a byte of its body.
    idle_s: float


@brief_value_class
class Ended:
    """Says which of the two connections may be used again."""

    client: bool
    upstream: bool


OVER = Ended(client=False, upstream=False)
_BOTH = Ended(client=True, upstream=True)


def key_of(lines: Sequence[bytes]) -> bytes | None:
    return _only(lines, b"sec-websocket-key")


def is_agreed(key: bytes | None, answer_lines: Sequence[bytes]) -> bool:
    if key is None:
        return False
    proof = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())
    return _only(answer_lines, b"sec-websocket-accept") == proof


def _only(lines: Sequence[bytes], name: bytes) -> bytes | None:
    """Returns the header's value if it occurs exactly once."""
    found = [
        value.strip() for key, _, value in (line.partition(b":") for line in lines) if key.lower() == name
    ]
    return found[0] if len(found) == 1 else None


async def exchange(
    client: Wire,
    upstream: Wire,
    head: ForwardHead,
    own_lines: bytes,
    timeouts: Timeouts,
    *,
    is_kept: bool = False,
) -> Ended:
    """Returns when the answer was passed on. `is_kept` means that the connection was used before. Raises
    BadAnswer, BadHead, Stale, Gone.
    """
    client.tied = upstream
    upstream.write(_request(head, own_lines))
    if head.length is None:
        client.pipe(upstream, Rechunked())
    elif head.length:
        client.pipe(upstream, Counted(head.length))
    try:
        answer = await _answer_head(client, upstream, head, timeouts.answer_s)
    except TimeoutError:
        raise BadAnswer(504, f"no answer came within {timeouts.answer_s:g} s") from None
    except BadHead as error:
        raise BadAnswer(502, f"its answer cannot be understood: {error.why}") from None
    except Gone:
        if client.fault is not None:
            raise BadHead(str(client.fault)) from None
        if is_kept and not upstream.has_early_bytes:
            raise Stale from None
        raise BadAnswer(502, "it hung up without an answer") from None
    if answer.status == 101:
        await _switch(client, upstream, head, answer, timeouts.idle_s)
        return OVER
    return await _pass_answer(client, upstream, head, answer, timeouts.idle_s)


def _request(head: ForwardHead, own_lines: bytes) -> bytes:
    parts = [f"{head.method} {head.path} HTTP/1.1\r\n".encode("latin-1"), own_lines, *head.lines]
    if head.length is None:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif head.length or head.method in ("POST", "PUT", "PATCH"):
        parts.append(b"Content-Length: %d\r\n" % head.length)
    if head.expects_continue:
        parts.append(b"Expect: 100-continue\r\n")
    parts.append(_UPGRADE if head.is_websocket else b"\r\n")
    return b"".join(parts)


async def _answer_head(client: Wire, upstream: Wire, head: ForwardHead, answer_s: float) -> AnswerHead:
    for _ in range(_INTERIM):
        answer = read_answer(await upstream.head(answer_s))
        if answer.status == 101:
            if not (
                head.is_websocket and answer.is_websocket and is_agreed(key_of(head.lines), answer.lines)
            ):
                raise BadHead("it switched protocols unasked")
            return answer
        if answer.status >= 200:
            return answer
        if answer.status == 100 and head.expects_continue:
            client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    raise BadHead("it says over and over that it has begun")


async def _pass_answer(
    client: Wire, upstream: Wire, head: ForwardHead, answer: AnswerHead, idle_s: float
) -> Ended:
    parts = [answer.line, *answer.lines]
    body = _framing(head, answer, parts)
    # An answer that came before the request was complete leaves bytes that nobody will read.
    keeps = head.keeps_alive and client.is_over and not isinstance(body, Endless)
    parts.append(b"\r\n" if keeps else b"Connection: close\r\n\r\n")
    if body is None:
        client.write(b"".join(parts))
    else:
        upstream.pipe(client, body, b"".join(parts))
        if not upstream.is_over:
            await _until_over(upstream, idle_s)
        if not body.is_over:
            return OVER
    if not client.is_over:
        return OVER
    is_clean = answer.keeps_alive and not upstream.has_early_bytes and not upstream.has_ended
    return _BOTH if keeps and is_clean else Ended(client=keeps, upstream=is_clean)


def _framing(head: ForwardHead, answer: AnswerHead, parts: list[bytes]) -> Body | None:
    """Returns how the body is framed, and adds the header to `parts`; None if there is no body."""
    if head.method == "HEAD" or answer.status in _BODILESS:
        if answer.is_chunked:
            parts.append(b"Transfer-Encoding: chunked\r\n")
        elif answer.length is not None and answer.status != 204:
            parts.append(b"Content-Length: %d\r\n" % answer.length)
        return None
    if answer.is_chunked:
        if not head.is_1_1:
            # An HTTP/1.0 client does not know chunks; the end of the connection ends the body.
            return Chunks()
        parts.append(b"Transfer-Encoding: chunked\r\n")
        return Rechunked()
    if answer.length is None:
        return Endless()
    parts.append(b"Content-Length: %d\r\n" % answer.length)
    return Counted(answer.length) if answer.length else None


async def _until_over(upstream: Wire, idle_s: float) -> None:
    """Waits until the body has come, or nothing of it came for too long."""
    tied = upstream.heard
    while True:
        _, waiting = await asyncio.wait((upstream.when_over(),), timeout=idle_s)
        if not waiting or upstream.heard == tied:
            return
        tied = upstream.heard


async def _switch(client: Wire, upstream: Wire, head: ForwardHead, answer: AnswerHead, idle_s: float) -> None:
    client.write(b"".join([answer.line, *answer.lines, _UPGRADE]))
    await join(client, upstream, idle_s)


async def join(client: Wire, upstream: Wire, idle_s: float) -> None:
    """Connects two wires to a tunnel until both directions are closed, or nothing moved for too long."""
    client.pipe(upstream)
    upstream.pipe(client)
    while True:
        moved = client.heard, upstream.heard
        _, waiting = await asyncio.wait((client.when_over(), upstream.when_over()), timeout=idle_s)
        if not waiting or client.is_lost or upstream.is_lost:
            return
        if moved == (client.heard, upstream.heard):
            return


def problem(status: int, code: str, detail: str, next_step: str, **facts: object) -> bytes:
    """Returns an answer that closes the connection: the rest of a refused request is not worth reading."""
    members = {
        **facts,
        "type": _PREFIX + code,
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "next_step": next_step,
    }
    return _message(status, json.dumps(members).encode(), {"x-sandboxer-egress": code})


def denied(deny: Deny, ask: Ask | None, sandbox_id: str) -> bytes:
    facts: dict[str, object] = {"reason": deny.reason}
    if deny.rule is not None:
        facts["rule"] = deny.rule.words()
    step = "Ask whoever owns this sandbox to change its egress rules."
    if ask is not None:
        facts |= {"host": ask.host, "port": ask.port}
        where = ask.host if ask.port in (80, 443) else f"{ask.host}:{ask.port}"
        if deny.reason in ("no_rule", "port"):
            step = (
                f"Ask the owner for it: `sandboxer egress allow {sandbox_id} {where}`;"
                " `sandboxer egress explain` says why in full."
            )
    what = "This" if ask is None else ask.url() if ask.path is not None else f"{ask.host}:{ask.port}"
    return problem(403, "egress_denied", f"{what} is not allowed: {deny.why}.", step, **facts)


def _message(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body
