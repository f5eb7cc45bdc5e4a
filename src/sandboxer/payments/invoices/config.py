"""The terms of invoices as an operator writes them. Read strictly: a typing slip is no term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.invoices.records import InvoicePolicy

_DURATIONS = frozenset({"expires_after", "confirm_within", "watch_for"})


def read_policy(given: Mapping[str, Any], *, confirmations: Mapping[str, int]) -> InvoicePolicy:
    """Terms that are not named keep their default; `confirmations` are said where the chains are."""
    known = {field.name for field in fields(InvoicePolicy)} - {"confirmations"}
    values: dict[str, Any] = {"confirmations": confirmations}
    for name, value in given.items():
        if name not in known:
            raise InvalidRequest(field=f"invoices.{name}", why=f"known are {', '.join(sorted(known))}")
        if name in _DURATIONS:
            value = parse_duration(str(value), field=f"invoices.{name}")
        elif name == "poll_s":
            value = float(_number(name, value))
        else:
            value = _whole(name, value)
        values[name] = value
    return InvoicePolicy(**values)


def _number(name: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(field=f"invoices.{name}", why="it must be a number")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest(field=f"invoices.{name}", why="it must be a whole number, not below zero")
    return value
