"""What happened on one chain, step by step: told while it happens, kept for the table and for programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

# How a chain comes up and a wallet by its first coins is not the shop's business.
BEFORE = ("chain", "wallet")


class Teller(Protocol):
    """Whoever shows it."""

    def begins(self, name: str, total: int | None) -> None: ...
    def advances(self, done: int) -> None: ...
    def ends(self, step: Step) -> None: ...


@dataclass
class Step:
    name: str
    said: str = ""
    took_ms: float = 0.0
    is_done: bool = False


@dataclass
class Running:
    step: Step
    teller: Teller

    def says(self, text: str) -> None:
        self.step.said = text

    def advance(self, done: int) -> None:
        self.teller.advances(done)


@dataclass
class Story:
    chain: str
    title: str
    teller: Teller
    steps: list[Step] = field(default_factory=list)
    error: str | None = None
    asked: int = 0
    paid: str = ""
    credited: int = 0
    spent: int = 0
    left: int = 0
    payer_before: str = ""
    payer_after: str = ""
    shop_before: str = ""
    shop_after: str = ""
    transaction: str = ""
    sandbox: str = ""
    output: str = ""
    receipt: str = ""

    @contextmanager
    def step(self, name: str, *, total: int | None = None) -> Iterator[Running]:
        step = Step(name)
        self.steps.append(step)
        self.teller.begins(name, total)
        start = time.perf_counter()
        try:
            yield Running(step, self.teller)
            step.is_done = True
        finally:
            step.took_ms = (time.perf_counter() - start) * 1000
            self.teller.ends(step)

    @property
    def is_complete(self) -> bool:
        return self.error is None and bool(self.receipt)

    @property
    def seconds(self) -> float:
        """From asking on."""
        return sum(step.took_ms for step in self.steps if step.name not in BEFORE) / 1000

    def as_json(self) -> dict[str, Any]:
        facts = {name: value for name, value in vars(self).items() if name not in ("teller", "steps")}
        steps = [asdict(step) for step in self.steps]
        return {"ok": self.is_complete, **facts, "seconds": round(self.seconds, 3), "steps": steps}
