"""Each mend taken back, one at a time, in memory: what the model must find.

A mutation is the number of a mend, what comes back without it, and patches that restore what was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from sandboxer.accounts import gifts, limits, revocation, storage, sums
from sandboxer.money import accrual, heartbeat, ledger, timekeeper
from sandboxer.money.pricing import entitlement
from sandboxer.payments import crediting, settlement
from sandboxer.payments.gift_cards import desk as cards
from sandboxer.payments.gift_cards import redeeming
from sandboxer.payments.invoices import decisions
from sandboxer.payments.reversal import Verdict
from sandboxer.payments.x402 import checkout
from sandboxer.payments.x402.ways import Fate
from sandboxer.sandboxes import book, charging

Patch = tuple[Any, str, Any]
_ENDLESS = 10**30


@dataclass(frozen=True)
class Mutation:
    mend: str
    what: str
    patches: Callable[[], list[Patch]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, new in self.patches():
                stack.enter_context(mock.patch.object(owner, name, new))
            yield


def _nothing(*_: object, **__: object) -> None:
    return None


def _nothing_is_asked_before_keeping() -> list[Patch]:
    return [(storage, "demand_funds", lambda *_, **__: _ENDLESS)]


def _reversed_at_sight() -> list[Patch]:
    def judge(sighting: Any, memory: Any, *, blocks: int) -> Verdict:
        if sighting.fate is Fate.CONFIRMED:
            return Verdict.KEEP
        return Verdict.DOUBT if memory.missed_at is None else Verdict.TAKE_BACK

    return [(settlement, "judge", judge)]


def _charges_without_end() -> list[Patch]:
    return [(accrual, "charges_end_at", _nothing)]


def _downtime_is_no_gap() -> list[Patch]:
    return [(heartbeat, "gap_before", _nothing), (accrual, "charges_end_at", _nothing)]


def _charged_while_dead() -> list[Patch]:
    """A sandbox found dead pays until it is found."""
    real = timekeeper.Timekeeper.__init__

    def init(self: Any, **values: Any) -> None:
        real(self, **{**values, "last_witnessed": None})

    return [(heartbeat, "gap_before", _nothing), (timekeeper.Timekeeper, "__init__", init)]


def _nobody_asks_at_the_door() -> list[Patch]:
    places = (gifts, storage, crediting, cards, redeeming, checkout, book)
    return [(place, "demand_may", _nothing) for place in places]


def _budgets_are_not_bound() -> list[Patch]:
    return [(ledger, "may_leave_budget", lambda *_: True)]


def _claimants_are_believed() -> list[Patch]:
    real = checkout.Checkout._write_down

    async def write_down(self: Any, *given: Any, is_found: bool) -> Any:
        del is_found
        return await real(self, *given, is_found=False)

    return [(checkout.Checkout, "_write_down", write_down), (checkout, "refuse_claim", _nothing)]


def _outsiders_count_in_full() -> list[Patch]:
    real = sums.paid_by_outsiders

    def paid(conn: Any, owner: str) -> int:
        with mock.patch.object(sums, "REVERSED", "never"):
            return real(conn, owner)

    return [(revocation, "paid_by_outsiders", paid)]


def _lock_covers_everything() -> list[Patch]:
    return [(decisions._Plan, "_rounding", lambda _: _ENDLESS)]


def _each_name_is_a_key() -> list[Patch]:
    return [(sums, "_counted_key", lambda _conn, _owner, key: key)]


def _spent_is_rounded_up() -> list[Patch]:
    return [(charging, "shown_sats", lambda nsats, **_: -(-nsats // 10**9))]


def _a_tier_sets_the_limit() -> list[Patch]:
    def requests(tier: int | None, *, policy: Any = limits.LIMITS, **_: object) -> int:
        return policy.bucket_only if tier is None else entitlement(tier, policy.tiers).requests_per_minute

    return [(limits, "requests_per_minute", requests)]


MUTATIONS = [
    Mutation("1", "nothing is asked for before something is kept", _nothing_is_asked_before_keeping),
    Mutation("2", "two looks at a node that shows nothing take a payment back", _reversed_at_sight),
    Mutation("3", "charges have no end", _charges_without_end),
    Mutation("3 (down)", "time without a server is a debt", _downtime_is_no_gap),
    Mutation("F3", "who died unseen pays until he is found", _charged_while_dead),
    Mutation("4", "nobody asks whether an account may act", _nobody_asks_at_the_door),
    Mutation("5", "a budget is a bucket like any other", _budgets_are_not_bound),
    Mutation("6", "whoever claims a transfer gets it", _claimants_are_believed),
    Mutation("7", "what outsiders paid counts, also what was taken back", _outsiders_count_in_full),
    Mutation("9", "a locked price covers whatever comes", _lock_covers_everything),
    Mutation("10", "each name of a delegated account is a key", _each_name_is_a_key),
    Mutation("15", "what was spent is rounded up", _spent_is_rounded_up),
    Mutation("16", "a tier lowers the limit of requests", _a_tier_sets_the_limit),
]
# Not of the model: 8, 11 and 14 are about real nodes and relays, 12, 13 and 17 about routes.
