"""Each mend taken back, one at a time, in memory: what the model must find.

A mutation is the number of a mend, what comes back without it, and patches that restore what was before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from sandboxer.accounts import limits, revocation, storage, sums
from sandboxer.accounts import use_cases as account_use_cases
from sandboxer.artifacts.images.published import grants as sharing
from sandboxer.edges.http import purchases
from sandboxer.edges.http.routes import sandboxes as sandbox_routes
from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.money import heartbeat, ledger
from sandboxer.money import records as buckets_as_values
from sandboxer.money.pricing import entitlement
from sandboxer.payments import credits, settlement
from sandboxer.payments.chains import core_rpc
from sandboxer.payments.chains.transport import NodeError
from sandboxer.payments.gift_cards import redemption
from sandboxer.payments.gift_cards import use_cases as cards
from sandboxer.payments.invoices import policy as decisions
from sandboxer.payments.invoices import use_cases
from sandboxer.payments.settlement import Verdict
from sandboxer.payments.stacks import relay
from sandboxer.payments.stacks import way as stacks_way
from sandboxer.payments.stacks.relay import PaymentState
from sandboxer.payments.x402 import checkout
from sandboxer.payments.x402 import evm as evm_opening
from sandboxer.payments.x402.offers import X402Asking
from sandboxer.payments.x402.ways import Fate, Sighting
from sandboxer.sandboxes import charging, repository

Patch = tuple[Any, str, Any]
_ENDLESS = 10**30


@dataclass(frozen=True)
class Mutation:
    mend: str
    what: str
    patches: Callable[[], list[Patch]]
    # The act that is most likely to find it.
    act: str

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
    return [(buckets_as_values, "charges_end_at", _nothing)]


def _downtime_is_no_gap() -> list[Patch]:
    return [(heartbeat, "gap_before", _nothing), (buckets_as_values, "charges_end_at", _nothing)]


def _charged_while_dead() -> list[Patch]:
    """A sandbox found dead pays until it is found."""
    real = heartbeat.Timekeeper.__init__

    def init(self: Any, **values: Any) -> None:
        real(self, **{**values, "last_witnessed": None})

    return [(heartbeat, "gap_before", _nothing), (heartbeat.Timekeeper, "__init__", init)]


def _nobody_asks_at_the_door() -> list[Patch]:
    places = (account_use_cases, storage, credits, cards, redemption, checkout, repository)
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


def _orders_read_the_chain() -> list[Patch]:
    """Each new address is looked up among all outputs, and an index is spent whatever happens next."""

    async def fresh_address(self: Any, index: int) -> str:
        address: str = self._keys.address(index)
        try:
            await self._node.call("scantxoutset", ("start", [f"addr({address})"]))
        except NodeError as error:
            raise self._wire.trouble(f"an address cannot be watched: {error}") from None
        return address

    return [(core_rpc.CoreRpc, "fresh_address", fresh_address)]


def _addresses_are_burnt() -> list[Patch]:
    async def fresh(self: Any, chain: Any) -> tuple[int, str]:
        index = await self._take_index(chain.code)
        self._spare.setdefault(chain.code, [])
        return index, await chain.fresh_address(index)

    return [(use_cases.InvoiceUseCases, "_fresh_address", fresh)]


def _relays_are_believed() -> list[Patch]:
    """What a relay has forgotten was never paid, and it is asked for ever."""
    real = stacks_way._said

    def said(status: Any) -> Sighting:
        is_gone = status.state is PaymentState.NOT_FOUND
        return Sighting(fate=Fate.UNSEEN, reason="unknown") if is_gone else real(status)

    def confirmed(conn: Any, payment: Any, sighting: Any, depth: Any, now: Any) -> Any:
        return real_confirmed(conn, payment, replace(sighting, head=sighting.head or 0), depth, now)

    real_confirmed = settlement._confirmed
    return [
        (stacks_way, "_said", said),
        (settlement, "_confirmed", confirmed),
        *_reversed_at_sight(),
    ]


def _words_of_relays_are_unknown() -> list[Patch]:
    def status(answer: Any) -> Any:
        try:
            return relay.read_status(relay._json(answer))
        except relay.Unreadable as nonsense:
            raise ChainUnavailable(chain="stacks relay", why=str(nonsense)) from None

    words = {name: state for name, state in relay.SYNONYMS.items() if name != "broadcast"}
    return [(relay, "SYNONYMS", words), (relay, "_status", status)]


def _each_402_keeps_a_challenge() -> list[Patch]:
    real = X402Asking._extensions

    async def extensions(self: Any, wanted: Any) -> dict[str, Any]:
        if wanted.account is None:
            await self._siwx.challenges.issue("siwx", account="")
        return await real(self, wanted)

    return [(X402Asking, "_extensions", extensions)]


def _payers_are_named_and_believed() -> list[Patch]:
    @asynccontextmanager
    async def proven(*_: object) -> AsyncIterator[None]:
        yield

    return [(purchases, "proven", proven), (sandbox_routes, "proven", proven)]


def _networks_are_not_checked() -> list[Patch]:
    async def check(*_: object) -> None:
        return None

    return [(evm_opening, "why_unusable", check)]


def _images_go_to_anybody() -> list[Patch]:
    async def account(_: Any, name: str) -> str:
        return name

    return [(sharing.ImageSharing, "_account", account)]


MUTATIONS = [
    Mutation(
        "1",
        "nothing is asked for before something is kept",
        _nothing_is_asked_before_keeping,
        "newcomer_keeps_a_volume",
    ),
    Mutation(
        "2",
        "two looks at a node that shows nothing take a payment back",
        _reversed_at_sight,
        "node_forgets_what_is_confirmed",
    ),
    Mutation("3", "charges have no end", _charges_without_end, "it_runs_on_without_sats"),
    Mutation(
        "3 (down)", "time without a server is a debt", _downtime_is_no_gap, "nobody_is_there_while_it_runs"
    ),
    Mutation(
        "F3", "who died unseen pays until he is found", _charged_while_dead, "nobody_is_there_while_it_runs"
    ),
    Mutation(
        "4", "nobody asks whether an account may act", _nobody_asks_at_the_door, "suspended_wallet_pays"
    ),
    Mutation("5", "a budget is a bucket like any other", _budgets_are_not_bound, "child_buys_a_card"),
    Mutation(
        "6", "whoever claims a transfer gets it", _claimants_are_believed, "claim_what_lies_on_the_chain"
    ),
    Mutation(
        "7",
        "what outsiders paid counts, also what was taken back",
        _outsiders_count_in_full,
        "child_is_revoked_after_a_payment_failed",
    ),
    Mutation(
        "8", "a stranger's order has the node read its chain", _orders_read_the_chain, "strangers_order"
    ),
    Mutation(
        "8 (index)",
        "an order that is refused takes an address with it",
        _addresses_are_burnt,
        "strangers_order",
    ),
    Mutation("9", "a locked price covers whatever comes", _lock_covers_everything, "invoice_is_overpaid"),
    Mutation(
        "10", "each name of a delegated account is a key", _each_name_is_a_key, "child_acts_under_many_names"
    ),
    Mutation("11", "what a relay has forgotten was never paid", _relays_are_believed, "pay_by_relay"),
    Mutation(
        "11 (words)",
        "a relay that says `broadcast` is not understood",
        _words_of_relays_are_unknown,
        "pay_by_relay",
    ),
    Mutation(
        "12", "each 402 to a stranger writes a row", _each_402_keeps_a_challenge, "strangers_ask_for_prices"
    ),
    Mutation(
        "13",
        "who names a wallet learns which sandboxes it has",
        _payers_are_named_and_believed,
        "strangers_ask_for_more_time",
    ),
    Mutation(
        "14", "a node of another chain is believed", _networks_are_not_checked, "node_is_of_another_chain"
    ),
    Mutation("15", "what was spent is rounded up", _spent_is_rounded_up, "cap_is_reached"),
    Mutation("16", "a tier lowers the limit of requests", _a_tier_sets_the_limit, "buy_tier"),
    Mutation("17", "an image is given to whoever is named", _images_go_to_anybody, "images_are_shared"),
]
