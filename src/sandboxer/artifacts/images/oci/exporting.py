"""An image on its way out, as a stream. Each layer is read twice: once for its digest and size, which stand
in front of it, and once to be sent. It is measured once as long as the server runs: an image never changes.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sandboxer.artifacts.images.oci.layers import diff_layer, plain_layer
from sandboxer.artifacts.images.oci.writing import Archive, Form, Layer, Measured, archive, measure
from sandboxer.artifacts.images.published.desk import ImageDesk
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.backends.contract import KeptLayers
from sandboxer.identity.keys import Caller

SCRATCH = "scratch"
_NOT_IN_A_TAG = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    length: int
    name: str
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporting:
    desk: ImageDesk
    # By the id of an image or the name of a tree.
    measured: dict[str, Measured] = field(default_factory=dict)

    async def export(self, image_id: str, form: Form, caller: Caller) -> Export:
        """The image stays from the first piece that is asked for until the last."""
        async with self.desk.reading(image_id, caller) as image:
            layers = await self.desk.shaper(image.backend).layers(image_id)
            async with self.desk.walks.turn(caller.account):
                made = await asyncio.to_thread(self._archive, image, layers, form)
            name = f"{_tag_name(image)}.{form.value}.tar"
            return Export(length=made.length, name=name, chunks=self._chunks(image_id, caller, made))

    async def _chunks(self, image_id: str, caller: Caller, made: Archive) -> AsyncIterator[bytes]:
        async with self.desk.reading(image_id, caller):
            async for chunk in _stepped(made.content()):
                yield chunk

    def _archive(self, image: PublishedImage, layers: KeptLayers, form: Form) -> Archive:
        bounds = self.desk.policy.bounds
        found: list[Layer] = []
        if layers.base != SCRATCH:
            found.append(self._layer(layers.base, partial(_base, layers.tree, bounds)))
        found.append(self._layer(image.id, partial(_diff, layers, bounds)))
        return archive(
            form,
            found,
            config=image.config,
            created=image.created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            tag=f"localhost/{_tag_name(image)}:latest",
            author=image.account,
        )

    def _layer(self, name: str, content: Callable[[], Iterator[bytes]]) -> Layer:
        known = self.measured.get(name)
        if known is None:
            known = self.measured[name] = measure(content())
        return Layer(measured=known, content=content)


def _base(path: Path, bounds: Bounds) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from plain_layer(fd, bounds)
    finally:
        os.close(fd)


def _diff(layers: KeptLayers, bounds: Bounds) -> Iterator[bytes]:
    layer = os.open(layers.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    base = os.open(layers.tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from diff_layer(layer, base, bounds)
    finally:
        os.close(base)
        os.close(layer)


async def _stepped(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is read in a thread when it is wanted."""
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _tag_name(image: PublishedImage) -> str:
    return _NOT_IN_A_TAG.sub("-", image.name.lower()).strip("-._") or image.id
