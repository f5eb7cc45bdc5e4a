"""What a chain's opener is given to make its ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import httpx

from sandboxer.kernel.clock import Clock
from sandboxer.payments.x402.config import NetworkSettings
from sandboxer.payments.x402.ways import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    clock: Clock
    # For nodes, facilitators and relays.
    client: httpx.AsyncClient = field(repr=False)
    # The operator's key that pays for gas.
    signer_key: str | None = field(repr=False, default=None)
    settle_timeout: timedelta = timedelta(seconds=30)


# By CAIP-2 namespace: `eip155`, `stacks`.
Opener = Callable[[NetworkSettings, Opening], Awaitable[list[Way]]]
