"""One request and its answer, between a client and a port inside. It uses callbacks only: no task, no copy,
no wait.

Bytes from inside are as untrusted as those from outside: an answer is read as strictly as a request, and a
connection that sent more than it was asked for is not used again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from sandboxer.access.http1.framing import LAST_CHUNK, BadChunk, Chunks, chunk
from sandboxer.access.http1.heads import MAX_HEAD, AnswerHead, BadHead, RequestHead, read_answer
from sandboxer.edges.proxy import answers
from sandboxer.edges.proxy.answers import fit
from sandboxer.edges.proxy.doors import Admission
from sandboxer.edges.proxy.upstream import Upstream
from sandboxer.kernel.errors import SandboxerError

_BODILESS = frozenset({204, 304})
# Interim answers (100, 103): a program may send a few, not a stream of them.
MAX_INTERIM = 8


class Client(Protocol):
    """The connection that the request came from."""

    transport: asyncio.Transport

    def answer_began(self) -> None: ...

    def request_sent(self) -> None: ...

    def exchange_over(self, *, keeps_alive: bool) -> None: ...

    def exchange_failed(self, answer: bytes | None) -> None:
        """Called on failure. `answer` is sent if nothing was sent yet; None means to break off."""
        ...

    def retry(self) -> None: ...

    def tunnelled(self) -> None: ...


class Exchange:
    __slots__ = (
        "_admission",
        "_answer",
        "_answer_chunks",
        "_answer_left",
        "_buffer",
        "_client",
        "_held",
        "_interim",
        "_is_chunking",
        "_keeps_alive",
        "_request_chunks",
        "_request_left",
        "_upstream",
        "has_whole_request",
        "head",
        "is_over",
        "is_tunnel",
    )

    def __init__(self, client: Client, head: RequestHead) -> None:
        self._client = client
        self.head = head
        self._admission: Admission
        self._upstream: Upstream | None = None
        self._request_chunks = Chunks() if head.length is None else None
        self._request_left = head.length or 0
        self.has_whole_request = not head.has_body
        self._held = b""
        self._interim = 0
        self._answer: AnswerHead | None = None
        self._answer_chunks: Chunks | None = None
        # Bytes left of the answer; -1 if its end has to be found.
        self._answer_left = 0
        self._is_chunking = False
        self._keeps_alive = head.keeps_alive
        self._buffer = b""
        self.is_tunnel = False
        self.is_over = False

    @property
    def admission(self) -> Admission:
        return self._admission

    @property
    def has_answer_begun(self) -> bool:
        return self._answer is not None

    # ---- towards the sandbox ----

    def begin(self, admission: Admission, upstream: Upstream, forwarded: bytes) -> None:
        self._admission = admission
        self._upstream = upstream
        upstream.user = self
        upstream.requests += 1
        head = self.head
        host = admission.way.target.host
        seen = head.host if host is None else host.encode("latin-1")
        parts = [head.method, b" ", admission.target, b" HTTP/1.1\r\nHost: ", seen, b"\r\n"]
        parts += head.lines
        parts += admission.lines
        parts.append(forwarded)
        if head.length is None:
            parts.append(b"Transfer-Encoding: chunked\r\n")
        elif head.length or head.method in (b"POST", b"PUT", b"PATCH"):
            parts.append(b"Content-Length: %d\r\n" % head.length)
        if head.is_websocket:
            parts.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        if head.expects_continue:
            parts.append(b"Expect: 100-continue\r\n")
        parts.append(b"\r\n")
        data = b"".join(parts)
        admission.way.passage.ingress += len(data)
        upstream.transport.write(data)
        if self.has_whole_request:
            self._client.request_sent()

    def client_data(self, data: bytes) -> bytes:
        """Passes on more of the request's body (or of a tunnel); returns what comes after it."""
        if self.is_tunnel:
            self._send(data)
            return b""
        if self._request_chunks is None:
            piece, rest = data[: self._request_left], data[self._request_left :]
            self._request_left -= len(piece)
            is_whole = not self._request_left
        else:
            try:
                piece = self._request_chunks.feed(data)
            except BadChunk as error:
                self._fail(answers.bad_request(str(error)))
                return b""
            is_whole, rest = self._request_chunks.is_over, self._request_chunks.rest
        self._pass_on(piece, is_whole=is_whole)
        return rest

    def _pass_on(self, piece: bytes, *, is_whole: bool) -> None:
        if (check := self._admission.check) is not None:
            # The last piece of a body with a wrong signature is never passed on, so that nobody can act on
            # it.
            check.update(piece)
            if is_whole:
                try:
                    check.finish()
                except SandboxerError as error:
                    self._fail(answers.of_error(error))
                    return
                piece = self._held + piece
            else:
                piece, self._held = self._held, piece
        if self._request_chunks is not None:
            piece = (chunk(piece) if piece else b"") + (LAST_CHUNK if is_whole else b"")
        if piece:
            self._send(piece)
        if is_whole:
            self.has_whole_request = True
            self._client.request_sent()

    def _send(self, data: bytes) -> None:
        if self._upstream is not None:
            self._admission.way.passage.ingress += len(data)
            self._upstream.transport.write(data)

    def upstream_full(self) -> None:
        self._client.transport.pause_reading()

    def upstream_drained(self) -> None:
        self._client.transport.resume_reading()

    # ---- towards the client ----

    def client_full(self) -> None:
        if self._upstream is not None:
            self._upstream.transport.pause_reading()

    def client_drained(self) -> None:
        if self._upstream is not None and not self._upstream.is_lost:
            self._upstream.transport.resume_reading()

    def upstream_data(self, data: bytes) -> None:
        if self.is_tunnel:
            self._tell(data)
            return
        if self._answer is not None:
            self._body(data, b"")
            return
        data = self._buffer + data if self._buffer else data
        while self._answer is None:
            if (end := data.find(b"\r\n\r\n")) < 0 or end > MAX_HEAD:
                if len(data) > MAX_HEAD:
                    self._fail(answers.bad_answer("its head is too long"))
                self._buffer = data
                return
            try:
                answer = read_answer(data[: end + 4])
            except BadHead as error:
                self._fail(answers.bad_answer(error.why))
                return
            data = data[end + 4 :]
            if not self._head(answer, data):
                return

    def _head(self, answer: AnswerHead, rest: bytes) -> bool:
        """Reads a head. Returns False if nothing more is to be read as a head."""
        if answer.status == 101:
            self._switch(answer, rest)
            return False
        if answer.status < 200:
            return self._interim_answer(answer)
        self._answer = answer
        self._buffer = b""
        self._body(rest, self._opening(answer))
        return False

    def _interim_answer(self, answer: AnswerHead) -> bool:
        self._interim += 1
        if self._interim > MAX_INTERIM:
            self._fail(answers.bad_answer(f"it sent more than {MAX_INTERIM} answers before its answer"))
            return False
        if self.head.is_1_1 and (answer.status != 100 or self.head.expects_continue):
            self._tell(answer.line + b"".join(self._fitted(answer)) + b"\r\n")
        return True

    def _fitted(self, answer: AnswerHead) -> list[bytes]:
        return fit(answer.lines, self._admission.way.origin)

    def _opening(self, answer: AnswerHead) -> bytes:
        """Returns the head for the client, and decides how the body is framed."""
        parts = [answer.line, *self._fitted(answer)]
        is_head = self.head.method == b"HEAD"
        if is_head or answer.status in _BODILESS:
            if answer.length is not None and answer.status != 204:
                parts.append(b"Content-Length: %d\r\n" % answer.length)
            elif is_head and answer.is_chunked:
                parts.append(b"Transfer-Encoding: chunked\r\n")
        elif answer.length is not None:
            self._answer_left = answer.length
            parts.append(b"Content-Length: %d\r\n" % answer.length)
        else:
            self._answer_left = -1
            self._answer_chunks = Chunks() if answer.is_chunked else None
            self._is_chunking = self.head.is_1_1
            if self._is_chunking:
                parts.append(b"Transfer-Encoding: chunked\r\n")
            else:
                self._keeps_alive = False
        if not self.has_whole_request:
            self._keeps_alive = False
        if not self._keeps_alive:
            parts.append(b"Connection: close\r\n")
        elif not self.head.is_1_1:
            parts.append(b"Connection: keep-alive\r\n")
        parts.append(b"\r\n")
        self._client.answer_began()
        return b"".join(parts)

    def _body(self, data: bytes, before: bytes) -> None:
        if self._answer_left >= 0:
            piece, rest = data[: self._answer_left], data[self._answer_left :]
            self._answer_left -= len(piece)
            if before or piece:
                self._tell(before + piece)
            if not self._answer_left:
                self._finish(is_clean=not rest)
            return
        is_last = False
        if self._answer_chunks is not None:
            try:
                data = self._answer_chunks.feed(data)
            except BadChunk:
                self._fail(None)
                return
            is_last = self._answer_chunks.is_over
        if self._is_chunking:
            data = (chunk(data) if data else b"") + (LAST_CHUNK if is_last else b"")
        if before or data:
            self._tell(before + data)
        if is_last and self._answer_chunks is not None:
            self._finish(is_clean=not self._answer_chunks.rest)

    def _tell(self, data: bytes) -> None:
        self._admission.way.passage.egress += len(data)
        self._client.transport.write(data)

    def _switch(self, answer: AnswerHead, rest: bytes) -> None:
        if not self.head.is_websocket or not answer.is_websocket:
            self._fail(answers.bad_answer("it switched protocols unasked"))
            return
        self._answer = answer
        self.is_tunnel = True
        head = (
            answer.line
            + b"".join(self._fitted(answer))
            + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        self._tell(head + rest)
        self._client.tunnelled()

    # ---- ends ----

    def upstream_lost(self) -> None:
        upstream, self._upstream = self._upstream, None
        if self.is_over or upstream is None:
            return
        if self.is_tunnel:
            self._end()
            self._client.exchange_over(keeps_alive=False)
        elif self._answer is None:
            if upstream.requests > 1 and not self._buffer and self._is_repeatable():
                # The connection was closed inside at this moment, so no program has seen this request.
                self._end()
                self._client.retry()
            else:
                self._fail(answers.bad_answer("it hung up without an answer"))
        elif self._answer_left < 0 and self._answer_chunks is None:
            if self._is_chunking:
                self._tell(LAST_CHUNK)
            self._finish(is_clean=False)
        else:
            self._fail(None)

    def abandon(self) -> None:
        """Called when the client has gone or is disconnected."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.close()
        self._end()

    def _is_repeatable(self) -> bool:
        return not self.head.has_body and self.head.method in (b"GET", b"HEAD", b"OPTIONS")

    def _finish(self, *, is_clean: bool) -> None:
        upstream, self._upstream = self._upstream, None
        answer = self._answer
        assert answer is not None
        if upstream is not None:
            if is_clean and answer.keeps_alive and self.has_whole_request and not upstream.is_lost:
                upstream.pool.give_back(upstream)
            else:
                upstream.close()
        self._end()
        self._client.exchange_over(keeps_alive=self._keeps_alive and self.has_whole_request)

    def _fail(self, answer: bytes | None) -> None:
        has_begun = self._answer is not None
        self.abandon()
        self._client.exchange_failed(None if has_begun else answer)

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
