"""Serves the app in one process with one loop. It answers once the platform is open, and closes it at the
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import uvicorn
import uvloop
from starlette.applications import Starlette

from sandboxer.access.connections import Front, Slot
from sandboxer.backends.guest import HandedOver
from sandboxer.edges.front.acceptor import Acceptor, listen_for_users, serve_handed_over
from sandboxer.edges.front.http import BoundedWebSocket, StrictHttp
from sandboxer.edges.http.app import create_app
from sandboxer.edges.proxy.caddy import EdgePlan, running_edge
from sandboxer.edges.proxy.host_door import listen_for_hosts, open_proxy
from sandboxer.edges.proxy.path_door import PathDoor, api_protocol
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotAvailable
from sandboxer.kernel.fairness import come_first
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.settings import Settings
from sandboxer.wire.unsandbox import API_HOST, PORTAL_HOST
from sandboxer.wiring import Platform, open_platform

log = logging.getLogger(__name__)
BACKLOG = 4096
# Streams and terminals do not end by themselves; clients have this long at the end.
GRACE_S = 3
MAX_WEBSOCKET_MESSAGE = 1024 * 1024
KEEP_ALIVE_S = 75
# Whoever waited for the start comes first.
LOADING_AFTER_S = 2.0
_NO_NEWS = frozenset(
    {
        "ASGI callable returned without completing handshake.",
        "Invalid HTTP request received.",
        "Unsupported upgrade request.",
    }
)


@value_class
class Listeners:
    """Where an open platform is reached."""

    api: str
    # `address:port` each; None: not served.
    ports: str | None = None
    ssh: str | None = None
    # The file.
    socket: str | None = None


OnReady = Callable[[Listeners], None]


def run(settings: Settings, *, on_ready: OnReady | None = None) -> None:
    """Serves until SIGINT or SIGTERM."""
    # The usual 1024 descriptors are too few for the sandboxes and streams of one host.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    come_first()
    uvloop.run(serve(settings, on_ready=on_ready))


async def serve(settings: Settings, *, on_ready: OnReady | None = None) -> None:
    """Serves until SIGINT or SIGTERM. `on_ready` is told where, once requests are answered."""
    listening = listen(settings.host, settings.port)
    with contextlib.closing(listening):
        port = listening.getsockname()[1]
        async with AsyncExitStack() as opened:
            platform = await opened.enter_async_context(
                open_platform(settings.model_copy(update={"port": port}))
            )
            at_ports, protocol = await open_ports(platform, opened)
            sockets = [listening]
            if settings.socket_group is not None:
                local = listen_for_users(settings.socket_path, settings.socket_group)
                sockets.append(opened.enter_context(local))
            listeners = Listeners(
                api=url_of(settings.host, port),
                ports=at_ports,
                ssh=await open_ssh(platform, opened),
                socket=None if settings.socket_group is None else str(settings.socket_path),
            )
            app, tasks = create_app(platform), await opened.enter_async_context(own_tasks())

            def started() -> None:
                tasks.start(_load_the_rest(app), name="routes that nobody has asked for yet")
                if on_ready is not None:
                    on_ready(listeners)

            server = Server(config(app, settings, ports=protocol), started)

            def stop() -> None:
                app.state.readiness = "stopping"
                server.should_exit = True
                platform.store.hurry()

            with _stopped_by_signals(stop), _stopped_when_superseded(platform, stop):
                await server.serve(sockets=sockets)


async def _load_the_rest(app: Starlette) -> None:
    """Imports what no request has asked for, so that what is broken is told soon after a start, and an
    upgrade of the files below a running server changes nothing of it.
    """
    await asyncio.sleep(LOADING_AFTER_S)
    await app.state.matcher.load_all()


async def open_ports(platform: Platform, opened: AsyncExitStack) -> tuple[str | None, type[asyncio.Protocol]]:
    """Serves ports of sandboxes: by name on a listener of their own, and by path on the API's. Returns the
    address of the first, and the protocol that does the second.
    """
    at, proxy = None, await opened.enter_async_context(open_proxy(platform))
    if (address := platform.settings.proxy_address) is not None:
        listening = opened.enter_context(contextlib.closing(_listen_for_proxy(platform.settings, *address)))
        await opened.enter_async_context(listen_for_hosts(platform, proxy, listening))
        at = _shown(listening)
        if platform.settings.https:
            await opened.enter_async_context(_edge(platform.settings, listening))
    return at, api_protocol(proxy, PathDoor(platform, proxy.visitor_limits))


async def open_ssh(platform: Platform, opened: AsyncExitStack) -> str | None:
    """Opens the SSH gateway, if the settings say where. Returns its address."""
    if (address := platform.settings.ssh_address) is None:
        return None
    try:
        gateway = importlib.import_module("sandboxer.edges.ssh.gateway")
    except ModuleNotFoundError as error:
        why = f"{error.name} is not installed; pip install 'sandboxer[ssh]', or unset ssh_listen"
        raise NotAvailable(what="ssh_listen", why=why) from error
    listening = opened.enter_context(contextlib.closing(listen(*address)))
    await opened.enter_async_context(gateway.open_gateway(platform, listening))
    return _shown(listening)


def _edge(settings: Settings, ports: socket.socket) -> AbstractAsyncContextManager[None]:
    """Runs Caddy in front of both listeners, on this machine."""
    plan = EdgePlan(
        site=urlsplit(settings.public_url or "").hostname or "localhost",
        domain=settings.proxy_domain,
        api=f"127.0.0.1:{settings.port}",
        ports=f"127.0.0.1:{ports.getsockname()[1]}",
        https_port=settings.proxy_https_port or 443,
        internal=True,
        others=(API_HOST, PORTAL_HOST) if settings.unsandbox_names else (),
        storage=settings.state_dir / "edge" / "certificates",
        is_supervised=True,
    )
    return running_edge(plan, settings.state_dir / "edge")


def _listen_for_proxy(settings: Settings, host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        if settings.proxy_listen is not None or error.errno != errno.EADDRINUSE:
            raise
        # This particular port was not asked for.
        log.warning("port %d is taken: ports of sandboxes are served on another", port)
        return listen(host, 0)


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before the platform is closed."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        protocol = self.config.http_protocol_class
        if sockets is not None and isinstance(protocol, type) and issubclass(protocol, StrictHttp):
            # uvicorn itself listens nowhere: the front accepts.
            await super().startup([])
            for listening in sockets:
                acceptor: Any = Acceptor(listening, protocol.front, self._protocol)
                self.servers.append(acceptor)
            self._open_inside(protocol.front)
        else:
            await super().startup(sockets)
        if self.started:
            self._on_started()

    def _protocol(self, slot: Slot, early: bytes = b"") -> asyncio.BaseProtocol:
        kind: type[StrictHttp] = self.config.http_protocol_class  # type: ignore[assignment]
        made = kind(self.config, self.server_state, self.lifespan.state)
        made.take(slot, early)
        return made

    def _open_inside(self, front: Front) -> None:
        """Serves what sandboxes ask from inside, too."""
        platform: Platform = self.config.app.state.platform  # type: ignore[union-attr]

        async def serve(handed: HandedOver, sandbox: Caller, ended: Callable[[], None]) -> None:
            await serve_handed_over(handed, sandbox, front, ended, self._protocol)

        platform.inception.relays.open_door(serve)


def listen(host: str, port: int) -> socket.socket:
    """Binds before anything is opened, so that a taken port fails early and port 0 becomes a real one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Declared as TCP, or asyncio leaves Nagle's algorithm on, which costs 40 ms for every answer in two
    # pieces.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def config(
    app: Starlette, settings: Settings, *, ports: type[asyncio.Protocol] | None = None
) -> uvicorn.Config:
    """Returns uvicorn's configuration. `ports` is the protocol that reads requests, if ports are served by
    path.
    """
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return uvicorn.Config(
        app,
        http=ports or "httptools",
        ws=BoundedWebSocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level=settings.log_level,
        # Peer addresses decide who may read /metrics, so nobody may claim another one.
        proxy_headers=False,
        server_header=False,
        date_header=True,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ws_max_size=MAX_WEBSOCKET_MESSAGE,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
    )


def _is_news(record: logging.LogRecord) -> bool:
    """Filters a log record: uvicorn takes a refused WebSocket upgrade for an unfinished one, and has a line
    without an address for everything odd that a stranger sends.
    """
    return record.msg not in _NO_NEWS


@contextlib.contextmanager
def _stopped_when_superseded(platform: Platform, stop: Callable[[], None]) -> Iterator[None]:
    """Stops serving when another server has taken over our database: nothing of ours is written any more."""
    if (claim := platform.store.database.claim) is None:
        yield
        return
    loop = asyncio.get_running_loop()
    claim.on_superseded(lambda: loop.call_soon_threadsafe(stop))
    yield
    claim.refuse_if_superseded()


@contextlib.contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM)
    for number in caught:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
