"""Decides which accounts' sandboxes come last on the processor: those that take most of it, while others have
sandboxes too. Plain functions of what was counted; `loops/precedence.py` counts and applies.

Who comes last may have all that nobody else wants, and is interrupted as soon as somebody does. So nobody is
held back on a host that is his alone, and whoever asks for little need not wait behind who asks for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecedenceBounds:
    # The part of all cores that accounts must take, together, before they give way. Little: where other
    # programs of the host leave little to sandboxes, who gets it matters most.
    floor: float = 1 / 32
    # Who gives way takes at least so many times as much as each who does not.
    gap: float = 1.5
    # Over which more use than before is averaged, and less: who gives way takes less because of it, and is
    # not to come first again at once.
    noticed_s: float = 0.5
    forgotten_s: float = 5.0
    # For the same reason who gives way counts for so many times what it takes.
    sticky: float = 2.0


def heaviest(cores_of: Mapping[str, float], cores: int, bounds: PrecedenceBounds) -> frozenset[str]:
    """Those who take most, down to the first gap; empty if there is none below them, or they take little."""
    ordered = sorted(cores_of, key=lambda account: (-cores_of[account], account))
    together = 0.0
    for number, account in enumerate(ordered[:-1], start=1):
        together += cores_of[account]
        next_one = cores_of[ordered[number]]
        if together >= bounds.floor * cores and cores_of[account] >= bounds.gap * next_one:
            return frozenset(ordered[:number])
    return frozenset()


@dataclass(slots=True)
class Precedence:
    """All times are those of time.monotonic()."""

    cores: int
    bounds: PrecedenceBounds = field(default_factory=PrecedenceBounds)
    # Cores that each account takes that runs a sandbox, on average.
    _taken: dict[str, float] = field(default_factory=dict)
    _counted_at: float | None = None
    _giving: frozenset[str] = frozenset()

    def is_little(self, seconds: float, passed_s: float) -> bool:
        """Whether it need not be asked whose these seconds of all together were."""
        return not self._giving and seconds < self.bounds.floor * self.cores * passed_s

    def nothing_much(self, now: float) -> None:
        """All together had little since the last call."""
        self._taken, self._counted_at = {}, now

    def decide(self, used_s: Mapping[str, float], now: float) -> frozenset[str]:
        """The accounts that give way from now on. `used_s`: of every account that runs a sandbox, what it had
        of the processor since the last call."""
        passed_s = 0.0 if self._counted_at is None else now - self._counted_at
        self._counted_at = now
        self._taken = {
            account: self._average(self._taken.get(account, 0.0), used, passed_s)
            for account, used in used_s.items()
        }
        wanted = {
            account: cores * (self.bounds.sticky if account in self._giving else 1)
            for account, cores in self._taken.items()
        }
        self._giving = heaviest(wanted, self.cores, self.bounds)
        return self._giving

    def _average(self, before: float, used_s: float, passed_s: float) -> float:
        cores = used_s / passed_s if passed_s > 0 else before
        over_s = self.bounds.noticed_s if cores > before else self.bounds.forgotten_s
        kept = math.exp(-passed_s / over_s)
        return kept * before + (1 - kept) * cores
