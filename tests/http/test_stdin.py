"""What was written to a process's stdin and answered with 200 is there, on real walls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os

import httpx
import pytest

from tests.support.http.real import real
from tests.support.http.served import Served

__all__ = ["real"]
SIZE = 240_000
LATE = "import hashlib,os,sys,time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\n"
COUNTS = LATE + "d=sys.stdin.buffer.read(); print(len(d), hashlib.sha256(d).hexdigest(), flush=True)"


async def start(served: Served, path: str, *argv: str) -> str:
    started = await served.client.post(f"{path}/processes", {"argv": list(argv), "has_stdin": True})
    assert started.status_code == 201, started.text
    assert started.json()["stdin_bytes"] == 0
    return f"{path}/processes/{started.json()['process_id']}"


async def write(served: Served, process: str, data: bytes, **more: object) -> httpx.Response:
    body = {"data": base64.b64encode(data).decode(), "encoding": "base64", **more}
    return await served.client.post(f"{process}/stdin", body)


async def printed(served: Served, process: str) -> str:
    events = [event async for event in served.client.events("GET", f"{process}/output")]
    return "".join(event.data["data"] for event in events if event.name == "stdout")


async def let_read(served: Served, path: str) -> None:
    assert (await served.client.post(f"{path}/exec", {"command": "touch /tmp/go"})).status_code == 200


async def until_taken(served: Served, process: str, least: int) -> int:
    async with asyncio.timeout(10):
        while True:
            taken: int = (await served.client.get(process)).json()["stdin_bytes"]
            if taken >= least:
                return taken
            await asyncio.sleep(0.01)


async def test_a_process_that_reads_late_gets_all_240000_bytes_and_its_end(real: Served) -> None:
    path = await real.sandbox()
    process = await start(real, path, "python3", "-c", COUNTS)
    data = os.urandom(SIZE)

    async def feed() -> list[int]:
        pieces = [data[at : at + 60_000] for at in range(0, SIZE, 60_000)]
        answers = [(await write(real, process, piece)).status_code for piece in pieces]
        return [*answers, (await real.client.delete(f"{process}/stdin")).status_code]

    feeding = asyncio.create_task(feed())
    await until_taken(real, process, 60_000)
    await let_read(real, path)
    assert await feeding == [200, 200, 200, 200, 204]
    assert await printed(real, process) == f"{SIZE} {hashlib.sha256(data).hexdigest()}\n"


async def test_a_client_that_leaves_in_the_middle_can_repeat_its_write(real: Served) -> None:
    path = await real.sandbox()
    process = await start(real, path, "python3", "-c", COUNTS)
    data = os.urandom(SIZE)
    for _ in range(3):
        writing = asyncio.create_task(write(real, process, data, offset=0))
        await until_taken(real, process, 1)
        writing.cancel()
        await asyncio.wait({writing})
    # Nothing that was under way goes on without its client.
    await let_read(real, path)
    again = await write(real, process, data, offset=0, close=True)
    assert again.json() == {"written_bytes": SIZE, "closed": True}
    assert await printed(real, process) == f"{SIZE} {hashlib.sha256(data).hexdigest()}\n"
    gone = await write(real, process, b"more", offset=SIZE)
    assert gone.json()["code"] == "stdin_not_taken"


async def test_a_process_that_takes_only_a_part_is_a_conflict_that_says_how_much(real: Served) -> None:
    path = await real.sandbox()
    process = await start(real, path, "head", "-c", "10")
    answer = await write(real, process, bytes(1 << 20))
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert problem["code"] == "stdin_not_taken"
    assert 0 < problem["taken_bytes"] < 1 << 20
    assert problem["offered_bytes"] == 1 << 20
    assert problem["taken_bytes"] == await until_taken(real, process, 1)


async def test_exec_and_its_stream_tell_how_much_of_their_stdin_was_taken(real: Served) -> None:
    path = await real.sandbox()
    whole = await real.client.post(f"{path}/exec", {"command": "cat | wc -c", "stdin": "x" * SIZE})
    assert (whole.json()["stdout"].strip(), whole.json()["stdin_bytes"]) == (str(SIZE), SIZE)
    part = (await real.client.post(f"{path}/exec", {"command": "head -c 1", "stdin": "x" * 1_000_000})).json()
    assert part["stdout"] == "x"
    assert 0 < part["stdin_bytes"] < 1_000_000
    assert (await real.client.post(f"{path}/exec", {"command": "true"})).json()["stdin_bytes"] is None


@pytest.mark.slow
async def test_a_gigabyte_goes_through_the_api_unharmed(real: Served) -> None:
    path = await real.sandbox()
    process = await start(real, path, "sha256sum")
    piece, whole = os.urandom(4 << 20), hashlib.sha256()
    for number in range(256):
        assert (await write(real, process, piece, offset=number * len(piece))).status_code == 200
        whole.update(piece)
    assert (await real.client.delete(f"{process}/stdin")).status_code == 204
    assert (await printed(real, process)).split()[0] == whole.hexdigest()
