"""When a payment that was confirmed is taken back: pure decisions over what nodes said.

An answer is proof only if it comes from a head no lower than the last one seen of that chain, and says that
the block of the payment is not the chain's any more. A null receipt, a node that is behind, a relay that has
forgotten: none of these proves anything. Even proof first freezes the sats, and takes them back only when the
payment is in no block for so many more blocks, or when its nonce was spent by something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.payments.x402.ways import Fate, Sighting

# A head that nobody showed again for so long was a lie, or another chain's.
HEAD_KEPT_FOR = timedelta(days=1)
ENDS = frozenset({Fate.FAILED, Fate.REPLACED, Fate.FORGOTTEN})
# Of two negative answers the one that claims less counts.
_CLAIMS = (Fate.SEEN, Fate.UNSEEN, Fate.FORGOTTEN, Fate.REPLACED, Fate.FAILED)


class Verdict(StrEnum):
    # Nothing is proven, or not yet enough.
    KEEP = "keep"
    DOUBT = "doubt"
    TAKE_BACK = "take_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was known before this look."""

    # The highest head seen of this chain.
    head: int | None = None
    # The head from which the payment was first missed; None: it is not in doubt.
    missed_at: int | None = None


def judge(sighting: Sighting, memory: Memory, *, blocks: int) -> Verdict:
    """What a look at a credited payment means for its credit. `blocks`: for how many it must be missing."""
    if not is_proof(sighting, memory.head) or sighting.is_block_there:
        return Verdict.KEEP
    if memory.missed_at is None:
        return Verdict.DOUBT
    if sighting.is_spent_otherwise:
        return Verdict.TAKE_BACK
    head = sighting.head or 0
    return Verdict.TAKE_BACK if head >= memory.missed_at + blocks else Verdict.KEEP


def is_proof(sighting: Sighting, head: int | None) -> bool:
    """Whether it says that the payment is not on its chain, from a head no lower than the last one seen."""
    if sighting.fate in (Fate.CONFIRMED, Fate.UNKNOWN) or sighting.head is None:
        return False
    return head is None or sighting.head >= head


def agreed(first: Sighting, second: Sighting) -> Sighting:
    """What two nodes bear out together. Either can vouch for a payment; both must deny it."""
    if first.fate is Fate.CONFIRMED:
        return first
    if second.fate is Fate.CONFIRMED:
        return second
    if Fate.UNKNOWN in (first.fate, second.fate) or first.head is None or second.head is None:
        return Sighting(fate=Fate.UNKNOWN, reason="the nodes do not agree")
    least = min(first, second, key=lambda one: _CLAIMS.index(one.fate))
    return replace(
        least,
        head=min(first.head, second.head),
        is_block_there=first.is_block_there or second.is_block_there,
        is_spent_otherwise=first.is_spent_otherwise and second.is_spent_otherwise,
    )


def head_after(known: int | None, known_at: datetime | None, seen: int, *, now: datetime) -> int:
    """The head to remember of a chain: the highest, unless nobody has shown it again for a day."""
    if known is None or known_at is None or seen >= known or now - known_at >= HEAD_KEPT_FOR:
        return seen
    return known
