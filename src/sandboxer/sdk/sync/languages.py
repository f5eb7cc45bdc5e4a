"""`client.languages`: what runs here, blocking."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.routes import languages as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire.languages import Language


class Languages:
    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self, *, image: str | None = None, available: bool | None = None) -> Sequence[Language]:
        """All, shells among them; only those of an image; only those that run here."""
        return self._line.do(routes.languages(image=image, available=available)).languages

    def get(self, word: str) -> Language:
        """By name, alias or extension."""
        return self._line.do(routes.language(word))

    def shells(self, *, image: str | None = None, available: bool | None = None) -> Sequence[Language]:
        return self._line.do(routes.shells(image=image, available=available)).shells
