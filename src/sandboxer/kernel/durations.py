"""Durations as people write them: `30s`, `15m`, `4h`, `2d`."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timedelta

from sandboxer.kernel.errors import InvalidRequest

_FORM = re.compile(r"^([0-9]{1,9})([smhd])$")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Longest duration anyone may name; keeps every later sum far from datetime's edge.
MAX_DURATION = timedelta(days=3660)


def parse_duration(text: str, *, field: str) -> timedelta:
    match = _FORM.match(text)
    if match is None:
        raise InvalidRequest(field=field, why=f"{text!r} is not a duration like 30s, 15m, 4h or 2d")
    seconds = int(match[1]) * _UNIT_S[match[2]]
    if not 0 < seconds <= MAX_DURATION.total_seconds():
        raise InvalidRequest(field=field, why=f"{text!r} is not between 1s and {MAX_DURATION.days}d")
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNIT_S[unit] == 0:
            return f"{seconds // _UNIT_S[unit]}{unit}"
    return f"{seconds}s"


def add_months(moment: datetime, months: int) -> datetime:
    """The same day so many calendar months later (earlier, if below zero), or that month's last."""
    count = moment.month - 1 + months
    year, month = moment.year + count // 12, count % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))
