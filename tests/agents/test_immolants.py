"""Immolants on real walls: they think, answer and are gone, and what they cost is told to the sat. Clones and
immolants by the command line, as somebody meets them who has read the guide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.sdk.agent.immolants import Topology, think_together
from sandboxer.sdk.agent.models import Endpoint, Scripted
from sandboxer.sdk.errors import Unreachable
from tests.support.cli import Cli
from tests.support.clones import Home, agents_home
from tests.support.platforms import why_not_real


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    if why := why_not_real():
        pytest.skip(why)
    with agents_home(tmp_path_factory.mktemp("immolants") / "state", running_msats=100_000) as made:
        yield made


@pytest.fixture
def cli(home: Home, tmp_path: Path) -> Cli:
    return Cli(home.environment | {"SANDBOXER_CONFIG_DIR": str(tmp_path / "config")})


SPLIT = [
    {"when": "tie-breaker", "say": "Lyon."},
    {"when": "voter [12]", "say": "Paris"},
    {"when": "voter [34]", "say": "lyon"},
]


def test_voters_who_are_split_ask_one_more_and_nothing_of_them_is_left(home: Home) -> None:
    client = home.client
    before = client.account.me().money.balance
    with Scripted(SPLIT) as model:
        found = think_together(client, model, "The capital?", Topology.CONSENSUS, voters=4)
    assert (found.answer, len(found.thoughts)) == ("lyon", 5)
    assert len({one.sandbox_id for one in found.thoughts}) == 5
    assert [one.state for one in client.list() if one.labels.get("agent") == "immolant"] == []
    assert all(client.get(one.sandbox_id).info.state == "destroyed" for one in found.thoughts)
    # Each has cost something, and together they cost what the account has less.
    assert all(one.msats > 0 for one in found.thoughts)
    # Of each line of usage less than a thousandth is not told.
    assert client.account.usage().total_msats - sum(one.msats for one in found.thoughts) in range(5)
    # The account carries what is less than a sat.
    assert found.sats - (before - client.account.me().money.balance) in (0, 1)


def test_each_side_of_a_debate_hears_the_other_and_the_judge_all(home: Home) -> None:
    plan = [
        {"when": r"(?s)judge.*speaker for it: one.*against it: two.*for it: three", "say": "heard"},
        {"when": r"(?s)against it\. .*for it: three", "say": "four"},
        {"when": r"(?s)against it\. .*for it: one", "say": "two"},
        {"when": r"(?s)against it: two", "say": "three"},
        {"when": r"for it", "say": "one"},
    ]
    with Scripted(plan) as model:
        found = think_together(home.client, model, "Is it?", Topology.DEBATE)
    assert [one.text for one in found.thoughts] == ["one", "two", "three", "four", "heard"]
    assert found.answer == "heard"


def test_a_model_that_is_away_leaves_no_immolant_behind(home: Home) -> None:
    client = home.client
    with pytest.raises(Unreachable, match="does not answer"):
        think_together(client, Endpoint("http://127.0.0.1:1/v1", "away"), "Is it?", Topology.CONSENSUS)
    assert [one.id for one in client.list() if one.labels.get("agent") == "immolant"] == []


def test_somebody_with_the_guide_in_hand_raises_clones_which_do_tasks_and_are_checked(
    cli: Cli, tmp_path: Path
) -> None:
    for name in ("shadow-1", "shadow-2"):
        made = cli("agent", "clone", name, "--json")
        assert (made.code, made.json["name"]) == (0, name), made
    assert cli("agent", "give", "shadow-1", "name a river", "name a hill").code == 0
    worked = cli("agent", "work", "shadow-1", "shadow-2", "--json")
    assert worked.code == 0, worked
    assert sorted(one["results"] for one in worked.json.values()) == [
        "Done: name a hill",
        "Done: name a river",
    ]
    checked = cli("agent", "check", "shadow-2", "--json")
    assert (checked.code, checked.json["passed"], checked.json["failed"]) == (0, 10, 0), checked
    assert cli("exec", "shadow-2", "--", "rm", "-r", "/root/work/.git").code == 0
    broken = cli("agent", "check", "shadow-2")
    assert broken.code == 1
    assert "failed    git" in broken.out
    unknown = cli("agent", "check", "nobody")
    assert "sandboxer agent clone nobody" in unknown.err


def test_a_question_is_answered_by_the_plan_of_a_file(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "plan.json"
    script.write_text(json.dumps([{"when": "the critic", "say": "too long"}, {"when": "", "say": "a fruit"}]))
    words = ("agent", "think", "--topology", "reflection", "--script", str(script), "Is a tomato a fruit?")
    found = cli(*words, "--json")
    assert found.code == 0, found
    assert (found.json["answer"], len(found.json["thoughts"])) == ("a fruit", 3)
    cost = sum(one["msats"] for one in found.json["thoughts"])
    assert 0 <= 1000 * found.json["sats"] - cost < 1000
    told = cli(*words)
    assert "critic: too long" in told.err
    assert "none is left" in told.err
    assert cli("agent", "think", "--topology", "quarrel", "Is it?").code != 0
