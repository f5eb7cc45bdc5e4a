"""Exports an image as a stream. Each layer is read twice: once for its digest and size, which come before it,
and once to be sent. It is measured once per run of the server, because an image never changes.

The export is one tar: the same blobs are named as in an OCI layout, or as `docker save` names them. The
layout also contains Docker's manifest, as Docker 25 and later write it, so that Docker 20 reads either form.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from sandboxer.artifacts.images.oci import tar as tar_writing
from sandboxer.artifacts.images.oci.archive import architecture
from sandboxer.artifacts.images.oci.tar import END, diff_layer, plain_layer
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.artifacts.images.published.use_cases import ImageUseCases
from sandboxer.backends.contract import KeptLayers
from sandboxer.backends.shared import opened
from sandboxer.identity.keys import Caller
from sandboxer.kernel.values import value_class

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Form(StrEnum):
    OCI = "oci"
    DOCKER = "docker"


@value_class
class Measured:
    """The digest and size of a blob."""

    digest: str
    size: int


@value_class
class Layer:
    measured: Measured
    content: Callable[[], Iterator[bytes]]


@value_class
class Archive:
    length: int
    content: Callable[[], Iterator[bytes]]


def measure(content: Iterator[bytes]) -> Measured:
    hashed, size = hashlib.sha256(), 0
    for chunk in content:
        hashed.update(chunk)
        size += len(chunk)
    return Measured(digest=hashed.hexdigest(), size=size)


def archive(
    form: Form, layers: Sequence[Layer], *, config: Mapping[str, Any], created: str, tag: str, author: str
) -> Archive:
    about = _json(
        {
            "created": created,
            "author": author,
            "architecture": architecture(),
            "os": "linux",
            "config": _config(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one.measured.digest}" for one in layers]},
            "history": [{"created": created, "created_by": "sandboxer"} for _ in layers],
        }
    )
    parts = _oci(layers, about, tag) if form is Form.OCI else _docker(layers, about, tag)
    length = len(END)
    for name, part in parts:
        length += tar_writing.length_of(name, part.measured.size if isinstance(part, Layer) else len(part))
    return Archive(length=length, content=lambda: tar_writing.in_pieces(_content(parts)))


Parts = Sequence[tuple[str, "bytes | Layer"]]


def _oci(layers: Sequence[Layer], about: bytes, tag: str) -> Parts:
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, about),
            "layers": [
                {
                    "mediaType": _LAYER,
                    "digest": f"sha256:{one.measured.digest}",
                    "size": one.measured.size,
                }
                for one in layers
            ],
        }
    )
    named = {**_descriptor(_MANIFEST, manifest), "annotations": {"org.opencontainers.image.ref.name": tag}}
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]})
    names = [f"blobs/sha256/{one.measured.digest}" for one in layers]
    return [
        ("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        ("index.json", index),
        ("manifest.json", _json([{"Config": _blob(about), "RepoTags": [tag], "Layers": names}])),
        (_blob(manifest), manifest),
        (_blob(about), about),
        *_once(list(zip(names, layers, strict=True))),
    ]


def _docker(layers: Sequence[Layer], about: bytes, tag: str) -> Parts:
    digest = hashlib.sha256(about).hexdigest()
    names = [f"{one.measured.digest}.tar" for one in layers]
    manifest = _json([{"Config": f"{digest}.json", "RepoTags": [tag], "Layers": names}])
    return [
        ("manifest.json", manifest),
        (f"{digest}.json", about),
        *_once(list(zip(names, layers, strict=True))),
    ]


def _once(parts: Sequence[tuple[str, Layer]]) -> list[tuple[str, Layer]]:
    return list(dict(parts).items())


def _content(parts: Parts) -> Iterator[bytes]:
    for name, part in parts:
        if isinstance(part, bytes):
            yield from tar_writing.file(name, part)
            continue
        size = part.measured.size
        yield tar_writing.header(name.encode(), kind=b"0", mode=0o644, size=size)
        yield from part.content()
        yield tar_writing.padding(size)
    yield END


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    env = list(given.get("Env", ()))
    if not any(str(one).startswith("PATH=") for one in env):
        env.append(_PATH)
    runs = "Cmd" in given or "Entrypoint" in given
    return {**given, "Env": env, **({} if runs else {"Cmd": ["/bin/sh"]})}


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(blob).hexdigest()
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(blob)}


def _blob(content: bytes) -> str:
    return "blobs/sha256/" + hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


SCRATCH = "scratch"
_NOT_IN_A_TAG = re.compile(r"[^a-z0-9._-]+")


@value_class
class Export:
    length: int
    name: str
    chunks: AsyncIterator[bytes]


@value_class
class Exporting:
    use_cases: ImageUseCases
    # By the id of an image, or the name of a tree.
    measured: dict[str, Measured] = field(default_factory=dict)

    async def export(self, image_id: str, form: Form, caller: Caller) -> Export:
        """Yields the archive. The image is protected from removal from the first piece to the last."""
        async with self.use_cases.reading(image_id, caller) as image:
            layers = await self.use_cases.shaper(image.backend).layers(image_id)
            async with self.use_cases.walks.turn(caller.account):
                made = await asyncio.to_thread(self._archive, image, layers, form)
            name = f"{_tag_name(image)}.{form.value}.tar"
            return Export(length=made.length, name=name, chunks=self._chunks(image_id, caller, made))

    async def export_tree(self, tree: Path, name: str) -> Export:
        """Yields an OCI archive of a base image of the host, whose tree is for good."""
        content = partial(_base, tree, self.use_cases.policy.bounds)
        layer = await asyncio.to_thread(self._layer, str(tree), content)
        made = archive(
            Form.OCI, [layer], config={}, created="1970-01-01T00:00:00Z", tag=name, author="sandboxer"
        )
        return Export(length=made.length, name=name, chunks=_stepped(made.content()))

    async def _chunks(self, image_id: str, caller: Caller, made: Archive) -> AsyncIterator[bytes]:
        async with self.use_cases.reading(image_id, caller):
            async for chunk in _stepped(made.content()):
                yield chunk

    def _archive(self, image: PublishedImage, layers: KeptLayers, form: Form) -> Archive:
        bounds = self.use_cases.policy.bounds
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
        if (known := self.measured.get(name)) is None:
            known = self.measured[name] = measure(content())
        return Layer(measured=known, content=content)


def _base(path: Path, bounds: Bounds) -> Iterator[bytes]:
    with opened(path) as fd:
        yield from plain_layer(fd, bounds)


def _diff(layers: KeptLayers, bounds: Bounds) -> Iterator[bytes]:
    with opened(layers.layer) as layer, opened(layers.tree) as base:
        yield from diff_layer(layer, base, bounds)


async def _stepped(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Reads each piece in a thread when it is wanted."""
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _tag_name(image: PublishedImage) -> str:
    return _NOT_IN_A_TAG.sub("-", image.name.lower()).strip("-._") or image.id
