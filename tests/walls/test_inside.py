"""`/run/sandboxer` tells a sandbox where it is. Nobody inside can change it, it is in no disk, and no two
sandboxes share it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.guest import Described
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.tools import CLIENT
from sandboxer.kernel.errors import GuestRefused, TooLarge
from sandboxer.kernel.values import new_id
from tests.support.walls import Maker, Sandbox, order_for

pytestmark = pytest.mark.asyncio(loop_scope="session")
FILE = "/run/sandboxer/sandbox.json"


async def describe(box: Sandbox, **files: str) -> None:
    guest = await box.guest()
    assert isinstance(guest, Described)
    await guest.describe({name.replace("_", "."): content for name, content in files.items()})


@pytest_asyncio.fixture(loop_scope="session")
async def provision(backend: NamespacesBackend) -> AsyncIterator[Callable[..., Awaitable[Sandbox]]]:
    made: list[str] = []

    async def provision(**words: object) -> Sandbox:
        order = replace(order_for(), **words)  # type: ignore[arg-type]
        made.append(order.sandbox_id)
        return Sandbox(backend, await backend.provision(order), order)

    yield provision
    for sandbox_id in made:
        await backend.teardown(sandbox_id)


async def test_what_the_host_writes_is_read_inside_by_everybody(attacker: Sandbox) -> None:
    await describe(attacker, sandbox_json='{"id": 1}', README="hello")
    ran = await attacker.sh(f"cat {FILE} /run/sandboxer/README; ls -ld {FILE} /run/sandboxer", user="nobody")
    assert ran.stdout.startswith('{"id": 1}hello'), ran.stderr
    assert "-r--r--r-- 1 root root" in ran.stdout
    await describe(attacker, sandbox_json='{"id": 2}')
    assert (await attacker.sh(f"cat {FILE} /run/sandboxer/README")).stdout == '{"id": 2}hello'


@pytest.mark.parametrize(
    "attack",
    [
        f"echo forged > {FILE}",
        f"rm -f {FILE}",
        f"chmod 666 {FILE}",
        f"chown nobody {FILE}",
        f"ln {FILE} /root/other",
        "touch /run/sandboxer/more",
        "mv /run/sandboxer /run/else",
        "rmdir /run/sandboxer",
        "mount -o remount,rw /run/sandboxer",
        "umount /run/sandboxer",
        "mount -t tmpfs none /run/sandboxer",
        "ls /proc/1/fd/9/ && echo forged > /proc/1/fd/9/sandbox.json",
        f"setfattr -n user.x -v y {FILE} || python3 -c \"import os; os.setxattr('{FILE}', 'user.x', b'y')\"",
    ],
)
async def test_root_inside_cannot_change_it(attacker: Sandbox, attack: str) -> None:
    await describe(attacker, sandbox_json="true words")
    ran = await attacker.sh(attack)
    assert ran.code != 0, attack
    assert (await attacker.sh(f"cat {FILE}; ls -A /run/sandboxer | sort | head -3")).stdout.startswith(
        "true words"
    )


async def test_a_program_with_namespaces_of_its_own_cannot_change_it(provision: Maker) -> None:
    box = await provision(nests=True)
    await describe(box, sandbox_json="true words")
    ran = await box.sh(
        "unshare -Urm sh -c 'mount -o remount,rw,bind /run/sandboxer; mkdir /tmp/b;"
        " mount --bind /run/sandboxer /tmp/b; mount -o remount,rw,bind /tmp/b;"
        " echo forged > /tmp/b/sandbox.json;"
        f" echo forged > {FILE}; umount /run/sandboxer'; cat {FILE}"
    )
    assert ran.stdout.endswith("true words"), ran.stdout + ran.stderr


async def test_it_is_in_no_disk_and_a_copy_has_none_of_its_origin(
    provision: Maker, backend: NamespacesBackend
) -> None:
    box = await provision()
    await describe(box, sandbox_json="of the origin")
    upper = Path(backend.dependencies.pool.disk(box.id)) / "upper"
    found = [path for _, folders, files in os.walk(upper) for path in (*folders, *files)]
    assert not {"sandboxer", "sandbox.json"} & set(found)
    kept = new_id("snp")
    await backend.take(box.handle, kept)
    try:
        copy = await provision(origin=kept)
        assert (await copy.sh("ls -A /run/sandboxer")).stdout == ""
    finally:
        await backend.drop(kept)


async def test_a_sandbox_that_was_stopped_has_none_until_it_is_told_again(
    make: Maker, backend: NamespacesBackend
) -> None:
    box = await make()
    await describe(box, sandbox_json="before")
    await backend.stop(box.handle)
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    assert (await again.sh("ls -A /run/sandboxer")).stdout == ""
    await describe(again, sandbox_json="after")
    assert (await again.sh(f"cat {FILE}")).stdout == "after"


async def test_a_link_in_its_place_is_not_followed_and_keeps_no_sandbox_from_starting(
    make: Maker, backend: NamespacesBackend
) -> None:
    box = await make()
    await box.sh("mv /run /run.was; mkdir /tmp/target /tmp/target/sandboxer; ln -s /tmp/target /run")
    await backend.stop(box.handle)
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    await describe(again, sandbox_json="unseen")
    assert (await again.sh("ls -A /tmp/target/sandboxer /run.was/sandboxer; echo runs")).stdout.endswith(
        "runs\n"
    )


async def test_names_and_sizes_are_bounded(make: Maker) -> None:
    box = await make()
    guest = await box.guest()
    assert isinstance(guest, Described)
    for name in ("../x", "a/b", ".hidden", "", "x" * 65):
        with pytest.raises(GuestRefused):
            await guest.describe({name: "x"})
    with pytest.raises((GuestRefused, TooLarge)):
        await guest.describe({"large": "x" * 70_000})
    # More of them than the folder has room for.
    with pytest.raises(GuestRefused):
        await guest.describe({f"file{n}": "x" * 60_000 for n in range(40)})
    assert (await box.sh("echo runs on")).stdout == "runs on\n"


async def test_readers_see_one_whole_text_or_the_other(attacker: Sandbox) -> None:
    long, short = "l" * 20_000, "s" * 3
    await describe(attacker, sandbox_json=long)
    reading = asyncio.ensure_future(
        attacker.python(
            f"seen = {{len(open('{FILE}').read()) for _ in range(20000)}}\n"
            "print(sorted(seen - {3, 20000}))",
            timeout_s=60,
        )
    )
    while not reading.done():
        await describe(attacker, sandbox_json=short)
        await describe(attacker, sandbox_json=long)
    assert (await reading).stdout == "[]\n", (await reading).stderr


async def test_an_image_with_a_program_of_the_clients_name_keeps_its_own(
    provision: Maker, backend: NamespacesBackend
) -> None:
    box = await provision()
    await box.sh(f"rm -f /{CLIENT}; printf '#!/bin/sh\\necho mine\\n' > /{CLIENT}; chmod 755 /{CLIENT}")
    kept = new_id("snp")
    await backend.take(box.handle, kept)
    try:
        copy = await provision(origin=kept)
        assert (await copy.sh("sandboxer")).stdout == "mine\n"
    finally:
        await backend.drop(kept)
