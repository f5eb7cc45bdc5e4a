"""Answers with much text in them: put into JSON piece by piece as they are sent.

In JSON a control character takes six bytes: 64 MiB of zeros made whole would be 400 MB of answer at once, and
nobody else would be served meanwhile. Here few pieces exist at a time, and others are served between them.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxer.edges.http.disconnect import until_client_goes

# A multiple of three, so that pieces of base 64 follow each other without padding.
PIECE = 48 * 1024


class LargeAnswer(Response):
    """`model` with the fields in `large` told in pieces, written as `encoding` says."""

    media_type = "application/json"

    def __init__(self, model: BaseModel, large: Mapping[str, bytes | bytearray], encoding: str) -> None:
        super().__init__(status_code=200)
        del self.headers["content-length"]
        self._rest = model.model_dump_json(exclude=set(large)).encode()
        self._large = large
        self._encoding = encoding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with until_client_goes(receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for piece in self._pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                # Sending waits only for a slow reader; a quick one must not keep the loop for itself.
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pieces(self) -> Iterator[bytes]:
        before = b"{"
        for name, data in self._large.items():
            yield before + json.dumps(name).encode() + b':"'
            yield from in_pieces(data, self._encoding)
            before = b'",'
        yield before + self._rest[1:] if self._rest != b"{}" else b'"}'


def in_pieces(data: bytes | bytearray, encoding: str) -> Iterator[bytes]:
    """The inside of a JSON string."""
    view = memoryview(data)
    if encoding != "utf-8":
        for start in range(0, len(data), PIECE):
            yield base64.b64encode(view[start : start + PIECE])
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(data), PIECE):
        is_last = start + PIECE >= len(data)
        text = decoder.decode(bytes(view[start : start + PIECE]), final=is_last)
        yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
