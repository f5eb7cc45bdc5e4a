"""Two sandboxes share no kernel object that either could write, lock or watch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.contract import VolumeMount
from sandboxer.backends.guest import Command, Exit, Output
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.values import new_id
from tests.support.walls import PATH, Maker, Sandbox, order_for

pytestmark = pytest.mark.asyncio(loop_scope="session")
PROGRAM = (Path(__file__).parent / "shared_objects.py").read_text()
Pair = tuple[Sandbox, Sandbox]


@pytest_asyncio.fixture(loop_scope="session")
async def pair(backend: NamespacesBackend) -> AsyncIterator[Pair]:
    """Two that share all that two may: an image, and a volume that both read."""
    volume_id = new_id("vol")
    await backend.make_volume(volume_id, size_mb=32)
    writer = replace(order_for(), volumes=(VolumeMount(volume_id=volume_id, path="/data"),))
    first = Sandbox(backend, await backend.provision(writer), writer)
    await first.sh("echo shared > /data/file; mkdir /data/folder")
    await backend.teardown(first.id)
    made = []
    for _ in range(2):
        mount = VolumeMount(volume_id=volume_id, path="/data", is_read_only=True)
        order = replace(order_for(), volumes=(mount,))
        made.append(Sandbox(backend, await backend.provision(order), order))
    yield made[0], made[1]
    for box in made:
        await backend.teardown(box.id)
    await backend.drop_volume(volume_id)


async def survey(box: Sandbox) -> dict[str, str]:
    ran = await box.run("/usr/bin/python3", "-c", PROGRAM, "survey", timeout_s=60)
    assert ran.code == 0, ran.stderr
    seen: dict[str, str] = {}
    for line in ran.stdout.splitlines():
        key, path = line.split(" ", 1)
        seen.setdefault(key, path)
    return seen


async def test_no_inode_that_a_path_leads_to_is_in_two_sandboxes(pair: Pair) -> None:
    one, two = [await survey(box) for box in pair]
    assert {"/dev/null", "/proc/self/ns/time", "/data/file", "/bin/sh"} <= set(one.values())
    assert {one[key]: two[key] for key in one.keys() & two.keys()} == {}


async def test_no_inode_inside_is_one_of_the_hosts_devices_or_namespaces(pair: Pair) -> None:
    inside = await survey(pair[0])
    places = [f"/dev/{name}" for name in os.listdir("/dev")]
    places += [f"/proc/self/ns/{name}" for name in os.listdir("/proc/self/ns")]
    hosts = {f"{seen.st_dev:x}:{seen.st_ino}": place for place, seen in _seen(places)}
    assert {inside[key]: hosts[key] for key in inside.keys() & hosts.keys()} == {}


def _seen(places: list[str]) -> list[tuple[str, os.stat_result]]:
    return [(place, os.stat(place)) for place in places if os.path.exists(place)]


async def test_locks_and_watches_of_one_sandbox_say_nothing_about_another(pair: Pair) -> None:
    watcher, other = pair
    argv = ["/usr/bin/python3", "-c", PROGRAM]
    command = Command(argv=[*argv, "hold"], env=PATH, has_stdin=True, keep=False)
    text = ""
    async with asyncio.timeout(60), await (await watcher.guest()).run(command) as process:
        async for item in process.output():
            if isinstance(item, Exit):
                assert item.code == 0, text
                break
            assert isinstance(item, Output)
            text += item.data.decode()
            if text.startswith("held") and text.count("\n") == 1 and "." not in text:
                touched = await other.run(*argv, "touch", timeout_s=60)
                assert touched.stdout == "touched\n", touched.stdout + touched.stderr
                # A birth, too, was seen by all before.
                await _live_and_die(other.backend)
                text += "."
                await process.write_stdin(b"\n")
    held, locks, watches = text.splitlines()[0].split()
    assert held == "held"
    assert int(locks) > 30
    assert int(watches) > 40
    assert text.splitlines()[1:] == ["."]


async def _live_and_die(backend: NamespacesBackend) -> None:
    order = order_for()
    box = Sandbox(backend, await backend.provision(order), order)
    await box.sh("true")
    await backend.teardown(order.sandbox_id)


async def test_the_sandbox_that_is_locked_out_does_hold_its_locks(make: Maker) -> None:
    """The attack itself: within one sandbox it finds everything taken."""
    box = await make()
    command = Command(argv=["/usr/bin/python3", "-c", PROGRAM, "hold"], env=PATH, has_stdin=True, keep=False)
    async with asyncio.timeout(60), await (await box.guest()).run(command) as process:
        outputs = process.output()
        await anext(outputs)
        ran = await box.run("/usr/bin/python3", "-c", PROGRAM, "touch", timeout_s=60)
        acquired = set(ran.stdout.splitlines())
        assert {"/dev/null flock", "/dev/null posix", "/dev/null ofd", "/bin/sh flock"} <= acquired
        await process.write_stdin(b"\n")
        text = "".join([item.data.decode() async for item in outputs if isinstance(item, Output)])
        assert "/dev/null" in text


async def test_fanotify_is_refused(attacker: Sandbox) -> None:
    ran = await attacker.python(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.fanotify_init(0x200, 0), ctypes.get_errno())"
    )
    assert ran.stdout == ("-1 38\n" if attacker.has_own_kernel else "-1 1\n")


async def test_no_path_leads_to_the_supervisors_program(attacker: Sandbox) -> None:
    """All sandboxes run one file: nobody inside can open it, so nobody can lock or watch it."""
    ran = await attacker.sh(
        "exec 3</proc/1/exe; readlink /proc/1/exe; ls /dev/.sandboxer; ls -l /proc/1/map_files"
    )
    assert ran.code != 0
    assert "supervisor" not in ran.stdout


async def test_devices_work_and_belong_to_root_inside(attacker: Sandbox) -> None:
    ran = await attacker.sh(
        "stat -c '%U %t:%T %a' /dev/null /dev/tty; head -c 8 /dev/zero | wc -c; "
        "head -c 8 /dev/urandom | wc -c; "
        "echo gone > /dev/null; echo x > /dev/full || echo full; chmod 600 /dev/null || echo closed"
    )
    # Nobody else has those of a kernel of its own.
    closed = "" if attacker.has_own_kernel else "closed\n"
    assert ran.stdout == f"root 1:3 666\nroot 5:0 666\n8\n8\nfull\n{closed}"
    await attacker.sh("chmod 666 /dev/null")
