"""Programs run through `execute`, at once and as jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.http.served import Served
from tests.support.http.signed import Client


async def run(client: Client, body: dict[str, object]) -> dict[str, Any]:
    answer = await client.post("/v1/execute", body)
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


async def submit(client: Client, body: dict[str, object]) -> str:
    answer = await client.post("/v1/execute/async", body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    return str(answer.json()["id"])


async def look(client: Client, job_id: str, wait_s: float = 0) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job_id}" + (f"?wait_s={wait_s:g}" if wait_s else ""))
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def until(client: Client, job_id: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            job = await look(client, job_id)
            if is_so(job):
                return job
            await asyncio.sleep(0.01)


def printed(job: dict[str, Any]) -> str:
    return str((job["result"] or {}).get("stdout", ""))


SMALL = {"disk_mb": 64, "memory_mb": 128}


async def nothing_left(served: Served) -> None:
    backend = served.platform.backends["ext.namespaces"]
    async with asyncio.timeout(10):
        while True:
            if not await backend.inventory():
                return
            await asyncio.sleep(0.05)


LISTENS = "echo up; python3 -c '# scripted: echo-server 9000'"


HELLO = {
    "name": "hello",
    "command": LISTENS,
    "port": 9000,
    "health": {"interval_s": 0.2},
    "stop_timeout_s": 1,
}
