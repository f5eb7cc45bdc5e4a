"""Runs of the loop against a served platform: in a thread, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandboxer.sdk.agent import loop, outside
from sandboxer.sdk.agent.acts import Surroundings
from sandboxer.sdk.agent.line import Line, Reply
from sandboxer.sdk.agent.progress import Order, Progress, begin, report
from sandboxer.sdk.credentials import Credentials
from tests.support.http.served import Served

TASK = "echo done"


def order_for(served: Served, **more: Any) -> Order:
    return Order(**{"depth": 1, "task": TASK, "url": served.url} | more)


def owner_of(served: Served) -> Credentials:
    return Credentials(served.owner.public_key, served.owner.secret_key, served.url)


@dataclass
class Run:
    """One file of a run, run as often as a test likes."""

    path: Path
    order: Order
    around: Surroundings
    seen: list[Progress] = field(default_factory=list)
    # No test waits for a pause that only spares a platform.
    pauses: list[float] = field(default_factory=list)
    longest_pause_s: float = 0.02

    async def go(self, watch: Callable[[Progress], None] | None = None) -> Progress:
        return await asyncio.to_thread(self._go, watch)

    def _go(self, watch: Callable[[Progress], None] | None) -> Progress:
        file = loop.StateFile(self.path)

        def note(known: Progress) -> None:
            self.seen.append(known)
            if watch is not None:
                watch(known)

        with file.alone():
            known = file.read() or begin(self.order, now=self.around.now())
            return loop.run(file, known, self.around, watch=note, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        time.sleep(min(seconds, self.longest_pause_s))

    @property
    def troubles(self) -> list[str]:
        """The named states that it met, in order."""
        found: list[str] = []
        last = None
        for one in self.seen:
            if one.trouble is not None and one.trouble != last:
                found.append(one.trouble.blocker)
            last = one.trouble
        return found


def run_of(served: Served, folder: Path, credentials: Credentials | None = None, **order: Any) -> Run:
    """A run with the owner's key unless another is given."""
    around = outside.surroundings(credentials or owner_of(served))
    return Run(folder / "run.json", order_for(served, **order), around)


def said(known: Progress) -> Mapping[str, Any]:
    return report(known)


async def looks(within_s: float = 30.0) -> AsyncIterator[None]:
    """Until the caller has seen what it waits for, which another task or process brings about."""
    async with asyncio.timeout(within_s):
        for _ in itertools.count():
            yield
            await asyncio.sleep(0.05)


Bend = Callable[[str, str, Callable[[], Reply]], Reply]


class Lying(Line):
    """A line on which a test may lose, keep back or change an answer."""

    def __init__(self, *args: Any, bend: Bend, **more: Any) -> None:
        super().__init__(*args, **more)
        self._bend = bend

    def _sent(self, method: str, target: str, *rest: Any) -> Reply:
        return self._bend(method, target, lambda: super(Lying, self)._sent(method, target, *rest))


def lying(honest: Surroundings, key: Credentials, bend: Bend) -> Surroundings:
    """The same surroundings, with such a line."""

    def line(progress: Progress) -> Line:
        return Lying(key.url, signing=outside._signing(key, progress, time.time), bend=bend)

    return replace(honest, line=line)
