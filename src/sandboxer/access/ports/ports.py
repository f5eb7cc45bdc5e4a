"""Ports, as the edges use them: which port a name stands for, who may use it, and how to connect to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sandboxer.access.ports.passages import Passages
from sandboxer.access.ports.previews import QUERY, Minter, Preview, Previews
from sandboxer.access.ports.targets import Target, Targets, Waker
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.ids import is_sandbox_id
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.store.engine import Store

# No leading zero, so that one port has one name.
_LABEL = re.compile(r"([1-9][0-9]{0,4})-sbx[-_]([0-9a-z]{26})")
_PATH = re.compile(rb"/v1/sandboxes/(sbx_[0-9a-z]{26})/ports/([1-9][0-9]{0,4})(?=[/?]|$)")
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class PortAddress:
    sandbox_id: str
    port: int


def without_port(host: str) -> str:
    """Returns the name in a Host header, in lower case, without port and without a trailing dot."""
    name = host if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def is_ours(name: str, domain: str) -> bool:
    """Tells whether the name is a direct child of the proxy's domain."""
    label, dot, rest = name.partition(".")
    return bool(dot and label) and rest == domain


def read_host(name: str, domain: str) -> PortAddress | None:
    """Returns the port that a name of ours states; None if the name does not state one."""
    if not is_ours(name, domain):
        return None
    match = _LABEL.fullmatch(name.partition(".")[0])
    if match is None:
        return None
    return _address("sbx_" + match[2], int(match[1]))


def read_path(target: bytes) -> tuple[PortAddress, bytes, bytes] | None:
    """Returns the port that a path states, the prefix before it, and the rest for the program inside."""
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


_GONE = frozenset({State.EXPIRED, State.DESTROYING, State.DESTROYED})


@dataclass(frozen=True, slots=True)
class Where:
    """How the proxy is reached from outside."""

    domain: str
    scheme: str
    port: int

    def url(self, host: str) -> str:
        default = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == default else f":{self.port}")


class Ports:
    def __init__(
        self, sandboxes: SandboxUseCases, store: Store, clock: Clock, seal: Seal, targets: Targets
    ) -> None:
        self._sandboxes = sandboxes
        self.targets = targets
        self.previews = Previews(
            store, clock, sandboxes, Minter(seal.derive("previews of ports")), self._present_port
        )
        self.passages = Passages(sandboxes, Waker(sandboxes, lambda: self.targets))
        # Set by the edge while it listens; None otherwise.
        self.where: Where | None = None

    async def by_name(self, name: str, domain: str) -> Target | None:
        """Returns what a host name stands for, or None if it is not ours. Raises NotFound."""
        address = read_host(name, domain)
        return await self.targets.by_domain(name) if address is None else await self.by_address(address)

    async def by_address(self, address: PortAddress) -> Target:
        """Returns the port's target. Raises NotFound."""
        sandbox = await self._sandboxes.dependencies.repository.find(address.sandbox_id)
        if sandbox is None or sandbox.state in _GONE:
            raise NotFound(what="sandbox", id=address.sandbox_id)
        port = self._present_port(address.sandbox_id, address.port)
        opened = await self.previews.public_of(address.sandbox_id, port)
        closed = Target(address.sandbox_id, port, sandbox.account, is_public=False, wakes=False)
        return closed if opened is None else replace(widened(closed, opened), is_public=True)

    async def for_caller(self, address: PortAddress, caller: Caller) -> Target:
        """Returns the target for a caller who signed. It wakes nothing, since such a caller can thaw the
        sandbox. Raises NotFound.
        """
        sandbox = await self._sandboxes.get(address.sandbox_id, caller)
        port = self._present_port(address.sandbox_id, address.port)
        return Target(address.sandbox_id, port, sandbox.account, is_public=False, wakes=False)

    async def renewed(self, target: Target) -> Target:
        """Returns the same target with its present port, which a redeploy may have changed."""
        return replace(target, port=self._present_port(target.sandbox_id, target.port))

    def _present_port(self, sandbox_id: str, port: int) -> int:
        return self.targets.present_port(sandbox_id, port)

    def url(self, preview: Preview, token: str | None = None) -> str | None:
        """Returns the URL of a preview; None if this server has no proxy."""
        if self.where is None:
            return None
        host = host_of(PortAddress(preview.sandbox_id, preview.port), self.where.domain)
        return self.where.url(host) + ("/" if token is None else f"/?{QUERY}={token}")


def closed(address: PortAddress) -> Target:
    """Returns the target for an address without a sandbox: to a stranger it looks like a private port."""
    return Target(address.sandbox_id, address.port, account="", is_public=False, wakes=False)


def widened(target: Target, preview: Preview) -> Target:
    """Returns the target as the holder of this preview may use it."""
    return replace(
        target, wakes=target.wakes or preview.wakes, hold_s=max(target.hold_s, float(preview.hold_s))
    )
