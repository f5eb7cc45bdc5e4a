"""A one-shot run makes a sandbox for the code, runs it, and removes the sandbox while the answer is being
sent.

If the caller goes away, everything of the run ends.

Its sandbox is listed as a passing one (`sandboxes/passing.py`). Until it is removed its TTL, a minute longer
than its program's, limits it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import (
    BackendLost,
    Broken,
    Conflict,
    Forbidden,
    NoCapacity,
    NotFound,
    SandboxerError,
)
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.charging import spent_sats
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.passing import CLEANER, Claim, Endings
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.sandboxes.use_cases.admission import Slots
from sandboxer.store.engine import Store
from sandboxer.store.repository import Also
from sandboxer.work.execute.run import Attempt, Event, Outcome, Recorder, happen, new_process_ids
from sandboxer.work.execute.submission import Plan
from sandboxer.work.lines import Lines


@value_class
class Places:
    """Makes sandboxes for runs, within the slots of their key. Each is recorded, so that it is always
    removed.
    """

    sandboxes: SandboxDependencies
    authorities: AuthorityRepository
    slots: Slots

    async def make(self, plan: Plan, caller: Caller, claim: Claim) -> Sandbox:
        """Returns a ready sandbox. Raises what a create raises, and Forbidden if no slot is left."""
        authority = await self.authorities.of(caller)
        async with self.slots.taken(authority):
            return await creation.create(self.sandboxes, plan.create, caller, also=claim.write)


def will_pass(error: SandboxerError) -> bool:
    """Tells whether the refusal is temporary, because others or earlier runs still hold what is missing."""
    is_slots = isinstance(error, Forbidden) and error.facts.get("reason") in ("slots", "no_slots")
    is_attached = isinstance(error, Conflict) and error.facts.get("reason") == "attached"
    return is_slots or is_attached or isinstance(error, NoCapacity)


TRIES = 4


@value_class
class Placed:
    """The first event: the sandbox is ready."""

    sandbox_id: str


@value_class
class Done:
    """The last event."""

    outcome: Outcome
    sandbox_id: str
    image: str
    sats: int


@value_class
class Left:
    """All that is known of a run whose server or caller went away in the middle of it."""

    sandbox_id: str
    sats: int


def cut_short(left: Left) -> Conflict:
    """Returns the error for whoever repeats such a run: code runs once for a key, or in part, but never
    twice.
    """
    return Conflict(
        why="the run with this Idempotency-Key was cut short, and what it printed is lost",
        reason="cut_short",
        sandbox_id=left.sandbox_id,
        sats=left.sats,
        hint="It may have run in part. To run it again, send it with another Idempotency-Key; what must not "
        "be lost runs as a job (POST /v1/execute/async).",
    )


@dataclass(slots=True)
class _Placement:
    """Holds the sandbox of one run from the claim to its removal, whatever happens between."""

    places: Places
    endings: Endings
    clock: Clock
    also: Also | None
    claim: Claim | None = None

    async def make(self, plan: Plan, caller: Caller) -> Sandbox:
        for tries_left in reversed(range(TRIES)):
            self.claim = Claim(self.clock.now(), self.also)
            try:
                return await self.places.make(plan, caller, self.claim)
            except SandboxerError as error:
                # Sandboxes of earlier runs are still being removed; their place is free in a moment.
                is_worth_it = tries_left > 0 and will_pass(error) and await self.endings.settled()
                self.end()
                if not is_worth_it:
                    raise
        raise Broken(why="no try was made")

    def end(self) -> None:
        made, self.claim = None if self.claim is None else self.claim.give_up(), None
        if made is not None:
            self.endings.soon(made)


class OneShots:
    def __init__(self, places: Places, store: Store, clock: Clock, endings: Endings) -> None:
        self._places = places
        self._sandboxes = sandboxes = places.sandboxes
        self._store = store
        self._clock = clock
        self._endings = endings
        self._lines = Lines(sandboxes)

    async def run(self, plan: Plan, caller: Caller, lease: Lease, *, also: Also | None = None) -> Done:
        async with aclosing(self.stream(plan, caller, lease, also=also)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event
        raise BackendLost(why="the run ended without saying how")

    async def left_by(self, sandbox_id: str) -> Left | None:
        """Returns what is left of a run that nobody answered for; None if its sandbox was never ready, so
        that nothing of it has run.
        """
        try:
            sandbox = await self._sandboxes.visible(sandbox_id, CLEANER)
        except NotFound:
            return None
        if sandbox.ready_at is None:
            return None
        return Left(sandbox_id=sandbox_id, sats=await cost(self._store, self._clock, sandbox))

    async def stream(
        self, plan: Plan, caller: Caller, lease: Lease, *, also: Also | None = None
    ) -> AsyncGenerator[Placed | Event | Done, None]:
        """Yields Placed, what happens, and Done. Closing it early ends everything. `lease` accounts for what
        it keeps.
        """
        placement = _Placement(self._places, self._endings, self._clock, also)
        try:
            sandbox = await placement.make(plan, caller)
            yield Placed(sandbox_id=sandbox.id)
            recorder = Recorder(plan.submission.output_limit, lease)
            seconds = float(plan.submission.ttl_s)
            attempt = Attempt(
                plan=plan,
                ids=new_process_ids(),
                seconds=seconds,
                deadline=self._clock.now().timestamp() + seconds,
                lease=lease,
            )
            async with (
                self._lines.open(sandbox.id, caller, ActivityKind.EXEC) as line,
                aclosing(happen(line, attempt)) as events,
            ):
                async for event in events:
                    await recorder.take(event)
                    yield event
            await self._lines.check_standing(sandbox.id, recorder.outcome().exit_code)
            sats = await cost(self._store, self._clock, sandbox)
        finally:
            placement.end()
        if plan.submission.volumes:
            # The slot is free again when the caller has the answer.
            await self._endings.gone(sandbox.id)
        yield Done(outcome=recorder.outcome(), sandbox_id=sandbox.id, image=sandbox.image, sats=sats)


async def cost(store: Store, clock: Clock, sandbox: Sandbox) -> int:
    """Returns the sats that the sandbox has cost up to now."""
    if sandbox.terms.is_free:
        return 0
    now = clock.now()
    return await store.read(lambda conn: spent_sats(conn, sandbox, now=now))
