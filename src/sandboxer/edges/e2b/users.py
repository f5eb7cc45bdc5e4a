"""Who a request to envd acts as inside the sandbox, and where that user's relative paths begin.

Clients name a user by basic authentication, without a password: whoever holds the sandbox's token may be
anybody inside. Without a name it is `user`, who becomes root by `sudo` (`access/sudo.py`).
"""

from __future__ import annotations

import base64
import posixpath
import re

from starlette.requests import Request

from sandboxer.edges.e2b.answers import outer_id
from sandboxer.edges.e2b.door import USER
from sandboxer.kernel.errors import InvalidRequest

DEFAULT = "user"
HOME = f"/home/{DEFAULT}"
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,5}")


def user_of(request: Request, named: str | None = None) -> str:
    """Returns the user that a request names by its authentication or otherwise."""
    given: bytes = request.scope.get(USER, b"")
    if named is None and given[:6].lower() == b"basic ":
        try:
            named = base64.b64decode(given[6:], validate=True).decode().partition(":")[0]
        except ValueError:
            raise InvalidRequest(field="Authorization", why="it is not basic authentication") from None
    if not named:
        return DEFAULT
    if _NAME.fullmatch(named) is None:
        raise InvalidRequest(field="user", why="this is no name of a user")
    return named


def home_of(user: str) -> str:
    return "/root" if user in ("root", "0") else f"/home/{user}"


def environment_of(sandbox_id: str) -> dict[str, str]:
    """Returns the variables by which programs tell that they are in a sandbox of E2B's, and in which."""
    return {"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": outer_id(sandbox_id)}


def path_for(path: str, user: str) -> str:
    """Returns the whole path of what a client names: from the home of its user, unless it begins with `/`."""
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    return posixpath.normpath(posixpath.join(home_of(user), path))
