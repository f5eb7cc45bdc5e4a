"""What every errand works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sandboxer.access.egress.outlet import Secrets
from sandboxer.access.egress.proxy.dialing import Dialer


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    # For a whole head, or the first words of TLS.
    head_s: float = 20.0
    # For an upstream's answer to begin.
    answer_s: float = 120.0
    # Without a byte of a body, or either way of a tunnel.
    idle_s: float = 600.0
    # For the next request by the same connection.
    next_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    dialer: Dialer
    secrets: Secrets
    now: Callable[[], datetime]
    patience: Patience = Patience()
