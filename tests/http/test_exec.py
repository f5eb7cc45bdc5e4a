"""Commands over HTTP: buffered and streamed, their limits and their ends."""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import aclosing

import pytest

from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually
from tests.support.http.signed import ServerEvent


def running(served: Served, path: str) -> int:
    box = served.backend.boxes[path.rsplit("/", 1)[1]]
    return sum(job.exit is None for job in box.jobs.values())


@flow("runCommand")
async def test_a_command_runs_and_its_output_comes_back(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", {"command": "echo hi; echo oops >&2; false"})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result.pop("duration_ms") >= 0
    assert result == {
        "exit_code": 1,
        "stdout": "hi\n",
        "stderr": "oops\n",
        "timed_out": False,
        "truncated": False,
        "reason": None,
        "encoding": "utf-8",
        "stdin_bytes": None,
    }


async def test_argv_needs_no_shell_and_gets_stdin_cwd_env_and_user(served: Served) -> None:
    path = await served.sandbox(env={"COLOUR": "red", "SIZE": "big"})
    client = served.client
    assert (await client.post(f"{path}/exec", {"argv": ["cat"], "stdin": "in"})).json()["stdout"] == "in"
    raw = base64.b64encode(b"\xff\x00").decode()
    body = {"argv": ["cat"], "stdin": raw, "stdin_encoding": "base64", "encoding": "base64"}
    assert (await client.post(f"{path}/exec", body)).json()["stdout"] == raw
    assert (await client.post(f"{path}/exec", {"argv": ["pwd"], "cwd": "/tmp"})).json()["stdout"] == "/tmp\n"
    assert (await client.post(f"{path}/exec", {"argv": ["pwd"]})).json()["stdout"] == "/workspace\n"
    env = (await client.post(f"{path}/exec", {"argv": ["env"], "env": {"SIZE": "small"}})).json()["stdout"]
    assert "COLOUR=red\n" in env
    assert "SIZE=small\n" in env
    who = await client.post(f"{path}/exec", {"argv": ["id", "-un"], "user": "nobody"})
    assert who.json()["stdout"] == "nobody\n"


async def test_without_a_workspace_a_command_starts_in_the_root(served: Served) -> None:
    path = await served.sandbox()
    await served.client.post(f"{path}/files/remove", {"path": "/workspace", "recursive": True})
    assert (await served.client.post(f"{path}/exec", {"argv": ["pwd"]})).json()["stdout"] == "/\n"
    refused = await served.client.post(f"{path}/exec", {"argv": ["pwd"], "cwd": "/workspace"})
    assert refused.status_code == 404
    assert refused.json()["code"] == "path_not_found"


async def test_broken_utf8_becomes_replacement_characters_unless_base64_is_asked_for(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "printf '\\377ok'"}
    assert (await served.client.post(f"{path}/exec", body)).json()["stdout"] == "\ufffdok"
    exact = (await served.client.post(f"{path}/exec", {**body, "encoding": "base64"})).json()
    assert base64.b64decode(exact["stdout"]) == b"\xffok"


async def test_a_timeout_kills_the_command_and_says_so(served: Served) -> None:
    path = await served.sandbox()
    began = time.monotonic()
    answer = await served.client.post(f"{path}/exec", {"command": "echo begun; sleep 60", "timeout_s": 0.3})
    assert time.monotonic() - began < 10
    result = answer.json()
    assert result["timed_out"]
    assert result["reason"] == "timed_out"
    assert result["stdout"] == "begun\n"
    assert result["exit_code"] == 137
    assert running(served, path) == 0


async def test_output_past_the_limit_is_dropped_and_the_command_still_ends(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", {"command": "seq 200000", "output_limit_bytes": 10})
    result = answer.json()
    assert result["stdout"] == "1\n2\n3\n4\n5\n"
    assert result["truncated"]
    assert result["exit_code"] == 0
    none = await served.client.post(f"{path}/exec", {"command": "echo x", "output_limit_bytes": 0})
    assert none.json()["stdout"] == ""
    assert none.json()["truncated"]


async def test_a_streamed_command_tells_its_start_its_output_and_its_end(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "echo one; echo two >&2; printf 'caf\\303\\251'"}
    events = [event async for event in served.client.events("POST", f"{path}/exec", body=body)]
    assert [events[0].name, events[-1].name] == ["started", "exit"]
    assert _text(events, "stdout") == "one\ncafé"
    assert _text(events, "stderr") == "two\n"
    assert events[-1].data["exit_code"] == 0
    assert events[0].data["pid"] > 0


async def test_the_stream_parameter_does_what_the_accept_header_does(served: Served) -> None:
    path = await served.sandbox()
    events = served.client.events(
        "POST", f"{path}/exec?stream=true", body={"argv": ["echo"]}, headers={"accept": "*/*"}
    )
    assert [event.name async for event in events][-1] == "exit"


async def test_a_character_cut_in_two_is_told_whole(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "printf '\\303'; sleep 0.2; printf '\\251'; printf '\\342\\202'"}
    events = [event async for event in served.client.events("POST", f"{path}/exec", body=body)]
    assert _text(events, "stdout") == "é\ufffd"


async def test_a_streamed_timeout_is_told_in_the_exit(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "sleep 60", "timeout_s": 0.2}
    events = [event async for event in served.client.events("POST", f"{path}/exec", body=body)]
    assert events[-1].name == "exit"
    assert events[-1].data["timed_out"]


async def test_a_client_that_vanishes_takes_its_streamed_command_along(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "sleep 600"}
    async with aclosing(served.client.events("POST", f"{path}/exec", body=body)) as events:
        assert (await anext(events)).name == "started"
        assert running(served, path) == 1
    await eventually(lambda: running(served, path) == 0)


async def test_a_client_that_vanishes_takes_its_buffered_command_along(served: Served) -> None:
    path = await served.sandbox()
    request = served.client.request("POST", f"{path}/exec", body={"command": "sleep 600"})
    waiting = asyncio.create_task(served.client.http.send(request))
    await eventually(lambda: running(served, path) == 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    await eventually(lambda: running(served, path) == 0)


async def test_a_stream_ends_with_a_typed_error_when_the_sandbox_dies(served: Served) -> None:
    path = await served.sandbox()
    body = {"command": "echo up; sleep 600"}
    async with aclosing(served.client.events("POST", f"{path}/exec", body=body)) as events:
        assert (await anext(events)).name == "started"
        assert (await anext(events)).name == "stdout"
        await served.client.delete(path)
        rest = [event async for event in events]
    assert rest[-1].name in ("error", "exit")
    if rest[-1].name == "error":
        assert rest[-1].data["fault"] == "platform"
        assert rest[-1].data["code"]
    else:
        assert rest[-1].data["exit_code"] != 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"command": "true", "argv": ["true"]},
        {"argv": []},
        {"argv": ["a\x00b"]},
        {"command": "true", "timeout_s": 0},
        {"command": "true", "timeout_s": 1e9},
        {"command": "true", "cwd": "relative"},
        {"command": "true", "output_limit_bytes": -1},
        {"command": "true", "stdin": "%%%", "stdin_encoding": "base64"},
        {"command": "true", "user": "no such user"},
        {"command": 5},
        {"command": "true", "typo": 1},
    ],
)
async def test_a_command_that_makes_no_sense_is_refused(served: Served, body: dict[str, object]) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "invalid_request"


async def test_a_program_that_does_not_exist_is_named(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", {"argv": ["/no/such/program"]})
    assert answer.status_code == 404
    assert answer.json()["code"] == "path_not_found"


def _text(events: list[ServerEvent], name: str) -> str:
    return "".join(event.data["data"] for event in events if event.name == name)
