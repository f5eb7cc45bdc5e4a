"""Kernel memory that this host cannot hold a sandbox to, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandboxer.backends.contract import Lack
from sandboxer.backends.namespaces.settings import NamespacesSettings

# What an open file takes of the memory it is charged to.
OPEN_FILE_BYTES = 256
# What the filters of one process may take of the host's budget: 32,768 instructions.
FILTERS_BYTES = 32768 * 8
UNLIMITED = 2**63 - 1
# Netlink sockets that a sandbox may have (guest/supervisor/ask.c); each holds twice what the host allows.
NETLINK_SOCKETS = 128
STOCK_RECEIVE_BYTES = 212_992


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBudgets:
    """Where memory is counted, and what the whole host has one budget of."""

    # "v1", "v2", or nothing.
    memory: str
    counts_sockets: bool
    memory_bytes: int
    files: int
    filter_bytes: int
    receive_bytes: int
    huge_pages: int
    has_time_namespaces: bool

    @classmethod
    def measured(cls, memory: str) -> HostBudgets:
        return cls(
            memory=memory,
            counts_sockets=memory == "v2" or _v1_counts_sockets(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            files=_number("/proc/sys/fs/file-max"),
            filter_bytes=_number("/proc/sys/net/core/bpf_jit_limit"),
            receive_bytes=_number("/proc/sys/net/core/rmem_max"),
            huge_pages=_number("/proc/sys/vm/nr_hugepages") + _number("/proc/sys/vm/nr_overcommit_hugepages"),
            has_time_namespaces=os.path.exists("/proc/self/ns/time"),
        )


def unheld(host: HostBudgets, settings: NamespacesSettings) -> Iterator[Lack]:
    yield Lack(
        what="kernel memory: file locks",
        why="the kernel charges them to nobody; whoever holds more than "
        f"{settings.locks} is killed about a second later",
        remedy="keep strangers behind a kernel of their own where that matters",
    )
    if host.memory and not host.counts_sockets:
        yield Lack(
            what="kernel memory: socket buffers",
            why="cgroup v1 without memory.kmem.tcp does not count them",
            remedy="boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        )
    elif host.memory == "v1":
        yield Lack(
            what="kernel memory: socket buffers",
            why="cgroup v1 counts them beside the memory limit: a sandbox may hold an eighth more than it",
            remedy="boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        )
    if 0 < host.files < host.memory_bytes // OPEN_FILE_BYTES:
        yield Lack(
            what="many open files",
            why=f"fs.file-max is {host.files} for all, and {host.files * OPEN_FILE_BYTES >> 20} MB of memory "
            "can hold them (the greediest sandbox is killed when half are gone)",
            remedy=f"sysctl fs.file-max={UNLIMITED}: open files are charged to memory",
        )
    if 0 < host.filter_bytes < 4096 * FILTERS_BYTES:
        yield Lack(
            what="many system call filters",
            why=f"net.core.bpf_jit_limit is {host.filter_bytes >> 20} MB for all; "
            f"{host.filter_bytes // FILTERS_BYTES} processes inside can take it with filters of their own "
            "(the greediest is killed when half is gone)",
            remedy=f"sysctl net.core.bpf_jit_limit={4096 * FILTERS_BYTES}",
        )
    if host.receive_bytes > STOCK_RECEIVE_BYTES:
        held = 2 * NETLINK_SOCKETS * host.receive_bytes
        yield Lack(
            what="kernel memory: answers of netlink",
            why=f"net.core.rmem_max is {host.receive_bytes}: a sandbox may hold {held >> 20} MB of them, "
            "which the kernel charges to nobody",
            remedy=f"sysctl net.core.rmem_max={STOCK_RECEIVE_BYTES}",
        )
    if host.huge_pages:
        yield Lack(
            what="huge pages",
            why=f"{host.huge_pages} are set aside, which no memory limit counts: one sandbox can take all",
            remedy="sysctl vm.nr_hugepages=0 vm.nr_overcommit_hugepages=0",
        )
    if not host.has_time_namespaces:
        yield Lack(
            what="clocks of their own",
            why="the kernel has no time namespaces: sandboxes see the host's uptime and share a file to lock",
            remedy="use a kernel with CONFIG_TIME_NS",
        )


def _v1_counts_sockets() -> bool:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and "memory" in options.split(","):
            return os.path.exists(f"{where}/memory.kmem.tcp.limit_in_bytes")
    return False


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0
