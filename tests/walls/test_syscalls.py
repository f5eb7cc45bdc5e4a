"""The filter and the missing capabilities: calls that would open a wall are refused, and work outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.walls import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")

# (attack, its answer inside, whether it is let through outside; None: outside depends on the kernel)
REFUSED = [
    ("mount", "EPERM", True),
    ("umount", "EPERM", None),
    ("pivot_root", "EPERM", None),
    ("open_tree", "EPERM", True),
    ("fsopen", "EPERM", True),
    ("mount_setattr", "EPERM", None),
    ("open_tree_attr", "ENOSYS", None),
    ("unshare_user", "EPERM", True),
    ("unshare_mounts", "EPERM", True),
    ("unshare_network", "EPERM", True),
    ("setns", "EPERM", True),
    # Callers fall back to clone, whose flags the filter can see.
    ("clone3", "ENOSYS", True),
    ("io_uring", "EPERM", True),
    ("io_setup", "EPERM", True),
    ("userfaultfd", "EPERM", None),
    ("keyctl", "EPERM", True),
    ("add_key", "EPERM", True),
    ("request_key", "EPERM", None),
    ("bpf", "EPERM", None),
    ("perf_event_open", "EPERM", None),
    ("kexec_load", "EPERM", None),
    ("init_module", "EPERM", None),
    ("finit_module", "EPERM", None),
    ("delete_module", "EPERM", None),
    ("open_by_handle_at", "EPERM", None),
    ("syslog", "EPERM", True),
    ("swapon", "EPERM", None),
    ("acct", "EPERM", None),
    ("quotactl", "EPERM", None),
    ("clock_settime", "EPERM", None),
    ("tiocsti", "EPERM", None),
    ("sethostname", "EPERM", True),
    ("capset", "EPERM", True),
    ("mknod_char", "EPERM", True),
    ("mknod_block", "EPERM", True),
    ("setpriority", "EACCES", True),
    ("realtime", "EPERM", None),
    ("foreign_uid", "EINVAL", True),
    ("btrfs_subvolume", "ENOTTY", None),
    ("sysctl", "EACCES", True),
    ("dev_file", "EROFS", None),
    ("leave_chroot", "EXDEV", None),
]

# What gVisor lets through: it acts on a kernel that is the sandbox's alone, or on nothing.
OF_ITS_OWN_KERNEL = {
    "unshare_user": "users of its own",
    "clone3": "as clone",
    "io_setup": "requests of its own memory",
    "keyctl": "keys of its own",
    "syslog": "a log of its own",
    "setpriority": "among its own processes",
    "foreign_uid": "of its own kernel all are",
    "dev_file": "in its own memory",
    # An empty folder in its own memory, over which its root is mounted.
    "leave_chroot": "leads to nothing",
}

NAMESPACE_FLAGS = {
    "mounts": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
}

FAMILIES = {
    "packet": 17,
    "vsock": 40,
    "alg": 38,
    "key": 15,
    "bluetooth": 31,
    "tipc": 30,
    "rds": 21,
    "xdp": 44,
}


@pytest.mark.parametrize(("attack", "answer", "works_outside"), REFUSED, ids=[name for name, _, _ in REFUSED])
async def test_the_call_is_refused_inside(
    attacker: Sandbox, outside: Callable[[str], str], attack: str, answer: str, works_outside: bool | None
) -> None:
    if works_outside:
        assert outside(attack) == "allowed"
    verdict = await attacker.attack(attack)
    if not attacker.has_own_kernel:
        assert verdict == f"refused {answer}"
    elif attack in OF_ITS_OWN_KERNEL:
        assert verdict == "allowed"
    else:
        assert verdict.startswith("refused E")


@pytest.mark.parametrize("kind", NAMESPACE_FLAGS)
async def test_no_namespace_can_be_cloned(
    attacker: Sandbox, outside: Callable[[str], str], kind: str
) -> None:
    attack = f"clone:{NAMESPACE_FLAGS[kind]:x}"
    assert outside(attack) == "allowed"
    assert await attacker.attack(attack) == "refused EPERM"


async def test_a_user_namespace_does_not_bring_capabilities_back(attacker: Sandbox) -> None:
    ran = await attacker.sh("unshare -Ur id || echo no")
    assert ran.stdout == "no\n"


@pytest.mark.parametrize("family", FAMILIES)
async def test_only_ordinary_socket_families_exist(attacker: Sandbox, family: str) -> None:
    refusals = {"refused EAFNOSUPPORT"}
    if attacker.has_own_kernel and family == "packet":
        refusals = {"refused EPERM"}
    assert await attacker.attack(f"socket:{FAMILIES[family]}") in refusals


async def test_a_socket_family_hidden_in_high_bits_is_refused_too(
    attacker: Sandbox, outside: Callable[[str], str]
) -> None:
    assert outside("wide_vsock") == outside("socket:40")
    assert await attacker.attack("wide_vsock") == "refused EAFNOSUPPORT"


@pytest.mark.parametrize("family", [1, 2, 10])
async def test_ordinary_sockets_work(attacker: Sandbox, family: int) -> None:
    assert await attacker.attack(f"socket:{family}") == "allowed"


@pytest.mark.parametrize("door", ["int80", "x32"])
async def test_a_call_through_another_architectures_door_is_deadly(attacker: Sandbox, door: str) -> None:
    verdict = await attacker.attack(door)
    if attacker.has_own_kernel:
        assert verdict in ("refused EINVAL", "refused ENOSYS")
    else:
        assert verdict == "killed by signal 31"


async def test_the_capabilities_are_the_listed_ones_and_none_can_be_gained(attacker: Sandbox) -> None:
    ran = await attacker.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    fields = dict(line.split(":\t") for line in ran.stdout.splitlines())
    listed = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31))
    assert int(fields["CapPrm"], 16) == listed
    assert int(fields["CapBnd"], 16) == listed
    assert fields["NoNewPrivs"] == "1"
    # Behind gVisor a filter of the host's stands around its kernel, not around them.
    assert fields["Seccomp"] == ("0" if attacker.has_own_kernel else "2")


async def test_a_setuid_program_gives_nothing(attacker: Sandbox) -> None:
    script = "cp /usr/bin/id /tmp/suid-id; chown 0:0 /tmp/suid-id; chmod 4755 /tmp/suid-id; "
    ran = await attacker.sh(script + "setpriv --reuid 65534 --regid 65534 --clear-groups /tmp/suid-id -u")
    assert ran.stdout == "65534\n"


async def test_the_core_limit_that_silences_the_hosts_crash_handler_cannot_be_changed(
    attacker: Sandbox,
) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(resource.getrlimit(resource.RLIMIT_CORE))
"""
    assert (await attacker.python(program)).stdout == "(1, 1)\n"


@pytest.mark.parametrize(("family", "kind", "protocol"), [(16, 3, 12), (16, 3, 6), (2, 1, 132), (10, 6, 33)])
async def test_unusual_protocols_load_no_module(
    attacker: Sandbox, family: int, kind: int, protocol: int
) -> None:
    """By protocol, or already by their type."""
    program = f"""
import socket
try:
    socket.socket({family}, {kind}, {protocol})
except OSError as error:
    print(error.errno)
"""
    answers = {"94\n" if kind == 6 else "93\n"}
    if attacker.has_own_kernel:
        # It has no modules; what it does not know is refused.
        answers |= {"22\n", "93\n", "94\n"}
    assert (await attacker.python(program)).stdout in answers


async def test_the_network_can_be_asked_about_by_netlink(attacker: Sandbox) -> None:
    program = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert (await attacker.python(program)).stdout == "['lo']\n"
