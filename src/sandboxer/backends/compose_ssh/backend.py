"""`ext.compose-ssh`: a container on an SSH host, and beside it the stack of a compose file.

Commands and files are those of the container, whose first process is our supervisor; its socket lies in the
sandbox's folder on the host and is reached through SSH. It reaches the services of the stack by their names.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from weakref import WeakValueDictionary

from sandboxer.backends.compose_ssh import engine, stack
from sandboxer.backends.compose_ssh.host import Ran, RemoteHost, StackHost
from sandboxer.backends.contract import (
    Fingerprint,
    Handle,
    Lack,
    Observation,
    Order,
    Presence,
    Usage,
)
from sandboxer.backends.guest import Guest
from sandboxer.backends.reports import CleanupReport, CostEstimate
from sandboxer.backends.supervisor.line import Gate
from sandboxer.backends.supervisor.marked import MarkedGuest
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    InvalidRequest,
    NoCapacity,
    NotAvailable,
    ProvisionFailed,
    SandboxerError,
    Unavailable,
)
from sandboxer.kernel.tasks import to_the_end
from sandboxer.kernel.values import is_sandbox_id, value_class

log = logging.getLogger(__name__)
NAME = "ext.compose-ssh"
MB = 2**20
# A container that was started answers in a fraction of it.
ANSWER_S = 20.0
STREAMS = 256
IMPORT_S = 1800.0
# Between attempts to hear of deaths from a host that is down.
AGAIN_S = 15.0
_NO_WALLS = Lack(
    what="walls against strangers",
    why="whoever may write a compose file can have the host by it",
    remedy="name the accounts that you trust with the host (`accounts`); no others are served",
)


@value_class
class ComposeSshSettings:
    host: StackHost
    images_dir: Path
    guest_dir: Path
    # Of the host's engine, in the place of this platform's base image.
    image: str | None = None
    # For a stack to be ready.
    ready_within_s: float = 300.0
    # Sandboxes; every one takes a network, of which an engine has about thirty.
    at_most: int = 20
    # Whom the operator trusts with the host, beside himself; `*`: everybody.
    accounts: frozenset[str] = frozenset()


class ComposeSshBackend:
    def __init__(self, settings: ComposeSshSettings) -> None:
        self._settings = settings
        self._host = RemoteHost(settings.host)
        self._gates: WeakValueDictionary[str, Gate] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._preparing = asyncio.Lock()
        self._installed: str | None = None

    @property
    def name(self) -> str:
        return NAME

    @property
    def place(self) -> str | None:
        return self._settings.host.address

    async def close(self) -> None:
        await self._host.close()

    # ---- what the host is ----

    async def fingerprint(self) -> Fingerprint:
        place = self._settings.host
        facts = {"isolation_level": "container", "host": place.address, "remote_dir": place.remote_dir}
        try:
            seen = await self._host.run(engine.LOOK, place.remote_dir)
        except Unavailable as error:
            lack = Lack(what="its host", why=str(error.facts["why"]), remedy="mend SANDBOXER_COMPOSE_SSH")
            return Fingerprint(healthy=False, walls=frozenset(), facts=facts, lacks=[lack])
        lines = (line.partition(" ") for line in seen.stdout.decode(errors="replace").splitlines())
        facts |= {name: said for name, _, said in lines}
        lacks = list(_lacks(facts)) if seen.code == 0 else [_unwritable(place.remote_dir, seen)]
        return Fingerprint(healthy=not lacks, walls=frozenset(), facts=facts, lacks=[*lacks, _NO_WALLS])

    async def check_host(self) -> None:
        seen = await self.fingerprint()
        if not seen.healthy:
            raise Unavailable(
                why="; ".join(f"{one.what}: {one.why}" for one in seen.lacks[:-1] or seen.lacks)
            )

    def serves(self, account: str) -> bool:
        return bool(self._settings.accounts & {account, "*"})

    def check_image(self, image: str) -> None:
        if self._settings.image is not None and image in ("base", self._settings.image):
            return
        if not (self._settings.images_dir / image / "image.json").is_file():
            hint = "See which ones there are: GET /v1/images."
            raise InvalidRequest(field="image", why=f"there is no image {image}", hint=hint)

    async def mark(self) -> str | None:
        try:
            seen = await self._host.run('cat "$1/mark" 2>/dev/null', self._settings.host.remote_dir)
        except Unavailable as error:
            raise NotAvailable(what=NAME, why=str(error.facts["why"])) from None
        return seen.stdout.decode(errors="replace") or None

    async def set_mark(self, text: str) -> None:
        try:
            done = await self._host.run(engine.SET_MARK, self._settings.host.remote_dir, stdin=text.encode())
        except Unavailable as error:
            raise OSError(errno.EHOSTDOWN, str(error.facts["why"])) from None
        if done.code != 0:
            raise OSError(errno.EIO, done.last_words)

    async def disks(self) -> Sequence[str]:
        return await self.inventory()

    async def inventory(self) -> Sequence[str]:
        seen = await self._done(engine.INVENTORY, self._settings.host.remote_dir)
        found = seen.stdout.decode(errors="replace").split()
        return sorted({one for one in found if is_sandbox_id(one)})

    # ---- one sandbox ----

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        """Estimates nothing: whoever has the host pays for it, with or without sandboxes."""
        self._check(order)
        return CostEstimate(unit="usd")

    def _check(self, order: Order) -> None:
        if order.origin is not None or order.volumes or order.folders:
            raise NotAvailable(what="a disk that was kept, or a volume", why=f"{NAME} has none")
        self.check_image(order.image)

    async def provision(self, order: Order) -> Handle:
        self._check(order)
        async with self._lock(order.sandbox_id):
            making = asyncio.ensure_future(self._make(order))
            try:
                # What was begun there cannot be called back: it is waited for, and undone.
                return await to_the_end(_result_of(making))
            except BaseException:
                if not _has_made_nothing(making):
                    await to_the_end(self._undo(order.sandbox_id))
                raise

    async def _make(self, order: Order) -> Handle:
        place, id_ = self._settings.host, order.sandbox_id
        image = await self._prepare(order.image)
        words = engine.run_words(
            order, remote_dir=place.remote_dir, supervisor=str(self._installed), image=image
        )
        made = await self._host.run(engine.MAKE, place.remote_dir, str(self._settings.at_most), id_, *words)
        if made.code == engine.FULL:
            raise NoCapacity(resource="sandboxes", why=made.last_words)
        if made.code == engine.TAKEN:
            raise Conflict(why=f"there is a sandbox {id_} already")
        if made.code != 0:
            raise _failure("container", made)
        await self._answers(id_)
        limits = order.resources
        data = {"memory_mb": limits.memory_mb, "disk_mb": limits.disk_mb, "pids": limits.pids}
        return Handle(sandbox_id=id_, backend=NAME, version=1, data={"host": place.address, **data})

    async def recover(self, handle: Handle) -> Observation:
        seen = await self._done(engine.STATE, handle.sandbox_id)
        state, _, was_killed = seen.stdout.decode(errors="replace").strip().partition(" ")
        match state:
            case "":
                return Observation(presence=Presence.GONE, reason="removed")
            case "running" | "restarting":
                return Observation(presence=Presence.RUNNING)
            case "paused":
                return Observation(presence=Presence.FROZEN)
        return Observation(
            presence=Presence.STOPPED, reason="oom_killed" if was_killed == "true" else "exited"
        )

    async def guest(self, handle: Handle) -> Guest:
        return self._guest(handle.sandbox_id)

    async def usage(self, handle: Handle) -> Usage:
        id_ = handle.sandbox_id
        folder = engine.folder_of(self._settings.host.remote_dir, id_)
        seen = await self._host.run(engine.USAGE, id_, folder)
        if seen.code != 0:
            raise BackendLost(why=seen.last_words)
        used = engine.usage_of(seen.stdout.decode(errors="replace"))
        limits = {name: value for name, value in handle.data.items() if isinstance(value, int)}
        return Usage(
            cpu_s=used["cpu"] / 1e9,
            memory_bytes=used["memory"],
            memory_limit_bytes=limits["memory_mb"] * MB,
            disk_bytes=used["disk"],
            disk_limit_bytes=limits["disk_mb"] * MB,
            processes=used["pids"],
            processes_limit=limits["pids"],
        )

    async def stop(self, handle: Handle) -> None:
        async with self._lock(handle.sandbox_id):
            await to_the_end(self._done(engine.STOP, handle.sandbox_id))

    async def resume(self, handle: Handle, order: Order) -> Handle:
        async with self._lock(handle.sandbox_id):
            started = await self._host.run('docker start "$1" >/dev/null', handle.sandbox_id)
            if started.code != 0:
                raise _failure("start", started)
            await self._answers(handle.sandbox_id)
        return handle

    async def teardown(self, sandbox_id: str) -> None:
        await self.teardown_with_report(sandbox_id)

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        async with self._lock(sandbox_id):
            return await to_the_end(self._remove(sandbox_id))

    async def bring_up(self, handle: Handle, bundle: str | None, variables: Mapping[str, str]) -> bool:
        """Brings up the compose file that is named, or that lies in the workspace, and waits until it is
        ready. Returns False if there is none. Raises ProvisionFailed, InvalidRequest.
        """
        async with self._lock(handle.sandbox_id):
            within_s = self._settings.ready_within_s
            return await stack.bring_up(self._host, handle.sandbox_id, bundle, variables, within_s=within_s)

    async def deaths(self) -> AsyncIterator[str]:
        while True:
            try:
                async for line in self._host.lines(engine.DEATHS, self._settings.host.remote_dir):
                    if is_sandbox_id(line):
                        yield line
            except Unavailable as error:
                log.warning("nothing is heard of sandboxes that end: %s", error)
            await asyncio.sleep(AGAIN_S)

    # ---- how ----

    def _guest(self, sandbox_id: str) -> MarkedGuest:
        path = engine.door_of(self._settings.host.remote_dir, sandbox_id)
        gate = self._gates.setdefault(sandbox_id, Gate(STREAMS))
        return MarkedGuest(lambda: self._host.dial(path), gate=gate)

    def _lock(self, sandbox_id: str) -> asyncio.Lock:
        return self._locks.setdefault(sandbox_id, asyncio.Lock())

    async def _answers(self, sandbox_id: str) -> None:
        """Waits until its supervisor listens, which is not told but by its answer. Raises ProvisionFailed."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                await self._guest(sandbox_id).ping()
            except BackendLost as error:
                if time.monotonic() > deadline:
                    raise ProvisionFailed(step="supervisor", why=str(error.facts["why"])) from None
                await asyncio.sleep(0.05)
            else:
                return

    async def _undo(self, sandbox_id: str) -> None:
        try:
            await self._remove(sandbox_id)
        except SandboxerError as error:
            # The inventory finds it.
            log.warning("something of %s may be left: %s", sandbox_id, error)

    async def _remove(self, sandbox_id: str) -> CleanupReport:
        remote_dir = self._settings.host.remote_dir
        done = await self._done(engine.REMOVE, remote_dir, sandbox_id)
        removed = Counter(done.stdout.decode(errors="replace").split())
        if sandbox_id in await self.inventory() and (image := self._image(None)) is not None:
            last = await self._host.run(engine.REMOVE_FOLDER, remote_dir, sandbox_id, image)
            removed += Counter(last.stdout.decode(errors="replace").split())
        left = tuple(done.stderr.decode(errors="replace").strip().splitlines())
        if sandbox_id in await self.inventory():
            why = f"something of {sandbox_id} is left on {self._settings.host.address}: {'; '.join(left)}"
            raise Unavailable(why=why)
        return CleanupReport(removed=_counted(removed), left=left)

    async def _done(self, script: str, *words: str) -> Ran:
        """Runs a script that must succeed. Raises Unavailable."""
        done = await self._host.run(script, *words)
        if done.code != 0:
            raise Unavailable(why=f"host {self._settings.host.address}: {done.last_words}")
        return done

    def _image(self, image: str | None) -> str | None:
        """Returns what the engine calls an image of ours."""
        if self._settings.image is not None:
            return self._settings.image
        try:
            record = json.loads((self._settings.images_dir / (image or "base") / "image.json").read_text())
        except OSError:
            return None
        return f"sandboxer-{record['name']}:{record['digest'].rpartition(':')[2][:12]}"

    async def _prepare(self, image: str) -> str:
        """Brings supervisor and image to the host, once. Returns what the image is called there."""
        async with self._preparing:
            if self._installed is None:
                await self._install()
            name = str(self._image(image))
            if self._settings.image is None:
                seen = await self._host.run('docker image inspect "$1" >/dev/null 2>&1', name)
                if seen.code != 0:
                    await self._bring(image, name)
            return name

    async def _install(self) -> None:
        program = await asyncio.to_thread((self._settings.guest_dir / "supervisor").read_bytes)
        name = f"supervisor-{hashlib.sha256(program).hexdigest()[:16]}"
        done = await self._host.run(engine.INSTALL, self._settings.host.remote_dir, name, stdin=program)
        if done.code != 0:
            raise _failure("supervisor", done)
        self._installed = name

    async def _bring(self, image: str, name: str) -> None:
        """Sends a base image of this platform through the connection."""
        root = (self._settings.images_dir / image / "rootfs").resolve()
        log.info("image %s is brought to %s as %s", image, self._settings.host.address, name)
        tar = await asyncio.create_subprocess_exec(
            *("tar", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-C", str(root), "-c", "."),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert tar.stdout is not None
        try:
            script = 'docker import - "$1" >/dev/null'
            done = await self._host.run(script, name, stdin=tar.stdout, within_s=IMPORT_S)
            code = await tar.wait()
        finally:
            with suppress(ProcessLookupError):
                tar.kill()
        if done.code != 0 or code != 0:
            await self._host.run('docker rmi -f "$1" >/dev/null 2>&1', name)
            raise _failure("image", done)


async def _result_of(work: Awaitable[Handle]) -> Handle:
    return await work


def _has_made_nothing(making: asyncio.Future[Handle]) -> bool:
    """Says whether it was refused before anything was made: what has this id is another's."""
    is_over = making.done() and not making.cancelled()
    return is_over and isinstance(making.exception(), NoCapacity | Conflict)


def _failure(step: str, ran: Ran) -> ProvisionFailed:
    why = ran.last_words
    is_full = "no space left" in why.lower()
    return ProvisionFailed(step=step, why=why, errno=errno.ENOSPC if is_full else None)


def _unwritable(remote_dir: str, ran: Ran) -> Lack:
    return Lack(what="its folder", why=ran.last_words, remedy=f"let its user write to {remote_dir}")


def _lacks(facts: Mapping[str, str]) -> Sequence[Lack]:
    """Names what a host lacks, of what was seen there. Pure."""
    found = []
    if "docker" not in facts:
        why = facts.get("no-docker") or "it does not answer"
        found.append(Lack(what="docker", why=why, remedy="start it there, and let the user use it"))
    if "compose" not in facts:
        why = "there is neither `docker compose` nor `docker-compose`"
        found.append(Lack(what="compose", why=why, remedy="install one of them there"))
    if facts.get("architecture") != "x86_64":
        why = f"it is {facts.get('architecture')}, and our supervisor is for x86_64"
        found.append(Lack(what="architecture", why=why, remedy="name another host"))
    if facts.get("free_mb", "0").isdigit() and int(facts.get("free_mb", "0")) < 512:
        why = f"{facts.get('free_mb')} MB are left, 512 are needed"
        found.append(Lack(what="disk", why=why, remedy="make room there"))
    return found


def _counted(removed: Counter[str]) -> tuple[str, ...]:
    """Returns what was removed in words: "3 containers", "folder"."""
    return tuple(what if count == 1 else f"{count} {what}s" for what, count in removed.items())
