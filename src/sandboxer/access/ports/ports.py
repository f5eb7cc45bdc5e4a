"""Ports for the edges: which port a name stands for, who may knock, and the way there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandboxer.access.ports.hosts import PortAddress, host_of, read_host
from sandboxer.access.ports.passages import Passages
from sandboxer.access.ports.previews import Previews
from sandboxer.access.ports.targets import Target, Targets
from sandboxer.access.ports.tokens import QUERY, Minter, Preview
from sandboxer.access.ports.waking import Waker
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NotFound
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store

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
        # Set by the edge that listens; None while none does.
        self.where: Where | None = None

    async def by_name(self, name: str, domain: str) -> Target | None:
        """What a host name stands for; None: nothing of ours. Raises NotFound."""
        address = read_host(name, domain)
        return await self.targets.by_domain(name) if address is None else await self.by_address(address)

    async def by_address(self, address: PortAddress) -> Target:
        """Raises NotFound."""
        sandbox = await self._sandboxes.room.book.find(address.sandbox_id)
        if sandbox is None or sandbox.state in _GONE:
            raise NotFound(what="sandbox", id=address.sandbox_id)
        port = self._present_port(address.sandbox_id, address.port)
        opened = await self.previews.public_of(address.sandbox_id, port)
        closed = Target(address.sandbox_id, port, sandbox.account, is_public=False, wakes=False)
        return closed if opened is None else replace(widened(closed, opened), is_public=True)

    async def for_caller(self, address: PortAddress, caller: Caller) -> Target:
        """The port for somebody who signed. It wakes nothing: who can sign can also thaw. Raises NotFound."""
        sandbox = await self._sandboxes.get(address.sandbox_id, caller)
        port = self._present_port(address.sandbox_id, address.port)
        return Target(address.sandbox_id, port, sandbox.account, is_public=False, wakes=False)

    async def renewed(self, target: Target) -> Target:
        """The same, should its port have become another (a redeploy)."""
        return replace(target, port=self._present_port(target.sandbox_id, target.port))

    def _present_port(self, sandbox_id: str, port: int) -> int:
        return self.targets.present_port(sandbox_id, port)

    def url(self, preview: Preview, token: str | None = None) -> str | None:
        """Where a preview is to be seen; None: this server has no proxy."""
        if self.where is None:
            return None
        host = host_of(PortAddress(preview.sandbox_id, preview.port), self.where.domain)
        return self.where.url(host) + ("/" if token is None else f"/?{QUERY}={token}")


def closed(address: PortAddress) -> Target:
    """What a stranger meets at the address of no sandbox: the same as at a private port."""
    return Target(address.sandbox_id, address.port, account="", is_public=False, wakes=False)


def widened(target: Target, preview: Preview) -> Target:
    """The target as whoever holds this preview may use it."""
    return replace(
        target, wakes=target.wakes or preview.wakes, hold_s=max(target.hold_s, float(preview.hold_s))
    )
