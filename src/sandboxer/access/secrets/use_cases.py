"""Secrets of sandboxes: injected and wiped while everything inside goes on running.

New commands find injected secrets in their environment. A process that has one already keeps it, because no
system can take a variable back. Files lie in memory and are placed again whenever processes start anew.

`open_secrets` loads what was injected before, gives it to sandboxes as they start, and drops what ended ones
had.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from datetime import datetime

from sandboxer.access.secrets.vault import (
    Injected,
    InjectedSecrets,
    Vault,
    check_name,
    check_sum,
    check_value,
    place,
    unplace,
)
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, NotFound
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import OpenGuest, SandboxDependencies
from sandboxer.sandboxes.lifecycle import FINAL, LIVE, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line
from sandboxer.store.engine import Store

_TAKING = frozenset({*LIVE, State.STOPPED, State.REAPED})
log = logging.getLogger(__name__)


@value_class
class Injection:
    """What to inject and how: as variables, as files, or both."""

    # Names of secrets in the caller's account.
    names: Sequence[str] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    as_env: bool = True
    as_files: bool = False


@value_class
class Wiped:
    names: Sequence[str]
    # Processes that were started while it was injected and still run; they may have it in their environment.
    may_still_hold: Sequence[str]


class Secrets:
    def __init__(
        self, sandboxes: SandboxDependencies, clock: Clock, vault: Vault, repository: InjectedSecrets
    ) -> None:
        self._sandboxes = sandboxes
        self._clock = clock
        self._repository = repository
        self.vault = vault

    async def inject(self, sandbox_id: str, caller: Caller, wanted: Injection) -> Sequence[Injected]:
        """Injects secrets and returns all that the sandbox has then. Raises NotFound, IllegalTransition,
        InvalidRequest, TooLarge, Conflict.
        """
        await self._sandboxes.visible(sandbox_id, caller)
        values = await self._values(caller, wanted)

        async def act() -> Sequence[Injected]:
            sandbox = await self._sandboxes.visible(sandbox_id, caller)
            _check_state(sandbox, wanted)
            rows = self._repository.sealed(
                sandbox_id,
                values,
                in_env=wanted.as_env,
                in_file=wanted.as_files,
                injected_at=self._clock.now(),
            )
            before = [one for one in self._repository.of(sandbox_id) if one.name in values]
            kept = [one.size_bytes for one in self._repository.of(sandbox_id) if one.name not in values]
            check_sum([*kept, *(row.size_bytes for row in rows)])
            await self._put(sandbox, rows, before, caller)
            return self._repository.of(sandbox_id)

        return await self._sandboxes.operations.perform(sandbox_id, "secrets", act)

    async def key_of(self, account: str, name: str) -> str:
        """Returns the account's key at a provider, for one call to it. Raises NotFound."""
        return (await self.vault.demand(account, [name]))[name]

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[Injected]:
        await self._sandboxes.visible(sandbox_id, caller)
        return self._repository.of(sandbox_id)

    async def wipe(self, sandbox_id: str, caller: Caller, name: str | None = None) -> Wiped:
        """Wipes all secrets of a sandbox, or one. Raises NotFound for one it does not have."""
        await self._sandboxes.visible(sandbox_id, caller)

        async def act() -> Wiped:
            sandbox = await self._sandboxes.visible(sandbox_id, caller)
            gone = [one for one in self._repository.of(sandbox_id) if name in (None, one.name)]
            if name is not None and not gone:
                raise NotFound(what="secret in this sandbox", id=name)
            held = await self._wipe_inside(sandbox, gone, caller)
            if names := [one.name for one in gone]:
                now = self._clock.now()
                await self._repository.remove(
                    sandbox_id, names, actor=caller.public_key, at=now, is_held=sandbox.state in LIVE
                )
            return Wiped(names=names, may_still_hold=held)

        return await self._sandboxes.operations.perform(sandbox_id, "secrets", act)

    # -- what the package below asks (sandboxes/dependencies.py)

    async def check(self, requested: Sandbox, secret_refs: Sequence[str]) -> None:
        if secret_refs:
            await self.vault.demand(requested.account, secret_refs)

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        if not self._repository.holds(sandbox.id):
            return {}
        return {
            one.name: self._repository.value(one).decode()
            for one in self._repository.of(sandbox.id)
            if one.in_env
        }

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        await self._repository.forget_wiped(sandbox.id)
        await self._add_refs(sandbox)
        if files := [one for one in self._repository.of(sandbox.id) if one.in_file]:
            await place(await open_guest(), {one.name: self._repository.value(one) for one in files})

    async def drop(self, sandbox_id: str) -> None:
        await self._repository.drop([sandbox_id])

    def holds(self, sandbox_id: str) -> bool:
        return self._repository.holds(sandbox_id)

    # -- steps

    async def _add_refs(self, sandbox: Sandbox) -> None:
        """Adds the secrets that the profile or the request asks for, with the account's present values; only
        while the sandbox is being made.
        """
        refs = self._sandboxes.secret_refs(sandbox)
        if sandbox.state is not State.PROVISIONING or not refs:
            return
        values = await self.vault.demand(sandbox.account, refs)
        now = self._clock.now()
        data = {name: value.encode() for name, value in values.items()}
        rows = self._repository.sealed(sandbox.id, data, in_env=True, in_file=True, injected_at=now)
        await self._repository.put(sandbox.id, rows, actor="system:setup", at=now)

    async def _values(self, caller: Caller, wanted: Injection) -> dict[str, bytes]:
        if not wanted.as_env and not wanted.as_files:
            raise InvalidRequest(field="env", why="neither env nor files is asked for")
        if twice := sorted(set(wanted.names) & set(wanted.values)):
            raise InvalidRequest(field="names", why=f"{twice[0]} is given by name and by value")
        if not wanted.names and not wanted.values:
            raise InvalidRequest(field="names", why="nothing to inject: give names or values")
        for name in (*wanted.names, *wanted.values):
            check_name(name)
        texts = {**await self.vault.demand(caller.account, wanted.names), **wanted.values}
        return {name: check_value(name, value) for name, value in texts.items()}

    async def _put(
        self, sandbox: Sandbox, rows: Sequence[Injected], before: Sequence[Injected], caller: Caller
    ) -> None:
        """Writes the record first, so that whatever is inside is recorded and can be wiped."""
        now, actor = self._clock.now(), caller.public_key
        await self._repository.put(sandbox.id, rows, actor=actor, at=now)
        if sandbox.state not in LIVE:
            return
        files = [row for row in rows if row.in_file]
        stale = [one.name for one in before if one.in_file and not any(f.name == one.name for f in files)]
        if not files and not stale:
            return
        activity = ActivityKind.EXEC if files else ActivityKind.FILES
        try:
            async with open_line(self._sandboxes, sandbox.id, caller, activity=activity) as guest:
                await unplace(guest, stale)
                if files:
                    await place(guest, {row.name: self._repository.value(row) for row in files})
        except BaseException:
            await self._take_back(sandbox.id, rows, before, actor, now)
            raise

    async def _take_back(
        self,
        sandbox_id: str,
        rows: Sequence[Injected],
        before: Sequence[Injected],
        actor: str,
        now: datetime,
    ) -> None:
        await self._repository.remove(sandbox_id, [row.name for row in rows], actor=actor, at=now)
        if before:
            await self._repository.put(sandbox_id, before, actor=actor, at=now)

    async def _wipe_inside(self, sandbox: Sandbox, gone: Sequence[Injected], caller: Caller) -> Sequence[str]:
        if sandbox.state not in LIVE or not gone:
            return []
        async with open_line(self._sandboxes, sandbox.id, caller, activity=ActivityKind.FILES) as guest:
            await unplace(guest, [one.name for one in gone if one.in_file])
            since = min((one.injected_at.timestamp() for one in gone if one.in_env), default=None)
            if since is None:
                return []
            running = [info for info in await guest.processes() if info.exit is None]
            return sorted(info.process_id for info in running if info.started_at >= since - 1)


def _check_state(sandbox: Sandbox, wanted: Injection) -> None:
    frozen_files = wanted.as_files and sandbox.state in LIVE and is_frozen(sandbox)
    if sandbox.state not in _TAKING or frozen_files:
        raise IllegalTransition(signal="secrets", state=sandbox.state.value, reason=sandbox.reason)


@asynccontextmanager
async def open_secrets(
    sandboxes: SandboxDependencies, store: Store, clock: Clock, seal: Seal, *, is_charged: bool
) -> AsyncIterator[Secrets]:
    """Opens the package. This must happen before anything starts processes in sandboxes."""
    repository = InjectedSecrets(store, seal)
    await repository.load()
    secrets = Secrets(sandboxes, clock, Vault(store, clock, seal, is_charged=is_charged), repository)
    sandboxes.start_hooks.append(secrets)
    sandboxes.routes.resolve_key = secrets.key_of
    ended: asyncio.Queue[str] = asyncio.Queue()

    def changed(sandbox: Sandbox, steps: Sequence[Step]) -> None:
        del steps
        if secrets.holds(sandbox.id):
            ended.put_nowait(sandbox.id)

    sandboxes.repository.on_change(changed, among=FINAL)
    async with own_tasks() as tasks:
        tasks.start(_drop_ended(secrets, ended), name="secrets of ended sandboxes")
        try:
            yield secrets
        finally:
            sandboxes.start_hooks.remove(secrets)


async def _drop_ended(secrets: Secrets, ended: asyncio.Queue[str]) -> None:
    while True:
        sandbox_id = await ended.get()
        try:
            await secrets.drop(sandbox_id)
        except Exception:
            # They are dropped at the next start.
            log.exception("the secrets of %s could not be dropped", sandbox_id)
