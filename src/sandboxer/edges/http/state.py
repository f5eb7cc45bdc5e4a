"""What a route reaches for: the platform behind the app, and who is calling."""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.types import Scope

from sandboxer.edges.http.authentication import LEASE, caller_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import Forbidden
from sandboxer.wiring import Platform


def platform_of(connection: HTTPConnection) -> Platform:
    platform = connection.app.state.platform
    assert isinstance(platform, Platform)
    return platform


def caller(connection: HTTPConnection) -> Caller:
    return caller_of(connection.scope)


def lease_of(scope: Scope) -> Lease:
    """What this request may hold beyond 64 KiB is taken by it."""
    lease = scope[LEASE]
    assert isinstance(lease, Lease)
    return lease


def require_owner(connection: HTTPConnection) -> Caller:
    who = caller(connection)
    if not who.is_owner:
        raise Forbidden(why="this is for the owner of the platform", reason="operator_only")
    return who
