"""Bytes on their way out of a sandbox: sent piece by piece, never held, never cut short silently."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxer.edges.http.hanging_up import until_client_goes
from sandboxer.edges.http.problems import request_id_of
from sandboxer.kernel.errors import SandboxerError

log = logging.getLogger(__name__)


class Download(Response):
    """With `length`: exactly that many bytes, or a broken connection. Without: until the source ends."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        *,
        headers: Mapping[str, str],
        media_type: str,
        status: int = 200,
        length: int | None = None,
    ) -> None:
        super().__init__(status_code=status, headers=headers, media_type=media_type)
        self._source = cast(AsyncGenerator[bytes, None], source)
        self._length = length
        if length is None:
            del self.headers["content-length"]
        else:
            self.headers["content-length"] = str(length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Without a watch for it, sending to a client that went away succeeds to the last byte.
        async with aclosing(self._source) as source, until_client_goes(receive):
            # What fails before the first byte is still an ordinary problem.
            chunk = await anext(source, b"")
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            sent = 0
            try:
                while chunk:
                    sent += len(chunk)
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = await anext(source, b"")
            except SandboxerError as error:
                log.warning("download cut short (%s): %s", request_id_of(scope), error)
                return
            if self._length is not None and sent != self._length:
                # The file shrank meanwhile; an unfinished answer is the only honest one.
                log.warning(
                    "download cut short (%s): %d of %d bytes", request_id_of(scope), sent, self._length
                )
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})
