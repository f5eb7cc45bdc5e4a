"""The Python client.

    from sandboxer.sdk import Sandboxer          # blocking
    from sandboxer.sdk import AsyncSandboxer     # asyncio, the same words

Each is imported when it is first asked for: a command line that needs one should not pay for both.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxer.sdk.aio.client import AsyncSandboxer
    from sandboxer.sdk.sync.client import Sandboxer

__all__ = ["AsyncSandboxer", "Sandboxer"]

_HOMES = {"Sandboxer": "sandboxer.sdk.sync.client", "AsyncSandboxer": "sandboxer.sdk.aio.client"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
