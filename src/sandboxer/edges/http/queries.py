"""Query parameters as bytes: frameworks decode them as UTF-8 and replace the rest; names must not suffer."""

from __future__ import annotations

import os
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from sandboxer.kernel.errors import InvalidRequest


def path_of(scope: Scope, name: str = "path") -> str:
    """The parameter's exact bytes, with surrogates for those that are not UTF-8 (`os.fsdecode`)."""
    wanted = name.encode()
    found: list[bytes] = []
    for pair in scope["query_string"].split(b"&"):
        key, _, value = pair.partition(b"=")
        if key == wanted:
            found.append(value)
    if len(found) != 1:
        raise InvalidRequest(field=name, why="give it exactly once")
    return os.fsdecode(unquote_to_bytes(found[0].replace(b"+", b" ")))


def exact(path: str, encoding: str) -> str:
    """A path of a JSON body, whose bytes may be written percent-encoded."""
    return path if encoding == "text" else os.fsdecode(unquote_to_bytes(path))
