"""Who a request to envd acts as inside the sandbox, and where that user's relative paths begin.

Clients name a user by basic authentication, without a password: whoever holds the sandbox's token may be
anybody inside. Without a name it is root, at home in `/home/user`. Root of a sandbox is nobody outside, and
may do everything inside: `sudo` has nothing to give, so that no setuid program is needed, which our walls
would not allow (no-new-privileges).
"""

from __future__ import annotations

import base64
import posixpath
import re

from starlette.requests import Request

from sandboxer.edges.e2b.door import USER
from sandboxer.kernel.errors import InvalidRequest

HOME = "/home/user"
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,5}")


def user_of(request: Request, named: str | None = None) -> str | None:
    """Returns the user that a request names by its authentication or otherwise; None stands for nobody in
    particular.
    """
    given: bytes = request.scope.get(USER, b"")
    if named is None and given[:6].lower() == b"basic ":
        try:
            named = base64.b64decode(given[6:], validate=True).decode().partition(":")[0]
        except ValueError:
            raise InvalidRequest(field="Authorization", why="it is not basic authentication") from None
    if not named:
        return None
    if _NAME.fullmatch(named) is None:
        raise InvalidRequest(field="user", why="this is no name of a user")
    return named


def home_of(user: str | None) -> str:
    if user is None:
        return HOME
    return "/root" if user in ("root", "0") else f"/home/{user}"


def path_for(path: str, user: str | None) -> str:
    """Returns the whole path of what a client names: from the home of its user, unless it begins with `/`."""
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    return posixpath.normpath(posixpath.join(home_of(user), path))
