"""What a sandbox was not allowed to reach, lately: bounded, and the same thing over and over is one entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sandboxer.access.egress.decision import Ask, Deny

KEPT = 200
_CUT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    first_at: datetime
    last_at: datetime
    count: int
    host: str
    # 0: what was asked for had none.
    port: int
    method: str
    path: str
    reason: str
    why: str
    rule: str


class Denials:
    def __init__(self, kept: Sequence[Denial] = ()) -> None:
        self._kept = OrderedDict((_key(one), one) for one in kept)
        self.is_new = False

    def add(self, deny: Deny, ask: Ask | None, said: str, now: datetime) -> None:
        one = Denial(
            first_at=now,
            last_at=now,
            count=1,
            host=said[:_CUT] if ask is None else ask.host,
            port=0 if ask is None else ask.port,
            method="" if ask is None else ask.method or "CONNECT",
            path="" if ask is None else (ask.path or "").partition("?")[0][:_CUT],
            reason=deny.reason,
            why=deny.why[:_CUT],
            rule="" if deny.rule is None else deny.rule.words(),
        )
        known = self._kept.pop(_key(one), None)
        if known is not None:
            one = replace(one, first_at=known.first_at, count=known.count + 1)
        self._kept[_key(one)] = one
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        self.is_new = True

    def latest(self) -> list[Denial]:
        return list(reversed(self._kept.values()))


def _key(one: Denial) -> tuple[str, int, str, str]:
    return one.host, one.port, one.method, one.reason


def to_json(denials: Denials) -> list[dict[str, Any]]:
    """Oldest first."""
    return [
        {
            "first_at": one.first_at.isoformat(),
            "last_at": one.last_at.isoformat(),
            "count": one.count,
            "host": one.host,
            "port": one.port,
            "method": one.method,
            "path": one.path,
            "reason": one.reason,
            "why": one.why,
            "rule": one.rule,
        }
        for one in reversed(denials.latest())
    ]


def from_json(kept: Sequence[Mapping[str, Any]]) -> Denials:
    return Denials(
        [
            Denial(
                **{
                    **one,
                    "first_at": datetime.fromisoformat(one["first_at"]),
                    "last_at": datetime.fromisoformat(one["last_at"]),
                }
            )
            for one in kept
        ]
    )
