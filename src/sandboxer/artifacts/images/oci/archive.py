"""Reads an uploaded archive: finds out which blobs are its layers, and checks that each is what it claims to
be.

The archive lies in a file of ours. It is scanned once to learn where its parts are. Nothing is unpacked
before its digest was checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from sandboxer.artifacts.images.oci import tar as tar_reading
from sandboxer.artifacts.images.oci.applying import FEED, Packing, packing_of
from sandboxer.artifacts.images.oci.tar import FILE, Member, Work, odd
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.kernel.errors import TooLarge
from sandboxer.kernel.values import brief_value_class, value_class

_MOST_JSON = 4 << 20
_MOST_PARTS = 10_000
_MOST_LAYERS = 512
_CHUNK = 1 << 20
# The keys of a config that are kept unchanged.
_KEPT = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "Labels", "ExposedPorts", "Volumes", "StopSignal")
_MOST_CONFIG = 64 * 1024


# As Go names them.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


@brief_value_class
class Part:
    offset: int
    size: int


@value_class
class Blob:
    part: Part
    # The digest of the unpacked tar.
    diff_id: str
    # The digest of the blob as stored; "" if the format gives none.
    digest: str = ""


@value_class
class Found:
    layers: Sequence[Blob]
    config: Mapping[str, Any]


def understand(file: IO[bytes]) -> Found:
    """Reads the archive's structure. Blocks. Raises InvalidRequest for what is neither an OCI layout nor a
    Docker archive.
    """
    parts = _parts(file)
    if b"index.json" in parts:
        return _from_layout(file, parts)
    if b"manifest.json" in parts:
        return _from_docker(file, parts)
    raise odd("it is neither an OCI layout (index.json) nor a Docker archive (manifest.json)")


def layer_members(
    file: IO[bytes], blob: Blob, *, most_bytes: int, ends: float = math.inf, work: Work | None = None
) -> Iterator[Member]:
    """Yields the entries of a layer. Its digests are checked at its end: nothing may be kept before that.

    `ends` is when, by the monotonic clock, reading stops. `work` limits what reading it may cost.
    """
    source = _Checked(file, blob, most_bytes, ends, work or Work(Bounds()))
    yield from tar_reading.members(source)
    source.finish()


def _parts(file: IO[bytes]) -> dict[bytes, Part]:
    file.seek(0)
    found: dict[bytes, Part] = {}
    links: dict[bytes, bytes] = {}
    for member in tar_reading.members(_Seekable(file)):
        name = member.path.removeprefix(b"./")
        if member.kind == FILE:
            found[name] = Part(file.tell(), member.size)
        elif member.kind == tar_reading.LINK:
            # Older Docker writes a repeated layer as a link to the first one.
            links[name] = _beside(name, member.target)
        if len(found) + len(links) > _MOST_PARTS:
            raise TooLarge(what="archive", limit=f"{_MOST_PARTS} parts")
    for name, target in links.items():
        if target in found and name not in found:
            found[name] = found[target]
    return found


def _beside(name: bytes, target: bytes) -> bytes:
    folder = [part for part in name.split(b"/")[:-1] if part]
    for part in target.split(b"/"):
        if part == b"..":
            del folder[-1:]
        elif part not in (b"", b"."):
            folder.append(part)
    return b"/".join(folder)


def _from_layout(file: IO[bytes], parts: Mapping[bytes, Part]) -> Found:
    manifest = _only_manifest(file, parts, _json(file, parts, b"index.json"))
    about = _json_blob(file, parts, _dict(manifest.get("config")))
    layers = [_dict(one) for one in _list(manifest.get("layers"))]
    diffs = _diff_ids(about, len(layers))
    found = []
    for layer, diff in zip(layers, diffs, strict=True):
        digest = _digest(layer.get("digest"))
        found.append(Blob(part=_blob(parts, digest), diff_id=diff, digest=digest))
    return Found(layers=found, config=_config(about))


def _only_manifest(
    file: IO[bytes], parts: Mapping[bytes, Part], index: dict[str, Any], depth: int = 0
) -> dict[str, Any]:
    listed = [_dict(one) for one in _list(index.get("manifests"))]
    if len(listed) > 1:
        here = [one for one in listed if _dict(one.get("platform", {})).get("os", "linux") == "linux"]
        listed = [one for one in here if "attestation" not in json.dumps(one.get("annotations", {}))][:1]
    if not listed or depth > 4:
        raise odd("its index names no image")
    found = _json_blob(file, parts, listed[0])
    return _only_manifest(file, parts, found, depth + 1) if "manifests" in found else found


def _from_docker(file: IO[bytes], parts: Mapping[bytes, Part]) -> Found:
    listed = _list(_json(file, parts, b"manifest.json"))
    if len(listed) != 1:
        raise odd(f"it holds {len(listed)} images; send one")
    manifest = _dict(listed[0])
    about = _json(file, parts, _name(manifest.get("Config")))
    names = [_name(one) for one in _list(manifest.get("Layers"))]
    diffs = _diff_ids(about, len(names))
    found = [Blob(part=_part(parts, name), diff_id=diff) for name, diff in zip(names, diffs, strict=True)]
    return Found(layers=found, config=_config(about))


def _diff_ids(about: dict[str, Any], count: int) -> list[str]:
    found = [_digest(one) for one in _list(_dict(about.get("rootfs")).get("diff_ids"))]
    if len(found) != count:
        raise odd(f"its config names {len(found)} layers, its manifest {count}")
    if not 0 < count <= _MOST_LAYERS:
        raise odd(f"it has {count} layers; from 1 to {_MOST_LAYERS}")
    return found


def _config(about: dict[str, Any]) -> dict[str, Any]:
    made_for = about.get("architecture") or architecture()
    if made_for != architecture():
        raise odd(f"it is for {made_for} machines, and this one is {architecture()}")
    given = _dict(about.get("config") or {})
    kept = {name: given[name] for name in _KEPT if given.get(name)}
    if len(json.dumps(kept)) > _MOST_CONFIG:
        raise odd("its config is too large")
    return kept


def _json_blob(file: IO[bytes], parts: Mapping[bytes, Part], descriptor: dict[str, Any]) -> dict[str, Any]:
    digest = _digest(descriptor.get("digest"))
    part = _blob(parts, digest)
    content = _content(file, part)
    if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
        raise odd(f"a blob in it is not what its digest says ({digest})")
    return _dict(_parsed(content))


def _blob(parts: Mapping[bytes, Part], digest: str) -> Part:
    return _part(parts, b"blobs/" + digest.replace(":", "/").encode())


def _part(parts: Mapping[bytes, Part], name: bytes) -> Part:
    if (part := parts.get(name)) is None:
        raise odd(f"{name.decode(errors='replace')[:200]} is missing in it")
    return part


def _json(file: IO[bytes], parts: Mapping[bytes, Part], name: bytes) -> Any:
    return _parsed(_content(file, _part(parts, name)))


def _content(file: IO[bytes], part: Part) -> bytes:
    if part.size > _MOST_JSON:
        raise odd("a document in it is too large")
    file.seek(part.offset)
    return file.read(part.size)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise odd("a document in it is no JSON") from None


def _dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise odd("a document in it has another form")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST_PARTS:
        raise odd("a document in it has another form")
    return value


def _name(value: object) -> bytes:
    if not isinstance(value, str) or len(value) > 4096:
        raise odd("a document in it has another form")
    return value.encode("utf-8", "replace").removeprefix(b"./")


def _digest(value: object) -> str:
    known = isinstance(value, str) and len(value) == 71 and value.startswith("sha256:")
    if not known or set(str(value)[7:]) - set("0123456789abcdef"):
        raise odd("a digest in it is not sha256")
    return str(value)


class _Seekable:
    """Skips content without reading it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, count: int, /) -> bytes:
        return self._file.read(count)


@dataclass(slots=True)
class _Checked:
    """The bytes of a layer, unpacked on demand, counted, and hashed both packed and unpacked."""

    file: IO[bytes]
    blob: Blob
    most_bytes: int
    ends: float
    work: Work
    _at: int = 0
    _total: int = 0
    _held: bytes = b""
    # How much of the held data was consumed.
    _taken: int = 0
    _packing: Packing | None = None
    _outer: Any = field(default_factory=hashlib.sha256)
    _inner: Any = field(default_factory=hashlib.sha256)

    def read(self, count: int, /) -> bytes:
        while self._taken == len(self._held):
            if (more := self._more()) is None:
                return b""
            self._held, self._taken = more, 0
        start, self._taken = self._taken, min(self._taken + count, len(self._held))
        return self._held[start : self._taken]

    def finish(self) -> None:
        """Reads to the end: what follows the end of the tar is part of its digest too."""
        while self.read(_CHUNK):
            pass
        if self._packing is not None:
            self._packing.finish()
        if self.blob.digest and "sha256:" + self._outer.hexdigest() != self.blob.digest:
            raise odd(f"a layer in it is not what its digest says ({self.blob.digest})")
        if "sha256:" + self._inner.hexdigest() != self.blob.diff_id:
            raise odd(f"a layer in it is not what its config says ({self.blob.diff_id})")

    def _more(self) -> bytes | None:
        fed = b""
        if (self._packing is None or self._packing.is_hungry) and not (fed := self._packed()):
            return None
        if self._packing is None:
            self._packing = packing_of(fed)
        if not (content := self._packing.unpack(fed)):
            # A packed file may consist of empty pieces only.
            self.work.step()
        self._total += len(content)
        if self._total > self.most_bytes:
            raise TooLarge(what="image", limit=f"{self.most_bytes >> 20} MB in a layer")
        self._inner.update(content)
        return content

    def _packed(self) -> bytes:
        # Empty pieces take as long as full ones, and an archive may consist of nothing else.
        if time.monotonic() > self.ends:
            raise TooLarge(what="image", limit="the time there is to read it")
        self.file.seek(self.blob.part.offset + self._at)
        fed = self.file.read(min(FEED, self.blob.part.size - self._at))
        self._at += len(fed)
        self._outer.update(fed)
        return fed
