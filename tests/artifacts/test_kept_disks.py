"""Kept disks on real walls: full pools, altered copies, hostile tenants, and the space that is promised."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.contract import Handle, Order, Presence, Resources
from sandboxer.backends.guest import Command, Exit
from sandboxer.backends.namespaces import NamespacesBackend, open_backend
from sandboxer.backends.namespaces.kept.copies import Copies
from sandboxer.backends.namespaces.pool import Pool
from sandboxer.kernel.errors import Conflict, NoCapacity, NotFound
from sandboxer.kernel.values import new_id
from tests.support.real_backend import (
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
MB = 1 << 20


async def forget_all(backend: NamespacesBackend) -> None:
    await clear(backend)
    for disk_id in await backend.kept():
        await backend.drop(disk_id)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dependencies() -> AsyncIterator[NamespacesBackend]:
    require_walls()
    with state_folder() as state:
        async with open_backend(settings_for(state, pool_size_mb=1536)) as opened:
            yield opened
            await forget_all(opened)
        remove_leftovers(opened)


@pytest_asyncio.fixture(loop_scope="module")
async def backend(dependencies: NamespacesBackend) -> AsyncIterator[NamespacesBackend]:
    yield dependencies
    await forget_all(dependencies)
    assert not dependencies.dependencies.heritages.known


async def sh(backend: NamespacesBackend, handle: Handle, script: str) -> str:
    command = Command(
        argv=("/bin/sh", "-c", script), env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}, keep=False
    )
    async with await (await backend.guest(handle)).run(command) as process:
        items = [item async for item in process.output()]
    assert isinstance(items[-1], Exit)
    assert items[-1].code == 0, (script, items)
    return b"".join(item.data for item in items if not isinstance(item, Exit)).decode()


async def box(backend: NamespacesBackend, **changes: object) -> tuple[Order, Handle]:
    order = replace(make_order(), **changes)  # type: ignore[arg-type]
    return order, await backend.provision(order)


async def copy_of(backend: NamespacesBackend, disk_id: str) -> tuple[Order, Handle]:
    return await box(backend, origin=disk_id)


async def kept(backend: NamespacesBackend, handle: Handle) -> str:
    disk_id = new_id("snp")
    await backend.take(handle, disk_id)
    return disk_id


async def test_everything_written_by_then_is_in_it_open_files_and_maps_included(
    backend: NamespacesBackend,
) -> None:
    _, handle = await box(backend)
    script = (
        "import mmap\n"
        "f = open('/root/open', 'wb', buffering=0); f.write(b'o' * 3_000_000)\n"
        "m = open('/root/mapped', 'w+b'); m.truncate(1 << 20)\n"
        "view = mmap.mmap(m.fileno(), 1 << 20); view[:] = b'm' * (1 << 20)\n"
        "print('written', flush=True); input()\n"
    )
    command = Command(argv=("/usr/bin/python3", "-c", script), has_stdin=True)
    async with await (await backend.guest(handle)).run(command) as process:
        async for item in process.output():
            assert not isinstance(item, Exit)
            break
        disk_id = await kept(backend, handle)
        await process.kill()
    _, copy = await copy_of(backend, disk_id)
    assert await sh(backend, copy, "tr -d o < /root/open | wc -c; wc -c < /root/open") == "0\n3000000\n"
    assert await sh(backend, copy, "tr -d m < /root/mapped | wc -c") == "0\n"


async def test_removed_and_renamed_things_of_the_image_stay_so_in_a_copy_in_another_range(
    backend: NamespacesBackend,
) -> None:
    _, handle = await box(backend)
    await sh(
        backend,
        handle,
        "rm /etc/debian_version; mv /usr/share/doc /usr/share/papers; rm -r /etc/apt && mkdir /etc/apt;"
        " useradd -m joe; echo mine > /home/joe/file; chown joe /home/joe/file; chmod 4755 /home/joe/file",
    )
    disk_id = await kept(backend, handle)
    _, copy = await copy_of(backend, disk_id)
    ranges = {each.slot for each in backend.dependencies.known.values()}
    assert len(ranges) == 2
    seen = await sh(
        backend,
        copy,
        "test -e /etc/debian_version || echo removed; test -d /usr/share/doc || echo renamed;"
        " ls /usr/share/papers | head -1 | wc -l; ls /etc/apt | wc -l; stat -c '%U %a' /home/joe/file",
    )
    assert seen.split("\n")[:-1] == ["removed", "renamed", "1", "0", "joe 4755"]


async def test_copies_have_their_own_keys_seeds_and_names_and_keep_the_tenants_hosts(
    backend: NamespacesBackend,
) -> None:
    _, handle = await box(backend)
    await sh(
        backend,
        handle,
        "mkdir -p /etc/ssh /var/lib/systemd; for k in rsa ecdsa ed25519; do"
        " echo old-private > /etc/ssh/ssh_host_${k}_key;"
        " echo old-public > /etc/ssh/ssh_host_${k}_key.pub; done;"
        " echo old > /etc/ssh/ssh_host_dsa_key; echo seed > /var/lib/systemd/random-seed;"
        " echo '10.0.0.1 friend' >> /etc/hosts",
    )
    disk_id = await kept(backend, handle)
    look = "cat /etc/machine-id /etc/hostname /etc/ssh/*.pub; hostname"
    said = []
    for _ in range(2):
        order, copy = await copy_of(backend, disk_id)
        said.append(await sh(backend, copy, look))
        private = await sh(backend, copy, "cat /etc/ssh/ssh_host_*_key")
        assert "old" not in said[-1] + private
        assert private.count("BEGIN OPENSSH PRIVATE KEY") == 3
        assert await sh(backend, copy, "stat -c %a /etc/ssh/ssh_host_ed25519_key") == "600\n"
        assert (
            await sh(backend, copy, "ls /etc/ssh/ssh_host_dsa_key /var/lib/systemd/random-seed 2>&-; true")
            == ""
        )
        hosts = await sh(backend, copy, "cat /etc/hosts")
        assert "10.0.0.1 friend\n" in hosts
        assert f"127.0.1.1\tsbx-{order.sandbox_id[4:16]}\n" in hosts
        assert hosts.count("127.0.1.1") == 1
    assert not set(said[0].splitlines()) & set(said[1].splitlines())


async def test_links_a_tenant_left_lead_no_copy_out_of_its_disk(
    backend: NamespacesBackend, tmp_path: Path
) -> None:
    victim = tmp_path / "etc"
    victim.mkdir()
    (victim / "machine-id").write_text("the host's\n")
    _, handle = await box(backend)
    await sh(
        backend,
        handle,
        f"mkdir -p /var/lib/dbus; mv /etc /etc.old; ln -s {victim} /etc;"
        f" rm -rf /var/lib/dbus; ln -s {victim} /var/lib/dbus",
    )
    disk_id = await kept(backend, handle)
    _, copy = await copy_of(backend, disk_id)
    assert await sh(backend, copy, "echo lives") == "lives\n"
    assert [each.name for each in victim.iterdir()] == ["machine-id"]
    assert (victim / "machine-id").read_text() == "the host's\n"


async def test_a_kept_disk_that_someone_changed_is_refused_and_nothing_else_is_harmed(
    backend: NamespacesBackend,
) -> None:
    order, handle = await box(backend)
    await sh(backend, handle, "echo kept > /root/kept")
    disk_id = await kept(backend, handle)
    where = backend.dependencies.copies.path(disk_id)
    _btrfs("property", "set", "-f", str(where), "ro", "false")
    (where / "upper" / "root" / "kept").write_text("altered\n")
    _btrfs("property", "set", "-f", str(where), "ro", "true")
    with pytest.raises(Conflict, match="not what was kept"):
        await copy_of(backend, disk_id)
    with pytest.raises(Conflict, match="not what was kept"):
        await backend.restore(handle, order, disk_id, start=True)
    assert await sh(backend, handle, "cat /root/kept") == "kept\n"
    await backend.drop(disk_id)
    with pytest.raises(NotFound):
        await backend.restore(handle, order, disk_id, start=True)
    assert await sh(backend, handle, "cat /root/kept") == "kept\n"


async def test_a_full_pool_refuses_a_snapshot_and_leaves_nothing(
    backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, handle = await box(backend)
    await sh(backend, handle, "echo kept > /root/kept")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sandboxer.backends.namespaces.btrfs.snapshot", full)
    with pytest.raises(NoCapacity):
        await kept(backend, handle)
    monkeypatch.undo()
    assert await backend.kept() == []
    assert [name for name in os.listdir(backend.dependencies.pool.path) if name.startswith("snp")] == []
    assert await sh(backend, handle, "cat /root/kept") == "kept\n"
    # Its record cannot be written: the copy goes too.
    monkeypatch.setattr(backend.dependencies.heritages, "write", full)
    with pytest.raises(OSError, match="No space"):
        await kept(backend, handle)
    monkeypatch.undo()
    assert await backend.kept() == []


async def test_a_copy_has_its_own_limit_and_what_nobody_else_covers_stays_promised(
    backend: NamespacesBackend,
) -> None:
    resources = Resources(vcpus=1, memory_mb=128, disk_mb=64, pids=64)
    order, handle = await box(backend, resources=resources)
    await sh(backend, handle, "dd if=/dev/zero of=/root/big bs=1M count=40 2>/dev/null; sync")
    before = backend.dependencies.promised
    disk_id = await kept(backend, handle)
    sizes = await backend.sizes(disk_id)
    assert 40 * MB <= sizes.referenced_bytes < 42 * MB
    assert sizes.exclusive_bytes < MB
    assert backend.dependencies.promised == before
    # Its limit is for what it writes itself.
    _, copy = await box(backend, resources=resources, origin=disk_id)
    refused = "dd if=/dev/zero of=/root/more bs=1M count=80 2>&1 | grep -c 'quota exceeded'"
    assert await sh(backend, copy, refused) == "1\n"
    # The source goes: what it wrote is nobody's but the kept disk's and the copy's, and stays counted.
    await backend.teardown(order.sandbox_id)
    assert 40 <= backend.dependencies.promised.kept_mb < 44
    await backend.teardown(copy.sandbox_id)
    assert (await backend.sizes(disk_id)).exclusive_bytes >= 40 * MB
    await backend.drop(disk_id)
    assert backend.dependencies.promised.kept_mb == 0


async def test_copies_that_go_at_the_same_moment_give_back_all_they_were_promised(
    backend: NamespacesBackend,
) -> None:
    before = backend.dependencies.promised
    _, source = await box(backend)
    disk_id = await kept(backend, source)
    with_source = backend.dependencies.promised
    small = Resources(vcpus=0.1, memory_mb=32, disk_mb=16, pids=16)
    copies = [await box(backend, origin=disk_id, resources=small) for _ in range(12)]
    async with asyncio.TaskGroup() as group:
        for order, _ in copies:
            group.create_task(backend.teardown(order.sandbox_id))
    assert backend.dependencies.promised == with_source
    await backend.teardown(source.sandbox_id)
    await backend.drop(disk_id)
    assert backend.dependencies.promised == before


async def test_a_restore_that_would_promise_too_much_is_refused_before_it_touches_anything(
    backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, handle = await box(backend, resources=Resources(vcpus=1, memory_mb=128, disk_mb=200, pids=64))
    await sh(backend, handle, "dd if=/dev/zero of=/root/big bs=1M count=100 2>/dev/null; sync")
    disk_id = await kept(backend, handle)
    settings = backend.dependencies.settings
    once = replace(settings, overcommit=replace(settings.overcommit, disk=1.0))
    monkeypatch.setattr(backend.dependencies, "settings", once)
    room = backend.dependencies.host.disk_mb - backend.dependencies.promised.disk_mb
    filler, _ = await box(backend, resources=Resources(vcpus=1, memory_mb=64, disk_mb=room - 20, pids=16))
    with pytest.raises(NoCapacity):
        await backend.restore(handle, order, disk_id, start=True)
    assert await sh(backend, handle, "stat -c %s /root/big") == f"{100 * MB}\n"
    await backend.teardown(filler.sandbox_id)
    await backend.restore(handle, order, disk_id, start=True)


async def test_an_interrupted_restore_leaves_the_old_disk_or_the_new_one(
    backend: NamespacesBackend,
) -> None:
    for step, left in (("prepare", "new\n"), ("swap", "new\n"), ("_remove", "old\n")):
        order, handle = await box(backend)
        await sh(backend, handle, "echo old > /root/file; sync")
        disk_id = await kept(backend, handle)
        await sh(backend, handle, "echo new > /root/file; sync")

        def killed(*_: object, **__: object) -> None:
            raise SystemError("as if killed")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Pool if step == "_remove" else Copies, step, killed)
            with pytest.raises(SystemError):
                await backend.restore(handle, order, disk_id, start=True)
        # What the next start does.
        backend.dependencies.pool.sweep()
        if (await backend.recover(handle)).presence is Presence.STOPPED:
            handle = await backend.resume(handle, order)
        assert await sh(backend, handle, "cat /root/file") == left
        assert not [n for n in os.listdir(backend.dependencies.pool.path) if n.startswith(".birth")]
        # And it can be done again.
        handle = await backend.restore(handle, order, disk_id, start=True)
        assert await sh(backend, handle, "cat /root/file") == "old\n"
        await forget_all(backend)


@pytest.mark.alone
async def test_nobody_waits_while_a_gigabyte_next_door_is_written_out(backend: NamespacesBackend) -> None:
    _, handle = await box(backend, resources=Resources(vcpus=1, memory_mb=512, disk_mb=300, pids=64))
    _, other = await box(backend)
    await sh(backend, handle, "dd if=/dev/zero of=/root/big bs=1M count=200 2>/dev/null")
    taking = asyncio.ensure_future(kept(backend, handle))
    longest = 0.0
    loop = asyncio.get_running_loop()
    while not taking.done():
        began = loop.time()
        await asyncio.sleep(0.005)
        longest = max(longest, loop.time() - began)
        await (await backend.guest(other)).ping()
    await taking
    # The event loop was never held.
    assert longest < 0.5


def _btrfs(*words: str) -> None:
    subprocess.run(["btrfs", *words], check=True, capture_output=True)
