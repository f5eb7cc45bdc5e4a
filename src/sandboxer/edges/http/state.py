"""What a route reaches for: the platform behind the app, and who is calling."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from sandboxer.edges.http.authentication import caller_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden
from sandboxer.wiring import Platform


def platform_of(connection: HTTPConnection) -> Platform:
    platform = connection.app.state.platform
    assert isinstance(platform, Platform)
    return platform


def caller(connection: HTTPConnection) -> Caller:
    return caller_of(connection.scope)


def require_owner(connection: HTTPConnection) -> Caller:
    who = caller(connection)
    if not who.is_owner:
        raise Forbidden(why="this is for the owner of the platform")
    return who
