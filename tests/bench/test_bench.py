"""The bench's own arithmetic, its client, and a short real run that leaves nothing behind."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench import bwrap, commits
from bench.census import Census
from bench.measurements import Bar, Report, Row, Samples
from bench.report import BEGIN, END, markdown, write_into
from bench.scenarios.signed import signed
from tests.support.platforms import IMAGES, ROOT, why_not_real

FLOOR = Samples("bwrap", "ms", tuple(float(value) for value in range(1, 101)))


def test_median_and_p95_are_those_of_the_rounds() -> None:
    assert FLOOR.median == 50.5
    assert FLOOR.p95 == 95.0


def test_a_bar_holds_at_its_limit_and_not_beyond() -> None:
    assert Bar(text="", limit=3.0).holds(3.0)
    assert not Bar(text="", limit=3.0).holds(3.01)
    assert Bar(text="", limit=10.0, at_least=True).holds(10.0)
    assert not Bar(text="", limit=10.0, at_least=True).holds(9.9)


def test_faster_is_counted_the_other_way_round() -> None:
    ours = Samples("ours", "ms", (5.0,))
    theirs = Samples("theirs", "ms", (100.0,))
    bar = Bar(text="", limit=10.0, at_least=True)
    row = Row(figure="f", subject=ours, baseline=theirs, bar=bar, is_inverse=True)
    assert row.value == 20.0
    assert row.passed


def test_a_report_fails_with_its_first_row_that_fails_and_can_be_written_down() -> None:
    ours = Samples("ours", "ms", (5.0, 6.0))
    good = Row(figure="good", subject=ours, baseline=FLOOR, bar=Bar(text="≤ 1 ×", limit=1.0))
    bad = Row(figure="bad", subject=ours, baseline=None, bar=Bar(text="≤ 1", limit=1.0))
    report = Report(machine={}, started_at="now", rows=[good, bad])
    assert not report.passed
    assert [row["passed"] for row in json.loads(json.dumps(report.as_json()))["rows"]] == [True, False]
    assert "**not reached**" in markdown(report)


def test_a_census_names_only_what_there_is_more_of() -> None:
    before = Census(mounts=10, cgroups=1, disks=0, run_files=3, loops=1, processes=0)
    after = Census(mounts=9, cgroups=3, disks=0, run_files=3, loops=1, processes=1)
    assert after.more_than(before) == {"cgroups": 2, "processes": 1}


def test_the_floor_is_bwrap_exactly_as_pinned() -> None:
    line = " ".join(bwrap.argv(Path("IMAGE")))
    pinned = (
        "--ro-bind IMAGE / --proc /proc --dev /dev --tmpfs /tmp --unshare-all --die-with-parent /bin/echo hi"
    )
    assert line == f"/usr/bin/bwrap {pinned}"


@pytest.mark.alone
def test_a_short_run_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    image = IMAGES / "base" / "rootfs"
    words = [sys.executable, "-m", "sandboxer.edges.cli.main", "bench", "--quick", "--json"]
    words += ["--only", "warm", "--image", str(image), "--plot", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    [row] = report["rows"]
    assert row["subject"]["rounds"] == row["baseline"]["rounds"] == 5
    assert done.returncode == (0 if report["passed"] else 1)
    assert (tmp_path / "ratios.png").stat().st_size > 1000
    assert not list(Path("/var/lib").glob("sandboxer-bench-*"))


def test_the_figures_of_a_document_are_replaced_and_the_rest_is_kept(tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    ours = Samples("ours", "ms", (5.0, 6.0))
    row = Row(figure="speed", subject=ours, baseline=FLOOR, bar=Bar(text="≤ 1 ×", limit=1.0), note="noted")
    for _ in range(2):
        write_into(document, Report(machine={"cpu": "2"}, started_at="2026-11-15", rows=[row]))
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| speed |") == 1
    assert "noted" in text


def test_a_signed_request_is_timed_beside_the_same_route_without_the_layer_that_asks(tmp_path: Path) -> None:
    rows = [row for row in signed(tmp_path, 1) if isinstance(row, Row)]
    assert [row.bar.limit for row in rows] == [1.3, 1.3, 1.3]
    for row in rows:
        assert row.baseline is not None
        assert row.subject.median > 0 < row.baseline.median


def test_bare_commits_are_all_there_however_many_make_them(tmp_path: Path) -> None:
    with commits.sqlite(tmp_path / "bare.db", 4) as bare:
        with closing(sqlite3.connect(tmp_path / "bare.db")) as conn:
            (warming,) = conn.execute("SELECT count(*) FROM bare").fetchone()
        assert bare.one_caller(5) > 0
        assert bare.all_callers(20) > 0
    with closing(sqlite3.connect(tmp_path / "bare.db")) as conn:
        assert conn.execute("SELECT count(*) FROM bare").fetchone() == (warming + 25,)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not_real()), reason=str(why_not_real()))
def test_two_trees_are_measured_side_by_side_and_leave_nothing() -> None:
    words = [sys.executable, "-m", "bench", "--against", "HEAD", "--rounds", "2", "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {row["figure"] for row in rows} >= {"create", "exec", "destroy"}
    listed = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "sandboxer-against-" not in listed.stdout
