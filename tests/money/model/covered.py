"""Which acts met which states: what a run covered, and what it could have covered and did not.

`python -m tests.money.model.covered [first seed] [schedules]` plays a row on SQLite and prints the table of
docs/explanation/model.md.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from tests.money.model import nodes
from tests.money.model.evm import HONEST, LIES, MANNERS, PRETENCES
from tests.money.model.play import LIVES, PLAY
from tests.money.model.schedule import run_schedule

Pairs = Counter[tuple[str, str]]

_ACCOUNTS = tuple(f"account:{one}" for one in ("active", "suspended", "closed"))
# Between acts none is left ending; one act is about that.
_CHILDREN = tuple(f"child:{one}" for one in ("active", "ended"))
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
# Made by the act itself, without a sat.
_NEW = ("account:new",)
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
    "index_fails": ("index:down", "index:reorganised"),
    **dict.fromkeys(("newcomer_keeps_a_volume", "nobody_is_there_while_it_runs"), _NEW),
    "it_runs_on_without_sats": _NEW,
    **dict.fromkeys(
        (
            "child_buys_a_card",
            "child_is_revoked_after_a_payment_failed",
            "child_acts_under_many_names",
            "cap_is_reached",
            "node_forgets_what_is_confirmed",
            "node_takes_another_branch",
            "node_forgets_what_has_expired",
        ),
        ("account:active",),
    ),
    "child_ends_slowly": ("child:ending",),
    "suspended_wallet_pays": ("account:suspended",),
    "invoice_is_overpaid": ("invoice:over",),
    "strangers_order": tuple(f"node:{one}" for one in (nodes.HONEST, nodes.SCANNING, nodes.DOWN)),
    **dict.fromkeys(("pay_by_relay", "images_are_shared"), _PEOPLE),
    "node_is_of_another_chain": tuple(f"chain:{one}" for one in PRETENCES),
    "strangers_ask_for_prices": ("stranger",),
    "strangers_ask_for_more_time": ("sandbox:ready", "sandbox:frozen"),
    "pay_bill": tuple(f"invoice:{one}" for one in ("exact", "over", "partial", "late")),
}


def described(pairs: Pairs, *, with_missed: bool) -> Iterator[str]:
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


def unknown_acts() -> list[str]:
    """Acts of which nobody said what they can meet."""
    return sorted(PLAY.acts.keys() - _POSSIBLE.keys())


def table(pairs: Pairs) -> Iterator[str]:
    """For people: each state, the acts that met it with how often, and those that could have and did not."""
    missed = dict[str, list[str]]()
    for state, act in never_met(pairs):
        missed.setdefault(state, []).append(f"`{act}`")
    yield "| State | Met by (times) | Possible, not met |"
    yield "|---|---|---|"
    for state in sorted({state for state, _ in pairs} | missed.keys()):
        met = ", ".join(f"`{act}` {number}" for (one, act), number in sorted(pairs.items()) if one == state)
        yield f"| {state} | {met} | {', '.join(missed.get(state, ())) or '–'} |"


def _by_state(words: Iterable[tuple[str, str]]) -> Iterator[str]:
    for state, group in groupby(words, key=itemgetter(0)):
        yield f"  {state}: " + ", ".join(word for _, word in group)


def main() -> None:
    logging.getLogger("sandboxer").setLevel(logging.CRITICAL)
    first, number = (int(one) for one in (sys.argv[1:] + ["1", "100"][len(sys.argv) - 1 :]))
    pairs = Pairs()
    for seed in range(first, first + number):
        pairs += asyncio.run(run_schedule(seed, PLAY if seed % 2 else LIVES)).pairs
    print("\n".join(table(pairs)))


if __name__ == "__main__":
    main()
