"""Chains that live as long as the demo, started side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testchains.demo.places import Place
from testchains.demo.show import Starting


class Life(threading.Thread):
    """One chain, from start to stop in one thread: nodes die with the thread that started them."""

    def __init__(self, place: Place, folder: Path) -> None:
        super().__init__(name=place.title, daemon=True)
        self.place = place
        self.error: str | None = place.why_not()
        self.is_settled = threading.Event()
        self._folder = folder
        self._over = threading.Event()

    def run(self) -> None:
        try:
            if self.error is None:
                self._folder.mkdir()
                self.place.open(self._folder)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.is_settled.set()
        if self.error is None:
            self._over.wait()
            self.place.close()

    def end(self) -> None:
        self._over.set()


@contextmanager
def running(places: Sequence[Place], folder: Path) -> Iterator[list[Life]]:
    """All begin here; each says by itself when it is up, or why not. On leaving all are stopped."""
    lives = [Life(place, folder / place.key) for place in places]
    for life in lives:
        life.start()
    try:
        yield lives
    finally:
        for life in lives:
            life.end()
        for life in lives:
            life.join()


def wait_for(lives: Sequence[Life], lines: Starting) -> None:
    waiting = list(lives)
    while waiting:
        for life in [one for one in waiting if one.is_settled.wait(0.05)]:
            waiting.remove(life)
            if life.error is None:
                lines.ready(life.place.title)
            else:
                lines.failed(life.place.title, life.error)
