"""The words bwrap is started with. Pure: what walls a sandbox gets can be read and tested here.

Paths on the left of a bind are those of the launcher's clean mount namespace (`guest/launcher/stage.c`).
Deliberately absent: `--userns` (handing one over from host root fails), `--die-with-parent` (sandboxes
outlive us), `/sys` (nothing inside needs it).
"""

from __future__ import annotations

SUPERVISOR = "/dev/.sandboxer/supervisor"
LISTEN_FD = 3
SECCOMP_FD = 4
INFO_FD = 5

# dpkg, apt, tar, useradd and su work with these.
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SYS_CHROOT",
    "CAP_AUDIT_WRITE",
)

# Entries of /proc that tell of the host or reach into it. Their permissions refuse us already (nobody inside
# is the host's root); covering them is the second wall. Those a kernel lacks are left out.
MASKED_PROC = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "kallsyms", "kmsg", "cmdline")


def bwrap_argv(*, hostname: str, shm_bytes: int, masked: tuple[str, ...]) -> list[str]:
    argv = ["bwrap", "--bind", "/stage/root", "/"]
    argv += ["--dev-bind", "/stage/dev", "/dev", "--dev-bind", "/stage/pts", "/dev/pts"]
    argv += ["--perms", "1777", "--size", str(shm_bytes), "--tmpfs", "/dev/shm"]
    # The host's view of /proc/sys shows each reader its own namespaces' values, as a fresh one would; bound
    # read-only, root inside cannot turn even its own.
    argv += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    for name in masked:
        argv += ["--ro-bind", "/stage/empty", f"/proc/{name}"]
    argv += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup"]
    argv += ["--hostname", hostname, "--cap-drop", "ALL"]
    for capability in CAPABILITIES:
        argv += ["--cap-add", capability]
    argv += [
        "--seccomp",
        str(SECCOMP_FD),
        "--info-fd",
        str(INFO_FD),
        "--as-pid-1",
        "--clearenv",
        "--chdir",
        "/",
    ]
    return [*argv, "--", SUPERVISOR]
