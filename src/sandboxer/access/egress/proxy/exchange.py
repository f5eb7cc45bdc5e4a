"""One request and its answer between a program inside and the world: both read strictly, both written anew.

A connection carries one of them: what follows a request is not looked at, so nothing can hide behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandboxer.access.egress.proxy.wire import Gone, Wire
from sandboxer.access.http1.forward import ForwardHead
from sandboxer.access.http1.framing import LAST_CHUNK, BadChunk, Chunks, chunk
from sandboxer.access.http1.heads import AnswerHead, BadHead, read_answer
from sandboxer.kernel.tasks import own_tasks

_BODILESS = frozenset({204, 304})
# Answers before the answer.
_INTERIM = 8


class BadAnswer(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


async def exchange(
    client: Wire, upstream: Wire, head: ForwardHead, host_line: bytes, more: Sequence[bytes], answer_s: float
) -> None:
    """Returns when the answer has been passed on. Raises BadAnswer, Gone."""
    parts = [f"{head.method} {head.path} HTTP/1.1\r\n".encode("latin-1"), host_line, *head.lines, *more]
    if head.length is None:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif head.length or head.method in ("POST", "PUT", "PATCH"):
        parts.append(b"Content-Length: %d\r\n" % head.length)
    if head.expects_continue:
        parts.append(b"Expect: 100-continue\r\n")
    parts.append(b"Connection: close\r\n\r\n")
    upstream.write(b"".join(parts))
    if head.length == 0:
        await _answer(client, upstream, head, answer_s)
        return
    async with own_tasks() as tasks:
        tasks.start(_body(client, upstream, head), name="body of a request")
        await _answer(client, upstream, head, answer_s)


async def _body(client: Wire, upstream: Wire, head: ForwardHead) -> None:
    left, chunks = head.length, Chunks() if head.length is None else None
    while left != 0:
        piece = await client.piece()
        if not piece:
            upstream.abort()
            return
        if chunks is None:
            piece = piece[:left]
            left = (left or 0) - len(piece)
            upstream.write(piece)
            await upstream.drained()
            continue
        try:
            piece = chunks.feed(piece)
        except BadChunk:
            upstream.abort()
            return
        if piece:
            upstream.write(chunk(piece))
            await upstream.drained()
        if chunks.is_over:
            upstream.write(LAST_CHUNK)
            left = 0


async def _answer(client: Wire, upstream: Wire, head: ForwardHead, answer_s: float) -> None:
    try:
        answer = await _answer_head(client, upstream, head, answer_s)
    except TimeoutError:
        raise BadAnswer(504, f"no answer came within {answer_s:g} s") from None
    except BadHead as error:
        raise BadAnswer(502, f"its answer cannot be understood: {error.why}") from None
    except Gone:
        raise BadAnswer(502, "it hung up without an answer") from None
    parts = [answer.line, *answer.lines]
    if answer.is_chunked:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif answer.length is not None:
        parts.append(b"Content-Length: %d\r\n" % answer.length)
    parts.append(b"Connection: close\r\n\r\n")
    client.write(b"".join(parts))
    if head.method == "HEAD" or answer.status in _BODILESS or answer.length == 0:
        return
    upstream.pipe(client, _last(answer))
    # Whoever is lost takes the other along.
    await upstream.over


async def _answer_head(client: Wire, upstream: Wire, head: ForwardHead, answer_s: float) -> AnswerHead:
    for _ in range(_INTERIM):
        answer = read_answer(await upstream.head(answer_s))
        if answer.status == 101:
            raise BadHead("it switched protocols unasked")
        if answer.status >= 200:
            return answer
        if answer.status == 100 and head.expects_continue:
            client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    raise BadHead("it says over and over that it has begun")


def _last(answer: AnswerHead) -> Callable[[bytes], bool] | None:
    """Says when the last piece of the body has come; None: its connection's end does."""
    if answer.is_chunked:
        chunks = Chunks()

        def is_over(data: bytes) -> bool:
            try:
                chunks.feed(data)
            except BadChunk:
                return True
            return chunks.is_over

        return is_over
    if answer.length is None:
        return None
    left = answer.length

    def is_counted(data: bytes) -> bool:
        nonlocal left
        left -= len(data)
        return left <= 0

    return is_counted
