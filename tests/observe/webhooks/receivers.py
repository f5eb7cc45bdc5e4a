"""Receivers of every temper, on real sockets: they accept, refuse, dawdle, redirect, babble and hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def status(code: int, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d Whatever\r\ncontent-length: 0\r\n%s\r\n" % (code, extra)


@dataclass
class Got:
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    port: int = 0
    got: list[Got] = field(default_factory=list)
    # What to answer to the n-th request (from 0); None: never, b"": hang up.
    answer: Callable[[int], bytes | None] = lambda number: GOOD
    # How long it takes before each answer.
    pause_s: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [one.headers["webhook-id"] for one in self.got]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.got.append(Got(head[0].split(" ")[1], headers, body))
                said = self.answer(len(self.got) - 1)
                if said is None:
                    await reader.read()
                    return
                if not said:
                    return
                await asyncio.sleep(self.pause_s)
                writer.write(said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(answer: Callable[[int], bytes | None] | None = None) -> AsyncIterator[Receiver]:
    made = Receiver()
    if answer is not None:
        made.answer = answer
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
