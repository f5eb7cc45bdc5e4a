"""The same API on real walls: what a fake cannot show."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import tarfile
import time
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest

from sandboxer.backends.supervisor import line
from tests.support.http.flows import flow
from tests.support.http.real import (
    real,  # noqa: F401
    sh,
)
from tests.support.http.served import Served
from tests.support.http.signed import target
from tests.support.http.terminals import dial, read_until


async def test_a_timeout_kills_children_that_ran_away(real: Served) -> None:
    """Another session, re-parented to PID 1, ignoring signals: all of it ends with its command."""
    path = await real.sandbox()
    runaway = "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; sleep 987654' &) ; sleep 987654"
    result = await sh(real, path, runaway, timeout_s=0.5)
    assert result["timed_out"]
    assert result["reason"] == "timed_out"
    assert result["exit_code"] == 137
    left = await sh(real, path, "ps -eo args | grep -c '[9]87654'")
    assert str(left["stdout"]).strip() == "0"


async def test_bash_is_the_shell_and_home_is_the_users(real: Served) -> None:
    path = await real.sandbox()
    assert (await sh(real, path, "[[ a == a ]] && echo $HOME $PWD"))["stdout"] == "/root /workspace\n"
    nobody = await sh(real, path, "id -un; echo $HOME", user="nobody", cwd="/")
    assert str(nobody["stdout"]).startswith("nobody\n")


@pytest.mark.parametrize(
    "size_mb", [200, pytest.param(10_240, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
async def test_endless_output_ends_at_the_limit_and_costs_no_memory(real: Served, size_mb: int) -> None:
    path = await real.sandbox()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    body = {"command": f"head -c {size_mb}M /dev/zero | tr '\\0' x", "timeout_s": 500}
    real.client.http.timeout = httpx.Timeout(550.0)
    answer = await real.client.send("POST", f"{path}/exec", body=body)
    result = answer.json()
    assert result["exit_code"] == 0
    assert result["truncated"]
    assert result["stdout"] == "x" * 1024 * 1024
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 64 * 1024


async def test_a_reader_that_caught_up_is_never_left_waiting(
    real: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little read ahead, reading pauses and resumes thousands of times on the way."""
    monkeypatch.setattr(line, "_READ_AHEAD", 2048)
    path = await real.sandbox()
    result = await sh(real, path, "head -c 150M /dev/zero", timeout_s=25)
    assert result["exit_code"] == 0
    assert result["truncated"]


async def test_output_that_never_ends_is_cut_by_the_timeout(real: Served) -> None:
    path = await real.sandbox()
    result = await sh(real, path, "yes", timeout_s=1, output_limit_bytes=100)
    assert result["timed_out"]
    assert result["stdout"] == "y\n" * 50


async def test_a_client_that_vanishes_mid_stream_leaves_no_process(real: Served) -> None:
    path = await real.sandbox()
    body = {"command": "while true; do echo tick; sleep 0.05; done"}
    async with aclosing(real.client.events("POST", f"{path}/exec", body=body)) as events:
        for _ in range(5):
            await anext(events)
    deadline = time.monotonic() + 5
    while (await real.client.get(f"{path}/usage")).json()["processes"] > 1:
        assert time.monotonic() < deadline, "the command outlived its client"
        await asyncio.sleep(0.05)


async def test_memory_and_disk_limits_are_named_as_reasons(real: Served) -> None:
    path = await real.sandbox(resources={"memory_mb": 64, "disk_mb": 64})
    hog = await sh(real, path, "python3 -c 'x = bytearray(500 << 20)'", timeout_s=30)
    assert hog["exit_code"] != 0
    assert hog["reason"] == "oom_killed"
    full = await sh(real, path, "head -c 200M /dev/zero > /workspace/big")
    assert full["exit_code"] != 0
    wrote = await real.client.put(target(f"{path}/files/content", path="/workspace/more"), b"x" * (100 << 20))
    assert wrote.status_code == 409
    assert wrote.json()["code"] == "disk_full"
    still = await sh(real, path, "rm -f /workspace/big && echo alive")
    assert still["stdout"] == "alive\n"


async def test_a_limit_that_ended_a_process_before_anybody_waited_is_named(real: Served) -> None:
    path = await real.sandbox(resources={"memory_mb": 64, "disk_mb": 64})
    command = "python3 -c 'x = bytearray(500 << 20)'; exit $?"
    started = await real.client.post(f"{path}/processes", {"argv": ["/bin/sh", "-c", command]})
    process = f"{path}/processes/{started.json()['process_id']}"
    deadline = time.monotonic() + 30
    while (seen := (await real.client.get(process)).json())["running"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert (seen["exit_code"], seen["reason"]) == (137, "oom_killed")
    waited = (await real.client.get(f"{process}/wait?timeout_s=5")).json()
    assert waited["reason"] == "oom_killed"
    later = await real.client.post(f"{path}/processes", {"argv": ["/bin/sh", "-c", "exit 137"]})
    process = f"{path}/processes/{later.json()['process_id']}"
    assert (await real.client.get(f"{process}/wait?timeout_s=5")).json()["reason"] is None


@flow("packFolder", "unpackFolder")
async def test_a_folder_leaves_and_enters_as_tar(real: Served) -> None:
    path = await real.sandbox()
    await sh(
        real,
        path,
        "mkdir -p a/b && echo hello > a/b/f && ln -s b a/link && chmod 700 a/b/f && : > $'a/\\xff'",
    )
    packed = await real.client.get(target(f"{path}/files/tar", path="/workspace/a"))
    assert packed.status_code == 200, packed.text
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        assert archive.getmember("./b/f").mode == 0o700
        assert archive.getmember("./link").issym()
    back = await real.client.put(target(f"{path}/files/tar", path="/workspace/new/place"), packed.content)
    assert back.status_code == 200, back.text
    assert back.json()["received_bytes"] == len(packed.content)
    assert (await sh(real, path, "cat new/place/link/f; ls -A /var/tmp | wc -l"))["stdout"] == "hello\n0\n"
    one = await real.client.get(target(f"{path}/files/tar", path="/workspace/a/b/f"))
    with tarfile.open(fileobj=io.BytesIO(one.content)) as archive:
        assert archive.getnames() == ["f"]
    nothing = await real.client.get(target(f"{path}/files/tar", path="/none"))
    assert nothing.status_code == 404
    garbage = await real.client.put(target(f"{path}/files/tar", path="/workspace/g"), b"no tar" * 1000)
    assert garbage.status_code == 422
    assert garbage.json()["code"] == "guest_refused"


async def test_a_tar_whose_bytes_are_wrong_unpacks_nothing(real: Served) -> None:
    path = await real.sandbox()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("evil"), io.BytesIO(b""))
    where = target(f"{path}/files/tar", path="/workspace")
    head = real.owner.head("PUT", where, "0" * 64)
    answer = await real.client.http.put(where, content=buffer.getvalue(), headers=head)
    assert answer.status_code == 401
    assert (await sh(real, path, "ls -A /workspace /var/tmp"))["stdout"] == "/var/tmp:\n\n/workspace:\n"


async def test_links_lead_nowhere_but_inside(real: Served) -> None:
    path = await real.sandbox()
    await sh(real, path, "ln -s ../../../../../../etc/hostname link; ln -s / root; mkfifo pipe")
    inside = await real.client.get(target(f"{path}/files/content", path="/workspace/link"))
    assert inside.status_code in (200, 404)
    if inside.status_code == 200:
        assert inside.text != Path("/etc/hostname").read_text()
    for special in ("/workspace/pipe", "/dev/zero", "/workspace/root"):
        answer = await real.client.get(target(f"{path}/files/content", path=special))
        assert answer.status_code == 422, special
    await sh(real, path, "echo old > target; ln -s target over")
    await real.client.put(target(f"{path}/files/content", path="/workspace/over"), b"new")
    assert (await real.client.get(target(f"{path}/files/content", path="/workspace/over"))).content == b"new"


async def test_a_large_file_goes_in_and_out_unchanged(real: Served) -> None:
    path = await real.sandbox(resources={"disk_mb": 300})
    data = os.urandom(1 << 20) * 100
    where = target(f"{path}/files/content", path="/workspace/large")
    assert (await real.client.put(where, data)).json()["size"] == len(data)
    assert (await real.client.get(where)).content == data
    part = await real.client.get(where, headers={"range": "bytes=52428800-52428899"})
    assert part.content == data[52428800:52428900]


async def test_a_terminal_is_a_real_one(real: Served) -> None:
    path = await real.sandbox()
    async with dial(real, path, cols=91, rows=17) as socket:
        ready = json.loads(await socket.recv())
        await socket.send(b"tty; stty size\n")
        assert b"17 91" in await read_until(socket, b"17 91")
        await socket.send(json.dumps({"type": "resize", "cols": 100, "rows": 20}))
        await socket.send(b"stty size\n")
        await read_until(socket, b"20 100")
        await socket.send(b"MARK=kept$((40+2))\n")
    async with dial(real, path, terminal_id=ready["terminal_id"]) as socket:
        await socket.recv()
        await socket.send(b"echo $MARK\n")
        await read_until(socket, b"kept42")
        await socket.send(b"exit 3\n")
        frames = [frame async for frame in socket]
    assert json.loads(str(frames[-1]))["exit_code"] == 3


async def test_a_watch_sees_what_commands_do(real: Served) -> None:
    path = await real.sandbox()
    where = target(f"{path}/files/watch", path="/workspace", recursive=True)
    async with aclosing(real.client.events("GET", where)) as events:
        assert (await anext(events)).name == "ready"
        await sh(real, path, "echo x > seen")
        event = await anext(events)
    assert event.data["path"] == "/workspace/seen"


async def test_background_processes_outlive_requests_and_keep_their_output(real: Served) -> None:
    path = await real.sandbox()
    started = await real.client.post(f"{path}/processes", {"command": "seq 3; sleep 300"})
    process = f"{path}/processes/{started.json()['process_id']}"
    async with aclosing(real.client.events("GET", f"{process}/output")) as events:
        assert (await anext(events)).data["data"].startswith("1")
    assert (await real.client.get(process)).json()["running"]
    assert (await real.client.post(f"{process}/signal", {"signal": "TERM"})).status_code == 204
    assert (await real.client.get(f"{process}/wait?timeout_s=10")).json()["signal"] == 15
    assert (await real.client.delete(process)).status_code == 204


async def test_the_supervisor_killed_from_outside_ends_streams_with_a_typed_error(real: Served) -> None:
    path = await real.sandbox()
    body = {"command": "echo up; sleep 600"}
    async with aclosing(real.client.events("POST", f"{path}/exec", body=body)) as events:
        assert (await anext(events)).name == "started"
        await anext(events)
        await real.client.delete(path)
        rest = [event async for event in events]
    assert rest[-1].name == "error"
    assert rest[-1].data["fault"] == "platform"


async def test_a_file_that_the_kernel_makes_up_is_read_whole(real: Served) -> None:
    """It says that it is empty."""
    path = await real.sandbox()
    read = await real.client.get(f"{path}/files/content?path=/proc/version")
    said = await real.client.post(f"{path}/exec", {"argv": ["cat", "/proc/version"]})
    assert (read.status_code, read.text) == (200, said.json()["stdout"])
    assert read.text.startswith("Linux")


async def test_one_that_had_no_room_at_first_has_its_files_when_it_is_made_again(real: Served) -> None:
    """Its first disk was never made: what it would have begun with is not on the second."""
    wanted = {"profile": "profile.e2b", "network": "open", "resources": {"disk_mb": 400}}
    made = [await real.client.post("/v1/sandboxes", wanted)]
    while made[-1].status_code == 201:
        made.append(await real.client.post("/v1/sandboxes", wanted))
    refused = made.pop()
    assert (refused.status_code, refused.json()["code"]) == (503, "no_capacity")
    for one in made:
        assert (await real.client.delete(f"/v1/sandboxes/{one.json()['id']}")).status_code == 200
    path = f"/v1/sandboxes/{refused.json()['sandbox_id']}"
    again = await real.client.post(f"{path}/recreate")
    assert again.status_code == 200, again.text
    found = await sh(real, path, "grep -c BEGIN /etc/sandboxer/egress/ca-bundle.pem; sudo -u user id -un")
    count, user = str(found["stdout"]).split()
    assert (int(count) > 1, user) == (True, "user")
