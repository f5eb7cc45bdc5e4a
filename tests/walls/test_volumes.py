"""Volumes: what a tenant can do with a disk of its own that others see after it, or at the same time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
import pytest_asyncio

from sandboxer.backends.contract import VolumeMount
from sandboxer.backends.namespaces import NamespacesBackend, btrfs
from sandboxer.kernel.errors import Conflict, InvalidRequest, NoCapacity
from sandboxer.kernel.values import new_id
from tests.support.walls import Sandbox, order_for

pytestmark = pytest.mark.asyncio(loop_scope="session")
MB = 1 << 20
Attach = Callable[..., Awaitable[Sandbox]]

# Orders to the file system itself, each tried on the folder it is given.
ORDERS = """
import errno, fcntl, os, struct, sys
folder = sys.argv[1]
fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
def named(name): return bytearray(struct.pack("=q", 0) + name.encode().ljust(4088, b"\\0"))
snap = bytearray(4096); struct.pack_into("=qQQ", snap, 0, fd, 0, 0); snap[56:60] = b"snap"
orders = {
    "subvolume": (0x5000940E, named("made")),
    "snapshot": (0x50009417, snap),
    "destroy": (0x5000940F, named("made")),
    "info": (0x81F8943C, bytearray(504)),
    "limit": (0x8030942B, bytearray(48)),
    "set_flags": (0x4008941A, bytearray(struct.pack("=Q", 2))),
    "lookup": (0xD0009412, bytearray(4096)),
}
for name, (request, argument) in orders.items():
    try:
        fcntl.ioctl(fd, request, argument)
        print(name, "allowed")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""


@pytest_asyncio.fixture(loop_scope="session")
async def volume(backend: NamespacesBackend) -> AsyncIterator[str]:
    volume_id = new_id("vol")
    await backend.make_volume(volume_id, size_mb=32)
    yield volume_id
    await backend.drop_volume(volume_id)


@pytest_asyncio.fixture(loop_scope="session")
async def attach(backend: NamespacesBackend, volume: str) -> AsyncIterator[Attach]:
    """Sandboxes with the volume at /data; gone before it."""
    made: list[str] = []

    async def make_one(*, read_only: bool = False, path: str = "/data") -> Sandbox:
        mount = VolumeMount(volume_id=volume, path=path, is_read_only=read_only)
        order = replace(order_for(), volumes=(mount,))
        made.append(order.sandbox_id)
        return Sandbox(backend, await backend.provision(order), order)

    yield make_one
    for sandbox_id in made:
        await backend.teardown(sandbox_id)


async def test_the_file_system_below_a_volume_takes_no_orders_from_inside(
    backend: NamespacesBackend, attach: Attach, volume: str
) -> None:
    folder = str(backend.dependencies.pool.disk(volume) / "upper")
    # Without the overlay, on the volume's own folder, as nobody in particular: half of them are obeyed.
    bare = await _as_nobody(folder)
    assert "subvolume allowed" in bare, bare
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for name in (name for name in ("made", "snap") if os.path.isdir(f"{folder}/{name}")):
        btrfs.delete_subvolume(parent, name)
    os.close(parent)
    for read_only in (False, True):
        box = await attach(read_only=read_only)
        ran = await box.run("/usr/bin/python3", "-c", ORDERS, "/data")
        answers = set(ran.stdout.split()[1::2])
        assert answers == {"ENOTTY"}, ran.stdout + ran.stderr
        await backend.teardown(box.id)
    assert os.listdir(folder) == []


async def _as_nobody(folder: str) -> str:
    os.chmod(folder, 0o777)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            ["/usr/bin/env", "python3", "-c", ORDERS, f"/proc/self/fd/{fd}"],
            capture_output=True,
            text=True,
            check=True,
            pass_fds=(fd,),
            user=65534,
            group=65534,
            extra_groups=[],
        )
        return done.stdout
    finally:
        os.close(fd)
        os.chmod(folder, 0o755)


async def test_its_limit_holds_at_once_and_the_pool_for_others(
    backend: NamespacesBackend, attach: Attach, volume: str, neighbour: Sandbox
) -> None:
    box = await attach()
    full = await box.sh("dd if=/dev/zero of=/data/big bs=1M count=64 2>&1")
    assert "Disk quota exceeded" in full.stdout
    assert (await backend.volume_usage(volume)).used_bytes <= 33 * MB
    # Its own disk is another, and so are its neighbours'.
    assert (await box.sh("dd if=/dev/zero of=/root/own bs=1M count=40 2>&1")).code == 0
    assert (await neighbour.sh("echo fine > /root/fine")).code == 0
    with pytest.raises(Conflict):
        await backend.resize_volume(volume, size_mb=16)
    await backend.resize_volume(volume, size_mb=96)
    assert (await box.sh("dd if=/dev/zero of=/data/more bs=1M count=40 2>&1")).code == 0
    with pytest.raises(NoCapacity):
        await backend.resize_volume(volume, size_mb=1 << 20)
    promised = backend.dependencies.promised
    with pytest.raises(NoCapacity):
        await backend.make_volume(new_id("vol"), size_mb=1 << 20)
    assert backend.dependencies.promised == promised


async def test_files_belong_to_the_same_users_inside_and_to_other_uids_on_the_host(
    backend: NamespacesBackend, attach: Attach
) -> None:
    first = await attach()
    script = "echo x > /data/root; echo x > /data/user; chown 1000:1000 /data/user; stat -c '%u:%g' /data/*"
    assert (await first.sh(script)).stdout.split() == ["0:0", "1000:1000"]
    uid = os.stat(f"/proc/{first.pid}").st_uid
    # So that the next one gets another range.
    keeper = await backend.provision(order_for())
    await backend.teardown(first.id)
    filler = await backend.provision(order_for())
    second = await attach(path="/elsewhere/deep")
    assert os.stat(f"/proc/{second.pid}").st_uid != uid or second.has_own_kernel
    seen = await second.sh("stat -c '%u:%g' /elsewhere/deep/*; echo more >> /elsewhere/deep/root")
    assert (seen.code, seen.stdout.split()) == (0, ["0:0", "1000:1000"])
    for handle in (keeper, filler):
        await backend.teardown(handle.sandbox_id)


async def test_a_reader_changes_nothing(backend: NamespacesBackend, attach: Attach) -> None:
    writer = await attach()
    await writer.sh("echo one > /data/one; mkdir /data/folder; chmod 777 /data/one /data/folder")
    await backend.teardown(writer.id)
    first, second = await attach(read_only=True), await attach(read_only=True)
    for attempt in (
        "echo two > /data/one",
        "echo two > /data/folder/two",
        "rm /data/one",
        "mv /data/one /data/two",
        "chmod 700 /data/one",
        "chown 1 /data/one",
        "touch /data/one",
        "ln /data/one /data/link",
        "setfattr -n user.x -v y /data/one || false",
        "mount -o remount,rw /data",
        "truncate -s 0 /data/one",
    ):
        assert (await first.sh(attempt)).code != 0, attempt
    mapped = await first.python(
        "import mmap; f = open('/data/one', 'rb'); mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE)[0] = 88"
    )
    assert mapped.code == 0, mapped.stderr
    assert (await second.sh("cat /data/one; ls /data")).stdout.split() == ["one", "folder", "one"]


async def test_nothing_on_a_volume_gains_anyone_anything(backend: NamespacesBackend, attach: Attach) -> None:
    """What one tenant leaves there for the next: devices, setuid programs, links that lead out."""
    box = await attach()
    flags = (await box.sh("grep ' /data ' /proc/self/mounts")).stdout.split()[3].split(",")
    # gVisor does not show it.
    assert {"nosuid", "rw"} | (set() if box.has_own_kernel else {"nodev"}) <= set(flags)
    assert (await box.sh("mknod /data/disk b 7 0 || mknod /data/null c 1 3 || mknod /data/gone c 0 0")).code
    await box.sh(
        "cp /usr/bin/id /data/id; chmod 6755 /data/id; ln -s /etc /data/etc; ln -s /../../../ /data/up"
    )
    ran = await box.sh("/data/id -u", user="nobody")
    assert ran.stdout.strip() not in ("", "0")
    # A link in the way of the next mount is not followed, and refused in words.
    await box.sh("mkdir /data/x; rm -rf /srv/place; ln -s /etc /srv/place")
    await backend.stop(box.handle)
    mount = replace(box.order.volumes[0], path="/srv/place/ssh")
    with pytest.raises(InvalidRequest) as refused:
        await backend.resume(box.handle, replace(box.order, volumes=(mount,)))
    assert "/srv/place/ssh" in str(refused.value)
    handle = await backend.resume(box.handle, box.order)
    again = Sandbox(backend, handle, box.order)
    assert (await again.sh("cat /data/up/etc/hostname; ls /data/etc/hostname")).code == 0
    for path in ("/proc/x", "/dev", "/etc", "/", "relative", "/a/../b"):
        wrong = replace(order_for(), volumes=(replace(mount, path=path),))
        with pytest.raises(InvalidRequest):
            await backend.provision(wrong)


async def test_a_volume_moves_no_other_mount_and_cannot_be_taken_away(attach: Attach) -> None:
    box = await attach()
    for attempt in ("rmdir /data", "mv /data /other", "umount /data", "rm -rf /data/../proc/1"):
        assert (await box.sh(attempt)).code != 0, attempt
    assert (await box.sh("echo still > /data/there; cat /data/there")).stdout == "still\n"
    # The pool's own layout is nowhere to be seen.
    assert (await box.sh("ls -a /data")).stdout.split() == [".", "..", "there"]


async def test_links_and_files_of_an_image_are_not_followed_nor_covered(
    backend: NamespacesBackend, attach: Attach, volume: str
) -> None:
    """Links that every image has, links that lead out, and a file: refused in words, and nothing is left."""
    for path in ("/var/run/x", "/bin/x", "/lib/x", "/usr/bin/python3", "/usr/bin/python3/x", "/etc/../x"):
        with pytest.raises(InvalidRequest) as refused:
            await attach(path=path)
        assert str(refused.value.facts["field"]).startswith("volumes"), path
        assert backend.dependencies.attached(volume) == {}
    # Deep in a folder that only its owner may enter: made as it is asked for.
    box = await attach(path="/root/.cache/deep/er")
    assert (await box.sh("echo x > /root/.cache/deep/er/x && ls /root/.cache/deep/er")).stdout == "x\n"


async def test_nothing_runs_on_a_volume_while_it_is_put_back(
    backend: NamespacesBackend, attach: Attach, volume: str
) -> None:
    box, disk_id = await attach(), new_id("snp")
    await box.sh("echo old > /data/file; sync")
    await backend.take_volume(volume, disk_id)
    try:
        with pytest.raises(Conflict):
            await backend.restore_volume(volume, disk_id)
        await backend.teardown(box.id)
        done = await asyncio.gather(
            *(backend.restore_volume(volume, disk_id) for _ in range(3)),
            *(attach() for _ in range(3)),
            return_exceptions=True,
        )
        # Whoever lost was told so, and at most one sandbox has it.
        assert all(isinstance(one, Conflict) for one in done if isinstance(one, BaseException)), done
        assert len(backend.dependencies.attached(volume)) <= 1
        for sandbox_id in list(backend.dependencies.attached(volume)):
            await backend.teardown(sandbox_id)
        again = await attach()
        assert (await again.sh("cat /data/file; mount | grep -c ' /data '")).stdout == "old\n1\n"
        assert backend.dependencies.exchanged == set()
    finally:
        await backend.drop(disk_id)


async def test_a_volume_is_never_taken_and_put_back_at_the_same_time(
    backend: NamespacesBackend, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kept disk is written down to hold must be of the disk that was taken."""
    disk_id, other_id = new_id("snp"), new_id("snp")
    await backend.take_volume(volume, disk_id)
    began, goes_on = threading.Event(), threading.Event()

    def held(act: Callable[..., object]) -> Callable[..., object]:
        def wait(*args: object, **options: object) -> object:
            began.set()
            assert goes_on.wait(60)
            return act(*args, **options)

        return wait

    async def meanwhile(
        method: str, first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]
    ) -> Conflict:
        began.clear()
        goes_on.clear()
        with monkeypatch.context() as patch:
            patch.setattr(
                backend.dependencies.copies, method, held(getattr(backend.dependencies.copies, method))
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(_awaited(first))
                try:
                    assert await asyncio.to_thread(began.wait, 60)
                    with pytest.raises(Conflict) as refused:
                        await asyncio.wait_for(second(), 60)
                finally:
                    goes_on.set()
        return refused.value

    def take() -> Awaitable[object]:
        return backend.take_volume(volume, other_id)

    def restore() -> Awaitable[object]:
        return backend.restore_volume(volume, disk_id)

    try:
        assert (await meanwhile("swap", restore, take)).facts["reason"] == "restoring"
        assert (await meanwhile("keep", take, restore)).facts["reason"] == "snapshotting"
        assert not backend.dependencies.being_copied
        await restore()
    finally:
        await backend.drop(disk_id)
        await backend.drop(other_id)


async def _awaited(act: Callable[[], Awaitable[object]]) -> None:
    await act()
