"""Describes a sandbox in the words of the OCI runtime specification. Pure: an order in, a `config.json` out.

The runtime makes namespaces and the first process. What it is not asked for: limits, which are those of the
cgroup it is started in; a network, of which the sandbox has `lo` alone; and the root, which is mounted
already.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from sandboxer.backends.launch import CAPABILITIES, LaunchOrder

MB = 1024 * 1024
CPU_PERIOD_US = 100_000
# Where the supervisor is seen inside. Below /dev, which is no disk's: nothing of it is ever kept.
PROGRAMS = "/dev/.sandboxer"
# The supervisor's own port, where it cannot be handed a socket.
DOOR_PORT = 2
# Of a handed socket.
FD_HANDED = 3
# What the supervisor settles before anybody else runs, in a kernel that is the sandbox's alone; then it gives
# them up (guest/supervisor/own_kernel.c).
SETTLING = ("SYS_ADMIN", "NET_ADMIN", "NET_RAW")


class RuntimeKind(StrEnum):
    RUNSC = "runsc"
    RUNC = "runc"
    CRUN = "crun"

    @property
    def has_own_kernel(self) -> bool:
        """Says whether what runs inside talks to a kernel of the runtime's instead of the host's."""
        return self is RuntimeKind.RUNSC


# Beside what the specification masks by custom: what tells of the host, or counts all of its tenants.
_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
# Refused with EPERM where the host's kernel is the sandbox's too: whatever makes mounts or namespaces, loads
# code into the kernel, or holds its memory without being charged for it.
_REFUSED = (
    "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "pivot_root", "unshare", "setns", "io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup",
    "userfaultfd", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "kexec_load",
    "kexec_file_load", "init_module", "finit_module", "delete_module", "open_by_handle_at", "mbind",
    "set_mempolicy", "migrate_pages", "move_pages", "swapon", "swapoff", "reboot", "syslog", "acct",
    "quotactl", "name_to_handle_at", "lookup_dcookie", "ptrace", "process_vm_readv", "process_vm_writev",
)  # fmt: skip
_NAMESPACE_FLAGS = 0x7E020000
_FAMILIES = (1, 2, 10, 16)
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97


def config(
    kind: RuntimeKind,
    order: LaunchOrder,
    *,
    bundle: Path,
    programs: Path,
    cgroup: str,
    masks: tuple[str, ...],
) -> Mapping[str, object]:
    """Returns what goes into `config.json`."""
    settling = SETTLING if kind.has_own_kernel else ()
    names = [f"CAP_{name}" for name in (*CAPABILITIES, *settling)]
    described: dict[str, object] = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": _supervisor(kind, order),
            "env": [],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), names),
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "soft": min(65536, order.open_files), "hard": order.open_files}
            ],
            "noNewPrivileges": True,
        },
        "root": {"path": str(bundle / "root"), "readonly": False},
        "hostname": order.hostname,
        "mounts": _mounts(kind, order, bundle, programs),
        "linux": _linux(kind, order, cgroup, masks),
    }
    return described


def _supervisor(kind: RuntimeKind, order: LaunchOrder) -> list[str]:
    """Without a filter's questions. Sockets of a way out cannot be handed to another's kernel: there it opens
    them itself.
    """
    if not kind.has_own_kernel:
        return [f"{PROGRAMS}/supervisor", str(FD_HANDED), "-1", "0", "/run/sandboxer"]
    way_out = str(order.way_out or 0)
    return [f"{PROGRAMS}/supervisor", f"port={DOOR_PORT}", "-1", way_out, "/run/sandboxer", str(order.pids)]


def _mounts(
    kind: RuntimeKind, order: LaunchOrder, bundle: Path, programs: Path
) -> list[Mapping[str, object]]:
    terminals = f"max={order.ptys}"
    memory = f"size={order.shm_bytes}"
    return [
        *(_own_mounts(order, bundle) if kind.has_own_kernel else []),
        _mount("/proc", "proc", "proc", "nosuid", "nodev", "noexec"),
        _mount("/dev", "tmpfs", "tmpfs", "nosuid", "noexec", "strictatime", "mode=755", "size=64k"),
        _mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", terminals),
        _mount("/dev/shm", "tmpfs", "shm", "nosuid", "nodev", "mode=1777", memory),
        _mount("/run/sandboxer", "tmpfs", "tmpfs", "nosuid", "nodev", "noexec", "mode=0755", "size=256k"),
        _mount(PROGRAMS, "bind", str(programs), "bind", "ro", "nosuid", "nodev"),
    ]


def _own_mounts(order: LaunchOrder, bundle: Path) -> list[Mapping[str, object]]:
    """What a kernel of its own has to know as mounts: to it, those of the tree are folders like any other."""
    folders = [("folder", path, is_read_only) for path, is_read_only in order.folders]
    volumes = [("volume", path, is_read_only) for _, path, is_read_only in order.volumes]
    shown = [("tmp", "tmp", False)]
    for of_a_kind in (folders, volumes):
        shown += [(f"{kind}-{number}", path, ro) for number, (kind, path, ro) in enumerate(of_a_kind)]
    return [
        _mount(f"/{path}", "bind", str(bundle / name), "bind", "ro" if ro else "rw", "nosuid", "nodev")
        for name, path, ro in shown
    ]


def _mount(destination: str, kind: str, source: str, *options: str) -> Mapping[str, object]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _linux(
    kind: RuntimeKind, order: LaunchOrder, cgroup: str, masks: tuple[str, ...]
) -> Mapping[str, object]:
    namespaces = ["pid", "ipc", "uts", "mount"]
    if kind.has_own_kernel:
        # It counts and shows what it has; the host's cgroup is what holds it to that.
        quota_us = max(1000, int(order.vcpus * CPU_PERIOD_US))
        resources = {
            "memory": {"limit": order.memory_mb * MB},
            "cpu": {"quota": quota_us, "period": CPU_PERIOD_US},
        }
        # Whose `lo` it copies: that of the stager, which is up. Without a path it would take one that is not.
        network = {"type": "network", "path": "/proc/self/ns/net"}
        return {"namespaces": [*({"type": name} for name in namespaces), network], "resources": resources}
    return {
        "namespaces": [{"type": name} for name in (*namespaces, "cgroup")],
        "cgroupsPath": cgroup,
        "maskedPaths": [f"/proc/{name}" for name in masks],
        "readonlyPaths": list(_READ_ONLY),
        "seccomp": _filter(),
    }


def _filter() -> Mapping[str, object]:
    """A list of what is refused. Weaker than that of `ext.namespaces`, which is a list of what is allowed."""
    refuse = "SCMP_ACT_ERRNO"
    rules: list[Mapping[str, object]] = [
        {"names": list(_REFUSED), "action": refuse, "errnoRet": _EPERM},
        {"names": ["clone3"], "action": refuse, "errnoRet": _ENOSYS},
    ]
    flags = [1 << bit for bit in range(32) if _NAMESPACE_FLAGS >> bit & 1]
    rules += [
        {
            "names": ["clone"],
            "action": refuse,
            "errnoRet": _EPERM,
            "args": [{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        for flag in flags
    ]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [*rules, *_other_families(refuse)],
    }


def _other_families(refuse: str) -> list[Mapping[str, object]]:
    """One rule for each gap between the families that are allowed: rules are joined by "or"."""
    gaps = [
        (low + 1, high - 1) for low, high in zip((0, *_FAMILIES), _FAMILIES, strict=False) if high - low > 1
    ]
    rules = [
        {
            "names": ["socket"],
            "action": refuse,
            "errnoRet": _EAFNOSUPPORT,
            "args": [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}],
        }
        for low, high in gaps
        for family in range(low, high + 1)
    ]
    beyond = {
        "names": ["socket"],
        "action": refuse,
        "errnoRet": _EAFNOSUPPORT,
        "args": [{"index": 0, "value": _FAMILIES[-1], "op": "SCMP_CMP_GT"}],
    }
    return [*rules, beyond]
