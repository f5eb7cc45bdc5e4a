"""Snapshots and forks on real walls, through E2B's own Python SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2b.exceptions import SandboxNotFoundException

from e2b import Sandbox, SandboxException
from tests.support.e2b import new_api_key
from tests.support.platforms import Up


@pytest.fixture(scope="module")
def sandbox(real_key: str) -> Iterator[Sandbox]:
    with Sandbox.create(
        timeout=600, envs={"GIVEN": "once"}, metadata={"of": "forks"}, allow_internet_access=False
    ) as made:
        made.files.write("kept", "before")
        yield made


def test_a_snapshot_makes_sandboxes_with_its_files_and_goes_once(sandbox: Sandbox) -> None:
    kept = sandbox.create_snapshot()
    assert kept.names == []
    try:
        sandbox.files.write("kept", "after")
        with Sandbox.create(kept.snapshot_id, timeout=60, allow_internet_access=False) as made:
            assert made.files.read("kept") == "before"
            assert made.get_info().template_id == kept.snapshot_id
        assert sandbox.files.read("kept") == "after"
    finally:
        sandbox.files.write("kept", "before")
        assert Sandbox.delete_snapshot(kept.snapshot_id) is True
    assert Sandbox.delete_snapshot(kept.snapshot_id) is False
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create(kept.snapshot_id)


def test_the_newest_of_a_name_is_meant_and_all_of_it_go(sandbox: Sandbox) -> None:
    first = sandbox.create_snapshot(name="named_1")
    sandbox.files.write("newer", "yes")
    second = Sandbox.create_snapshot(sandbox.sandbox_id, name="named_1:default")
    assert first.names == second.names == ["named_1:default"]
    with Sandbox.create("named_1", timeout=60, allow_internet_access=False) as made:
        assert made.files.read("newer") == "yes"
    listed = Sandbox.list_snapshots(name="named_1:default").next_items()
    assert [one.snapshot_id for one in listed] == [second.snapshot_id, first.snapshot_id]
    assert Sandbox.delete_snapshot("named_1") is True
    assert Sandbox.list_snapshots(name="named_1").next_items() == []
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create("named_1")


def test_lists_have_pages_and_are_of_one_sandbox_or_one_id(sandbox: Sandbox) -> None:
    made = [sandbox.create_snapshot().snapshot_id for _ in range(3)]
    pages = sandbox.list_snapshots(limit=2)
    seen = [one.snapshot_id for one in pages.next_items()]
    assert pages.has_next
    seen += [one.snapshot_id for one in pages.next_items()]
    assert seen == made[::-1]
    (one,) = Sandbox.list_snapshots(name=made[1]).next_items()
    assert one.snapshot_id == made[1]
    for id_ in made:
        Sandbox.delete_snapshot(id_)


def test_memory_is_refused_and_files_alone_are_what_is_kept(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxException, match="memory of processes cannot be kept"):
        sandbox.create_snapshot(mode="full")
    kept = sandbox.create_snapshot(mode="filesystem")
    assert Sandbox.delete_snapshot(kept.snapshot_id)


def test_forks_begin_with_the_files_and_settings_of_the_original(sandbox: Sandbox) -> None:
    left = [one.snapshot_id for one in sandbox.list_snapshots().next_items()]
    forks = sandbox.fork(timeout=60, count=2)
    assert [type(one) for one in forks] == [Sandbox, Sandbox]
    try:
        for number, one in enumerate(forks):
            assert isinstance(one, Sandbox)
            assert one.commands.run("cat kept; echo $GIVEN").stdout == "beforeonce\n"
            one.files.write("kept", str(number))
            assert one.get_info().metadata == {"of": "forks"}
        assert sandbox.is_running()
        assert sandbox.files.read("kept") == "before"
    finally:
        for one in forks:
            assert isinstance(one, Sandbox)
            one.kill()
    # What they were made of is gone.
    assert [one.snapshot_id for one in sandbox.list_snapshots().next_items()] == left


def test_a_stranger_has_no_part_in_any_of_it(real_up: Up, sandbox: Sandbox) -> None:
    stranger = new_api_key(real_up, "stranger")
    kept = sandbox.create_snapshot(name="secret")
    for name in (kept.snapshot_id, "secret"):
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create(name, api_key=stranger)
        assert Sandbox.delete_snapshot(name, api_key=stranger) is False
        assert Sandbox.list_snapshots(name=name, api_key=stranger).next_items() == []
    assert Sandbox.list_snapshots(api_key=stranger).next_items() == []
    for ask in (Sandbox.fork, Sandbox.create_snapshot):
        with pytest.raises(SandboxNotFoundException):
            ask(sandbox.sandbox_id, api_key=stranger)
    assert Sandbox.delete_snapshot(kept.snapshot_id) is True
