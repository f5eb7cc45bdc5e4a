"""Brings images to an engine: each version once, under a tag that says which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from sandboxer.backends.docker.engine import Engine
from sandboxer.kernel.errors import ProvisionFailed
from sandboxer.kernel.values import value_class

# Of gigabytes, to a host that is far away.
LOAD_S = 1800.0


@value_class
class Archive:
    """An image as `docker load` and `podman load` read it."""

    length: int
    chunks: AsyncIterator[bytes]


class Images(Protocol):
    """What images there are here, each with our supervisor in it."""

    def tag_of(self, image: str) -> str:
        """Returns the tag of what the name means now. Raises InvalidRequest if there is no such image."""

    async def archive(self, image: str) -> Archive: ...


class Loader:
    def __init__(self, engine: Engine, images: Images) -> None:
        self._engine = engine
        self._images = images
        self._present: set[str] = set()
        self._loading: dict[str, asyncio.Lock] = {}

    def check(self, image: str) -> str:
        return self._images.tag_of(image)

    async def bring(self, image: str) -> str:
        """Returns the tag of an image that the engine has by then. Raises InvalidRequest, ProvisionFailed."""
        tag = self._images.tag_of(image)
        if tag not in self._present:
            async with self._loading.setdefault(tag, asyncio.Lock()):
                if tag not in self._present and not await self._is_there(tag):
                    await self._load(image, tag)
                self._present.add(tag)
        return tag

    def doubt(self, tag: str) -> None:
        """The engine says that it has not got it: it is looked for again."""
        self._present.discard(tag)

    async def _is_there(self, tag: str) -> bool:
        return (await self._engine.call("GET", f"/images/{tag}/json", accepts=(404,))).status == 200

    async def _load(self, image: str, tag: str) -> None:
        made = await self._images.archive(image)
        await self._engine.call(
            "POST",
            "/images/load",
            params={"quiet": "1"},
            content=made.chunks,
            length=made.length,
            limit_s=LOAD_S,
        )
        if not await self._is_there(tag):
            raise ProvisionFailed(step="image", why=f"the engine took {image} and does not have it")
