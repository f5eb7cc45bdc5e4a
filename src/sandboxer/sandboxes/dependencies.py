"""What every act in this package works with. Built once, in `wiring/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from sandboxer.backends.contract import Backend, Fingerprint, Handle, Spares, Trust
from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, NotAvailable, NotFound
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.profiles import Profile, Profiles
from sandboxer.sandboxes.quarantine import Quarantine
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import SandboxRepository
from sandboxer.sandboxes.warm import WarmPool

OpenGuest = Callable[[], Awaitable[Guest]]


class StartHook(Protocol):
    """What packages above put into a sandbox that is not in its record (secrets, a way out): the hook they
    fill.

    A start hook is called whenever processes begin anew inside: at the making, at a resume, after a restore.
    """

    async def check(self, account: str, secret_refs: Sequence[str]) -> None:
        """May a sandbox that needs these be made for this account? Raises what refuses it."""

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        """For every command in it from now on, over the sandbox's own. Costs no database access."""

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        """Its processes have just begun and it is not ready yet. Raises what keeps it from being ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxDependencies:
    repository: SandboxRepository
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
    # Filled by the packages above while the platform opens; later ones win.
    start_hooks: list[StartHook] = field(default_factory=list)

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
        sandbox = await self.repository.find(sandbox_id)
        if sandbox is None or not (caller.is_owner or sandbox.account == caller.account):
            raise NotFound(what="sandbox", id=sandbox_id)
        return sandbox

    def environment(self, sandbox: Sandbox) -> dict[str, str]:
        """What every command in it finds in its environment, beneath the command's own."""
        env = sandbox.environment()
        for start_hook in self.start_hooks:
            env.update(start_hook.env(sandbox))
        return env

    async def on_start(self, sandbox: Sandbox, handle: Handle) -> None:
        """Put into it what must be there before it is ready."""

        async def guest() -> Guest:
            return await self.backend_of(sandbox).guest(handle)

        for start_hook in self.start_hooks:
            await start_hook.on_start(sandbox, guest)

    async def check_refs(self, profile: Profile, account: str) -> None:
        """Raises unless what the profile's setup refers to can be had."""
        refs = profile.setup.secret_refs
        if refs and not self.start_hooks:
            raise NotAvailable(
                what=f"profile {profile.id}", why="it needs secrets, and nothing resolves them"
            )
        for start_hook in self.start_hooks if refs else ():
            await start_hook.check(account, refs)


def actor_of(caller: Caller) -> str:
    """Who did it, as events name them."""
    return caller.public_key
