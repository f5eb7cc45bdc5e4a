"""Which acts met which states: what a run covered, and what it could have covered and did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from tests.money.model.evm import HONEST, LIES, MANNERS

Pairs = Counter[tuple[str, str]]

_ACCOUNTS = tuple(f"account:{one}" for one in ("active", "suspended", "closed"))
_CHILDREN = tuple(f"child:{one}" for one in ("active", "ending", "ended"))
# Those that are there when nothing is under way; `destroyed` is met by acts on everything only.
_SANDBOXES = tuple(f"sandbox:{one}" for one in ("ready", "frozen", "stopped", "grace", "reaped"))
# Another transaction cannot take the nonce of an authorization, no relay is asked, and nobody is left in the
# middle of a broadcast but by a death.
_PAYMENTS = tuple(
    f"payment:{one}"
    for one in ("queued", "broadcasting", "settlement_pending", "mempool", "confirmed", "doubted", "failed")
)
_CHAINS = tuple(f"chain:{one}" for one in (HONEST, "behind", *LIES))
_PEOPLE = (*_ACCOUNTS, *_CHILDREN)
_ALL = (*_PEOPLE, *_SANDBOXES, "sandbox:destroyed", *_PAYMENTS)
# By act: the states in which what it touches can be.
_POSSIBLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pay", "an_outside_payment_fails", "create", "make_volume", "delegate", "cap"), _PEOPLE),
    **dict.fromkeys(("freeze", "thaw", "stop", "resume", "destroy", "extend"), _SANDBOXES),
    **dict.fromkeys(("suspend", "reinstate", "close", "buy_tier"), _ACCOUNTS),
    **dict.fromkeys(("give_more", "revoke_child"), _CHILDREN),
    **dict.fromkeys(
        (
            "time_passes",
            "server_stands_still",
            "server_is_killed",
            "server_restarts",
            "host_reboots",
            "wall_jumps",
            "wall_is_mended",
        ),
        _ALL,
    ),
    "drop_volume": ("volume",),
    "top_up": _ACCOUNTS,
    **dict.fromkeys(("top_up_another", "claim_what_lies_on_the_chain", "order", "redeem_card"), _PEOPLE),
    "buy_card": _PEOPLE,
    "present_again": ("payment:unknown", *_PAYMENTS),
    **dict.fromkeys(("blocks_come", "node_lies", "chain_reorganises"), _CHAINS),
    "facilitator_changes": tuple(f"facilitator:{one}" for one in MANNERS),
    "pay_bill": tuple(f"invoice:{one}" for one in ("exact", "over", "partial", "late")),
}


def told(pairs: Pairs, *, with_missed: bool) -> Iterator[str]:
    """Line by line: each state with the acts that met it, how often; then what could have met and has not."""
    met = ((state, f"{act} {number}") for (state, act), number in sorted(pairs.items()))
    yield from _by_state(met)
    missed = never_met(pairs)
    yield f"  possible and never met: {len(missed)}" + (":" if with_missed and missed else "")
    if with_missed:
        yield from _by_state(missed)


def never_met(pairs: Pairs) -> list[tuple[str, str]]:
    possible = {(state, act) for act, states in _POSSIBLE.items() for state in states}
    return sorted(possible - set(pairs))


def _by_state(words: Iterable[tuple[str, str]]) -> Iterator[str]:
    for state, group in groupby(words, key=itemgetter(0)):
        yield f"  {state}: " + ", ".join(word for _, word in group)
