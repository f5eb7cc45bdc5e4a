"""What a secret may be called and how large it may be. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandboxer.kernel.errors import Conflict, InvalidRequest, TooLarge

# A name is a variable and a file name at once.
NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
MAX_VALUE_BYTES = 64 * 1024
MAX_OF_ACCOUNT = 256
MAX_IN_SANDBOX = 64
# All of a sandbox's together: an environment has to fit into one execve beside everything else.
MAX_IN_SANDBOX_BYTES = 512 * 1024
_NAME = re.compile(NAME)


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            field="name", why="a secret's name has letters, digits and _, no digit first, at most 128"
        )


def check_value(name: str, value: str) -> bytes:
    """Its bytes. The errors name the secret and never show it."""
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(field=name, why="the value is not text that UTF-8 can hold") from None
    if not data:
        raise InvalidRequest(field=name, why="the value is empty")
    if b"\0" in data:
        raise InvalidRequest(field=name, why="the value holds a NUL, which no variable can")
    if len(data) > MAX_VALUE_BYTES:
        raise TooLarge(what=f"the value of {name}", limit=f"{MAX_VALUE_BYTES} bytes")
    return data


def check_sum(sizes: Iterable[int]) -> None:
    """May a sandbox hold secrets of these sizes?"""
    held = list(sizes)
    if len(held) > MAX_IN_SANDBOX:
        raise Conflict(why=f"a sandbox holds at most {MAX_IN_SANDBOX} secrets", hint="Wipe what is not used.")
    if sum(held) > MAX_IN_SANDBOX_BYTES:
        raise TooLarge(what="all secrets of a sandbox together", limit=f"{MAX_IN_SANDBOX_BYTES} bytes")
