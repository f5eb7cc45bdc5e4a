"""The ten steps as a table with what must hold before and after each, the named states in which a run can be
held up with what is done about each, and the one door through both: `advance`. Decisions only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sandboxer.sdk.agent.progress import CAUSE, MOST_EVENTS, End, Event, Progress, Step, Trouble, Way

# What is missing, in words; None: it holds.
Check = Callable[[Progress], str | None]


class Blocker(StrEnum):
    """The named states. The first twelve are the paper's."""

    LOST_KEY = "lost_key"
    EXPIRED_INVOICE = "expired_invoice"
    LOCKED_WALLET = "locked_wallet"
    FAILED_BROADCAST = "failed_broadcast"
    REVERSED_CONFIRMATION = "reversed_confirmation"
    CLOCK_SKEW = "clock_skew"
    RATE_LIMIT = "rate_limit"
    TTL = "ttl"
    MEMORY = "memory"
    RACE = "race"
    ORPHAN = "orphan"
    CASCADING_FAILURE = "cascading_failure"
    UNAVAILABLE = "unavailable"
    NO_MONEY = "no_money"
    BUDGET = "budget"
    NO_WAY_TO_PAY = "no_way_to_pay"
    NO_PYTHON = "no_python"
    CHILD_LOST = "child_lost"
    REFUSED = "refused"


class Reaction(StrEnum):
    # The same again, after a pause.
    WAIT = "wait"
    # Back to an earlier step, under new ids.
    ANEW = "anew"
    # Only whoever runs it can mend this; the next run of the same file goes on from here.
    STOP = "stop"
    # No repetition helps: what was made is ended.
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is done about a named state: so often, and then something else."""

    reaction: Reaction
    means: str
    do: str
    most: int = 1
    then: Reaction = Reaction.STOP
    # The first pause; each further one is twice as long.
    pause_s: float = 0.0
    # Where it goes back to, and what is forgotten of what it knew.
    back_to: Step | None = None
    forgets: tuple[str, ...] = ()


LONGEST_PAUSE_S = 30.0
_OF_CHILD = ("child", "result")
RULES: Mapping[Blocker, Rule] = {
    Blocker.LOST_KEY: Rule(
        reaction=Reaction.ANEW,
        back_to=Step.RECEIVE_KEYS,
        forgets=("key",),
        most=2,
        means="The secret of its key was shown once and did not arrive, or the key is not accepted any more.",
        do="It asks for a new secret by the claim, or the wallet that paid signs in instead."
        " Where both fail, the operator makes one (`sandboxer key rotate`) for a new run.",
    ),
    Blocker.EXPIRED_INVOICE: Rule(
        reaction=Reaction.ANEW,
        back_to=Step.CREATE_INVOICE,
        forgets=("bill", "payment"),
        most=3,
        means="The invoice ended before anything was sent, or what was signed can move no money any more.",
        do="It asks for another. What was sent already is never sent for a second invoice.",
    ),
    Blocker.LOCKED_WALLET: Rule(
        reaction=Reaction.STOP,
        means="The wallet does not sign: it is locked, its password is missing, its caps are reached, or what"
        " it should sign is no text of this platform at the address of the run.",
        do="Unlock it, or raise the cap, and run the same file again. A text of another is never signed.",
    ),
    Blocker.FAILED_BROADCAST: Rule(
        reaction=Reaction.WAIT,
        pause_s=1.0,
        most=6,
        means="The network, or the platform that broadcasts, did not take the payment.",
        do="It sends the very same payment again, which cannot move money twice.",
    ),
    Blocker.REVERSED_CONFIRMATION: Rule(
        reaction=Reaction.ANEW,
        back_to=Step.SEND_PAYMENT,
        pause_s=1.0,
        most=6,
        means="The chain took back a payment that it had shown.",
        do="It sends the very same payment again and waits for it. It never signs a second one.",
    ),
    Blocker.CLOCK_SKEW: Rule(
        reaction=Reaction.WAIT,
        most=3,
        means="Its clock differs from the platform's, which takes its signatures for old or early ones.",
        do="It takes over the platform's time for its signatures, and asks again at once.",
    ),
    Blocker.RATE_LIMIT: Rule(
        reaction=Reaction.WAIT,
        pause_s=1.0,
        most=50,
        means="It asked more often than its account may.",
        do="It waits for as long as the platform says, ten minutes at most.",
    ),
    Blocker.TTL: Rule(
        reaction=Reaction.ANEW,
        back_to=Step.CREATE_CHILD,
        forgets=_OF_CHILD,
        then=Reaction.GIVE_UP,
        means="The time of the child was over before its work was.",
        do="It extends the time before it ends, while it may; else it makes one more child, once.",
    ),
    Blocker.MEMORY: Rule(
        reaction=Reaction.ANEW,
        back_to=Step.CREATE_CHILD,
        forgets=_OF_CHILD,
        most=2,
        then=Reaction.GIVE_UP,
        means="What ran in the child was ended because it used more memory than the child has.",
        do="It ends that child and makes another with twice the memory, two times.",
    ),
    Blocker.RACE: Rule(
        reaction=Reaction.WAIT,
        pause_s=0.2,
        most=60,
        means="Somebody does the same at this moment: another agent with this file, or its own request from"
        " before a crash.",
        do="It waits until that is answered, and takes the same answer.",
    ),
    Blocker.ORPHAN: Rule(
        reaction=Reaction.GIVE_UP,
        means="Whoever made the sandbox in which it runs has ended, and its authority with it.",
        do="It stops at once. The platform ends what it had made, or lets that go on if it was adopted.",
    ),
    Blocker.CASCADING_FAILURE: Rule(
        reaction=Reaction.GIVE_UP,
        means="A layer below gave up.",
        do="It ends its child and reports the deepest cause upwards.",
    ),
    Blocker.UNAVAILABLE: Rule(
        reaction=Reaction.WAIT,
        pause_s=0.2,
        most=40,
        means="Nobody answers, or the platform cannot do it now.",
        do="It asks again, ever more rarely.",
    ),
    Blocker.NO_MONEY: Rule(
        reaction=Reaction.STOP,
        means="The account, or the budget, does not suffice for the layers that were asked for.",
        do="Add credit or raise the budget, and run the same file again; or ask for less.",
    ),
    Blocker.BUDGET: Rule(
        reaction=Reaction.GIVE_UP,
        means="To make one more child it would have to spend more than the budget leaves. Children that were"
        " lost count, with all that they were granted.",
        do="It ends what it made. Begin a new run with a larger budget.",
    ),
    Blocker.NO_WAY_TO_PAY: Rule(
        reaction=Reaction.STOP,
        means="The platform does not take payments in the way that was asked for.",
        do="Choose another way to pay in a new run.",
    ),
    Blocker.NO_PYTHON: Rule(
        reaction=Reaction.GIVE_UP,
        means="The image of the child has no python3 of version 3.11 or later, which the loop needs inside.",
        do="Name another image. The last layer needs none.",
    ),
    Blocker.CHILD_LOST: Rule(
        reaction=Reaction.ANEW,
        back_to=Step.CREATE_CHILD,
        forgets=_OF_CHILD,
        then=Reaction.GIVE_UP,
        means="The child ended before its time: somebody removed it, or its host lost it.",
        do="It makes one more child, once.",
    ),
    Blocker.REFUSED: Rule(
        reaction=Reaction.GIVE_UP,
        means="The platform does not allow what was asked for.",
        do="Read what it says, and ask for something else.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A step: what must hold before it, and after it; and why there may be nothing to do."""

    step: Step
    before: Check
    after: Check
    is_passed: Check = field(default=lambda progress: None)


def _known(*names: str) -> Check:
    def missing(progress: Progress) -> str | None:
        lacks = [name for name in names if getattr(progress, name) is None]
        return f"it does not know its {', '.join(lacks)}" if lacks else None

    return missing


def _nothing(progress: Progress) -> str | None:
    return None


def paid_for(progress: Progress) -> str | None:
    """Says why nothing has to be paid."""
    if progress.place is not None and progress.place.socket is not None:
        return "the parent paid"
    if progress.order.way is Way.KEY:
        return "it has a key"
    return None


def has_key(progress: Progress) -> str | None:
    """Says why no key has to be received."""
    if (why := paid_for(progress)) is not None:
        return why
    return None if progress.key is None else "it came with the payment"


def _is_sent(progress: Progress) -> str | None:
    sent = progress.payment is not None and progress.payment.is_sent
    return None if sent else "nothing was paid"


def _is_settled(progress: Progress) -> str | None:
    settled = progress.payment is not None and progress.payment.state == SETTLED
    return None if settled else "the payment is not confirmed"


def _may_ask(progress: Progress) -> str | None:
    return None if has_key(progress) is not None else "it has no key"


def _has_child(progress: Progress) -> str | None:
    ready = progress.child is not None and progress.child.is_installed
    return None if ready else "it has no child that can begin"


SETTLED = "settled"
TABLE: tuple[Row, ...] = (
    Row(step=Step.INSIDE_SANDBOX, before=_nothing, after=_known("place")),
    Row(step=Step.DISCOVER_TOOLS, before=_known("place"), after=_known("platform")),
    Row(step=Step.FETCH_PRICING, before=_known("platform"), after=_known("price")),
    Row(step=Step.CREATE_INVOICE, before=_known("price"), after=_known("bill"), is_passed=paid_for),
    Row(step=Step.SEND_PAYMENT, before=_known("bill"), after=_is_sent, is_passed=paid_for),
    Row(step=Step.POLL_CONFIRMATION, before=_is_sent, after=_is_settled, is_passed=paid_for),
    Row(step=Step.RECEIVE_KEYS, before=_is_settled, after=_known("key"), is_passed=has_key),
    Row(step=Step.INSTALL_TOOLS, before=_may_ask, after=_known("tools")),
    Row(step=Step.CREATE_CHILD, before=_known("tools"), after=_has_child),
    Row(step=Step.EXECUTE_IN_CHILD, before=_has_child, after=_known("result")),
)
_PAYING = frozenset({Step.CREATE_INVOICE, Step.SEND_PAYMENT, Step.POLL_CONFIRMATION, Step.RECEIVE_KEYS})
ROWS: Mapping[Step, Row] = {row.step: row for row in TABLE}


@dataclass(frozen=True, slots=True)
class Kept:
    """A part of a step is done: it is written down, and the step goes on, after a pause if there is one."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    what: str = ""
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """The step is done."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    what: str = ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The step cannot go on, for a reason that has a name."""

    blocker: Blocker
    why: str
    retry_after_s: float | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    cause: Mapping[str, Any] | None = None


Outcome = Kept | Done | Blocked


class BrokenStep(Exception):
    """A step began or ended without what must hold then: a fault of the loop itself."""


def demand_before(progress: Progress) -> None:
    """Raises BrokenStep if the step must not begin."""
    if (lack := ROWS[progress.step].before(progress)) is not None:
        raise BrokenStep(f"{progress.step.value} must not begin: {lack}")


def advance(progress: Progress, outcome: Outcome, *, now: float) -> Progress:
    """Returns what holds after an act. No other function changes step, trouble or end."""
    if progress.end is not None:
        raise BrokenStep("the run is over")
    changed = replace(progress, **outcome.changes)
    if isinstance(outcome, Blocked):
        return _held_up(changed, outcome, now)
    changed = _told(changed, outcome.what, now)
    # What passed by waiting may pass by waiting again.
    lasting = {name: n for name, n in changed.tries.items() if RULES[Blocker(name)].reaction is Reaction.ANEW}
    changed = replace(changed, trouble=None, tries=lasting)
    if isinstance(outcome, Kept):
        return changed
    if (lack := ROWS[changed.step].after(changed)) is not None:
        raise BrokenStep(f"{changed.step.value} must not end: {lack}")
    return _onward(changed, now)


def _onward(progress: Progress, now: float) -> Progress:
    order = [row.step for row in TABLE]
    passed = dict(progress.passed)
    for step in order[order.index(progress.step) + 1 :]:
        if (why := ROWS[step].is_passed(progress)) is None:
            return replace(progress, step=step, passed=passed)
        passed[step.value] = why
    return replace(progress, end=End.DONE, ended_at=now, passed=passed)


def _held_up(progress: Progress, outcome: Blocked, now: float) -> Progress:
    rule = RULES[outcome.blocker]
    tries = progress.tries.get(outcome.blocker, 0) + 1
    reaction = rule.reaction if tries <= rule.most else rule.then
    if reaction is Reaction.ANEW and rule.back_to in _PAYING and paid_for(progress) is not None:
        # What was never paid for by this run cannot be had again by it.
        reaction = Reaction.STOP
    if reaction is Reaction.STOP and progress.place is not None and progress.place.socket is not None:
        # Inside nobody mends anything: whoever made this sandbox has to know.
        reaction = Reaction.GIVE_UP
    pause_s = outcome.retry_after_s
    if pause_s is None:
        pause_s = min(rule.pause_s * 2 ** (tries - 1), LONGEST_PAUSE_S)
    trouble = Trouble(
        blocker=outcome.blocker.value,
        why=outcome.why,
        reaction=reaction.value,
        at=now,
        not_before=now + (pause_s if reaction in (Reaction.WAIT, Reaction.ANEW) else 0.0),
        cause=outcome.cause,
    )
    changed = replace(progress, trouble=trouble, tries={**progress.tries, outcome.blocker.value: tries})
    changed = _told(changed, f"{outcome.blocker.value}: {outcome.why}", now)
    if reaction is Reaction.ANEW:
        return _anew(changed, rule)
    if reaction is Reaction.GIVE_UP:
        return replace(_abandoned(changed), end=End.GAVE_UP, ended_at=now)
    return changed


def _anew(progress: Progress, rule: Rule) -> Progress:
    assert rule.back_to is not None
    changed = _abandoned(progress) if "child" in rule.forgets else progress
    forgotten: dict[str, Any] = dict.fromkeys(rule.forgets)
    changed = replace(changed, **forgotten)
    # A payment that was sent is sent again under the id that it had.
    if not rule.forgets:
        return replace(changed, step=rule.back_to)
    rounds = {**changed.rounds, rule.back_to.value: changed.rounds.get(rule.back_to, 0) + 1}
    return replace(changed, step=rule.back_to, rounds=rounds)


def _abandoned(progress: Progress) -> Progress:
    """What a child may have spent is counted, until its end says what it was; one that is kept goes on."""
    child = progress.child
    if child is None or child.id in progress.lost:
        return progress
    counted = replace(
        progress,
        child=replace(child, cost_sats=0, granted_sats=0),
        lost={**progress.lost, child.id: child.cost_sats},
        lost_grants_sats=progress.lost_grants_sats + child.granted_sats,
    )
    if progress.order.keep:
        return counted
    return replace(counted, leftovers=(*progress.leftovers, child.id))


def resumed(progress: Progress, *, now: float) -> Progress:
    """Returns how a run that stopped goes on when it is run again: with new patience."""
    if progress.end is not None or progress.trouble is None:
        return progress
    if progress.trouble.reaction != Reaction.STOP.value:
        return progress
    tries = {name: n for name, n in progress.tries.items() if name != progress.trouble.blocker}
    return _told(replace(progress, trouble=None, tries=tries), "run again", now)


def with_order(progress: Progress, *, url: str, budget_sats: int) -> Progress:
    """Returns the run with what may be said again: an address where none is known, and a larger budget as
    long as nothing was asked for by the smaller one.
    """
    order = replace(progress.order, url=progress.order.url or url)
    if progress.price is None:
        order = replace(order, budget_sats=max(order.budget_sats, budget_sats))
    return replace(progress, order=order)


def is_stopped(progress: Progress) -> bool:
    return progress.trouble is not None and progress.trouble.reaction == Reaction.STOP.value


def deepest(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns where and why the lowest layer that reported gave up."""
    blocked = report.get("blocked")
    # It was written in a child, by whatever runs there.
    blocked = blocked if isinstance(blocked, Mapping) else {}
    if isinstance(cause := blocked.get("cause"), Mapping):
        return {name: cause.get(name) for name in CAUSE}
    known = {**report, "blocker": blocked.get("blocker"), "why": blocked.get("why")}
    return {name: known.get(name) for name in CAUSE}


def _told(progress: Progress, what: str, now: float) -> Progress:
    if not what:
        return progress
    event = Event(at=now, step=progress.step.value, what=what)
    return replace(progress, events=(*progress.events, event)[-MOST_EVENTS:])
