"""What every act in this room works with. Built once, in `wiring.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sandboxer.backends.contract import Backend, Fingerprint
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, NotFound
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.book import Book
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.profiles import Profiles
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.warm import WarmPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    book: Book
    clock: Clock
    backends: Mapping[str, Backend]
    profiles: Profiles
    operations: Operations
    activity: Activity
    warm: WarmPool
    default_profile: str
    # How long stopped and failed sandboxes are kept.
    retention: timedelta
    # The last answer of each backend about this host; filled as they are asked.
    known_fingerprints: dict[str, Fingerprint] = field(default_factory=dict)

    def backend_of(self, sandbox: Sandbox) -> Backend:
        backend = self.backends.get(sandbox.backend)
        if backend is None:
            raise Broken(why=f"backend {sandbox.backend} of {sandbox.id} is not open on this server")
        return backend

    async def visible(self, sandbox_id: str, caller: Caller) -> Sandbox:
        """The record, if this caller may know of it. Someone else's is NotFound like one that never was."""
        sandbox = await self.book.find(sandbox_id)
        if sandbox is None or not (caller.is_owner or sandbox.account == caller.account):
            raise NotFound(what="sandbox", id=sandbox_id)
        return sandbox


def actor_of(caller: Caller) -> str:
    """Who did it, as events name them."""
    return caller.public_key
