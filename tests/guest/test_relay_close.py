"""A stream that is closed right after it was written to delivers what was written."""

from __future__ import annotations

import asyncio

from sandboxer.backends.guest import Command
from tests.support.guest import Box, collect, eventually

SIZE = 2_000_000
COUNTS = (
    "import socket,time\n"
    "s=socket.socket(socket.AF_UNIX); s.bind('/mnt/socket'); s.listen(); c,_=s.accept()\n"
    "time.sleep(0.5); n=0\n"
    "while d:=c.recv(65536): n+=len(d)\n"
    "print(n)"
)


async def test_who_sends_and_hangs_up_at_once_loses_nothing(box: Box) -> None:
    async with await box.guest.run(Command(argv=["python3", "-c", COUNTS])) as process, asyncio.timeout(20):

        async def is_up() -> bool:
            return (box.root / "socket").exists()

        await eventually(is_up)
        connection = await box.guest.connect_socket("/mnt/socket")
        await connection.write(bytes(SIZE - 300_000))
        await connection.write(bytes(300_000))
        await connection.close()
        said = await collect(process.output())
    assert said.stdout == f"{SIZE}\n".encode()
