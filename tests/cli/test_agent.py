"""`sandboxer agent run|status` on real walls."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from subprocess import PIPE, Popen
from typing import cast

import pytest
from rich.console import Console

from sandboxer.edges.cli.agent import table_of
from sandboxer.edges.cli.agent_check import _line
from sandboxer.sdk.agent import loop, progress
from sandboxer.sdk.agent.checks import Check, Outcome, Result, Subject, check
from sandboxer.sdk.agent.outside import forget_ended
from tests.support.cli import PROGRAM, Cli


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
    file, card = str(tmp_path / "run.json"), tmp_path / "card"
    card.write_text("four words of one\n")
    words = ("agent", "run", "--task", "true", "--state", file, "--budget", "10")
    said = real_cli(*words, "--pay", "gift-card", "--code", str(card))
    assert said.code == 5
    assert "no_way_to_pay" in said.err
    assert "Type: sandboxer pricing" in said.err
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
    assert list(tmp_path.iterdir()) == []
    assert real_cli("agent", "run", "--task", "true", "--pay", "x402").code == 2
    unpaid = real_cli("agent", "run", "--task", "true", "--pay", "gift-card", "--budget", "10")
    assert (unpaid.code, "--code FILE" in unpaid.err) == (2, True)
    small = real_cli("agent", "run", "--task", "true", "--memory", "-5")
    assert (small.code, "'--memory': it should be at least 16" in small.err) == (2, True)
    few = real_cli("agent", "clone", "shadow", "--slots", "-1")
    assert (few.code, "'--slots': it should be at least 0" in few.err) == (2, True)
    assert real_cli("agent", "status", str(tmp_path / "none.json")).code == 1
    (tmp_path / "bad.json").write_text("{}")
    assert real_cli("agent", "status", str(tmp_path / "bad.json")).code == 1


@pytest.mark.parametrize("text", ["", "words", "[]", "{}", '{"format": 1}'])
def test_another_file_than_that_of_a_run_is_refused_in_words(
    real_cli: Cli, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    for words in (("agent", "run", "--state", str(file)), ("agent", "status", str(file))):
        said = real_cli(*words)
        assert said.code == 1
        assert "other.json is not the file of a run: it " in said.err
    assert file.read_text() == text


def test_what_is_no_address_is_refused_before_it_is_waited_for(real_cli: Cli, tmp_path: Path) -> None:
    words = ("agent", "run", "--task", "true", "--url", "nowhere", "--state", str(tmp_path / "run.json"))
    said = real_cli(*words)
    assert said.code == 1
    assert "nowhere is no address" in said.err


def test_what_a_run_waits_for_is_said_to_a_log_too_once_and_in_words(real_cli: Cli, tmp_path: Path) -> None:
    words = ("agent", "run", "--task", "true", "--url", "http://127.0.0.1:1")
    with Popen(
        [*PROGRAM, *words, "--state", str(tmp_path / "run.json")],
        env=real_cli.environment,
        stderr=PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        said = running.stderr.readline()
        running.kill()
    what = "did not answer GET /.well-known/sandboxer.json: Connection refused"
    assert said.startswith(f"unavailable: http://127.0.0.1:1 {what}")


def test_the_names_of_steps_are_whole_on_a_narrow_terminal() -> None:
    begun = progress.begin(progress.Order(depth=1, task="true"), now=0.0)
    told = progress.Event(at=0.0, step="create_child", what="refused: " + "for many reasons " * 9)
    console = Console(width=80)
    with console.capture() as seen:
        console.print(table_of(replace(begun, events=(told,))))
    lines = seen.get().splitlines()
    assert "poll_confirmation" in seen.get()
    assert "inside_sandbox" in seen.get()
    assert max(map(len, lines)) <= 80


def test_a_run_that_is_interrupted_says_by_which_file_it_goes_on(real_cli: Cli, tmp_path: Path) -> None:
    words = ("agent", "run", "--task", "true", "--url", "http://127.0.0.1:1")
    environment = real_cli.environment | {"SANDBOXER_CONFIG_DIR": str(tmp_path)}
    with Popen([*PROGRAM, *words], env=environment, stderr=PIPE, text=True) as running:
        assert running.stderr is not None
        running.stderr.readline()
        running.send_signal(SIGINT)
        said = running.stderr.read()
    (file,) = (tmp_path / "agents").glob("*.json")
    assert f"Go on: sandboxer agent run --state {file}" in said


def test_what_a_clone_says_of_itself_gives_no_orders_to_the_terminal() -> None:
    seen = Result("model", Outcome.PASSED, "It said \x1b]0;owned\x07\x1b[2J\r")
    assert not {"\x1b", "\x07", "\r"} & set(_line(seen).plain)


def test_an_answer_of_another_form_fails_a_check_and_ends_none_of_the_others() -> None:
    def odd(on: Subject) -> str:
        return str(json.loads("[]").get("clone"))

    def deep(on: Subject) -> str:
        return str(json.loads("[" * 100_000))

    on = cast("Subject", None)
    seen = check(on, [Check("odd", odd), Check("deep", deep)])
    assert [one.outcome for one in seen] == [Outcome.FAILED, Outcome.FAILED]


def test_what_a_platform_refuses_is_told_with_a_command_and_never_a_request(
    real_cli: Cli, tmp_path: Path
) -> None:
    words = ("agent", "run", "--task", "true", "--image", "nope", "--state", str(tmp_path / "run.json"))
    said = real_cli(*words)
    assert said.code == 4
    assert "there is no image nope on this host. See which ones there are: sandboxer image list." in said.err
    assert "/v1/" not in said.err


def test_the_file_of_a_run_that_is_over_goes_after_a_week_and_one_that_waits_stays(tmp_path: Path) -> None:
    over, waiting, fresh = (
        loop.StateFile(tmp_path / f"{name}.json") for name in ("over", "waiting", "fresh")
    )
    begun = progress.begin(progress.Order(depth=1, task="true"), now=0.0)
    ended = replace(begun, end=progress.End.DONE, ended_at=0.0)
    for file, known in ((over, ended), (waiting, begun), (fresh, replace(ended, ended_at=9 * 86400.0))):
        with file.alone():
            file.write(known)
        for path in tmp_path.glob(f"{file.path.name}*"):
            os.utime(path, (0, 0))
    forget_ended(tmp_path, now=8 * 86400.0)
    left = ["fresh.json", "fresh.json.lock", "waiting.json", "waiting.json.lock"]
    assert sorted(one.name for one in tmp_path.iterdir()) == left
