"""Opens `ext.docker`: containers of an engine, over base images of this host as our OCI export has them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from sandboxer.artifacts.images.oci import tar
from sandboxer.artifacts.images.oci.export import Form, Layer, Measured, archive, measure
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.backends.docker.address import open_way, parse_address
from sandboxer.backends.docker.backend import DockerBackend, Machine, Parts, backend_of, look_around
from sandboxer.backends.docker.container import PROGRAM, Holds, Overcommit
from sandboxer.backends.docker.engine import Engine, Version
from sandboxer.backends.docker.images import Archive, Loader
from sandboxer.backends.docker.reach import Reach
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, Unavailable
from sandboxer.kernel.values import value_class
from sandboxer.settings import Settings

log = logging.getLogger(__name__)
# Checks of the contract that containers do not pass, and why.
DEVIATIONS = {
    "freezing_stops_every_process_and_leaves_files_readable": "an engine pauses a container whole, its"
    " supervisor too: files can be read once it is thawed",
    "kill_ends_children_that_left_their_parent_and_session": "an engine gives a command no cgroup of its"
    " own: whoever leaves the session of a command outlives it until the sandbox ends",
}
STREAMS = 128
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@value_class
class DockerSettings:
    host: str
    images_dir: Path
    guest_dir: Path
    state_dir: Path
    # Of the way there: see `open_way`.
    keys: Path | None = None
    overcommit: Overcommit = Overcommit()


class HostImages:
    """The base images of this host, each with our supervisor as its last layer."""

    def __init__(self, images_dir: Path, guest_dir: Path) -> None:
        self._images_dir = images_dir
        self._program = guest_dir / "supervisor"
        self._program_version = hashlib.sha256(self._program.read_bytes()).hexdigest()[:12]

    def tag_of(self, image: str) -> str:
        place = self._images_dir / image
        if not _NAME.fullmatch(image) or not (place / "rootfs").is_dir():
            raise InvalidRequest(
                field="image",
                why=f"there is no image {image} on this host",
                hint="The operator builds it: sandboxer image build base.",
            )
        about = json.loads((place / "image.json").read_text())
        version = str(about["digest"]).removeprefix("sha256:")[:12]
        return f"localhost/sandboxer/{image}:{version}-{self._program_version}"

    async def archive(self, image: str) -> Archive:
        tree = (self._images_dir / image / "rootfs").resolve()
        parts: tuple[Callable[[], Iterator[bytes]], ...] = (
            partial(_tree, tree),
            partial(_programs, self._program),
        )
        layers = [Layer(measured=await asyncio.to_thread(_measured, part), content=part) for part in parts]
        made = archive(
            Form.OCI,
            layers,
            config={},
            created="1970-01-01T00:00:00Z",
            tag=self.tag_of(image),
            author="sandboxer",
        )
        return Archive(length=made.length, chunks=_stepped(made.content()))


def _measured(part: Callable[[], Iterator[bytes]]) -> Measured:
    return measure(part())


def _tree(path: Path) -> Iterator[bytes]:
    with opened(path) as fd:
        yield from tar.plain_layer(fd, Bounds())


def _programs(program: Path) -> Iterator[bytes]:
    content = program.read_bytes()
    folder, name = PROGRAM.lstrip("/").split("/")
    yield tar.header(f"{folder}/".encode(), kind=b"5", mode=0o755)
    yield tar.header(f"{folder}/{name}".encode(), kind=b"0", mode=0o755, size=len(content))
    yield content
    yield tar.padding(len(content))
    yield tar.END


async def _stepped(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


@asynccontextmanager
async def open_backend(settings: Settings) -> AsyncIterator[DockerBackend]:
    """Opens the backend of a platform. Raises NotAvailable, Unavailable."""
    own = DockerSettings(
        host=settings.docker_host,
        keys=settings.docker_keys,
        images_dir=settings.images_dir,
        guest_dir=settings.guest_dir,
        state_dir=settings.state_dir,
        overcommit=Overcommit(memory=settings.overcommit_memory, cpu=settings.overcommit_cpu),
    )
    async with open_docker(own) as backend:
        yield backend


@asynccontextmanager
async def open_docker(settings: DockerSettings) -> AsyncIterator[DockerBackend]:
    """Opens the backend on an engine. Raises InvalidRequest, NotAvailable, Unavailable."""
    if not (settings.guest_dir / "supervisor").is_file():
        raise NotAvailable(
            what="ext.docker", why=f"{settings.guest_dir / 'supervisor'} is missing: make -C guest"
        )
    address = parse_address(settings.host)
    async with AsyncExitStack() as closing:
        way = await closing.enter_async_context(open_way(address, settings.keys))
        engine = Engine(way, address)
        closing.push_async_callback(engine.close)
        loader = Loader(engine, HostImages(settings.images_dir, settings.guest_dir))
        machine = await _machine(engine, settings)
        reach = Reach(engine, streams=STREAMS)
        backend = backend_of(Parts(engine, loader, reach, machine, _owner(settings.state_dir)))
        closing.push_async_callback(backend.close)
        yield backend


async def _machine(engine: Engine, settings: DockerSettings) -> Machine:
    """Returns what the engine says of its machine or, while it does not answer, what it said last: sandboxes
    of other backends need not wait for it. Raises Unavailable, NotAvailable.
    """
    place = _folder(settings.state_dir) / "machine.json"
    try:
        machine = await look_around(engine, settings.overcommit)
    except Unavailable as error:
        if (remembered := _remembered(place, engine)) is None:
            raise
        log.warning("%s; until it answers, its sandboxes cannot be used", error)
        return remembered
    _write(place, json.dumps({"address": str(engine.address), **asdict(machine)}))
    return machine


def _remembered(place: Path, engine: Engine) -> Machine | None:
    """Returns what this engine said of its machine when it was last asked; None if it never was."""
    try:
        said = json.loads(place.read_text())
        major, minor = said["version"]["api"]
        machine = Machine(
            version=Version(**{**said["version"], "api": (major, minor)}),
            total=Holds(**said["total"]),
            limits_disk=said["limits_disk"],
            updates=said["updates"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return machine if said["address"] == str(engine.address) else None


def _owner(state_dir: Path) -> str:
    """Returns the word that this platform's containers bear, drawn once for a state folder."""
    path = _folder(state_dir) / "owner"
    if not path.exists():
        _write(path, f"own_{secrets.token_hex(8)}\n")
    return path.read_text().strip()


def _folder(state_dir: Path) -> Path:
    place = state_dir / "docker"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def _write(path: Path, text: str) -> None:
    """Writes a file that is whole, or as it was."""
    fresh = path.with_name(f".new-{os.getpid()}")
    fresh.write_text(text)
    fresh.rename(path)
