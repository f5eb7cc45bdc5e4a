"""Chains that live as long as the demo, started side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testchains.demo.places import Place
from testchains.demo.show import Starting
from testchains.processes import NotStarted, kill_all


class Life(threading.Thread):
    """One chain, from start to stop in one thread: nodes die with the thread that started them."""

    def __init__(self, place: Place) -> None:
        super().__init__(name=place.title, daemon=True)
        self.place = place
        self.error: str | None = place.why_not()
        self.is_settled = threading.Event()
        self._over = threading.Event()

    def run(self) -> None:
        try:
            if self.error is None:
                self.place.open()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.is_settled.set()
        if self.error is None:
            self._over.wait()
            self.place.close()

    def wait(self) -> str:
        """Until it is up. Raises NotStarted."""
        self.is_settled.wait()
        if self.error is not None:
            raise NotStarted(self.error)
        return f"{self.place.title} is up"

    def end(self) -> None:
        self._over.set()


@contextmanager
def running(places: Sequence[Place]) -> Iterator[list[Life]]:
    """All begin here; each says by itself when it is up, or why not. On leaving all are stopped."""
    lives = [Life(place) for place in places]
    for life in lives:
        life.start()
    try:
        yield lives
    finally:
        for life in lives:
            life.end()
        if not all(life.is_settled.is_set() for life in lives):
            # Interrupted. A node that dies ends the wait for it, and its folder goes as if it had failed.
            kill_all()
        for life in lives:
            life.join()


def wait_for(lives: Sequence[Life], lines: Starting) -> None:
    """Until all have come up or failed, but for the slow ones."""
    waiting = list(lives)
    while any(not life.place.is_slow for life in waiting):
        for life in [one for one in waiting if one.is_settled.wait(0.05)]:
            waiting.remove(life)
            if life.error is None:
                lines.ready(life.place.title)
            else:
                lines.failed(life.place.title, life.error)
    for life in waiting:
        lines.later(life.place.title)
