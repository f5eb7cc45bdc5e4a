"""Background processes over HTTP."""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import aclosing

from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually


@flow("startProcess", "listProcesses", "getProcess", "waitProcess", "attachProcess", "endProcess")
async def test_a_process_is_started_listed_awaited_read_and_removed(served: Served) -> None:
    path = await served.sandbox()
    client = served.client
    started = await client.post(f"{path}/processes", {"command": "echo out; echo err >&2", "tag": "job"})
    assert started.status_code == 201, started.text
    process = f"{path}/processes/{started.json()['process_id']}"
    ended = (await client.get(f"{process}/wait?timeout_s=10")).json()
    assert not ended["running"]
    assert ended["exit_code"] == 0
    assert [p["tag"] for p in (await client.get(f"{path}/processes")).json()["processes"]] == ["job"]
    assert (await client.get(process)).json()["process_id"] == started.json()["process_id"]
    events = [event async for event in client.events("GET", f"{process}/output")]
    assert {e.name: e.data["data"] for e in events[:-1]} == {"stdout": "out\n", "stderr": "err\n"}
    assert events[-1].name == "exit"
    assert (await client.delete(process)).status_code == 204
    assert (await client.get(process)).status_code == 404


@flow("writeStdin", "closeStdin")
async def test_stdin_is_written_in_pieces_and_closed(served: Served) -> None:
    path = await served.sandbox()
    client = served.client
    started = await client.post(f"{path}/processes", {"argv": ["cat"], "has_stdin": True})
    process = f"{path}/processes/{started.json()['process_id']}"
    written = await client.post(f"{process}/stdin", {"data": "one "})
    assert written.json() == {"written_bytes": 4, "closed": False}
    raw = base64.b64encode(b"two").decode()
    assert (await client.post(f"{process}/stdin", {"data": raw, "encoding": "base64"})).status_code == 200
    assert (await client.delete(f"{process}/stdin")).status_code == 204
    events = [event async for event in client.events("GET", f"{process}/output")]
    assert "".join(e.data["data"] for e in events if e.name == "stdout") == "one two"


@flow("signalProcess")
async def test_a_signal_ends_it_and_the_exit_names_the_signal(served: Served) -> None:
    path = await served.sandbox()
    started = await served.client.post(f"{path}/processes", {"argv": ["sleep", "600"]})
    process = f"{path}/processes/{started.json()['process_id']}"
    assert (await served.client.get(f"{process}/wait?timeout_s=0")).json()["running"]
    assert (await served.client.post(f"{process}/signal", {"signal": "TERM"})).status_code == 204
    ended = (await served.client.get(f"{process}/wait?timeout_s=10")).json()
    assert ended["signal"] == 15
    assert ended["exit_code"] == 143
    assert (await served.client.post(f"{process}/signal", {"signal": "TERM"})).status_code == 204


async def test_wait_answers_in_time_while_it_still_runs(served: Served) -> None:
    path = await served.sandbox()
    started = await served.client.post(f"{path}/processes", {"argv": ["sleep", "600"]})
    process = f"{path}/processes/{started.json()['process_id']}"
    began = time.monotonic()
    assert (await served.client.get(f"{process}/wait?timeout_s=0.2")).json()["running"]
    assert time.monotonic() - began < 5
    killed = await served.client.post(f"{process}/signal", {"signal": "KILL", "tree": True})
    assert killed.status_code == 204
    assert (await served.client.get(f"{process}/wait")).json()["exit_code"] == 137


async def test_output_is_read_on_from_where_a_reader_stopped(served: Served) -> None:
    path = await served.sandbox()
    started = await served.client.post(f"{path}/processes", {"command": "echo one; sleep 0.5; echo two"})
    process = f"{path}/processes/{started.json()['process_id']}"
    async with aclosing(served.client.events("GET", f"{process}/output")) as events:
        first = await anext(events)
    assert first.data["data"] == "one\n"
    assert first.id == "4.0"
    for again in (
        served.client.events("GET", f"{process}/output?after={first.id}"),
        served.client.events("GET", f"{process}/output", headers={"last-event-id": str(first.id)}),
    ):
        rest = [event async for event in again]
        assert "".join(e.data["data"] for e in rest if e.name == "stdout") == "two\n"
        assert rest[-1].name == "exit"


async def test_a_time_limit_ends_a_background_process(served: Served) -> None:
    path = await served.sandbox()
    started = await served.client.post(f"{path}/processes", {"argv": ["sleep", "600"], "timeout_s": 0.3})
    assert started.json()["deadline"]
    process = f"{path}/processes/{started.json()['process_id']}"
    ended = (await served.client.get(f"{process}/wait?timeout_s=10")).json()
    assert ended["timed_out"]
    assert ended["reason"] == "timed_out"


async def test_execs_and_terminals_are_not_among_the_processes(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "sleep 600"}
    async with aclosing(served.client.events("POST", f"{path}/exec", body=body)) as events:
        started = await anext(events)
        assert (await served.client.get(f"{path}/processes")).json()["processes"] == []
        one = await served.client.get(f"{path}/processes/{started.data['process_id']}")
        assert one.status_code == 404


async def test_a_reader_that_leaves_does_not_end_the_process(served: Served) -> None:
    path = await served.sandbox()
    started = await served.client.post(f"{path}/processes", {"command": "echo up; sleep 600"})
    process = f"{path}/processes/{started.json()['process_id']}"
    async with aclosing(served.client.events("GET", f"{process}/output")) as events:
        await anext(events)
    box = served.backend.boxes[path.rsplit("/", 1)[1]]
    await eventually(lambda: sum(job.exit is None for job in box.jobs.values()) == 1)
    assert (await served.client.get(process)).json()["running"]


async def test_what_does_not_exist_is_not_found(served: Served) -> None:
    path = await served.sandbox()
    nothing = f"{path}/processes/prc_none"
    for method, suffix, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/wait", None),
        ("GET", "/output", None),
        ("POST", "/stdin", {"data": ""}),
        ("POST", "/signal", {"signal": "TERM"}),
    ):
        answer = await served.client.send(method, nothing + suffix, body=body)
        assert answer.status_code == 404, (method, suffix, answer.text)
    refused = await served.client.post(f"{path}/processes", {"command": "true", "tag": "@exec"})
    assert refused.status_code == 422


async def test_what_is_there_is_read_without_waiting_for_more(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "echo out; echo err >&2; exec cat", "has_stdin": True}
    started = await served.client.post(f"{path}/processes", body)
    process = f"{path}/processes/{started.json()['process_id']}"
    events = []
    async with asyncio.timeout(20):
        while len(events) < 2:
            events = [event async for event in served.client.events("GET", f"{process}/output?follow=false")]
    assert {e.name: e.data["data"] for e in events} == {"stdout": "out\n", "stderr": "err\n"}
    assert (await served.client.get(process)).json()["running"]
