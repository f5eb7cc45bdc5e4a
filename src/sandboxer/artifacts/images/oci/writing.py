"""An image as one tar: the same blobs named as an OCI layout names them, or as `docker save` does. Pure but
for the layers, which are read anew each time they are asked for.

The layout also has Docker's manifest, as Docker 25 and later write it: so Docker 20 reads either form.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandboxer.artifacts.images.oci import tar_writing
from sandboxer.artifacts.images.oci.tar_writing import END

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Form(StrEnum):
    OCI = "oci"
    DOCKER = "docker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of a blob."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    measured: Measured
    content: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
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
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
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
