"""Opens the proxy's own listener on an open platform, and closes it with all its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxer.access.connections import Front, Patience
from sandboxer.access.ports.ports import Where
from sandboxer.edges.front.acceptor import Acceptor
from sandboxer.edges.proxy.client import ClientConnection, Proxy
from sandboxer.edges.proxy.doors import VisitorLimits, owners
from sandboxer.edges.proxy.host_door import HostDoor
from sandboxer.edges.proxy.upstream import Pool
from sandboxer.kernel.tasks import own_tasks
from sandboxer.wiring import Platform

log = logging.getLogger(__name__)
SWEEP_S = 1.0


@asynccontextmanager
async def open_proxy(platform: Platform, *, patience: Patience | None = None) -> AsyncIterator[Proxy]:
    """Opens what connections to ports share, whichever listener they come from."""
    ports = platform.access.ports
    front = (
        platform.front
        if patience is None
        else Front(platform.front.bounds, platform.trusted_proxies, patience, platform.budget.turns)
    )
    async with own_tasks() as tasks:
        pool = Pool(ports.passages, tasks)
        proxy = Proxy(
            pool=pool,
            targets=ports.targets,
            tasks=tasks,
            trusted=platform.trusted_proxies,
            visitor_limits=VisitorLimits(platform.limiter, platform.limits, platform.trusted_proxies),
            connections=set(),
            front=front,
        )
        tasks.start(_sweep(proxy), name="what connections were opened by")
        tasks.start(front.watch(), name="slow connections")
        try:
            yield proxy
        finally:
            for connection in list(proxy.connections):
                connection.shut_down()
            pool.close()


@asynccontextmanager
async def listen_for_hosts(
    platform: Platform, proxy: Proxy, listening: socket.socket
) -> AsyncIterator[Where]:
    """Serves `{port}-{id}.{domain}` and the other names on a socket that is already bound."""
    settings = platform.settings
    may_act = owners(platform.authorities, platform.clock)
    door = HostDoor(platform.access.ports, settings.proxy_domain, may_act, proxy.visitor_limits)
    acceptor = Acceptor(listening, proxy.front, lambda slot: ClientConnection(proxy, door, slot))
    https_port = settings.proxy_https_port
    where = Where(
        domain=settings.proxy_domain,
        scheme="http" if https_port is None else "https",
        port=listening.getsockname()[1] if https_port is None else https_port,
    )
    platform.access.ports.where = where
    try:
        yield where
    finally:
        platform.access.ports.where = None
        acceptor.close()
        await acceptor.wait_closed()


async def _sweep(proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        for connection in list(proxy.connections):
            try:
                await connection.look()
            except Exception:
                # An outermost loop: a database that is away for a moment must not end the listener.
                log.exception("could not look after a connection")
        proxy.pool.sweep(loop.time())
