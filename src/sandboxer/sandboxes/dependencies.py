"""The dependencies of every act on sandboxes. They are built once, in `wiring/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from sandboxer.backends.contract import Backend, Fingerprint, Handle, Order, Spares, Trust
from sandboxer.backends.guest import FirstFile, Guest
from sandboxer.backends.shared import BeginsWithFiles
from sandboxer.hosts.routes.observations import Observations
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, NotAvailable, NotFound
from sandboxer.kernel.tasks import together
from sandboxer.kernel.values import value_class
from sandboxer.money.pricing import Pricing
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.profiles import Profile, Profiles, Sudo
from sandboxer.sandboxes.quarantine import Quarantine
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import SandboxRepository
from sandboxer.sandboxes.requests import Makers
from sandboxer.sandboxes.routes import RoutePolicy
from sandboxer.sandboxes.warm import Rest, Rests, WarmPool

OpenGuest = Callable[[], Awaitable[Guest]]


class StartHook(Protocol):
    """Puts things into a sandbox that are not in its record: secrets, a way out. Upper packages implement it.

    It is called whenever processes start inside: when it is made, resumed or restored.
    """

    async def check(self, requested: Sandbox, secret_refs: Sequence[str]) -> None:
        """Raise what refuses to make this sandbox for its account, with these secrets."""

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Return the environment for every command in it, which overrides the sandbox's own.

        No database access.
        """

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        """Prepare a sandbox whose processes have just started. Raises what keeps it from being ready."""


@runtime_checkable
class PreparesSpares(Protocol):
    """A start hook that does a part of its work before a spare has an owner."""

    async def prepare(self, order: Order, open_guest: OpenGuest) -> Rest:
        """Put into a spare what every owner would get. Returns what does the rest, in place of `on_start`."""


@runtime_checkable
class HoldsSecrets(Protocol):
    """A start hook whose secrets are in memory inside, and on no disk."""

    def holds(self, sandbox_id: str) -> bool: ...


@runtime_checkable
class BringsFiles(Protocol):
    """A start hook with files that the disk of a new sandbox can begin with."""

    def bring(self, order: Order) -> tuple[Sequence[FirstFile], object]:
        """Return the files, and what to hold until it has started: for as long as somebody does, they count
        as placed.
        """


async def _nobody_is(caller: Caller) -> bool:
    return False


def _from_outside(caller: Caller) -> Sandbox | None:
    return None


async def _no_key(account: str, name: str) -> str:
    raise NotAvailable(what=f"secret {name}", why="this platform keeps no secrets")


@dataclass(eq=False)
class Routes:
    """What is needed to choose a backend."""

    observed: Observations
    policy: RoutePolicy = field(default_factory=RoutePolicy)
    # None: nobody pays.
    pricing: Pricing | None = None
    # The operator's own rate, by which what a provider charges is passed on.
    usd_per_btc: Decimal | None = None
    # Backends at somebody who charges for each sandbox.
    metered: frozenset[str] = frozenset()
    # Why nobody should rely on these yet.
    experimental: Mapping[str, str] = field(default_factory=dict)
    # Says whether the operator neither opened an account nor is it.
    is_stranger: Callable[[Caller], Awaitable[bool]] = _nobody_is
    # Returns the sandbox in which a caller runs, set by who lets them ask from there.
    asks_from: Callable[[Caller], Sandbox | None] = _from_outside
    # Returns an account's secret by its name, set by who keeps them. Raises what refuses it.
    resolve_key: Callable[[str, str], Awaitable[str]] = _no_key
    # What is known of backends by name; filled as they are asked.
    seen: dict[str, Any] = field(default_factory=dict)


@value_class
class SandboxDependencies:
    repository: SandboxRepository
    clock: Clock
    backends: Mapping[str, Backend]
    profiles: Profiles
    operations: Operations
    activity: Activity
    warm: WarmPool
    quarantine: Quarantine
    routes: Routes
    default_profile: str
    # How long stopped and failed sandboxes are kept.
    retention: timedelta
    # The highest trust level that anybody may ask for.
    trust_max: Trust = Trust.SEMI
    # What `placement` may call this host, beside `local`.
    host_names: tuple[str, ...] = ()
    # Who may use a profile whose programs make namespaces of their own.
    makers: Makers = Makers.OWNER
    # The operator adopted the disks: what a record calls half made may be complete by now.
    is_adopted: bool = False
    # The last server's last heartbeat: what has died since was last seen alive by then.
    last_witnessed: datetime | None = None
    # The last fingerprint of each backend; filled as they are asked.
    known_fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    # Filled by the packages above while the platform opens; later ones win.
    start_hooks: list[StartHook] = field(default_factory=list)
    # Those that only sandboxes of profiles with `sudo` need.
    sudo_hooks: list[StartHook] = field(default_factory=list)

    def backend_of(self, sandbox: Sandbox) -> Backend:
        if (backend := self.backends.get(sandbox.backend)) is None:
            raise Broken(why=f"backend {sandbox.backend} of {sandbox.id} is not open on this server")
        return backend

    async def give_away(self, sandbox: Sandbox) -> None:
        """Tell the backend that a warm sandbox belongs to an account from now on."""
        backend = self.backend_of(sandbox)
        if isinstance(backend, Spares):
            await backend.give_away(sandbox.id)

    async def visible(self, sandbox_id: str, caller: Caller) -> Sandbox:
        """Return the record if the caller may see it. Raises NotFound, for someone else's sandbox as well."""
        sandbox = await self.repository.find(sandbox_id)
        if sandbox is None or not (caller.is_owner or sandbox.account == caller.account):
            raise NotFound(what="sandbox", id=sandbox_id)
        return sandbox

    def environment(self, sandbox: Sandbox) -> dict[str, str]:
        """Return the environment of every command in it; a command's own variables override it."""
        env = sandbox.environment()
        for start_hook in self.start_hooks:
            env.update(start_hook.env(sandbox))
        return env

    def bring(self, order: Order, backend: str, sudo: Sudo) -> tuple[Order, object]:
        """Return the order of a new sandbox with the files of its start hooks, and what the caller holds
        until they have been called. Where the backend cannot, they put them in when it has started.
        """
        maker = self.backends.get(backend)
        # A volume may lie over the place of a file.
        if order.origin is not None or order.volumes or not isinstance(maker, BeginsWithFiles):
            return order, None
        start_hooks = (*self.start_hooks, *(() if sudo is Sudo.NONE else self.sudo_hooks))
        brought = [one.bring(order) for one in start_hooks if isinstance(one, BringsFiles)]
        files = tuple(file for some, _ in brought for file in some)
        if not files or not maker.can_begin_with(order.image, [file.path for file in files]):
            return order, None
        return replace(order, files=files), brought

    async def on_start(self, sandbox: Sandbox, handle: Handle, rests: Rests | None = None) -> None:
        """Call the start hooks, which put into it what must be there before it is ready; of those that
        prepared it as a spare, `rests` is what they have left to do.
        """

        async def guest() -> Guest:
            return await self.backend_of(sandbox).guest(handle)

        async def call(start_hooks: Sequence[StartHook]) -> None:
            for start_hook in start_hooks:
                rest = None if rests is None else rests.get(start_hook)
                await (start_hook.on_start(sandbox, guest) if rest is None else rest(sandbox))

        if (profile := self.profiles.find(sandbox.profile)) is None or profile.sudo is Sudo.NONE:
            await call(self.start_hooks)
        elif rests is not None:
            await call((*self.start_hooks, *self.sudo_hooks))
        else:
            # What they do inside takes longest, and neither needs the other.
            await together(call(self.start_hooks), call(self.sudo_hooks))

    def holds_secrets(self, sandbox: Sandbox) -> bool:
        """Return whether secrets are in its memory."""
        return any(isinstance(one, HoldsSecrets) and one.holds(sandbox.id) for one in self.start_hooks)

    async def prepare(self, order: Order, handle: Handle, sudo: Sudo) -> Rests:
        """Let the start hooks do in a spare what is the same for every owner."""

        async def guest() -> Guest:
            return await self.backends[handle.backend].guest(handle)

        start_hooks = (*self.start_hooks, *(() if sudo is Sudo.NONE else self.sudo_hooks))
        return {
            one: await one.prepare(order, guest) for one in start_hooks if isinstance(one, PreparesSpares)
        }

    async def check_hooks(self, profile: Profile, requested: Sandbox) -> None:
        """Raise unless the start hooks can give it the network it asks for and the secrets that it needs."""
        if (refs := secret_refs_of(profile, requested)) and not self.start_hooks:
            raise NotAvailable(
                what=f"profile {profile.id}", why="it needs secrets, and nothing resolves them"
            )
        if not refs and requested.network is None:
            # It asks for nothing that could be refused.
            return
        for start_hook in self.start_hooks:
            await start_hook.check(requested, refs)

    def secret_refs(self, sandbox: Sandbox) -> Sequence[str]:
        """Return the names of the account's secrets that it is made with: its profile's and its request's."""
        return secret_refs_of(self.profiles.find(sandbox.profile), sandbox)


def secret_refs_of(profile: Profile | None, sandbox: Sandbox) -> Sequence[str]:
    of_profile = () if profile is None else profile.setup.secret_refs
    return tuple(dict.fromkeys((*of_profile, *sandbox.promises.secret_refs)))


def actor_of(caller: Caller) -> str:
    """Return the caller's name as events carry it."""
    return caller.public_key
