"""`sandboxer agent run|status` on real walls."""

from __future__ import annotations

import json
from pathlib import Path

from sandboxer.sdk.agent import loop
from tests.support.cli import Cli


def test_a_run_ends_with_the_code_of_its_command_and_is_told_again(real_cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "run.json")
    said = real_cli("agent", "run", "--depth", "2", "--task", "echo deep; exit 7", "--state", file)
    assert (said.code, said.out) == (7, "deep\n"), said.err
    assert "execute_in_child" in said.err
    again = real_cli("agent", "run", "--state", file, "--json")
    assert (again.code, again.json["output"], again.json["below"]["depth"]) == (7, "deep\n", 1)
    shown = real_cli("agent", "status", file)
    assert shown.code == 0
    assert "the parent paid" not in shown.out
    steps = real_cli("agent", "status", file, "--json").json["steps"]
    assert [one["state"] for one in steps].count("done") == 6
    assert [one["what"] for one in steps if one["state"] == "nothing to do"] == ["it has a key"] * 4


def test_a_run_without_a_file_is_kept_among_ones_own(real_cli: Cli, tmp_path: Path) -> None:
    said = real_cli("agent", "run", "--task", "true", "--json", SANDBOXER_CONFIG_DIR=str(tmp_path))
    assert said.code == 0, said.err
    file = Path(said.json["file"])
    assert file.parent == tmp_path / "agents"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["end"] == "done"


def test_a_run_that_waits_for_somebody_ends_with_five_and_says_how_to_go_on(
    real_cli: Cli, tmp_path: Path
) -> None:
    file = str(tmp_path / "run.json")
    words = ("agent", "run", "--task", "true", "--state", file, "--pay", "gift-card", "--budget", "10")
    said = real_cli(*words)
    assert said.code == 5
    assert "no_way_to_pay" in said.err
    assert f"sandboxer agent run --state {file}" in said.err


def test_a_file_that_another_process_runs_is_refused_by_name(real_cli: Cli, tmp_path: Path) -> None:
    file = loop.StateFile(tmp_path / "run.json")
    with file.alone():
        said = real_cli("agent", "run", "--task", "true", "--state", str(file.path), "--json")
    assert said.code == 1
    assert "(race)" in said.error["message"]


def test_mistakes_are_told_before_anything_is_asked(real_cli: Cli, tmp_path: Path) -> None:
    nothing = real_cli("agent", "run", "--state", str(tmp_path / "none.json"))
    assert (nothing.code, "nothing to run" in nothing.err) == (1, True)
    assert real_cli("agent", "run", "--task", "true", "--pay", "x402").code == 2
    assert real_cli("agent", "status", str(tmp_path / "none.json")).code == 1
    (tmp_path / "bad.json").write_text("{}")
    assert real_cli("agent", "status", str(tmp_path / "bad.json")).code == 1
