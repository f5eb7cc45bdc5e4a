"""A workshop is a sandbox of the caller's account in which Buildah and Skopeo run. It is gone when it is
closed, also when its caller or the server goes away.

Layers are kept on a volume of the account, so that the next build begins where this one differs. One build at
a time has it; another goes on without.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import field, replace
from types import MappingProxyType
from typing import IO

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes import use_cases as volumes
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.artifacts.volumes.use_cases import VolumeUseCases
from sandboxer.backends.contract import Volumes
from sandboxer.backends.guest import Command, Exit, Guest, whole
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    Forbidden,
    InvalidRequest,
    NoCapacity,
    NotAvailable,
    SandboxerError,
    StdinNotTaken,
)
from sandboxer.kernel.tasks import to_the_end
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.passing import Claim, Endings
from sandboxer.sandboxes.requests import CreateRequest, WantedResources, WantedVolume, check_maker
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line
from sandboxer.sandboxes.use_cases.admission import Slots

log = logging.getLogger(__name__)
PROFILE = "profile.builder"
# The volume with an account's layers; whoever wants to begin anew drops it.
CACHE = "image-builds"
_STORE = "/var/lib/containers"
# Where it works.
PLACE = "/build"
_CONFIG = "/etc/containers/registries.conf"
# Builds and pulls under way, of one account and in all.
_PER_ACCOUNT, _AT_ONCE = 2, 8
_CHUNK = 1 << 20
# How many lines are remembered to explain a failure.
_REMEMBERED = 40
_LONGEST_LINE = 16 * 1024
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "TMPDIR": PLACE,
}
# Layers that need more than this share of the volume are all made anew.
_FULL = 0.75
# What says that there is no volume for layers now; a build needs none.
_WITHOUT = (Conflict, Forbidden, NoCapacity, NotAvailable)

# A build that shouts is heard for 1 MB, and at its very end; the rest is dropped inside.
_BOUNDED = 'set -o pipefail; "$@" 2>&1 | { stdbuf -o0 head -c 1048576; tail -c 4096; }'
# It says nothing while it is fed: nobody reads then.
_UNPACK = 'tar "$1" -C "$0" 2>/tmp/tar.log || { tail -n 2 /tmp/tar.log; exit 1; }; rm /tmp/tar.log'

Explain = Callable[[list[str], int], SandboxerError]


@value_class
class BuildPolicy:
    # What names without a registry are completed by.
    default_registry: str = "docker.io"
    # How much an account's layers may take; 0: none are kept.
    cache_mb: int = 8192
    # The disk of the sandbox that builds: what is built lies on it twice, what it begins as once more.
    disk_mb: int = 8192

    @property
    def request(self) -> CreateRequest:
        return CreateRequest(profile=PROFILE, resources=WantedResources(disk_mb=self.disk_mb))


@brief_value_class
class Said:
    """What a builder printed: a line, or several that came at once."""

    text: str
    # The number of the step that begins, where steps are told apart.
    step: int | None = None


@brief_value_class
class Bench:
    """What a workshop has: commands and files, until it is closed."""

    sandbox_id: str
    guest: Guest
    env: Mapping[str, str]
    # What commands are words of.
    bound: Sequence[str] = ()

    async def say(
        self,
        argv: Sequence[str],
        explain: Explain,
        *,
        stdin: AsyncIterator[bytes] | None = None,
        user: str = "root",
        cwd: str = "/",
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncGenerator[Said]:
        """Runs a command and yields its lines. Raises what `explain` makes of its last ones if it fails."""
        command = Command(
            argv=[*self.bound, *argv],
            env={**self.env, **env},
            cwd=cwd,
            user=user,
            has_stdin=stdin is not None,
            keep=False,
        )
        last: deque[str] = deque(maxlen=_REMEMBERED)
        lines, code = _Lines(), -1
        async with await self.guest.run(command) as process:
            if stdin is not None:
                with suppress(StdinNotTaken):
                    async for piece in stdin:
                        await process.write_stdin(piece)
                    await process.close_stdin()
            async for item in process.output():
                if isinstance(item, Exit):
                    code = item.code
                heard = lines.rest() if isinstance(item, Exit) else lines.feed(item.data)
                last.extend(heard)
                if heard:
                    yield Said("\n".join(heard))
        if code == -1:
            raise BackendLost(why="the builder's output ended without its exit")
        if code != 0:
            raise explain(list(last), code)

    async def run(
        self, argv: Sequence[str], explain: Explain, *, stdin: AsyncIterator[bytes] | None = None
    ) -> str:
        async with aclosing(self.say(argv, explain, stdin=stdin)) as said:
            return "\n".join([line.text async for line in said])

    async def unpack(self, archive: AsyncIterator[bytes], folder: str, *, packed: bool = False) -> None:
        """Unpacks a tar inside, which may be packed by gzip; links in it lead nowhere else than within the
        sandbox.
        """
        await self.guest.files.mkdir(folder)

        def explain(said: list[str], _: int) -> SandboxerError:
            return InvalidRequest(field="context", why=f"it cannot be unpacked: {' | '.join(said[-2:])}")

        how = "-xzo" if packed else "-xo"
        await self.run(["/bin/sh", "-c", _UNPACK, folder, how], explain, stdin=archive)

    async def put(self, path: str, text: str) -> None:
        await self.guest.files.write(path, whole(text.encode()), mode=0o600)


class _Lines:
    """Cuts output into lines; a line without an end is cut where it grows too long."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[str]:
        *done, self._held = (self._held + data).split(b"\n")
        if len(self._held) > _LONGEST_LINE:
            done, self._held = [*done, self._held], b""
        return [_text(line) for line in done]

    def rest(self) -> list[str]:
        return [_text(self._held)] if self._held else []


def _text(line: bytes) -> str:
    # A bar that is drawn again and again is shown as it was at last.
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


async def pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields a spooled file, whose pages are in memory or one read away. Several may read it at once."""
    at = 0
    while chunk := os.pread(file.fileno(), _CHUNK, at):
        at += len(chunk)
        yield chunk


@value_class
class Workshop:
    sandboxes: SandboxDependencies
    volumes: VolumeUseCases
    authorities: AuthorityRepository
    slots: Slots
    budget: Budget
    endings: Endings
    clock: Clock
    policy: BuildPolicy = field(default_factory=BuildPolicy)

    @asynccontextmanager
    async def open(self, caller: Caller, *, cached: bool = False) -> AsyncIterator[Bench]:
        """Opens a workshop. Raises Forbidden for who may make no images, and what refuses a sandbox."""
        async with self._open(caller, lambda claim: self._make(caller, claim, cached=cached), _ENV) as bench:
            await bench.guest.files.mkdir(PLACE)
            await bench.put(_CONFIG, _registries(self.policy.default_registry))
            yield replace(bench, bound=("/bin/bash", "-c", _BOUNDED, "bounded"))

    @asynccontextmanager
    async def open_plain(
        self, request: CreateRequest, caller: Caller, env: Mapping[str, str]
    ) -> AsyncIterator[Bench]:
        """Opens another sandbox, of which nothing is known but that it has a shell."""
        async with self._open(caller, lambda claim: self._create(request, caller, claim), env) as bench:
            yield bench

    @asynccontextmanager
    async def _open(
        self, caller: Caller, make: Callable[[Claim], Awaitable[str]], env: Mapping[str, str]
    ) -> AsyncIterator[Bench]:
        async with self.place("builds", caller):
            claim = Claim(self.clock.now())
            try:
                made = await make(claim)
                env = {**env, **self.sandboxes.environment(await self.sandboxes.visible(made, caller))}
                async with open_line(self.sandboxes, made, caller, activity=ActivityKind.EXEC) as guest:
                    yield Bench(made, guest, env)
            finally:
                await to_the_end(self._end(claim))

    @asynccontextmanager
    async def place(self, what: str, caller: Caller) -> AsyncIterator[None]:
        """Takes one of the account's places. Raises Forbidden for who may make no images."""
        check_maker(caller, self.sandboxes.makers, "making images")
        root = (await self.authorities.of(caller)).root
        with self.budget.slot(what, root, per_account=_PER_ACCOUNT, in_all=_AT_ONCE):
            yield

    async def _make(self, caller: Caller, claim: Claim, *, cached: bool) -> str:
        wanted = self.policy.request
        if cached and self.policy.cache_mb:
            try:
                wanted = await self._with_layers(wanted, caller)
            except _WITHOUT as error:
                log.warning("a build goes on without earlier layers: %s", error)
        try:
            try:
                return await self._create(wanted, caller, claim)
            except Conflict as error:
                # Another build has the layers; this one makes its own.
                if error.facts.get("reason") != "attached":
                    raise
                return await self._create(self.policy.request, caller, claim)
        except InvalidRequest as error:
            if error.facts.get("field") != "image":
                raise
            raise NotAvailable(
                what="Making images",
                why="the image `builder` is not on this host",
                hint="On the platform's host: sudo sandboxer image build builder",
            ) from None

    async def _create(self, wanted: CreateRequest, caller: Caller, claim: Claim) -> str:
        async with self.slots.taken(await self.authorities.of(caller)):
            made = await creation.create(self.sandboxes, wanted, caller, also=claim.write)
        self.endings.own(made.id)
        return made.id

    async def _with_layers(self, wanted: CreateRequest, caller: Caller) -> CreateRequest:
        if (volume := await self._layers_of(caller)) is None:
            made = volumes.Wanted(name=CACHE, size_mb=self.policy.cache_mb)
            volume = await self.volumes.create(made, caller)
        mount = WantedVolume(volume=volume.id, path=_STORE)
        return await self.volumes.complete(replace(wanted, wanted_volumes=(mount,)), caller)

    async def _end(self, claim: Claim) -> None:
        if (made := claim.give_up()) is not None:
            self.endings.soon(made)
            await self.endings.gone(made)

    async def has_room_for_layers(self, caller: Caller) -> bool:
        """Tells whether what an account keeps of earlier builds leaves room for more."""
        volume = await self._layers_of(caller)
        backend = None if volume is None else self.sandboxes.backends.get(volume.backend)
        if volume is None or not isinstance(backend, Volumes):
            return True
        usage = await backend.volume_usage(volume.id)
        return usage.used_bytes < usage.limit_bytes * _FULL

    async def _layers_of(self, caller: Caller) -> Volume | None:
        found = await self.volumes.repository.store.read(
            lambda conn: records.rows.meant(conn, CACHE, account=caller.account, sees_all=False)
        )
        return await self.volumes.repository.find(found[0][0]) if found else None


def _registries(default: str) -> str:
    # TOML takes JSON's strings. Nothing is asked: there is nobody to answer, and one registry to be meant.
    known = json.dumps([default] if default else [])
    return f'unqualified-search-registries = {known}\nshort-name-mode = "permissive"\n'
