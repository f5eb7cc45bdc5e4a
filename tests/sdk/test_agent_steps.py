"""The table of an agent's steps: every step with every named state, and what is kept of a run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxer.sdk.agent import loop, steps
from sandboxer.sdk.agent.line import Reply, refusal_of
from sandboxer.sdk.agent.progress import (
    Bill,
    Child,
    End,
    Key,
    Order,
    Payment,
    Place,
    Platform,
    Price,
    Progress,
    Result,
    Step,
    Tools,
    Way,
    begin,
    below,
    from_json,
    report,
    to_json,
)
from sandboxer.sdk.agent.steps import Blocked, Blocker, BrokenStep, Done, Kept, Reaction, advance

NOW = 1_000_000.0
# What each step fills in, so that the next may begin.
FILLS: dict[Step, dict[str, Any]] = {
    Step.INSIDE_SANDBOX: {"place": Place()},
    Step.DISCOVER_TOOLS: {"platform": Platform(version="1", url="u", is_charged=True, takes_strangers=True)},
    Step.FETCH_PRICING: {"price": Price(layer_sats=5, total_sats=10, networks=("eip155:1",))},
    Step.CREATE_INVOICE: {"bill": Bill(sats=10, id="b", claim="secret-claim")},
    Step.SEND_PAYMENT: {"payment": Payment(is_sent=True, id="p", signed="00")},
    Step.POLL_CONFIRMATION: {"payment": Payment(is_sent=True, id="p", state=steps.SETTLED)},
    Step.RECEIVE_KEYS: {"key": Key(public_key="pk", secret_key="secret-key")},
    Step.INSTALL_TOOLS: {"tools": Tools(sha256="0", size=1, available_sats=10)},
    Step.CREATE_CHILD: {"child": Child(id="sbx_1", is_installed=True)},
    Step.EXECUTE_IN_CHILD: {"result": Result(exit_code=0)},
}


def order(**more: Any) -> Order:
    return Order(**{"depth": 2, "task": "true", "way": Way.X402, "budget_sats": 10, "url": "http://x"} | more)


def at(step: Step, **more: Any) -> Progress:
    """A run that has come so far."""
    known = begin(order(**more), now=NOW, run="r")
    while known.step is not step:
        known = advance(known, Done(FILLS[known.step]), now=NOW)
    return known


def test_the_ten_steps_follow_each_other_and_each_demands_what_the_last_one_left() -> None:
    known = begin(order(), now=NOW, run="r")
    assert [row.step for row in steps.TABLE] == list(Step)
    for step in Step:
        assert known.step is step
        steps.demand_before(known)
        known = advance(known, Done(FILLS[step]), now=NOW)
    assert known.end is End.DONE


@pytest.mark.parametrize("step", Step)
def test_a_step_does_not_end_without_what_it_promises(step: Step) -> None:
    with pytest.raises(BrokenStep, match="must not end"):
        advance(at(step), Done(), now=NOW)


@pytest.mark.parametrize("step", [one for one in Step if one is not Step.INSIDE_SANDBOX])
def test_a_step_does_not_begin_without_what_it_needs(step: Step) -> None:
    with pytest.raises(BrokenStep, match="must not begin"):
        steps.demand_before(replace(begin(order(), now=NOW), step=step))


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("blocker", Blocker)
def test_every_named_state_is_answered_in_every_step_and_comes_to_an_end(
    step: Step, blocker: Blocker
) -> None:
    known = at(step)
    for _ in range(200):
        if known.end is not None or steps.is_stopped(known):
            break
        known = replace(known, step=step) if known.step is not step else known
        known = advance(known, Blocked(blocker, "why"), now=NOW)
        assert known.trouble is not None
        assert known.trouble.blocker == blocker.value
    rule = steps.RULES[blocker]
    last = {Reaction.WAIT: rule.then, Reaction.ANEW: rule.then}.get(rule.reaction, rule.reaction)
    assert (known.end is End.GAVE_UP) == (last is Reaction.GIVE_UP)
    assert steps.is_stopped(known) == (last is Reaction.STOP)


@pytest.mark.parametrize("blocker", Blocker)
def test_every_named_state_says_what_it_means_and_what_is_done(blocker: Blocker) -> None:
    rule = steps.RULES[blocker]
    assert rule.means.endswith(".")
    assert rule.do.endswith(".")
    assert (rule.back_to is not None) == (rule.reaction is Reaction.ANEW)


def test_where_the_parent_paid_or_there_is_a_key_nothing_is_paid() -> None:
    inside = advance(
        begin(order(way=Way.KEY, url=""), now=NOW), Done({"place": Place(sandbox="s", socket="/s")}), now=NOW
    )
    for known in (inside, advance(begin(order(way=Way.KEY), now=NOW), Done({"place": Place()}), now=NOW)):
        for step in (Step.DISCOVER_TOOLS, Step.FETCH_PRICING):
            known = advance(known, Done(FILLS[step]), now=NOW)
        assert known.step is Step.INSTALL_TOOLS
        assert len(known.passed) == 4


@pytest.mark.parametrize("blocker", Blocker)
def test_who_paid_nothing_is_never_sent_back_to_a_step_of_payment(blocker: Blocker) -> None:
    known = begin(order(way=Way.KEY), now=NOW)
    while known.step is not Step.CREATE_CHILD:
        known = advance(known, Done(FILLS[known.step]), now=NOW)
    known = advance(known, Blocked(blocker, "why"), now=NOW)
    if known.end is None:
        steps.demand_before(known)
    assert known.step is Step.CREATE_CHILD


def test_a_run_inside_gives_up_where_one_outside_waits_for_somebody() -> None:
    known = replace(at(Step.CREATE_CHILD), place=Place(sandbox="s", socket="/s"))
    assert advance(known, Blocked(Blocker.NO_MONEY, "why"), now=NOW).end is End.GAVE_UP
    assert steps.is_stopped(advance(at(Step.CREATE_CHILD), Blocked(Blocker.NO_MONEY, "why"), now=NOW))


def test_a_new_beginning_has_new_ids_and_the_same_beginning_the_same() -> None:
    known = at(Step.EXECUTE_IN_CHILD)
    before = known.id_for("child", Step.CREATE_CHILD)
    after = advance(known, Blocked(Blocker.MEMORY, "why"), now=NOW)
    assert after.step is Step.CREATE_CHILD
    assert after.child is None
    assert after.leftovers == ("sbx_1",)
    assert after.memory_mb == 2 * known.memory_mb
    assert (
        after.id_for("child", Step.CREATE_CHILD)
        != before
        == at(Step.CREATE_CHILD).id_for("child", Step.CREATE_CHILD)
    )


def test_what_was_signed_is_kept_when_the_chain_takes_it_back() -> None:
    known = at(Step.POLL_CONFIRMATION)
    after = advance(known, Blocked(Blocker.REVERSED_CONFIRMATION, "gone"), now=NOW)
    assert after.step is Step.SEND_PAYMENT
    assert after.payment is not None
    assert after.payment.signed == "00"
    assert (after.bill, after.rounds) == (known.bill, {})


def test_a_pause_is_what_the_platform_says_or_grows() -> None:
    known = at(Step.CREATE_CHILD)
    said = advance(known, Blocked(Blocker.RATE_LIMIT, "slow", 17.0), now=NOW)
    assert said.trouble is not None
    assert said.trouble.not_before == NOW + 17
    waits = []
    for _ in range(8):
        known = advance(known, Blocked(Blocker.UNAVAILABLE, "gone"), now=NOW)
        assert known.trouble is not None
        waits.append(known.trouble.not_before - NOW)
    assert waits == sorted(waits)
    assert max(waits) <= steps.LONGEST_PAUSE_S
    known = advance(known, Kept(), now=NOW)
    assert (known.trouble, dict(known.tries)) == (None, {})


def test_a_run_that_waits_for_somebody_goes_on_with_new_patience() -> None:
    stopped = advance(at(Step.SEND_PAYMENT), Blocked(Blocker.LOCKED_WALLET, "locked"), now=NOW)
    again = steps.resumed(stopped, now=NOW + 5)
    assert (again.trouble, again.step, dict(again.tries)) == (None, Step.SEND_PAYMENT, {})


def test_a_larger_budget_is_taken_until_something_was_asked_for_by_the_smaller() -> None:
    for step, taken in ((Step.FETCH_PRICING, 50), (Step.CREATE_INVOICE, 10)):
        known = steps.with_order(at(step), url="http://other", budget_sats=50)
        assert (known.order.budget_sats, known.order.url) == (taken, "http://x")


def test_the_guide_says_of_every_named_state_what_the_table_says() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/agents.md").read_text()
    for blocker, rule in steps.RULES.items():
        assert f"| `{blocker.value}` | {rule.means} | {rule.do} |" in guide
    assert all(f"| `{step.value}` |" in guide for step in Step)


@pytest.mark.parametrize("step", Step)
def test_a_run_is_the_same_after_its_file(step: Step) -> None:
    known = advance(at(step), Kept({"leftovers": ("a",)}, "said"), now=NOW)
    assert from_json(json.loads(json.dumps(to_json(known)))) == known


@pytest.mark.parametrize(
    "text",
    ["{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "order": 3}', "[]", "[" * 100_000, "\udc95"],
)
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(loop.UnreadableState):
        loop.StateFile(tmp_path / "run.json").read()


def test_a_report_and_the_beginning_of_a_child_hold_no_secret() -> None:
    known = at(Step.EXECUTE_IN_CHILD, gift_code="secret-words")
    told = json.dumps([report(known), to_json(below(known, budget_sats=3, now=NOW))])
    assert "secret" not in told
    assert (below(known, budget_sats=3, now=NOW).order.depth, known.order.depth) == (1, 2)


def test_the_file_is_for_its_owner_alone_and_for_one_process(tmp_path: Path) -> None:
    file = loop.StateFile(tmp_path / "run.json")
    file.write(at(Step.SEND_PAYMENT))
    assert file.path.stat().st_mode & 0o777 == 0o600
    with file.alone(), pytest.raises(loop.HeldElsewhere), loop.StateFile(file.path).alone():
        pass


def test_what_a_child_is_given_needs_python_alone_and_packs_itself_again(tmp_path: Path) -> None:
    archive = tmp_path / "loop.pyz"
    archive.write_bytes(loop.packed())
    assert loop.packed() == archive.read_bytes()
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); from sandboxer.sdk.agent import loop;"
        f"sys.exit(loop.packed() != open({str(archive)!r}, 'rb').read())"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(zipfile.ZipFile(io.BytesIO(loop.packed())).namelist()) == {*loop.PACKED, "__main__.py"}


@pytest.mark.parametrize(
    ("status", "problem", "is_inside", "blocker"),
    [
        (401, {"reason": "clock_skew", "server_time": 1_000_100}, False, Blocker.CLOCK_SKEW),
        (401, {"reason": "invalid_key"}, False, Blocker.LOST_KEY),
        (401, {"reason": "before_start"}, False, Blocker.UNAVAILABLE),
        (401, {}, True, Blocker.ORPHAN),
        (403, {"reason": "not_active"}, True, Blocker.ORPHAN),
        (403, {"reason": "not_active"}, False, Blocker.REFUSED),
        (402, {}, False, Blocker.NO_MONEY),
        (409, {"reason": "in_flight"}, False, Blocker.RACE),
        (409, {}, False, Blocker.REFUSED),
        (429, {}, False, Blocker.RATE_LIMIT),
        (503, {}, False, Blocker.UNAVAILABLE),
        (502, {}, True, Blocker.UNAVAILABLE),
    ],
)
def test_a_refusal_has_a_name(
    status: int, problem: dict[str, Any], is_inside: bool, blocker: Blocker
) -> None:
    content = json.dumps({"detail": "no", "facts": problem}).encode()
    held = refusal_of(
        Reply(status, {"retry-after": "17"}, content), is_inside=is_inside, now=lambda: NOW
    ).blocked
    assert (held.blocker, held.why) == (blocker, "no")
    waits = blocker in (Blocker.RATE_LIMIT, Blocker.UNAVAILABLE)
    assert held.retry_after_s == (17.0 if waits else None)
    assert held.changes == ({"clock_offset_s": 100.0} if blocker is Blocker.CLOCK_SKEW else {})


def test_the_deepest_cause_is_what_is_reported() -> None:
    cause = {"sandbox": "sbx_3", "depth": 1, "step": "create_child", "blocker": "no_money", "why": "empty"}
    leaf = cause | {"blocked": {"blocker": "no_money", "why": "empty", "cause": None}}
    middle = {"sandbox": "sbx_2", "blocked": {"blocker": "cascading_failure", "cause": steps.deepest(leaf)}}
    assert steps.deepest(middle) == cause
    # A child may say anything.
    for said in ({}, {"blocked": "x"}, {"blocked": {"cause": {"why": 3}}}, {"blocked": {"cause": "x"}}):
        assert set(steps.deepest(said)) == set(cause)
