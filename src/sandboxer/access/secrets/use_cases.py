"""Secrets for sandboxes: injected and wiped while everything inside goes on running.

Commands find them in their environment from the injection on; a process that has them already keeps them:
no system can take a variable back. Files lie in memory and are placed again whenever processes begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sandboxer.access.secrets.bounds import check_name, check_sum, check_value
from sandboxer.access.secrets.injected import Injected, InjectedBook
from sandboxer.access.secrets.placing import place, unplace
from sandboxer.access.secrets.vault import Vault
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, NotFound
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.furnishing import OpenGuest
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import SandboxUseCases

_TAKING = frozenset({*LIVE, State.STOPPED, State.REAPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What to inject, and how: as variables, as files, or both."""

    # Of the caller's account.
    names: Sequence[str] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    as_env: bool = True
    as_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiped:
    names: Sequence[str]
    # Processes that were started while it was there and run still: they may have it in their environment.
    may_still_hold: Sequence[str]


class Secrets:
    def __init__(self, sandboxes: SandboxUseCases, clock: Clock, vault: Vault, book: InjectedBook) -> None:
        self._sandboxes = sandboxes
        self._clock = clock
        self._book = book
        self.vault = vault

    async def inject(self, sandbox_id: str, caller: Caller, wanted: Injection) -> Sequence[Injected]:
        """All it has then. Raises NotFound, IllegalTransition, InvalidRequest, TooLarge, Conflict."""
        await self._sandboxes.get(sandbox_id, caller)
        values = await self._values(caller, wanted)

        async def act() -> Sequence[Injected]:
            sandbox = await self._sandboxes.get(sandbox_id, caller)
            _check_state(sandbox, wanted)
            rows = self._book.sealed(
                sandbox_id,
                values,
                in_env=wanted.as_env,
                in_file=wanted.as_files,
                injected_at=self._clock.now(),
            )
            before = [one for one in self._book.of(sandbox_id) if one.name in values]
            kept = [one.size_bytes for one in self._book.of(sandbox_id) if one.name not in values]
            check_sum([*kept, *(row.size_bytes for row in rows)])
            await self._put(sandbox, rows, before, caller)
            return self._book.of(sandbox_id)

        return await self._sandboxes.room.operations.perform(sandbox_id, "secrets", act)

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[Injected]:
        await self._sandboxes.get(sandbox_id, caller)
        return self._book.of(sandbox_id)

    async def wipe(self, sandbox_id: str, caller: Caller, name: str | None = None) -> Wiped:
        """All of them, or the one. Raises NotFound for one it does not have."""
        await self._sandboxes.get(sandbox_id, caller)

        async def act() -> Wiped:
            sandbox = await self._sandboxes.get(sandbox_id, caller)
            gone = [one for one in self._book.of(sandbox_id) if name in (None, one.name)]
            if name is not None and not gone:
                raise NotFound(what="secret in this sandbox", id=name)
            held = await self._wipe_inside(sandbox, gone, caller)
            names = [one.name for one in gone]
            if names:
                now = self._clock.now()
                await self._book.remove(sandbox_id, names, actor=caller.public_key, at=now)
            return Wiped(names=names, may_still_hold=held)

        return await self._sandboxes.room.operations.perform(sandbox_id, "secrets", act)

    # -- what the room below asks (sandboxes/furnishing.py)

    async def check(self, account: str, secret_refs: Sequence[str]) -> None:
        await self.vault.demand(account, secret_refs)

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        if not self._book.holds(sandbox.id):
            return {}
        return {one.name: self._book.value(one).decode() for one in self._book.of(sandbox.id) if one.in_env}

    async def furnish(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        await self._add_refs(sandbox)
        files = [one for one in self._book.of(sandbox.id) if one.in_file]
        if files:
            await place(await open_guest(), {one.name: self._book.value(one) for one in files})

    async def drop(self, sandbox_id: str) -> None:
        await self._book.drop([sandbox_id])

    def holds(self, sandbox_id: str) -> bool:
        return self._book.holds(sandbox_id)

    # -- steps

    async def _add_refs(self, sandbox: Sandbox) -> None:
        """What the profile asks for, as the account has it now; only while the sandbox is being made."""
        profile = self._sandboxes.room.profiles.find(sandbox.profile)
        if sandbox.state is not State.PROVISIONING or profile is None or not profile.setup.secret_refs:
            return
        values = await self.vault.demand(sandbox.account, profile.setup.secret_refs)
        now = self._clock.now()
        data = {name: value.encode() for name, value in values.items()}
        rows = self._book.sealed(sandbox.id, data, in_env=True, in_file=True, injected_at=now)
        await self._book.put(sandbox.id, rows, actor="system:setup", at=now)

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
        """Book first: what is inside is always in the book, and can so be wiped."""
        now, actor = self._clock.now(), caller.public_key
        await self._book.put(sandbox.id, rows, actor=actor, at=now)
        if sandbox.state not in LIVE:
            return
        files = [row for row in rows if row.in_file]
        stale = [one.name for one in before if one.in_file and not any(f.name == one.name for f in files)]
        if not files and not stale:
            return
        activity = ActivityKind.EXEC if files else ActivityKind.FILES
        try:
            async with self._sandboxes.line(sandbox.id, caller, activity=activity) as guest:
                await unplace(guest, stale)
                if files:
                    await place(guest, {row.name: self._book.value(row) for row in files})
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
        await self._book.remove(sandbox_id, [row.name for row in rows], actor=actor, at=now)
        if before:
            await self._book.put(sandbox_id, before, actor=actor, at=now)

    async def _wipe_inside(self, sandbox: Sandbox, gone: Sequence[Injected], caller: Caller) -> Sequence[str]:
        if sandbox.state not in LIVE or not gone:
            return []
        async with self._sandboxes.line(sandbox.id, caller, activity=ActivityKind.FILES) as guest:
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
