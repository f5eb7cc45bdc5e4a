"""Whom the driver plays, and what it knows of each without asking the platform: the oracle's own book."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sandboxer.identity.keys import Caller

UNSEEN = "unseen"


@dataclass
class Person:
    name: str
    caller: Caller
    # The private key of its wallet; "": it has none.
    wallet: str = ""
    parent: Person | None = None
    status: str = "active"
    # Sats that outsiders brought for good, less what their chain took back; what it got by redeeming cards.
    outside: int = 0
    # Ever brought, whatever became of it: grace is earned by it.
    ever: int = 0
    # Taken back by a chain after it was credited: what was spent of it meanwhile may be a debt.
    reversed: int = 0
    # Moved by the driver: budgets to children, cards and gifts bought.
    given: int = 0
    received: int = 0
    spent_on_cards: int = 0
    # Nanosats: no more than this may be charged; no less, unless `is_loose`.
    most: int = 0
    least: int = 0
    # It ran dry, met a cap, a reboot or a clock: what is due is known as an upper bound only.
    is_loose: bool = False
    # Nanosats per microsecond at the most, for what one more second of grace may cost.
    top_rate: int = 0
    # A payment was seen and not final: it renews grace, up to the hard cap.
    had_receipt: bool = False
    cap: int | None = None
    # Of a delegated account, which is one key under whatever names: so many sats in all.
    key_cap: int | None = None
    # By payments that a chain must still confirm, or may take back: so much must be credited, so much may be,
    # and so much of it could become a debt.
    least_paid: int = 0
    most_paid: int = 0
    unsure: int = 0

    @property
    def account(self) -> str:
        return self.caller.account

    @property
    def is_child(self) -> bool:
        return self.parent is not None

    @property
    def standing(self) -> str:
        return f"{'child' if self.is_child else 'account'}:{self.status}"

    @property
    def may_act(self) -> bool:
        return self.status == "active" and (self.parent is None or self.parent.may_act)


@dataclass
class Thing:
    """A sandbox, as the driver last saw it."""

    id: str
    owner: Person
    state: str = UNSEEN
    rate: int = 0
    # It runs on a host that can reboot; what is only kept survives.
    is_running: bool = False
    # Its owner asked for its end.
    is_ended: bool = False


@dataclass
class Cast:
    people: list[Person] = field(default_factory=list)
    things: dict[str, Thing] = field(default_factory=dict)
    volumes: dict[str, tuple[Person, int]] = field(default_factory=dict)
    count: int = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def by_account(self, account: str) -> Person | None:
        return next((one for one in self.people if one.account == account), None)

    def below(self, person: Person) -> Iterator[Person]:
        for one in self.people:
            if one.parent is person:
                yield one
                yield from self.below(one)
