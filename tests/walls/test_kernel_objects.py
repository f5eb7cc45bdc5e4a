"""Who holds too many of the kernel objects that no limit covers: decisions, without a kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.namespaces.cgroups import socket_bytes
from sandboxer.backends.namespaces.fingerprint import HostBudgets, unheld
from sandboxer.backends.namespaces.kernel_objects import (
    Excess,
    FileLock,
    excessive_locks,
    excessive_part,
    read_locks,
)
from sandboxer.backends.namespaces.settings import NamespacesSettings

MB = 1 << 20


def test_an_eighth_of_the_memory_is_for_sockets() -> None:
    assert socket_bytes(16 * MB) == 4 * MB
    assert socket_bytes(1024 * MB) == 128 * MB


LOCKS = """1: POSIX  ADVISORY  WRITE 20490 00:2f:77 0 EOF
1: -> POSIX  ADVISORY  WRITE 31 00:2f:77 0 EOF
2: OFDLCK ADVISORY  READ -1 00:10:17 4 4
3: FLOCK  ADVISORY  WRITE 12 fe:00:1234 0 EOF
"""


def test_locks_are_read_with_those_that_wait() -> None:
    assert list(read_locks(LOCKS)) == [
        FileLock(20490, "00:2f"), FileLock(31, "00:2f"), FileLock(-1, "00:10"), FileLock(12, "fe:00"),
    ]  # fmt: skip


def excess_of(locks: list[FileLock], limit: int = 10) -> list[Excess]:
    owners = {7: "b", 8: "b"}.get
    return excessive_locks(locks, owner_of_device={"00:2f": "a"}, owner_of_pid=owners, limit=limit)


def test_a_lock_belongs_to_whose_file_system_it_is_on_else_to_whose_process_took_it() -> None:
    assert excess_of([FileLock(1, "00:2f")] * 11) == [Excess("a", 11, (1,))]
    assert excess_of([FileLock(1, "00:2f")] * 10) == []
    assert excess_of([FileLock(-1, "00:2f")] * 11) == [Excess("a", 11, ())]
    assert excess_of([FileLock(9, "00:10")] * 99) == []
    assert excess_of([FileLock(7, "00:10")] * 40, limit=100) == [Excess("b", 40, (7,))]
    assert excess_of([FileLock(7, "00:10")] * 20, limit=100) == []


def test_only_as_many_processes_are_ended_as_bring_it_below_the_limit() -> None:
    locks = [FileLock(1, "00:2f")] * 30 + [FileLock(2, "00:2f")] * 4 + [FileLock(3, "00:2f")]
    assert excess_of(locks) == [Excess("a", 35, (1,))]
    locks = [FileLock(pid, "00:2f") for pid in (1, 2, 3) for _ in range(6)]
    assert excess_of(locks) == [Excess("a", 18, (1, 2, 3))]


def test_of_a_list_that_was_cut_all_who_took_part_are_named() -> None:
    """Four processes: two of them were left to go on until the next look, with all that was not read."""
    locks = [FileLock(pid, "00:2f") for pid in (1, 2, 3, 4) for _ in range(100)] + [FileLock(5, "00:2f")]
    owners = {"00:2f": "a"}
    (found,) = excessive_locks(
        locks, owner_of_device=owners, owner_of_pid=lambda _: None, limit=600, is_cut=True
    )
    assert (found.count, set(found.pids)) == (401, {1, 2, 3, 4})
    assert not excessive_locks(locks, owner_of_device=owners, owner_of_pid=lambda _: None, limit=600)


def test_a_budget_of_the_host_is_looked_at_only_when_it_runs_out() -> None:
    held = {"a": Counter({1: 400, 2: 10}), "b": Counter({3: 20})}
    assert excessive_part(400, 1000, held) is None
    assert excessive_part(600, 1000, held) == Excess("a", 410, (1,))
    assert excessive_part(900, 1000, {"b": Counter({3: 20})}) is None
    assert excessive_part(900, 1000, {}) is None


WHOLE = HostBudgets(
    memory="v2",
    counts_sockets=True,
    memory_bytes=8 << 30,
    files=2**63 - 1,
    filter_bytes=4 << 30,
    receive_bytes=212_992,
    huge_pages=0,
    has_time_namespaces=True,
)


def lacking(host: HostBudgets) -> set[str]:
    settings = NamespacesSettings(state_dir=Path("/s"), images_dir=Path("/i"), guest_dir=Path("/g"))
    return {lack.what for lack in unheld(host, settings)}


def test_doctor_says_what_no_host_holds_and_what_this_one_does_not() -> None:
    always = {"kernel memory: file locks"}
    assert lacking(WHOLE) == always
    sockets = always | {"kernel memory: socket buffers"}
    assert lacking(replace(WHOLE, memory="v1")) == sockets
    assert lacking(replace(WHOLE, memory="v1", counts_sockets=False)) == sockets
    assert lacking(replace(WHOLE, files=800_000)) == always | {"many open files"}
    assert lacking(replace(WHOLE, filter_bytes=528 << 20)) == always | {"many system call filters"}
    assert lacking(replace(WHOLE, receive_bytes=4 << 20)) == always | {"kernel memory: answers of netlink"}
    assert lacking(replace(WHOLE, huge_pages=8)) == always | {"huge pages"}
    assert lacking(replace(WHOLE, has_time_namespaces=False)) == always | {"clocks of their own"}


def test_this_hosts_budgets_can_be_measured() -> None:
    host = HostBudgets.measured("v1")
    assert host.memory_bytes > 0
    assert host.files > 0
