"""Where a request for a port goes: the seam between the reverse proxy and whoever gives ports a name.

The proxy knows sandboxes and ports. Names (a service's, a customer's own domain) are somebody else's to keep,
so it asks for them here.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Target:
    """One port of one sandbox, and how a request for it is treated."""

    sandbox_id: str
    port: int
    account: str
    is_public: bool
    wakes: bool
    """Thaw or resume a frozen or stopped sandbox when a request comes."""
    hold_s: float = 0
    """How long a request may wait while nothing listens (at a start, during a redeploy)."""


class Targets(Protocol):
    """Who knows ports by name."""

    async def by_domain(self, host: str) -> Target | None:
        """What a host name without its port stands for: a customer's own domain, or `{service}.{domain}`."""
        ...

    async def by_service(self, service_id: str) -> Target | None:
        """What a service's id stands for."""
        ...

    def present_port(self, sandbox_id: str, port: int) -> int:
        """Where requests for this port go now: what listens on $PORT has another after a redeploy."""
        ...

    def proof_of(self, host: str) -> str | None:
        """The token of a customer's own domain that leads here, for whoever looks at its proof again."""
        ...

    async def woken(self, target: Target) -> None:
        """A request has woken this target's sandbox: start again what has to run in it."""
        ...

    def touched(self, sandbox_id: str) -> None:
        """A request for this sandbox went through. Called on every request, so it must cost nothing."""
        ...


class NoTargets:
    """Nobody gives ports a name."""

    async def by_domain(self, host: str) -> Target | None:
        del host
        return None

    async def by_service(self, service_id: str) -> Target | None:
        del service_id
        return None

    def present_port(self, sandbox_id: str, port: int) -> int:
        del sandbox_id
        return port

    def proof_of(self, host: str) -> str | None:
        del host
        return None

    async def woken(self, target: Target) -> None:
        del target

    def touched(self, sandbox_id: str) -> None:
        del sandbox_id
