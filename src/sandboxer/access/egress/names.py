"""Names of hosts as rules and requests may write them, and how servers may interpret a path.
Decisions only.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import unquote, unquote_to_bytes

MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


class BadName(Exception):
    """Why it is not the name of a host."""


def host_of(text: str) -> str:
    """Returns the canonical name: lower case, no trailing dot. Raises BadName."""
    name = text.lower().removesuffix(".")
    if not name or len(name) > MAX_NAME:
        raise BadName("it is empty or longer than 253 characters")
    labels = name.split(".")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        raise BadName("it is no domain name; write international names in punycode, addresses as plain IPv4")
    if _NUMBER.fullmatch(labels[-1]) and not is_address(text):
        raise BadName("it ends in a number without being an IPv4 address in its usual form")
    return name


@lru_cache(maxsize=4096)
def is_address(name: str) -> bool:
    try:
        return str(ipaddress.IPv4Address(name)) == name
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def authority_of(text: str, *, default_port: int | None) -> tuple[str, int]:
    """Returns host and port of `host:port`; without a port the default, if there is one. Raises BadName."""
    host, colon, digits = text.rpartition(":")
    if not colon:
        host, digits = text, "" if default_port is None else str(default_port)
    if _PORT.fullmatch(digits) is None or int(digits) > 65535:
        raise BadName("its port is missing or is none")
    return host_of(host), int(digits)


# Characters that every server reads alike: letters, digits and marks without special meaning.
_SEGMENT = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,=:@;]|%[0-9A-Fa-f]{2})*")
# Escapes that some servers decode before they split: dots, slashes, parameters, queries, escapes themselves.
_MEANS_SOMETHING = frozenset(b"./\\%;?#")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
# `%u002e` of old servers, escapes cut short, and control characters that end or split a path.
_UNREADABLE = re.compile(r"%(?![0-9A-Fa-f]{2})|[\x00-\x1f\x7f]")


def is_plain(path: str) -> bool:
    """Tells whether all servers read the path as it is written."""
    return path.startswith("/") and "//" not in path and all(map(_is_plain, path.split("/")))


def _is_plain(segment: str) -> bool:
    if _SEGMENT.fullmatch(segment) is None:
        return False
    codes = [int(code, 16) for code in _ESCAPED.findall(segment)]
    if any(code in _MEANS_SOMETHING or code < 0x20 or code == 0x7F for code in codes):
        return False
    try:
        # Overlong forms of a dot or a slash are not UTF-8.
        decoded = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return False
    name = decoded.partition(";")[0]
    # `. .`, or `..` followed by spaces, mean dots to servers on some systems.
    return not name or name.strip(" .") != ""


def readings(path: str) -> tuple[str, ...]:
    """Returns how servers may read a path, in lower case; empty if they may read anything into it."""
    for _ in range(3):
        if _UNREADABLE.search(path):
            return ()
        try:
            path = unquote(path, errors="strict")
        except UnicodeDecodeError:
            return ()
    if "%" in path or _UNREADABLE.search(path):
        return ()
    parts = [part for part in path.replace("\\", "/").lower().split("/") if part]
    if any(part.strip(" .") == "" and part not in (".", "..") for part in _names(parts)):
        return ()
    return _joined(_names(parts)), _joined(parts), _joined(_folded(_names(parts)))


def _names(parts: list[str]) -> list[str]:
    """Returns the parts without parameters: `..;x` is `..` to servers that know parameters, and a name to
    others.
    """
    return [part.partition(";")[0] for part in parts]


def _folded(parts: list[str]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return kept


def _joined(parts: list[str]) -> str:
    return "/" + "/".join(parts)
