"""Implements `Backend` over an engine. A sandbox is a container; its labels say what is known of it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sandboxer.backends.contract import (
    Fingerprint,
    Handle,
    Observation,
    Order,
    Presence,
    Resources,
    Usage,
)
from sandboxer.backends.docker import container
from sandboxer.backends.docker.container import Holds, Overcommit, Seen, name_of
from sandboxer.backends.docker.engine import Engine, Version, message_of
from sandboxer.backends.docker.fingerprint import fingerprint, unanswered
from sandboxer.backends.docker.images import Loader
from sandboxer.backends.docker.reach import Reach, boot, look
from sandboxer.backends.guest import Guest, whole
from sandboxer.backends.reports import CleanupReport, CostEstimate
from sandboxer.kernel.errors import BackendLost, Conflict, ProvisionFailed, SandboxerError, Unavailable
from sandboxer.kernel.tasks import to_the_end
from sandboxer.kernel.values import brief_value_class, value_class

NAME = "ext.docker"
VERSION = 1
SECRET_BYTES = 32
# Of an engine that has said nothing: it is asked again what has ended.
_AGAIN_S = 1.0
# An engine may be removing the same container already.
_REMOVE_S = 60.0
_SIZE_S = 300.0
# What goes with a container: its disk and its folders in memory are its own.
_REMOVED = ("container", "disk")


@value_class
class Machine:
    """What was found of an engine and the machine it runs on."""

    version: Version
    total: Holds
    limits_disk: bool
    # Podman's of before version 5 gives no container other limits.
    updates: bool


@brief_value_class
class Parts:
    engine: Engine
    loader: Loader
    reach: Reach
    machine: Machine
    # Written on every container of this platform: an engine may serve more than one.
    owner: str


class DockerBackend:
    def __init__(self, parts: Parts) -> None:
        self._engine = parts.engine
        self._loader = parts.loader
        self._reach = parts.reach
        self._machine = parts.machine
        self._owner = parts.owner
        # Being made: promised, and not in the engine's list yet.
        self._making: dict[str, Resources] = {}
        # Asked to end: no death of theirs is news.
        self._ending: set[str] = set()

    @property
    def name(self) -> str:
        return NAME

    @property
    def place(self) -> str | None:
        return self._engine.address.host or None

    async def fingerprint(self) -> Fingerprint:
        machine = self._machine
        address = str(self._engine.address)
        try:
            info = (await self._engine.call("GET", "/info")).content
        except Unavailable as error:
            return unanswered(machine.version, address=address, why=str(error.facts["why"]))
        if not isinstance(info, dict):
            raise Unavailable(why="the engine describes itself in other words")
        return fingerprint(info, machine.version, address=address, limits_disk=machine.limits_disk)

    def check_image(self, image: str) -> None:
        self._loader.check(image)

    async def provision(self, order: Order) -> Handle:
        order = container.checked(order)
        sandbox_id = order.sandbox_id
        self._loader.check(order.image)
        if sandbox_id in self._making:
            raise Conflict(why=f"{sandbox_id} is being made already")
        self._making[sandbox_id] = order.resources
        try:
            container.demand_room(self._machine.total, await self._promised(sandbox_id), order.resources)
            await self._make(order)
        finally:
            del self._making[sandbox_id]
        return Handle(sandbox_id=sandbox_id, backend=NAME, version=VERSION)

    async def _make(self, order: Order) -> None:
        secret = secrets.token_bytes(SECRET_BYTES)
        is_made = False
        try:
            # The engine goes on although we hang up: only what has answered can be undone.
            is_made = await to_the_end(self._create(order, secret))
            await boot(self._engine, order.sandbox_id, secret)
            await self._begin(order)
        except BaseException as error:
            if is_made or not isinstance(error, Conflict):
                await to_the_end(self._undo(order.sandbox_id))
            raise
        self._ending.discard(order.sandbox_id)

    async def _create(self, order: Order, secret: bytes) -> bool:
        for is_last in (False, True):
            tag = await self._loader.bring(order.image)
            body = container.creation(
                order, image=tag, owner=self._owner, secret=secret, limits_disk=self._machine.limits_disk
            )
            answer = await self._engine.call(
                "POST",
                "/containers/create",
                params={"name": name_of(order.sandbox_id)},
                body=body,
                accepts=(400, 404, 409, 500),
            )
            if answer.status == 404 and not is_last:
                self._loader.doubt(tag)
                continue
            break
        if answer.status == 409 or "already in use" in message_of(answer):
            raise Conflict(why=f"{order.sandbox_id} exists already")
        if answer.status != 201:
            raise ProvisionFailed(step="create", why=message_of(answer))
        return True

    async def _begin(self, order: Order) -> None:
        """Makes what no two sandboxes may share."""
        files = self._reach.guest(order.sandbox_id).files
        machine_id = secrets.token_hex(16).encode() + b"\n"
        await files.write("/etc/machine-id", whole(machine_id), mode=0o444)

    async def _undo(self, sandbox_id: str) -> None:
        # Whoever asked hears of what failed first; the inventory tells of what is left.
        try:
            await self.teardown(sandbox_id)
        except SandboxerError:
            return

    async def recover(self, handle: Handle) -> Observation:
        found = await look(self._engine, handle.sandbox_id)
        if found is None:
            return Observation(presence=Presence.GONE, reason="never_made")
        self._reach.set_frozen(handle.sandbox_id, found.presence is Presence.FROZEN)
        return container.observation(found)

    async def inventory(self) -> Sequence[str]:
        return [
            labels[container.SANDBOX]
            for labels in map(_labels, await self._listed())
            if _is_ours(labels, self._owner)
        ]

    async def guest(self, handle: Handle) -> Guest:
        return self._reach.guest(handle.sandbox_id)

    async def usage(self, handle: Handle) -> Usage:
        name = name_of(handle.sandbox_id)
        found = await self._found(handle.sandbox_id)
        sized = await self._engine.call(
            "GET", f"/containers/{name}/json", params={"size": "1"}, accepts=(404,), limit_s=_SIZE_S
        )
        stats: Any = {}
        if found.presence in (Presence.RUNNING, Presence.FROZEN):
            once = {"stream": "0", "one-shot": "1"}
            counted = await self._engine.call(
                "GET", f"/containers/{name}/stats", params=once, accepts=(404, 409)
            )
            stats = counted.content if counted.status == 200 else {}
        try:
            return container.usage(found, stats, int(sized.content.get("SizeRw") or 0))
        except (AttributeError, TypeError, ValueError) as error:
            raise Unavailable(why=f"the engine counts in other words: {error!r}") from error

    async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
        """Estimates nothing: whoever has the engine pays for its machine, with or without sandboxes."""
        self._loader.check(container.checked(order).image)
        return CostEstimate(unit="usd")

    async def teardown(self, sandbox_id: str) -> None:
        await self.teardown_with_report(sandbox_id)

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        self._ending.add(sandbox_id)
        await self._reach.forget(sandbox_id)
        name = name_of(sandbox_id)
        async with asyncio.timeout(_REMOVE_S):
            removed = await self._engine.call(
                "DELETE", f"/containers/{name}", params={"force": "1", "v": "1"}, accepts=(404, 409, 500)
            )
            if removed.status in (200, 204, 404):
                return CleanupReport(removed=() if removed.status == 404 else _REMOVED)
            # Somebody else removes it, or the kernel is not done: its end is what counts.
            await self._engine.call(
                "POST", f"/containers/{name}/wait", params={"condition": "removed"}, accepts=(404,)
            )
        if await look(self._engine, sandbox_id) is not None:
            raise Unavailable(why=f"the engine did not remove {sandbox_id}: {message_of(removed)}")
        return CleanupReport(removed=_REMOVED)

    async def deaths(self) -> AsyncIterator[str]:
        wanted = {"type": ["container"], "event": ["die"], "label": [f"{container.OWNER}={self._owner}"]}
        params = {"filters": json.dumps(wanted)}
        while True:
            try:
                async for event in self._engine.events(params):
                    if (sandbox_id := self._dead(event)) is not None:
                        yield sandbox_id
            except Unavailable:
                # Whoever compares records with the inventory finds what ended meanwhile.
                await asyncio.sleep(_AGAIN_S)

    def _dead(self, event: Any) -> str | None:
        try:
            sandbox_id = str(event["Actor"]["Attributes"][container.SANDBOX])
        except (LookupError, TypeError):
            return None
        return None if sandbox_id in self._ending or sandbox_id in self._making else sandbox_id

    async def close(self) -> None:
        await self._reach.close()

    # ---- optional: stopping and freezing ----

    async def stop(self, handle: Handle) -> None:
        sandbox_id = handle.sandbox_id
        found = await self._found(sandbox_id)
        if found.presence is Presence.STOPPED:
            return
        self._ending.add(sandbox_id)
        await self._reach.forget(sandbox_id)
        name = name_of(sandbox_id)
        if found.presence is Presence.FROZEN:
            # What stands still is killed before it can do anything more.
            await self._engine.call(
                "POST", f"/containers/{name}/kill", params={"signal": "KILL"}, accepts=(409, 500)
            )
            await self._engine.call("POST", f"/containers/{name}/unpause", accepts=(409, 500))
        await self._engine.call("POST", f"/containers/{name}/stop", params={"t": "0"}, accepts=(304,))

    async def resume(self, handle: Handle, order: Order) -> Handle:
        order = container.checked(order)
        found = await self._found(order.sandbox_id)
        if found.presence is Presence.FROZEN or found.presence is Presence.RUNNING:
            raise Conflict(why=f"{order.sandbox_id} is running")
        if order.resources != found.resources:
            await self._limit(order.sandbox_id, order.resources)
        try:
            await boot(self._engine, order.sandbox_id, found.secret)
            await self._reach.guest(order.sandbox_id).ping()
        except BaseException:
            await to_the_end(self._stopped_again(handle))
            raise
        self._ending.discard(order.sandbox_id)
        return Handle(sandbox_id=order.sandbox_id, backend=NAME, version=VERSION)

    async def _stopped_again(self, handle: Handle) -> None:
        try:
            await self.stop(handle)
        except SandboxerError:
            return

    async def freeze(self, handle: Handle) -> None:
        # First: nobody waits for an answer that does not come.
        self._reach.set_frozen(handle.sandbox_id, True)
        await self._pause(handle, "pause", Presence.FROZEN)

    async def thaw(self, handle: Handle) -> None:
        await self._pause(handle, "unpause", Presence.RUNNING)
        self._reach.set_frozen(handle.sandbox_id, False)

    async def _pause(self, handle: Handle, verb: str, wanted: Presence) -> None:
        answer = await self._engine.call(
            "POST", f"/containers/{name_of(handle.sandbox_id)}/{verb}", accepts=(404, 409, 500)
        )
        if answer.status in (200, 204):
            return
        found = await self._found(handle.sandbox_id)
        self._reach.set_frozen(handle.sandbox_id, found.presence is Presence.FROZEN)
        if found.presence is not wanted:
            raise BackendLost(why=message_of(answer))

    async def _limit(self, sandbox_id: str, resources: Resources) -> None:
        where = f"/containers/{name_of(sandbox_id)}/update"
        answer = await self._engine.call(
            "POST", where, body=container.limits(resources), accepts=(400, 404, 409, 500, 501)
        )
        if answer.status != 200:
            raise Conflict(why=f"the engine keeps its limits: {message_of(answer)}")

    # ---- what the engine says ----

    async def _found(self, sandbox_id: str) -> Seen:
        found = await look(self._engine, sandbox_id)
        if found is None or found.presence is Presence.GONE:
            raise BackendLost(why=f"{sandbox_id} is gone")
        return found

    async def _listed(self, **more: list[str]) -> list[Mapping[str, Any]]:
        filters = json.dumps({"label": [container.SANDBOX], **more})
        listed = (
            await self._engine.call("GET", "/containers/json", params={"all": "1", "filters": filters})
        ).content
        if not isinstance(listed, list):
            raise Unavailable(why="the engine lists its containers in other words")
        return [one for one in listed if isinstance(one, dict)]

    async def _promised(self, but: str) -> Holds:
        """What runs on the engine, of whatever platform, and what we are about to start was promised."""
        sum_ = Holds()
        for one in await self._listed(status=["running", "paused"]):
            sandbox_id = _labels(one).get(container.SANDBOX)
            if sandbox_id != but and sandbox_id not in self._making:
                held = container.promised_of(one)
                sum_ = Holds(memory_mb=sum_.memory_mb + held.memory_mb, vcpus=sum_.vcpus + held.vcpus)
        for sandbox_id, resources in self._making.items():
            sum_ = sum_ if sandbox_id == but else sum_.plus(resources)
        return sum_


class ResizingBackend(DockerBackend):
    """A backend whose engine gives a container other limits while it runs (`contract.Resizes`)."""

    async def resize(self, handle: Handle, resources: Resources) -> None:
        container.check_resources(resources)
        found = await self._found(handle.sandbox_id)
        others = await self._promised(handle.sandbox_id)
        container.demand_room(self._machine.total, others, resources)
        if found.presence is Presence.RUNNING:
            used = await self.usage(handle)
            if (
                used.memory_bytes > resources.memory_mb * container.MB
                or used.processes > resources.pids + container.OURS
            ):
                raise Conflict(why=f"{handle.sandbox_id} uses more than it would have")
        await self._limit(handle.sandbox_id, resources)


def _labels(listed: Mapping[str, Any]) -> Mapping[str, str]:
    labels = listed.get("Labels")
    return labels if isinstance(labels, dict) else {}


def _is_ours(labels: Mapping[str, str], owner: str) -> bool:
    return container.SANDBOX in labels and labels.get(container.OWNER) == owner


async def look_around(engine: Engine, overcommit: Overcommit) -> Machine:
    """Returns what was found of the engine and its machine. Raises Unavailable, NotAvailable."""
    info = (await engine.call("GET", "/info")).content
    try:
        memory_mb = int(info["MemTotal"]) / container.MB * overcommit.memory
        vcpus = int(info["NCPU"]) * overcommit.cpu
    except (LookupError, TypeError, ValueError) as error:
        raise Unavailable(why="the engine does not say what its machine has") from error
    nobody = name_of("sbx_nobody")
    asked = await engine.call("POST", f"/containers/{nobody}/update", body={}, accepts=(404, 501))
    return Machine(
        version=await engine.version(),
        total=Holds(memory_mb=memory_mb, vcpus=vcpus),
        limits_disk=False,
        # Else what is missing is the call.
        updates="no such container" in message_of(asked).lower(),
    )


def backend_of(parts: Parts) -> DockerBackend:
    return ResizingBackend(parts) if parts.machine.updates else DockerBackend(parts)
