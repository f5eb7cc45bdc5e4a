"""Two platforms on one host never give their sandboxes the same uids, whichever of them lives."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxer.backends.namespaces.backend import open_backend
from sandboxer.backends.namespaces.uids import BLOCK, WIDTH, UidClaims, UidRanges, is_anyone_in, overlaps
from sandboxer.kernel.errors import NoCapacity
from tests.support.real_backend import (
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)

# Nobody's, on any host that tests run on.
BASE = 3_900_000_000


def test_two_platforms_never_get_the_same_range(tmp_path: Path) -> None:
    ours, theirs = UidClaims(tmp_path), UidClaims(tmp_path)
    one = UidRanges(BASE, 3 * BLOCK, ours)
    # With another first uid: what counts is the uid.
    other = UidRanges(BASE + 5 * WIDTH, 3 * BLOCK, theirs)
    mine = {one.first_uid(one.take()) for _ in range(BLOCK + 1)}
    yours = {other.first_uid(other.take()) for _ in range(BLOCK)}
    for first in mine:
        assert not any(abs(first - second) < WIDTH for second in yours)
    for _ in range(BLOCK):
        with contextlib.suppress(NoCapacity):
            other.take()
    with pytest.raises(NoCapacity, match="others on this host"):
        other.take()
    # Who leaves lets go of them.
    ours.close()
    assert UidRanges(BASE, 3 * BLOCK, theirs).take() == 0
    theirs.close()


def test_uids_of_living_processes_are_nobodys_to_take(tmp_path: Path) -> None:
    """As after the death of a server whose sandboxes go on."""
    if os.geteuid() != 0:
        pytest.skip("taking another uid needs root")
    claims = UidClaims(tmp_path)
    words = "import os, sys; os.setresuid(*[int(sys.argv[1])] * 3); print(flush=True); sys.stdin.read()"
    uid = BASE + BLOCK * WIDTH + 3 * WIDTH + 1000
    lives = subprocess.Popen(
        [sys.executable, "-c", words, str(uid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert lives.stdout is not None
        lives.stdout.readline()
        assert is_anyone_in(uid, 1)
        ranges = UidRanges(BASE, 3 * BLOCK, claims)
        slots = [ranges.take() for _ in range(BLOCK + 1)]
        assert slots[-1] == 2 * BLOCK, "the block in the middle is in use"
        # But a server that finds its own sandbox there has it.
        ranges.claim(BLOCK + 3)
        assert ranges.owns(uid)
        assert BLOCK + 3 not in {ranges.take() for _ in range(BLOCK)}
    finally:
        lives.communicate()
        claims.close()


async def test_sandboxes_of_two_platforms_have_different_uids_even_while_a_server_is_dead() -> None:
    require_walls()
    with state_folder() as first, state_folder() as second:
        ours = settings_for(first, pool_size_mb=600)
        theirs = settings_for(second, pool_size_mb=600)
        assert ours.uid_base == theirs.uid_base
        async with open_backend(ours) as backend:
            handle = await backend.provision(make_order())
            slot = backend.dependencies.known[handle.sandbox_id].slot
        # The first server is gone, its sandbox lives.
        try:
            async with open_backend(theirs) as other:
                taken = await other.provision(make_order())
                assert other.dependencies.known[taken.sandbox_id].slot != slot
                async with open_backend(ours) as again:
                    assert slot in again.dependencies.ranges.acquired
                    assert await again.strays() == {}
                    await clear(again)
                await clear(other)
            remove_leftovers(other)
        finally:
            async with open_backend(ours) as last:
                await clear(last)
            remove_leftovers(last)


def test_a_range_in_which_a_process_runs_is_avoided_within_a_block_of_ours_too(tmp_path: Path) -> None:
    """A sandbox whose box cannot be read lives in the same block as one that is known."""
    ranges = UidRanges(BASE, BLOCK)
    ranges.avoid(BASE + WIDTH + 7)
    ranges.avoid(BASE - 1)
    ranges.avoid(0)
    ranges.claim(0)
    assert sorted(ranges.take() for _ in range(BLOCK - 2)) == list(range(2, BLOCK))


def test_ids_that_are_given_to_others_in_subuid_are_named(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("alice:100000:65536\nbroken\ncontainers:4000000000:1000\nroot:x:y\n")
    assert overlaps(100_000_000, 8192 * WIDTH, (table, tmp_path / "none")) == []
    assert overlaps(3_999_999_999, 2, (table,)) == [f"{table}: containers:4000000000:1000"]
    assert overlaps(4_000_001_000, 65536, (table,)) == []
    assert len(overlaps(65536, 4_100_000_000, (table,))) == 2
