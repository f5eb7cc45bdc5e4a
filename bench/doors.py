"""A server with two doors to the same routes: one asks who is calling, the other takes all for the owner.

    python -m bench.doors STATE_DIR

Prints one line of JSON with both ports when it serves, and ends with its standard input. Sandboxes are those
of the scripted backend: what is compared is the way of a request, not what it starts. For the bench only.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import cast

import uvloop
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.http.app import create_app
from sandboxer.edges.http.authentication import CALLER, LEASE, Authentication
from sandboxer.edges.http.server import Server, config, listen
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.budget import Budget
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform


class Everybody:
    """In the place of `Authentication`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._budget = Budget()
        self._caller = Caller(public_key="sbx-pk-bench", account=OWNER_ACCOUNT, is_owner=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CALLER] = self._caller
        with self._budget.lease(OWNER_ACCOUNT) as lease:
            scope[LEASE] = lease
            await self._app(scope, receive, send)


def without_authentication(app: Starlette) -> Starlette:
    layers = [(cast("type", layer.cls), layer) for layer in app.user_middleware]
    app.user_middleware = [
        Middleware(Everybody) if kind is Authentication else layer for kind, layer in layers
    ]
    return app


async def serve(state_dir: Path) -> None:
    settings = Settings(
        state_dir=state_dir,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        # Counted as always, but not stopped.
        limit_bucket_only=1_000_000,
        limit_address=1_000_000,
    )
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:
        doors = [create_app(platform), without_authentication(create_app(platform))]
        sockets = [listen("127.0.0.1", 0) for _ in doors]
        open_doors = asyncio.Semaphore(0)
        servers = [Server(config(app, settings), open_doors.release) for app in doors]
        async with asyncio.TaskGroup() as group:
            for server, socket in zip(servers, sockets, strict=True):
                group.create_task(server.serve(sockets=[socket]))
            for _ in doors:
                await open_doors.acquire()
            print(json.dumps([socket.getsockname()[1] for socket in sockets]), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for server in servers:
                server.should_exit = server.force_exit = True


if __name__ == "__main__":
    # As the real server does.
    uvloop.run(serve(Path(sys.argv[1])))
