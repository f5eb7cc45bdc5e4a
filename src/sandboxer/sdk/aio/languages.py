"""`client.languages`: what runs here, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import languages as routes
from sandboxer.wire.languages import Language


class AsyncLanguages:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self, *, image: str | None = None, available: bool | None = None) -> Sequence[Language]:
        """All, shells among them; only those of an image; only those that run here."""
        return (await self._line.do(routes.languages(image=image, available=available))).languages

    async def get(self, word: str) -> Language:
        """By name, alias or extension."""
        return await self._line.do(routes.language(word))

    async def shells(self, *, image: str | None = None, available: bool | None = None) -> Sequence[Language]:
        return (await self._line.do(routes.shells(image=image, available=available))).shells
