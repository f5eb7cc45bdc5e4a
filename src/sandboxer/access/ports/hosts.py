"""Names that stand for a port of a sandbox: `3000-sbx-….example.com`. Decisions only.

An id holds an underscore, which is no letter of a host name; there it is a hyphen. Both are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandboxer.kernel.ids import is_sandbox_id

# No leading zero, so that one port has one name.
_LABEL = re.compile(r"([1-9][0-9]{0,4})-sbx[-_]([0-9a-z]{26})")
_PATH = re.compile(rb"/v1/sandboxes/(sbx_[0-9a-z]{26})/ports/([1-9][0-9]{0,4})(?=[/?]|$)")
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class PortAddress:
    sandbox_id: str
    port: int


def without_port(host: str) -> str:
    """A Host header's name alone, in lower case, without a root dot."""
    name = host if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def is_ours(name: str, domain: str) -> bool:
    """Is it a direct child of the proxy's domain?"""
    label, dot, rest = name.partition(".")
    return bool(dot and label) and rest == domain


def read_host(name: str, domain: str) -> PortAddress | None:
    """The port that a name of ours stands for; None: it does not say so itself."""
    if not is_ours(name, domain):
        return None
    match = _LABEL.fullmatch(name.partition(".")[0])
    if match is None:
        return None
    return _address("sbx_" + match[2], int(match[1]))


def read_path(target: bytes) -> tuple[PortAddress, bytes, bytes] | None:
    """The port that a path stands for, what comes before it, and what follows for the program inside."""
    match = _PATH.match(target)
    if match is None:
        return None
    address = _address(match[1].decode(), int(match[2]))
    rest = target[match.end() :]
    return None if address is None else (address, match[0], rest if rest[:1] == b"/" else b"/" + rest)


def host_of(address: PortAddress, domain: str) -> str:
    return f"{address.port}-{address.sandbox_id.replace('_', '-')}.{domain}"


def _address(sandbox_id: str, port: int) -> PortAddress | None:
    return PortAddress(sandbox_id, port) if port <= MAX_PORT and is_sandbox_id(sandbox_id) else None
