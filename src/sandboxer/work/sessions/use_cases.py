"""The use cases of sessions. They reach sandboxes only through `sandboxes.use_cases`, so that ownership,
limits and charging apply here as everywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field, replace
from datetime import timedelta

from sqlalchemy import Connection

from sandboxer.backends.guest import Guest, Process
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration, parse_duration
from sandboxer.kernel.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    SandboxerError,
    SessionDied,
    or_not_found,
)
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.requests import CreateRequest, WantedResources, WantedSandbox, name_within
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page
from sandboxer.work.languages import HostImages, languages
from sandboxer.work.sessions.attached import Attached
from sandboxer.work.sessions.cells import Cell
from sandboxer.work.sessions.interpreters import (
    INTERPRETERS,
    await_greeting,
    end_leftovers,
    find_again,
    find_interpreter,
    give_order,
    start_keeper,
)
from sandboxer.work.sessions.records import IDLE_DEFAULT, TTL_DEFAULT, TTL_MAX, Session, Signal, State, rows
from sandboxer.work.sessions.repository import ACTOR, SessionRepository, Step

# The platform acts as this caller when it listens to interpreters.
SYSTEM = Caller(public_key="system:sessions", account="system", is_owner=True)
MOST_PER_SANDBOX = 16
MEMORY_MB_PER_VCPU = 2048


@value_class
class WantedSession(WantedSandbox):
    language: str
    # None: a sandbox is made for it, as the other fields say.
    sandbox_id: str | None = None
    image: str | None = None
    vcpus: int | None = None
    resources: WantedResources = field(default_factory=WantedResources)
    name: str | None = None
    cwd: str | None = None
    ttl: str | None = None
    idle: str | None = None


class Sessions:
    def __init__(self, repository: SessionRepository, images: HostImages) -> None:
        self._images = images
        self.repository = self._repository = repository
        self._sandboxes = repository.sandboxes

    # -- making and ending

    async def sandbox_request(self, wanted: WantedSession) -> CreateRequest:
        """Returns the request for the sandbox of a session that brings none. Raises InvalidRequest."""
        interpreter = find_interpreter(wanted.language)
        resources = wanted.resources
        if wanted.vcpus is not None:
            memory = resources.memory_mb or wanted.vcpus * MEMORY_MB_PER_VCPU
            resources = replace(resources, vcpus=float(wanted.vcpus), memory_mb=memory)
        if (image := wanted.image) is None and not interpreter.language.in_base:
            image = (await self._images.image_of())(interpreter.language)
        idle = _duration(wanted.idle, "idle", IDLE_DEFAULT)
        dependencies = self._sandboxes
        profile = dependencies.profiles.get(wanted.profile or dependencies.default_profile)
        return CreateRequest(
            profile=wanted.profile,
            name=name_within(wanted.name),
            image=image,
            trust=wanted.trust,
            network=wanted.network,
            # Cells extend a session; its sandbox must not end before it.
            ttl=format_duration(min(TTL_MAX, profile.ttl_max)),
            idle_timeout=format_duration(idle + timedelta(minutes=1)),
            resources=resources,
            volumes=wanted.volumes,
            labels={"sandboxer/session": interpreter.name},
        )

    async def create(self, wanted: WantedSession, caller: Caller, *, also: Also | None = None) -> Session:
        """Returns a session that accepts cells. `also` is written in the transaction of its record."""
        if wanted.sandbox_id is not None:
            sandbox = await self._sandboxes.visible(wanted.sandbox_id, caller)
            if sandbox.state not in LIVE:
                async with open_line(self._sandboxes, sandbox.id, caller, activity=ActivityKind.PROCESSES):
                    pass
            session = self._planned(wanted, caller, sandbox_id=sandbox.id, account=sandbox.account)
            async with self._repository.one_at_a_time(sandbox.id):
                self._refuse_one_too_many(sandbox.id)
                await self._repository.create(session, also=also)
            return await self._begin(session, caller)
        return await self._create_with_sandbox(wanted, caller, also)

    def _refuse_one_too_many(self, sandbox_id: str) -> None:
        if len(self._repository.of_sandbox(sandbox_id)) >= MOST_PER_SANDBOX:
            raise Conflict(
                why=f"{sandbox_id} has {MOST_PER_SANDBOX} sessions already",
                reason="too_many_sessions",
                hint="End one of them (GET /v1/sessions), or let the session have a sandbox of its own"
                " (POST /v1/sessions).",
            )

    async def _create_with_sandbox(self, wanted: WantedSession, caller: Caller, also: Also | None) -> Session:
        planned = self._planned(wanted, caller, sandbox_id="", account=caller.account)

        def bind(conn: Connection, sandbox_id: str) -> None:
            placed = replace(planned, sandbox_id=sandbox_id)
            self._repository.add(conn, placed, also=also, now=planned.created_at)

        try:
            made = await creation.create(
                self._sandboxes, await self.sandbox_request(wanted), caller, also=bind
            )
        except BaseException:
            await self._repository.give_up(planned.id, "sandbox_failed")
            raise
        session = self._repository.announce(replace(planned, sandbox_id=made.id))
        return await self._begin(session, caller)

    async def _begin(self, session: Session, caller: Caller) -> Session:
        try:
            return await self._start(session)
        except BaseException as error:
            # The caller got no session, so nothing of it is left behind.
            reason = error.code if isinstance(error, SandboxerError) else "cut_short"
            await self._repository.end(session.id, actor=caller.public_key, reason=reason)
            raise

    async def end(self, session_id: str, caller: Caller, *, despite_lock: bool = False) -> Session:
        """Kills the interpreter and destroys the sandbox if it was made for the session. An ended session
        counts as success.
        """
        session = await self.get(session_id, caller)
        if session.state is State.ENDED:
            return session
        return await self._repository.end(
            session.id, actor=caller.public_key, reason="ended_by_caller", despite_lock=despite_lock
        )

    async def restart(self, session_id: str, caller: Caller) -> Session:
        """Starts a fresh interpreter in the same sandbox. Its state is lost; files are kept."""
        session = await self.get(session_id, caller)
        async with (
            open_line(self._sandboxes, session.sandbox_id, caller, activity=ActivityKind.PROCESSES) as guest,
            self._repository.one_at_a_time(session_id),
        ):
            session = await self.get(session_id, caller)
            if (attached := self._repository.attached(session_id)) is not None:
                await attached.kill("restarted", "the session was restarted")
                await attached.over.wait()
            await end_leftovers(guest, session)
            session = await self._repository.renew(session_id, actor=caller.public_key)
            return await self._start(session)

    async def recall(self, session_id: str, caller: Caller) -> Session | None:
        """Returns the session of a create whose answer was lost."""
        session = await self._repository.find(session_id)
        return session if session is not None and session.state is State.READY else None

    # -- looking

    async def get(self, session_id: str, caller: Caller) -> Session:
        """Returns the session. Raises NotFound, also for a session of somebody else."""
        session = await self._repository.find(session_id)
        if session is None or not (caller.is_owner or session.account == caller.account):
            raise NotFound(what="session", id=session_id)
        return session

    async def list(
        self,
        caller: Caller,
        *,
        sandbox_id: str | None = None,
        state: State | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Session]:
        """Returns sessions, newest first. The owner sees everyone's. Without `state`, ended ones are left
        out.
        """
        account = None if caller.is_owner else caller.account
        query = rows.matching(account=account, sandbox_id=sandbox_id, state=state)
        if state is None:
            query = query.where(rows.is_left)
        return await self._repository.page(query, cursor=cursor, limit=limit)

    def is_busy(self, session: Session) -> bool:
        attached = self._repository.attached(session.id)
        return attached is not None and attached.is_busy

    def is_frozen(self, session: Session) -> bool:
        return self._repository.is_frozen(session)

    def cell_count(self, session: Session) -> int:
        attached = self._repository.attached(session.id)
        return 0 if attached is None else attached.last

    # -- cells

    async def submit(self, session_id: str, caller: Caller, code: str, *, timeout_s: float) -> Cell:
        """Queues a cell that runs when those before it have ended, whether or not anybody waits for it."""
        session, attached = await self._living(session_id, caller)
        # A sandbox that is frozen, stopped or somebody else's refuses here, with its own error.
        async with open_line(self._sandboxes, session.sandbox_id, caller, activity=ActivityKind.EXEC):
            cell = attached.submit(code, timeout_s)
        self._repository.touch(session_id)
        return cell

    async def cell(self, session_id: str, caller: Caller, n: int) -> Cell:
        session = await self.get(session_id, caller)
        attached = self._repository.attached(session_id) or self._repository.former(session_id)
        found = None if attached is None else attached.cells.get(n)
        hint = f"See which are kept: GET /v1/sessions/{session.id}."
        return or_not_found(found, what=f"cell of {session.id}", id=n, hint=hint)

    async def cells(self, session_id: str, caller: Caller) -> Sequence[Cell]:
        """Returns the cells that are still kept, oldest first."""
        await self.get(session_id, caller)
        attached = self._repository.attached(session_id) or self._repository.former(session_id)
        return [] if attached is None else sorted(attached.cells.values(), key=lambda cell: cell.n)

    async def interrupt(self, session_id: str, caller: Caller) -> Cell | None:
        """Returns the cell that was asked to stop, or None if nothing ran, which counts as success."""
        session, attached = await self._living(session_id, caller)
        async with open_line(self._sandboxes, session.sandbox_id, caller, activity=ActivityKind.PROCESSES):
            return attached.interrupt()

    async def _living(self, session_id: str, caller: Caller) -> tuple[Session, Attached]:
        session = await self.get(session_id, caller)
        attached = self._repository.attached(session_id)
        if session.state is State.ENDED:
            raise Conflict(
                why=f"{session_id} has ended ({session.reason})",
                reason="session_ended",
                hint="Make another: POST /v1/sessions.",
            )
        if session.state is not State.READY or attached is None:
            if (refusal := self._repository.ended_by_money(session)) is not None:
                raise refusal
            why = (attached or self._repository.former(session_id) or _Unknown).why or session.reason
            raise SessionDied(id=session_id, why=why, reason=session.reason)
        return session, attached

    # -- the interpreter

    async def _start(self, session: Session) -> Session:
        interpreter = INTERPRETERS[session.language]
        sandbox = await self._sandboxes.visible(session.sandbox_id, SYSTEM)
        async with self._watch(session.sandbox_id) as guest:
            process = await start_keeper(guest, session, self._sandboxes.environment(sandbox))
        attached = await self.attach(session, process)
        await give_order(process, interpreter)
        await await_greeting(attached, session, sandbox.image)
        changes = {"process_id": process.process_id}
        ready = Step(signal=Signal.ANSWERED, actor=ACTOR, reason="ready", changes=changes)
        return await self._repository.move(session.id, ready)

    async def adopt(self, session: Session) -> None:
        """Finds the interpreter again after a restart of the server, or records that it is gone."""
        async with self._watch(session.sandbox_id) as guest:
            process = None if session.state is not State.READY else await find_again(guest, session)
            if process is None:
                await end_leftovers(guest, session)
        if process is None:
            if session.state is not State.DIED:
                gone = Step(signal=Signal.GONE, actor=ACTOR, reason="lost_with_the_server")
                await self._repository.move(session.id, gone)
            return
        attached = await self.attach(session, process)
        await attached.tell(op="hello")

    async def attach(self, session: Session, process: Process) -> Attached:
        """Serves an interpreter that runs."""
        attached = Attached(
            process,
            self._repository.clock,
            kept=await self._repository.cells_of(session),
            is_shell=languages()[session.language].is_shell,
            working=lambda: self._work(session.sandbox_id),
            when_gone=lambda gone, reason, why: self._repository.gone(session.id, gone, reason),
        )
        if (former := self._repository.former(session.id)) is not None:
            attached.last = former.last
        attached.set_frozen(self._repository.is_frozen(session))
        self._repository.attach(session.id, attached)
        return attached

    def _watch(self, sandbox_id: str) -> AbstractAsyncContextManager[Guest]:
        return open_line(self._sandboxes, sandbox_id, SYSTEM, activity=ActivityKind.WATCH)

    @asynccontextmanager
    async def _work(self, sandbox_id: str) -> AsyncIterator[None]:
        """Makes the sandbox count as working while a cell runs, even if it is frozen in the middle of it."""
        with self._sandboxes.activity.working(sandbox_id):
            yield

    def _planned(self, wanted: WantedSession, caller: Caller, *, sandbox_id: str, account: str) -> Session:
        now = self._repository.clock.now()
        ttl = _duration(wanted.ttl, "ttl", TTL_DEFAULT)
        idle = _duration(wanted.idle, "idle", IDLE_DEFAULT)
        session_id = new_id("ses")
        return Session(
            id=session_id,
            account=account,
            created_by=caller.public_key,
            name=wanted.name,
            sandbox_id=sandbox_id,
            owns_sandbox=wanted.sandbox_id is None,
            language=find_interpreter(wanted.language).name,
            state=State.STARTING,
            reason="requested",
            process_id=f"{session_id}-1",
            generation=1,
            env=dict(wanted.env),
            cwd=wanted.cwd,
            idle=idle,
            created_at=now,
            expires_at=now + ttl,
            last_active_at=now,
        )


class _Unknown:
    why = ""


def _duration(text: str | None, field: str, default: timedelta) -> timedelta:
    if text is None:
        return default
    if (duration := parse_duration(text, field=field)) > TTL_MAX:
        longest = format_duration(TTL_MAX)
        raise InvalidRequest(field=field, why=f"{text} is more than a session may have ({longest})")
    return duration
