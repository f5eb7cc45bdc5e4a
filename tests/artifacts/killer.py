"""Starts servers one after the other on the same state folder, each killed in the middle."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.artifacts.victim import Facts, Round, serve

SEED = int(os.environ.get("SANDBOXER_TEST_SEED", "1"))
# More steps than any deed has.
NEVER = 10_000

_servers = multiprocessing.get_context("forkserver")
_servers.set_forkserver_preload(["tests.artifacts.victim", "tests.artifacts.memory_victim"])


class Killer:
    """Starts one server after the other on the same state folder."""

    def __init__(self, state: Path, serve: Callable[[Round, Connection], None] = serve) -> None:
        self._state = state
        self._serve = serve
        self._number = 0
        self._facts: Facts | None = None
        self._last: tuple[str, int, Facts] | None = None

    def strike(self, deed: str | None, at: int) -> bool:
        """Whether it died before the deed was done."""
        self._number += 1
        plan = Round(self._state, self._number, deed, at, self._facts, self._last)
        near, far = _servers.Pipe()
        process = _servers.Process(target=self._serve, args=(plan, far))
        process.start()
        far.close()
        try:
            self._facts = hear(near, "audited", plan)
            if deed is None:
                hear(near, "cleared", plan)
                process.join(60)
                return False
            self._last = (deed, self._number, hear(near, "lit", plan))
            return heard(near) is None
        finally:
            process.kill()
            process.join(30)
            near.close()


def heard(pipe: Connection) -> Any:
    """None: it died."""
    assert pipe.poll(120), "neither done nor dead"
    try:
        return pipe.recv()
    except EOFError:
        return None


def hear(pipe: Connection, word: str, plan: Round) -> Facts:
    said = heard(pipe)
    assert said is not None, f"it died by itself: {plan}"
    assert said[:2] == (word, []), f"{said[1]} after {plan.last}"
    facts: Facts = said[2]
    return facts
