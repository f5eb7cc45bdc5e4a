"""What every act in this room works with. Built once, in `wiring/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandboxer.backends.contract import Backend, Fingerprint, Handle, Spares, Trust
from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, NotAvailable, NotFound
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.book import Book
from sandboxer.sandboxes.furnishing import Furnisher
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.profiles import Profile, Profiles
from sandboxer.sandboxes.quarantine.use_cases import Quarantine
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
    quarantine: Quarantine
    default_profile: str
    # How long stopped and failed sandboxes are kept.
    retention: timedelta
    # The highest that anybody may ask for.
    trust_max: Trust = Trust.SEMI
    # The operator put this database to these disks: what records call half made may be whole by now.
    is_adopted: bool = False
    # The last server's last sign of life: what has died since was alive then at the latest.
    last_witnessed: datetime | None = None
    # The last answer of each backend about this host; filled as they are asked.
    known_fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    # Filled by the rooms above while the platform opens; later ones win.
    furnishers: list[Furnisher] = field(default_factory=list)

    def backend_of(self, sandbox: Sandbox) -> Backend:
        backend = self.backends.get(sandbox.backend)
        if backend is None:
            raise Broken(why=f"backend {sandbox.backend} of {sandbox.id} is not open on this server")
        return backend

    async def give_away(self, sandbox: Sandbox) -> None:
        """One that was made before anyone asked is its account's from here on."""
        backend = self.backend_of(sandbox)
        if isinstance(backend, Spares):
            await backend.give_away(sandbox.id)

    async def visible(self, sandbox_id: str, caller: Caller) -> Sandbox:
        """The record, if this caller may know of it. Someone else's is NotFound like one that never was."""
        sandbox = await self.book.find(sandbox_id)
        if sandbox is None or not (caller.is_owner or sandbox.account == caller.account):
            raise NotFound(what="sandbox", id=sandbox_id)
        return sandbox

    def environment(self, sandbox: Sandbox) -> dict[str, str]:
        """What every command in it finds in its environment, beneath the command's own."""
        env = sandbox.environment()
        for furnisher in self.furnishers:
            env.update(furnisher.env(sandbox))
        return env

    async def furnish(self, sandbox: Sandbox, handle: Handle) -> None:
        """Put into it what must be there before it is ready."""

        async def guest() -> Guest:
            return await self.backend_of(sandbox).guest(handle)

        for furnisher in self.furnishers:
            await furnisher.furnish(sandbox, guest)

    async def check_refs(self, profile: Profile, account: str) -> None:
        """Raises unless what the profile's setup refers to can be had."""
        refs = profile.setup.secret_refs
        if refs and not self.furnishers:
            raise NotAvailable(
                what=f"profile {profile.id}", why="it needs secrets, and nothing resolves them"
            )
        for furnisher in self.furnishers if refs else ():
            await furnisher.check(account, refs)


def actor_of(caller: Caller) -> str:
    """Who did it, as events name them."""
    return caller.public_key
