"""Money as integers, and how large they may be. `float` never touches money.

Sats are what buckets hold, msats per second what things cost. Time is counted in microseconds, so what a
meter owes is a whole number of nanosats (1 msat/s for 1 µs is 10⁻⁹ sat): no rounding before a whole sat.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from sandboxer.kernel.errors import InvalidRequest

Sats: TypeAlias = int
Msats: TypeAlias = int
Nsats: TypeAlias = int
Cents: TypeAlias = int
# msats per second
Rate: TypeAlias = int

MSATS_PER_SAT = 1_000
NSATS_PER_MSAT = 1_000_000
NSATS_PER_SAT = MSATS_PER_SAT * NSATS_PER_MSAT
# All the bitcoin there will ever be; 4,000 times this still fits the 64 bits of a running total.
MAX_AMOUNT = 21_000_000 * 100_000_000
# 1,000,000 sats a second: a year of a thousand such meters is still exact in Python's integers.
MAX_RATE: Rate = 1_000_000_000
_MICROSECOND = timedelta(microseconds=1)


def checked_amount(value: object, *, field: str = "amount") -> int:
    """The value, if it is a whole positive amount within bounds; InvalidRequest otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(field=field, why="an amount is a whole number")
    if not 0 < value <= MAX_AMOUNT:
        raise InvalidRequest(field=field, why=f"an amount is between 1 and {MAX_AMOUNT}")
    return value


def checked_rate(value: object, *, field: str = "rate") -> Rate:
    """The value, if it is a rate in whole msats per second within bounds (zero is free)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(field=field, why="a rate is a whole number of msats per second")
    if not 0 <= value <= MAX_RATE:
        raise InvalidRequest(field=field, why=f"a rate is between 0 and {MAX_RATE} msats per second")
    return value


def microseconds(duration: timedelta) -> int:
    """Exactly; `total_seconds` is a float."""
    return duration // _MICROSECOND


def sats_for(rate: Rate, duration: timedelta) -> Sats:
    """What so much time costs, rounded up to a whole sat: for holds and demands, never for charges."""
    return -(-rate * microseconds(duration) // NSATS_PER_SAT)


def shown_sats(nsats: Nsats, *, grain: Rate) -> Sats:
    """What was used, rounded up to whole sats for a reader.

    `grain` is its highest rate, that is, what one microsecond costs in nanosats. A charge ends at a whole
    microsecond, so a cap of 7 sats is met at 7.000001 of them. That rest is no sat: the ledger takes 7.
    """
    whole, rest = divmod(nsats, NSATS_PER_SAT)
    return whole + (rest >= max(1, grain))
