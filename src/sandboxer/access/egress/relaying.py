"""Listens to the calls of one sandbox's inside port, and runs an errand for each. The host always dials."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sandboxer.access.egress.outlet import Outlet
from sandboxer.access.egress.proxy.errand import Errand
from sandboxer.access.egress.proxy.means import Means
from sandboxer.access.egress.proxy.wire import Wire
from sandboxer.backends.guest import Connection, HandsOver, Relay
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import TaskOwner, own_tasks

log = logging.getLogger(__name__)
# Between two tries to listen again at a sandbox that is there and does not answer.
_AGAIN_S = (0.05, 0.2, 1.0, 5.0)


async def relay_calls(
    outlet: Outlet, first: Relay, again: Callable[[], Awaitable[Relay | None]], means: Means
) -> None:
    """Until it is cancelled, or `again` says that there is nobody to listen to any more."""
    relay: Relay | None = first
    failures = 0
    async with own_tasks() as errands:
        while relay is not None:
            try:
                await _take(outlet, relay, means, errands)
            except SandboxerError as error:
                log.info("the relay of %s broke off: %s", outlet.sandbox_id, error)
            finally:
                await relay.close()
            relay = None
            while relay is None:
                await asyncio.sleep(_AGAIN_S[min(failures, len(_AGAIN_S) - 1)])
                failures += 1
                try:
                    relay = await again()
                except SandboxerError as error:
                    log.info("%s cannot be listened to: %s", outlet.sandbox_id, error)
                    continue
                if relay is None:
                    return
            failures = 0 if failures < len(_AGAIN_S) else failures


async def _take(outlet: Outlet, relay: Relay, means: Means, errands: TaskOwner) -> None:
    """Calls beyond what may be open at once wait inside."""
    running: set[asyncio.Task[None]] = set()
    while True:
        while len(running) >= outlet.rules.limits.connections:
            outlet.make_room()
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        call = await relay.next_call()
        errand = errands.start(_carry(outlet, relay, call, means), name="egress")
        running.add(errand)
        errand.add_done_callback(running.discard)


async def _carry(outlet: Outlet, relay: Relay, call: int, means: Means) -> None:
    try:
        client = await wire_of(await relay.accept(call), outlet)
    except (SandboxerError, OSError) as error:
        log.info("a call of %s was lost: %s", outlet.sandbox_id, error)
        return
    try:
        await Errand(outlet, client, means).run()
    except Exception:
        # Whatever one connection meets must not end the others.
        log.exception("a connection of %s failed", outlet.sandbox_id)


async def wire_of(connection: Connection, outlet: Outlet) -> Wire:
    if not isinstance(connection, HandsOver):
        raise TypeError("a relayed connection must hand its socket over")
    handed = connection.hand_over()
    try:
        _, client = await asyncio.get_running_loop().create_unix_connection(
            lambda: Wire(outlet.heard, handed.closed), sock=handed.sock
        )
    except BaseException:
        handed.closed()
        handed.sock.close()
        raise
    if handed.received:
        client.data_received(handed.received)
    return client
