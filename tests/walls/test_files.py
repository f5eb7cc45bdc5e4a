"""Files: nothing of the host and nothing of a neighbour can be read or written."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from tests.support.walls import Maker, Sandbox, order_for

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_host_file_is_not_there(attacker: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    assert secret.read_text() == "of the host"
    ran = await attacker.sh(f"cat {secret} /proc/self/root{secret} /proc/1/root{secret} /proc/1/cwd{secret}")
    assert ran.stdout == ""
    assert ran.code != 0


async def test_the_state_folder_is_not_there(attacker: Sandbox, backend: NamespacesBackend) -> None:
    state = backend.dependencies.settings.state_dir
    assert (await attacker.sh(f"ls -la {state} /stage /old")).stdout == ""


async def test_mounts_tell_nothing_of_host_paths(attacker: Sandbox, backend: NamespacesBackend) -> None:
    ran = await attacker.sh("cat /proc/self/mountinfo /proc/self/mounts")
    assert ran.stdout
    assert str(backend.dependencies.settings.state_dir) not in ran.stdout
    assert str(backend.dependencies.settings.images_dir) not in ran.stdout


async def test_a_neighbours_file_is_not_there(attacker: Sandbox, neighbour: Sandbox) -> None:
    word = secrets.token_hex(16)
    await neighbour.sh(f"echo {word} > /root/neighbour-secret")
    assert word in (await neighbour.sh("cat /root/neighbour-secret")).stdout
    ran = await attacker.sh("cat /root/neighbour-secret; find / -xdev -name neighbour-secret")
    assert ran.stdout == ""


async def test_the_image_is_shared_but_never_changed(
    make: Maker, neighbour: Sandbox, backend: NamespacesBackend
) -> None:
    attacker = await make()
    image = backend.dependencies.image_path(attacker.order.image)
    before = (image / "etc/passwd").read_bytes()
    await attacker.sh("echo evil::0:0::/:/bin/sh >> /etc/passwd; rm -f /usr/bin/env; echo x > /bin/ls")
    assert (image / "etc/passwd").read_bytes() == before
    assert (image / "usr/bin/env").exists()
    assert "evil" not in (await neighbour.sh("cat /etc/passwd")).stdout
    assert (await neighbour.sh("/usr/bin/env true && ls / >/dev/null && echo fine")).stdout == "fine\n"


async def test_on_disk_files_carry_plain_ids(attacker: Sandbox, backend: NamespacesBackend) -> None:
    await attacker.sh("touch /root/owned; chown 1234:2345 /root/owned")
    seen = os.stat(backend.dependencies.pool.disk(attacker.id) / "upper/root/owned")
    assert (seen.st_uid, seen.st_gid) == (1234, 2345)


async def test_the_pool_gives_setuid_and_devices_no_effect(backend: NamespacesBackend) -> None:
    pool = backend.dependencies.pool.path
    options = next(
        line.split()[3].split(",")
        for line in Path("/proc/mounts").read_text().splitlines()
        if f" {pool} " in line
    )
    assert {"nosuid", "nodev"} <= set(options)
    assert os.stat(pool).st_mode & 0o777 == 0o700
    assert os.stat(backend.dependencies.settings.run_dir).st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name",
    ["kcore", "keys", "sysrq-trigger", "timer_list", "kmsg", "cmdline", "key-users", "kallsyms", "slabinfo"],
)
async def test_sensitive_entries_of_proc_are_covered(attacker: Sandbox, name: str) -> None:
    if not os.path.exists(f"/proc/{name}"):
        pytest.skip(f"this kernel has no /proc/{name}")
    ran = await attacker.sh(f"head -c 64 /proc/{name}")
    assert ran.stdout == ""
    # Opened for writing only, never written: some of these are knobs.
    assert (await attacker.sh(f"exec 3>>/proc/{name}")).code != 0


async def test_there_is_no_sys_and_no_raw_device(attacker: Sandbox) -> None:
    assert (await attacker.sh("ls -A /sys")).stdout == ""
    ran = await attacker.sh("ls -A /dev")
    # Those of a kernel of its own lead to itself.
    own = {"char", "fuse", "net"} if attacker.has_own_kernel else set()
    assert set(ran.stdout.split()) - own <= {
        ".sandboxer", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm",
        "stderr", "stdin", "stdout", "tty", "urandom", "zero",
    }  # fmt: skip


async def test_ids_differ_between_sandboxes(attacker: Sandbox, neighbour: Sandbox) -> None:
    one, two = [(await box.sh("cat /etc/machine-id")).stdout.strip() for box in (attacker, neighbour)]
    assert len(one) == len(two) == 32
    assert one != two
    assert (await attacker.sh("hostname; getent hosts walled")).stdout.startswith("walled\n127.0.1.1")


async def test_even_ones_own_kernel_settings_cannot_be_turned(attacker: Sandbox) -> None:
    ran = await attacker.sh("v=/proc/sys/net/ipv4/ip_default_ttl; now=$(cat $v) && echo $now > $v")
    assert ran.code != 0
    if attacker.has_own_kernel:
        assert "No such file" in ran.stderr
        return
    assert "Read-only" in ran.stderr
    # It shows the reader's own namespaces, not those of the host it is bound from.
    assert (await attacker.sh("cat /proc/sys/kernel/hostname")).stdout == "walled\n"
    assert (await attacker.sh("ls /proc/sys/net/ipv4/conf")).stdout.split() == ["all", "default", "lo"]
    assert (await attacker.sh("ls /proc/sys/../1/cmdline && cd /proc/sys && ls ..")).stdout.count(
        "cmdline"
    ) >= 1


async def test_a_sandbox_without_a_name_gets_one_of_its_own(backend: NamespacesBackend) -> None:
    order = replace(order_for(), hostname="")
    box = Sandbox(backend, await backend.provision(order), order)
    name = (await box.sh("hostname")).stdout.strip()
    assert name.startswith("sbx-")
    assert name[4:] in order.sandbox_id
    await backend.teardown(order.sandbox_id)
