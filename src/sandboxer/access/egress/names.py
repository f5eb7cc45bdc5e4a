"""Hosts as rules and requests may name them: plain domain names, or an IPv4 address as everybody writes it.

What two readers could take for two hosts is no name here: brackets, numbers in other bases, a port in the
name, a name that ends in a number without being an address.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


class BadName(Exception):
    """Why it is not the name of a host."""


def host_of(text: str) -> str:
    """The name in its one form: lower case, no dot at its end. Raises BadName."""
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
    """Host and port of `host:port`; without a port the default, if there is one. Raises BadName."""
    host, colon, digits = text.rpartition(":")
    if not colon:
        host, digits = text, "" if default_port is None else str(default_port)
    if _PORT.fullmatch(digits) is None or int(digits) > 65535:
        raise BadName("its port is missing or is none")
    return host_of(host), int(digits)
