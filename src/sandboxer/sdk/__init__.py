"""The Python client.

    from sandboxer.sdk import Sandboxer          # blocking
    from sandboxer.sdk import AsyncSandboxer     # asyncio, the same words

Errors are here too, and the models of answers in `sandboxer.sdk.models`. Each is imported when it is first
asked for: a command line that needs one should not pay for all. `sandboxer.sdk.calls` has every operation as
a typed call, for `client.send`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxer.sdk.aio.client import AsyncSandboxer as AsyncSandboxer
    from sandboxer.sdk.aio.sandbox import AsyncSandbox as AsyncSandbox
    from sandboxer.sdk.call import Call as Call
    from sandboxer.sdk.code import CodeChunk as CodeChunk
    from sandboxer.sdk.code import Shown as Shown
    from sandboxer.sdk.commands import Chunk as Chunk
    from sandboxer.sdk.credentials import Credentials as Credentials
    from sandboxer.sdk.errors import ApiError as ApiError
    from sandboxer.sdk.errors import AuthenticationFailed as AuthenticationFailed
    from sandboxer.sdk.errors import BrokenAnswer as BrokenAnswer
    from sandboxer.sdk.errors import Conflict as Conflict
    from sandboxer.sdk.errors import ForeignText as ForeignText
    from sandboxer.sdk.errors import InvalidRequest as InvalidRequest
    from sandboxer.sdk.errors import MissingCredentials as MissingCredentials
    from sandboxer.sdk.errors import NotFound as NotFound
    from sandboxer.sdk.errors import Refused as Refused
    from sandboxer.sdk.errors import SdkError as SdkError
    from sandboxer.sdk.errors import Unavailable as Unavailable
    from sandboxer.sdk.errors import Unreachable as Unreachable
    from sandboxer.sdk.sync.client import Sandboxer as Sandboxer
    from sandboxer.sdk.sync.sandbox import Sandbox as Sandbox
    from sandboxer.sdk.webhooks import WebhookRejected as WebhookRejected

_HOMES = {
    "aio.client": ("AsyncSandboxer",),
    "aio.sandbox": ("AsyncSandbox",),
    "call": ("Call",),
    "code": ("CodeChunk", "Shown"),
    "commands": ("Chunk",),
    "errors": (
        *("SdkError", "ApiError", "AuthenticationFailed", "Refused", "NotFound", "Conflict"),
        *(
            "InvalidRequest",
            "Unavailable",
            "Unreachable",
            "MissingCredentials",
            "ForeignText",
            "BrokenAnswer",
        ),
    ),
    "credentials": ("Credentials",),
    "sync.client": ("Sandboxer",),
    "sync.sandbox": ("Sandbox",),
    "webhooks": ("WebhookRejected",),
}
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
