"""`sandboxer language` and `sandboxer status`: what runs here, what is free."""

from __future__ import annotations

import os
from pathlib import Path

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli
from tests.support.platforms import scripted_platform


def test_languages_are_listed_shown_and_spoken_in_json(cli: Cli) -> None:
    listed = cli("language", "list")
    assert "Fortran" in listed.out
    assert "shells" in listed.out
    one = cli("language", "show", "c++")
    assert "g++" in one.out
    assert "hello from cpp" in one.out
    assert {"bash", "zsh"} <= {shell["name"] for shell in cli("language", "list", "--shells", "--json").items}
    assert cli("language", "list", "--image", "no-such-image", "--json").items == []


def test_a_mistyped_language_is_answered_with_the_nearest(cli: Cli) -> None:
    said = cli("language", "show", "pyhton")
    assert said.code == Exit.REFUSED
    assert "python" in said.err


def test_status_shows_health_capacity_counts_and_limits(cli: Cli) -> None:
    said = cli("status")
    for word in ("health", "ext.namespaces", "STORAGE", "Your limits", "profile.build"):
        assert word in said.out
    known = cli("status", "--json").json
    assert known["health"]["status"] == "ok"
    assert known["cluster"]["hosts"][0]["free"]["memory_mb"] > 0
    assert known["limits"]["requests"] == []


def test_status_of_a_degraded_platform_says_which_check_fails(tmp_path: Path) -> None:
    with scripted_platform(tmp_path / "state") as up:
        # Where the probe of the state folder would write: now it cannot.
        (tmp_path / "state" / f".probe-{os.getpid()}").mkdir()
        said = Cli(up.environment)("status")
        known = Cli(up.environment)("status", "--json")
    assert said.code == known.code == Exit.UNAVAILABLE
    assert "Failing: state." in said.err
    assert "Your limits" in said.out
    assert (known.json["health"]["status"], known.json["health"]["checks"]["state"]) == (
        "degraded",
        "failing",
    )
