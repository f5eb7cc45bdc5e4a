"""The socket inside by which a sandbox asks: who connects to it is announced by the supervisor, and the host
dials a stream for each and serves the API on it. The stream itself says which sandbox it is; whatever a
program writes into it makes it no other.

A sandbox has few connections at once and few new ones a second. Others wait inside, in the queue of its own
socket, and cost the host nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from sandboxer.agents.inception.grants import caller_of, has_authority
from sandboxer.backends.contract import Handle
from sandboxer.backends.guest import HandedOver, HandsOver, Relay, RelaysSocket
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, NotAvailable, SandboxerError
from sandboxer.kernel.fairness import Allowances, LocalAllowances, WorkBounds
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.records import Sandbox

log = logging.getLogger(__name__)
# Of one sandbox at once; a terminal or a stream of events holds one each.
CONNECTIONS = 16
# New ones a second in the long run, and so many at once.
NEW_PER_S, BURST = 25.0, 50.0
# Before a line that broke is dialled again; twice as long each time that it cannot be.
AGAIN_S, LONGEST_S = 0.5, 30.0
# Nobody who changes a sandbox waits longer for its socket, or for it to be told where it is.
PATIENCE_S = 2.0
# Sandboxes that run already are asked so many at once at a start: one that hangs holds up few.
AT_ONCE = 64
# Serves a connection of a sandbox; the last is to be called once, when it is over.
Door = Callable[[HandedOver, Caller, Callable[[], None]], Awaitable[None]]


def pace() -> Allowances:
    """Returns what lets so many connections begin at once, and so many a second from then on."""
    return LocalAllowances(WorkBounds(stretch_s=BURST / NEW_PER_S, refill=1.0))


class SandboxRelay:
    """Leads the connections of one sandbox to the door, for as long as its task runs."""

    def __init__(self, sandboxes: SandboxDependencies, sandbox: Sandbox, door: Door) -> None:
        self._sandboxes = sandboxes
        self._id = sandbox.id
        self._caller = caller_of(sandbox)
        self._door = door
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._loop = asyncio.get_running_loop()
        self._pace = pace()

    async def run(self, relay: Relay | None) -> None:
        """Runs until the sandbox does not. A line that breaks, or could not be had, is dialled again."""
        pause_s = AGAIN_S
        while True:
            if relay is not None:
                pause_s = AGAIN_S
                await self._lead_until_broken(relay)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_S)
            sandbox = self._sandboxes.repository.peek(self._id)
            if sandbox is None or sandbox.state not in LIVE or not has_authority(sandbox):
                return
            relay = await self._again(sandbox)

    async def _again(self, sandbox: Sandbox) -> Relay | None:
        try:
            return await listen(self._sandboxes, sandbox)
        except SandboxerError as error:
            log.warning("the relay of %s could not be opened again: %s", self._id, error)
            return None

    async def _lead_until_broken(self, relay: Relay) -> None:
        try:
            await self._lead(relay)
        except SandboxerError as error:
            log.debug("the relay of %s broke: %s", self._id, error)
        finally:
            await relay.close()

    async def _lead(self, relay: Relay) -> None:
        while True:
            # Before it is asked for: who waits, waits inside.
            await self._free.acquire()
            is_led = False
            try:
                call = await relay.next_call()
                self._pace.spend(self._id, 1 / NEW_PER_S, self._loop.time())
                await asyncio.sleep(self._pace.owed_s(self._id, self._loop.time()))
                is_led = await self._accept(relay, call)
            finally:
                if not is_led:
                    self._free.release()

    async def _accept(self, relay: Relay, call: int) -> bool:
        try:
            connection = await relay.accept(call)
        except BackendLost:
            raise
        except SandboxerError:
            # Whoever called has hung up.
            return False
        if not isinstance(connection, HandsOver):
            await connection.close()
            return False
        handed = connection.hand_over()
        try:
            await self._door(handed, self._caller, self._free.release)
        except Exception:
            # Its place was given back. One connection's trouble ends no others.
            log.exception("could not serve a connection of %s", self._id)
        return True


async def listen(sandboxes: SandboxDependencies, sandbox: Sandbox) -> Relay:
    """Opens the socket inside. Raises NotAvailable if the sandbox cannot have one."""
    if sandbox.handle is None:
        raise NotAvailable(what="inception", why="the sandbox does not run")
    guest = await sandboxes.backend_of(sandbox).guest(sandbox.handle)
    if not isinstance(guest, RelaysSocket):
        raise NotAvailable(what="inception", why=f"{sandbox.backend} has no socket inside")
    return await guest.listen_inside()


class Relays:
    def __init__(self, sandboxes: SandboxDependencies, tasks: TaskOwner) -> None:
        self._sandboxes = sandboxes
        self._tasks = tasks
        # The handle of the processes whose socket it is, and what leads its connections.
        self._running: dict[str, tuple[Handle, asyncio.Task[None]]] = {}
        self._door: asyncio.Future[Door] = asyncio.get_running_loop().create_future()

    def open_door(self, door: Door) -> None:
        """Says who serves connections; until then they wait inside."""
        if not self._door.done():
            self._door.set_result(door)

    async def follow(self, sandbox: Sandbox) -> None:
        """Opens the socket of a sandbox that was granted one, once for each start of it. Never raises: one
        that cannot have it is as one without, and its description says so. One that does not answer gets it
        once it does.
        """
        if (known := self._running.get(sandbox.id)) is not None and known[0] == sandbox.handle:
            return
        relay: Relay | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                relay = await listen(self._sandboxes, sandbox)
        except NotAvailable as error:
            log.warning("%s has no way to ask from inside: %s", sandbox.id, error)
            return
        except (SandboxerError, TimeoutError) as error:
            log.warning("%s has no way to ask from inside yet: %r", sandbox.id, error)
        self.stop(sandbox.id)
        assert sandbox.handle is not None
        task = self._tasks.start(self._lead(sandbox, relay), name=f"relay of {sandbox.id}")
        self._running[sandbox.id] = sandbox.handle, task

    def stop(self, sandbox_id: str) -> None:
        if (known := self._running.pop(sandbox_id, None)) is not None:
            known[1].cancel()

    def leads(self, sandbox_id: str) -> bool:
        return sandbox_id in self._running

    async def _lead(self, sandbox: Sandbox, relay: Relay | None) -> None:
        try:
            await SandboxRelay(self._sandboxes, sandbox, await self._door).run(relay)
        except Exception:
            # A fault in one sandbox's relay must not end the server for all others.
            log.exception("the relay of %s ended", sandbox.id)
        finally:
            known = self._running.get(sandbox.id)
            if known is not None and known[1] is asyncio.current_task():
                # The next change of a sandbox that runs on opens another.
                del self._running[sandbox.id]

    async def lead_all(self) -> None:
        """Opens those of sandboxes that run already: callers wait inside meanwhile."""
        running = self._sandboxes.repository.living()
        await each([one for one in running if one.state in LIVE and has_authority(one)], self.follow)


async def each(sandboxes: Sequence[Sandbox], act: Callable[[Sandbox], Awaitable[None]]) -> None:
    """Does it for each, few at once; `act` raises nothing."""
    waiting = iter(sandboxes)

    async def some() -> None:
        for sandbox in waiting:
            await act(sandbox)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, len(sandboxes))):
            group.create_task(some())
