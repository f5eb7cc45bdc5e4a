"""What is decided before anything is made: admission, uid ranges, cgroup values, launch orders."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sandboxer.backends.contract import Resources
from sandboxer.backends.guest import FirstFile
from sandboxer.backends.launch import CAPABILITIES, CAPABILITY_SET, Births, LaunchOrder
from sandboxer.backends.namespaces.box import Box, BoxFolder, Stage
from sandboxer.backends.namespaces.cgroups import Cgroups, Hierarchies, find_hierarchies
from sandboxer.backends.namespaces.creation import first_files
from sandboxer.backends.namespaces.dependencies import Host, Promised, admit, budget, check_single
from sandboxer.backends.namespaces.guest import cgroup_name, split_name
from sandboxer.backends.namespaces.settings import (
    NamespacesSettings,
    Overcommit,
)
from sandboxer.backends.namespaces.uids import WIDTH, UidRanges
from sandboxer.backends.shared import can_lie_over, pidfd_of
from sandboxer.kernel.errors import Broken, NoCapacity
from sandboxer.kernel.values import new_id

SMALL = Resources(vcpus=0.5, memory_mb=256, disk_mb=100, pids=64)
HOST = Host(memory_mb=4608, cpus=2, pids=10_240, disk_mb=1000)
ONCE = Overcommit(memory=1, cpu=1, pids=1, disk=1)


def test_a_host_promises_what_it_has_and_no_more() -> None:
    promised = Promised()
    for _ in range(4):
        promised = promised.with_running(SMALL).with_disk(SMALL.disk_mb)
        admit(HOST, ONCE, promised)
    with pytest.raises(NoCapacity) as refusal:
        admit(HOST, ONCE, promised.with_running(SMALL).with_disk(SMALL.disk_mb))
    assert refusal.value.facts["resource"] == "cpu"


def test_a_full_host_says_how_much_in_which_unit() -> None:
    large = Resources(vcpus=0.5, memory_mb=256, disk_mb=1200, pids=64)
    with pytest.raises(
        NoCapacity, match=r"1200 would be promised in all, of 1000 MB \(overcommit included\)"
    ):
        admit(HOST, ONCE, Promised().with_disk(large.disk_mb))


def test_overcommit_stretches_what_may_be_promised() -> None:
    stretched = budget(HOST, Overcommit(memory=4, cpu=8, pids=2, disk=3))
    plain = budget(HOST, ONCE)
    assert stretched.memory_mb == 4 * plain.memory_mb
    assert stretched.vcpus == 8 * plain.vcpus
    assert stretched.pids == 2 * plain.pids
    assert stretched.disk_mb == 3 * plain.disk_mb == 3 * HOST.disk_mb


def test_what_is_kept_is_there_and_promised_to_nobody_else() -> None:
    twice = Overcommit(disk=2)
    admit(HOST, twice, Promised(disk_mb=1000, kept_mb=500))
    with pytest.raises(NoCapacity):
        admit(HOST, twice, Promised(disk_mb=1000, kept_mb=501))


def test_nothing_new_is_promised_when_nine_tenths_are_used() -> None:
    assert not replace(HOST, disk_used_mb=900).is_disk_scarce
    assert replace(HOST, disk_used_mb=901).is_disk_scarce


def test_what_was_promised_comes_back_exactly() -> None:
    promised = Promised().with_running(SMALL).with_disk(SMALL.disk_mb)
    assert promised.with_running(SMALL, -1).with_disk(-SMALL.disk_mb) == Promised()


@pytest.mark.parametrize("field", ["vcpus", "memory_mb", "disk_mb", "pids"])
def test_an_order_larger_than_the_host_is_refused_whatever_the_overcommit(field: str) -> None:
    with pytest.raises(NoCapacity):
        check_single(HOST, replace(SMALL, **{field: 1_000_000}))


def test_ranges_never_overlap_and_are_used_again() -> None:
    ranges = UidRanges(base=1_000_000, count=3)
    slots = [ranges.take() for _ in range(3)]
    firsts = sorted(ranges.first_uid(slot) for slot in slots)
    assert all(later - earlier >= WIDTH for earlier, later in pairwise(firsts))
    with pytest.raises(NoCapacity):
        ranges.take()
    ranges.give_back(slots[1])
    ranges.give_back(slots[1])
    assert ranges.take() == slots[1]
    with pytest.raises(NoCapacity):
        ranges.take()


def test_a_range_found_in_use_is_not_given_away() -> None:
    ranges = UidRanges(base=1_000_000, count=3)
    ranges.claim(0)
    ranges.claim(2)
    assert ranges.take() == 1
    with pytest.raises(NoCapacity):
        ranges.take()


def test_only_the_listed_capabilities_are_given() -> None:
    assert CAPABILITY_SET.bit_count() == len(CAPABILITIES) == 12
    assert not {"SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "MKNOD", "DAC_READ_SEARCH"} & set(
        CAPABILITIES
    )


def test_an_order_carries_its_words_and_never_a_nul() -> None:
    order = LaunchOrder(
        tag="sbx_1", image="/i", disk="/d", socket="/s", hostname="h",
        cgroups=Births([("/c", None)], [], "/c", {"memory_limit": "/c/memory.max"}),
        disks=[("create", "/d/f", "a=b\nc")], first_uid=100_000, uid_count=65536, shm_bytes=1, ptys=1,
        sigpending=1, open_files=1, masks=("keys",), boot_id="b",
    )  # fmt: skip
    fields = order.encode().decode().split("\0")
    assert {"tag=sbx_1", "base=100000", "cgroup.folder=/c", "disk.create=/d/f", "mask=keys"} <= set(fields)
    # Shown is what can be told: nothing of processors, whose limit is in no file.
    assert {"figure.memory_limit=/c/memory.max", "view=meminfo"} <= set(fields)
    assert not [word for word in fields if word.startswith("view=") and word != "view=meminfo"]
    assert fields[fields.index("disk.create=/d/f") + 1] == "disk.value=a=b\nc"
    with pytest.raises(Broken):
        replace(order, hostname="a\0base=0").encode()


MOUNTS_V2 = "cgroup2 {v2} cgroup2 rw,nsdelegate 0 0\n"
MOUNTS_HYBRID = (
    MOUNTS_V2 + "cgroup {v1}/memory cgroup rw,memory 0 0\ncgroup {v1}/cpu cgroup rw,cpu,cpuacct 0 0\n"
)


def test_controllers_are_found_where_they_live(tmp_path: Path) -> None:
    v2, v1 = tmp_path / "v2", tmp_path / "v1"
    v2.mkdir()
    (v2 / "cgroup.controllers").write_text("pids io\n")
    found = find_hierarchies(tmp_path, MOUNTS_HYBRID.format(v2=v2, v1=v1))
    assert found.unified == v2
    assert found.v2 == {"pids"}
    assert found.v1 == {"memory": v1 / "memory", "cpu": v1 / "cpu"}


def test_a_pure_v2_host_gets_v2_limits_and_joins_by_birth() -> None:
    hierarchies = Hierarchies(Path("/cg"), frozenset({"memory", "cpu", "pids"}), {})
    births = Cgroups(hierarchies, "sandboxer/x").births("sbx_1", SMALL)
    values = dict(births.acts)
    assert values["/cg/sandboxer/x/sbx_1/memory.max"] == str(256 << 20)
    assert values["/cg/sandboxer/x/sbx_1/memory.swap.max"] == "0"
    assert values["/cg/sandboxer/x/sbx_1/cpu.max"] == "50000 100000"
    assert values["/cg/sandboxer/x/sbx_1/cpu.weight"] == "50"
    assert births.joins == []
    assert births.born_in == "/cg/sandboxer/x/sbx_1/guest"


def test_a_hybrid_host_gets_v1_limits_and_joins_them() -> None:
    v1 = {name: Path("/v1") / name for name in ("memory", "cpu", "pids")}
    births = Cgroups(Hierarchies(Path("/cg"), frozenset(), v1), "sandboxer/x").births("sbx_1", SMALL)
    values = dict(births.acts)
    assert values["/v1/memory/sandboxer/x/sbx_1/memory.limit_in_bytes"] == str(256 << 20)
    assert values["/v1/cpu/sandboxer/x/sbx_1/cpu.cfs_quota_us"] == "50000"
    assert values["/v1/cpu/sandboxer/x/sbx_1/cpu.shares"] == "512"
    assert "/v1/pids/sandboxer/x/sbx_1/tasks" in births.joins
    # A folder is made before anything is written into it.
    paths = [path for path, _ in births.acts]
    assert paths.index("/v1/memory/sandboxer/x/sbx_1") < paths.index(
        "/v1/memory/sandboxer/x/sbx_1/memory.limit_in_bytes"
    )


def test_all_sandboxes_together_weigh_one_process_for_each_core(tmp_path: Path) -> None:
    v1 = {name: tmp_path / name for name in ("memory", "cpu", "pids")}
    for made in ("cpu/sandboxer/cpu.shares", "cpu/sandboxer/x/cpu.shares"):
        # As the kernel makes them with the folder.
        (tmp_path / made).parent.mkdir(parents=True)
        (tmp_path / made).touch()
    Cgroups(Hierarchies(tmp_path / "cg", frozenset(), v1), "sandboxer/x").prepare()
    wanted = str(1024 * (os.cpu_count() or 1))
    assert (tmp_path / "cpu/sandboxer/cpu.shares").read_text() == wanted
    assert (tmp_path / "cpu/sandboxer/x/cpu.shares").read_text() == wanted
    assert not (tmp_path / "cpu/cpu.shares").exists()


def test_a_commands_deadline_survives_in_its_cgroups_name() -> None:
    assert split_name(cgroup_name("prc_1", None)) == ("prc_1", None)
    assert split_name(cgroup_name("prc_1", 1700000000.25)) == ("prc_1", 1700000000.25)


def test_two_state_folders_never_share_cgroups(tmp_path: Path) -> None:
    one, two = [
        NamespacesSettings(state_dir=tmp_path / name, images_dir=tmp_path, guest_dir=tmp_path)
        for name in "ab"
    ]
    assert one.cgroup_parent != two.cgroup_parent


def test_a_torn_record_is_no_record(tmp_path: Path) -> None:
    folder = BoxFolder(tmp_path / "run")
    box = Box(
        sandbox_id=new_id("sbx"), stage=Stage.RUNNING, image="base", hostname="h", trust="zero", vcpus=1.0,
        memory_mb=1, disk_mb=1, pids=1, slot=3, pid=7, started=8, boot_id="b",
    )  # fmt: skip
    folder.write(box)
    assert folder.read(box.sandbox_id) == box
    (folder.folder(box.sandbox_id) / "box.json").write_text('{"sandbox_id": "sbx_')
    assert folder.read(box.sandbox_id) is None
    assert list(folder.ids()) == [box.sandbox_id]
    folder.remove(box.sandbox_id)
    folder.remove(box.sandbox_id)
    assert list(folder.ids()) == []
    folder.close()


def test_a_record_with_a_newer_servers_words_is_still_a_record(tmp_path: Path) -> None:
    folder = BoxFolder(tmp_path / "run")
    box = Box(
        sandbox_id=new_id("sbx"), stage=Stage.RUNNING, image="base", hostname="h", trust="zero", vcpus=1.0,
        memory_mb=1, disk_mb=1, pids=1, slot=3, pid=7, started=8, boot_id="b",
    )  # fmt: skip
    folder.write(box)
    record = folder.folder(box.sandbox_id) / "box.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "a_word_of_tomorrow": 1}))
    assert folder.read(box.sandbox_id) == box
    folder.close()


def test_a_process_with_the_right_number_and_another_birth_is_not_ours() -> None:
    pid = 1
    assert pidfd_of(pid, started=-1) is None
    assert pidfd_of(0, started=0) is None


def test_a_new_disk_begins_with_files_where_that_changes_nothing_of_the_image(tmp_path: Path) -> None:
    (tmp_path / "usr/local").mkdir(parents=True, mode=0o755)
    (tmp_path / "usr/local/bin").mkdir(mode=0o755)
    assert can_lie_over(tmp_path, ["/usr/local/bin/sudo", "/etc/apt/apt.conf.d/proxy"])
    (tmp_path / "usr/local/bin").chmod(0o2775)
    assert not can_lie_over(tmp_path, ["/usr/local/bin/sudo"])
    assert can_lie_over(tmp_path, ["/usr/local/sudo"])
    (tmp_path / "usr/local/bin").rmdir()
    (tmp_path / "usr/local/bin").symlink_to("../bin")
    assert not can_lie_over(tmp_path, ["/etc/hosts", "/usr/local/bin/sudo"])
    os.chown(tmp_path / "usr", 1000, 1000)
    assert not can_lie_over(tmp_path, ["/usr/file"])


def test_what_is_no_folder_in_an_image_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    # Only its own folders are looked at, never the host's.
    (tmp_path / "host").symlink_to("/")
    below = "/".join(str(number) for number in range(16))
    for name in ("file", "fifo", "loop", "host"):
        assert not can_lie_over(tmp_path, [f"/{name}/{below}"])


def test_the_files_of_a_new_disk_are_made_after_their_folders_and_each_folder_once() -> None:
    files = (FirstFile(path="/a/b/one", source="/host/one", text="more"), FirstFile(path="/a/two", text="2"))
    assert first_files("/disk/upper", files) == [
        ("folder", "/disk/upper/a", None),
        ("folder", "/disk/upper/a/b", None),
        ("copy", "/disk/upper/a/b/one", "/host/one"),
        ("append", "/disk/upper/a/b/one", "more"),
        ("create", "/disk/upper/a/two", "2"),
    ]
