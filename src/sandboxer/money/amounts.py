"""Amounts of money are integers within bounds; `float` never touches money.

Buckets hold sats, and rates are msats per second. Time is counted in microseconds, so what a meter owes is a
whole number of nanosats (1 msat/s for 1 µs is 10⁻⁹ sat): no rounding before a whole sat.
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
    """Convert to whole microseconds, exactly; `total_seconds` would give a float."""
    return duration // _MICROSECOND


def sats_for(rate: Rate, duration: timedelta) -> Sats:
    """Return what a duration costs, rounded up to a whole sat.

    It is for holds and limits, never for charges.
    """
    return -(-rate * microseconds(duration) // NSATS_PER_SAT)


def shown_sats(nsats: Nsats, *, grain: Rate) -> Sats:
    """Round what was used up to whole sats, as shown to a reader.

    `grain` is the highest rate it was used at, which is what one microsecond costs in nanosats. A charge ends
    at a whole microsecond, so a cap of 7 sats is reached at 7.000001 sats. Such a rest of less than one
    microsecond is not shown as another sat, because the ledger charges 7.
    """
    whole, rest = divmod(nsats, NSATS_PER_SAT)
    return whole + (rest >= max(1, grain))
