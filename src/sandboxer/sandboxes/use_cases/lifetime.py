"""TTL and retention decide how long a sandbox lives, and destroying ends it. The decisions come first, then
the acts.

The TTL counts from `ready_at`, also while frozen, but not while stopped. An extension adds to it; the whole
granted time never exceeds the profile's maximum. Destroying is idempotent, safe from many callers at once,
and allowed in every state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sandboxer.accounts.operators import demand_operator
from sandboxer.backends.reports import torn_down
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration, parse_duration
from sandboxer.kernel.errors import Broken, IllegalTransition, InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.records import AtEnd, Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.locks import refuse_guarded
from sandboxer.sandboxes.use_cases.memory import remembered, stop_at_end
from sandboxer.sandboxes.use_cases.pause import stopped_changes
from sandboxer.store.repository import Also

# When a backend fails to remove a sandbox, the timer tries again after this long.
RETRY = timedelta(seconds=30)
_ENDING = frozenset({State.DESTROYING, State.DESTROYED})
_KEPT = frozenset({State.STOPPED, State.REAPED})
Before = Callable[[Sequence[Sandbox]], Awaitable[None]]


@value_class
class End:
    """How a sandbox ends whose time is over."""

    # None: it is destroyed without another step.
    signal: Signal | None
    reason: str


@value_class
class Expiry:
    is_applied: bool
    sandboxes: Sequence[Sandbox]


def end_due(sandbox: Sandbox, *, now: datetime) -> End | None:
    """Return how it ends if its TTL or retention is over, or None. Idleness is judged elsewhere."""
    if sandbox.state is State.EXPIRED:
        return End(signal=None, reason=sandbox.reason)
    if sandbox.expires_at is None or sandbox.expires_at > now:
        return None
    if sandbox.state in LIVE:
        return End(signal=_end_signal(sandbox), reason="ttl")
    if ends_at(sandbox) is None:
        return None
    if sandbox.state in _KEPT:
        return End(signal=Signal.RETENTION_OVER, reason="retention_over")
    if sandbox.state is State.FAILED:
        return End(signal=None, reason="retention_over")
    if sandbox.state is State.DESTROYING:
        return End(signal=None, reason=sandbox.reason)
    return None


def ends_at(sandbox: Sandbox) -> datetime | None:
    """Return when its time is over. The disk of a locked sandbox is kept until it is unlocked, or until
    nobody pays for it.
    """
    is_guarded = sandbox.locked_at is not None and not sandbox.terms.keeps_free
    if is_guarded and sandbox.state is State.STOPPED:
        return None
    return sandbox.expires_at


def _end_signal(sandbox: Sandbox) -> Signal:
    is_destroyed = sandbox.locked_at is None and sandbox.at_end is AtEnd.DESTROY
    return Signal.EXPIRE if is_destroyed else Signal.HALTED


def extended(sandbox: Sandbox, duration: timedelta) -> Mapping[str, object]:
    """Return the changes of the record for `duration` more. Raises InvalidRequest past the maximum."""
    ttl = sandbox.ttl + duration
    if ttl > sandbox.ttl_max:
        left = max(timedelta(0), sandbox.ttl_max - sandbox.ttl)
        raise InvalidRequest(
            field="duration",
            why=f"it has {format_duration(sandbox.ttl)} of at most {format_duration(sandbox.ttl_max)};"
            f" at most {format_duration(left)} can be added",
        )
    if sandbox.state in LIVE and sandbox.expires_at is not None:
        return {"ttl": ttl, "expires_at": sandbox.expires_at + duration}
    if sandbox.state in _KEPT and sandbox.ttl_left is not None:
        return {"ttl": ttl, "ttl_left": sandbox.ttl_left + duration}
    if sandbox.state in (State.REQUESTED, State.PROVISIONING):
        return {"ttl": ttl}
    raise IllegalTransition(signal="extend_ttl", state=sandbox.state.value)


async def check_ttl(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    duration: str,
    caller: Caller,
    *,
    quote_id: str | None = None,
) -> Sandbox:
    """Check an extension before anything is paid for it. Raises as `change_ttl`; returns the record."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    extended(sandbox, parse_duration(duration, field="duration"))
    if quote_id is not None:
        await dependencies.repository.promised(sandbox, quote_id)
    return sandbox


async def change_ttl(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    duration: str,
    caller: Caller,
    *,
    quote_id: str | None = None,
    also: Also | None = None,
) -> Sandbox:
    """Add `duration` to its TTL, within the profile's maximum.

    With a quote it goes on at the quote's rates from now. `also` is written in its transaction.
    """
    sandbox = await dependencies.visible(sandbox_id, caller)
    more = parse_duration(duration, field="duration")
    repository = dependencies.repository
    promised = None if quote_id is None else await repository.promised(sandbox, quote_id)
    taken_up = sandbox.terms if promised else await repository.terms_of_more(sandbox)

    def decide(sandbox: Sandbox) -> Mapping[str, object]:
        changes = extended(sandbox, more)
        if promised is None:
            return {**changes, "terms": taken_up} if sandbox.terms.is_free else changes
        terms = replace(sandbox.terms, card=promised.card, quote_id=promised.quote_id)
        return {**changes, "terms": terms}

    return await dependencies.repository.amend(
        sandbox_id,
        kind="sandbox.ttl_extended",
        actor=actor_of(caller),
        reason=f"extended by {duration}",
        decide=decide,
        also=also,
    )


async def set_left(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    left: timedelta,
    caller: Caller,
    *,
    never_less: bool = False,
) -> Sandbox:
    """Let it live for `left` from now on, within the profile's maximum: longer than before, or shorter,
    unless it is `never_less`.
    """
    sandbox = await dependencies.visible(sandbox_id, caller)
    is_less = _left(sandbox, dependencies.clock.now()) >= left
    if never_less and is_less:
        return sandbox
    terms = sandbox.terms if is_less else await dependencies.repository.terms_of_more(sandbox)

    def decide(found: Sandbox) -> Mapping[str, object]:
        changes = extended(found, left - _left(found, dependencies.clock.now()))
        return {**changes, "terms": terms} if found.terms.is_free else changes

    return await dependencies.repository.amend(
        sandbox_id,
        kind="sandbox.ttl_extended",
        actor=actor_of(caller),
        reason=f"to end in {format_duration(left)}",
        decide=decide,
    )


def _left(sandbox: Sandbox, now: datetime) -> timedelta:
    if sandbox.state in LIVE and sandbox.expires_at is not None:
        return sandbox.expires_at - now
    return sandbox.ttl if sandbox.ttl_left is None else sandbox.ttl_left


async def expire(
    dependencies: SandboxDependencies, caller: Caller, *, apply: bool = False, before: Before | None = None
) -> Expiry:
    """Return the sandboxes past their time, and end them if `apply` is set. The timer does so by itself.

    `before` is called with those that will be ended, before the first is.
    """
    demand_operator(caller)
    now = dependencies.clock.now()
    due = [sandbox for sandbox in dependencies.repository.living() if end_due(sandbox, now=now) is not None]
    if not apply:
        return Expiry(is_applied=False, sandboxes=due)
    if before is not None:
        await before(due)
    ended = [await end(dependencies, sandbox, actor=actor_of(caller)) for sandbox in due]
    return Expiry(is_applied=True, sandboxes=ended)


async def end(
    dependencies: SandboxDependencies, sandbox: Sandbox, *, actor: str, idle: bool = False
) -> Sandbox:
    """End a sandbox whose time is over, if it still is."""
    current = dependencies.repository.peek(sandbox.id) or sandbox
    due = (
        End(signal=_end_signal(current), reason="idle")
        if idle
        else end_due(current, now=dependencies.clock.now())
    )
    if due is None:
        return current
    # The end counts from then, however late it is noticed: nobody pays for more than was granted.
    at = None if idle else current.expires_at
    if due.signal is Signal.HALTED:
        return await _halt(dependencies, current, actor=actor, reason=due.reason, at=at)
    current = await _record_expiry(dependencies, current, due, actor=actor, at=at)
    return await remove(dependencies, current, actor=actor, reason=due.reason)


async def expire_overdue(dependencies: SandboxDependencies, sandbox: Sandbox, *, actor: str) -> None:
    """Record that its time was over; the timer removes it. One that is only stopped is left to the timer."""
    due = end_due(sandbox, now=dependencies.clock.now())
    if due is not None and due.signal is not Signal.HALTED:
        await _record_expiry(dependencies, sandbox, due, actor=actor, at=sandbox.expires_at)


async def _record_expiry(
    dependencies: SandboxDependencies, sandbox: Sandbox, due: End, *, actor: str, at: datetime | None
) -> Sandbox:
    if due.signal is None:
        return sandbox
    check = refuse_guarded if due.signal is Signal.EXPIRE else None
    step = Step(signal=due.signal, actor=actor, reason=due.reason, check=check, at=at)
    return await dependencies.repository.move(sandbox.id, step)


async def _halt(
    dependencies: SandboxDependencies, sandbox: Sandbox, *, actor: str, reason: str, at: datetime | None
) -> Sandbox:
    """Stop a sandbox whose time is over, because it is locked or was asked to end so; its disk is kept."""

    async def act() -> Sandbox:
        current = dependencies.repository.peek(sandbox.id) or sandbox
        if current.state not in LIVE:
            return current
        memory_mb = 0
        if current.handle is not None:
            memory_mb = await stop_at_end(dependencies, current, current.handle)
        stopped = replace(current, **remembered(current, memory_mb))  # type: ignore[arg-type]
        kept = await dependencies.repository.kept_for(stopped, dependencies.retention)
        changes = stopped_changes(current, dependencies.clock.now(), kept)
        why = reason if current.locked_at is None else f"{reason}_locked"
        step = Step(
            signal=Signal.HALTED,
            actor=actor,
            reason=why,
            changes=changes,
            decide=lambda one: remembered(one, memory_mb),
            at=at,
        )
        return await dependencies.repository.move(sandbox.id, step)

    return await dependencies.operations.perform(sandbox.id, "stop", act)


async def destroy(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    *,
    despite_lock: bool = False,
    wait: bool = True,
) -> Sandbox:
    """Destroy a sandbox. Destroyed already is success; one that is being made is undone.

    `despite_lock` says that a second proof allowed it, or that its key is ending. Without `wait` it is
    `destroying` when this returns: from then on nobody can use it, and it ends whatever happens.
    """
    sandbox = await dependencies.visible(sandbox_id, caller)
    check = None if despite_lock else refuse_guarded
    return await remove(
        dependencies, sandbox, actor=actor_of(caller), reason="destroyed_by_caller", check=check, wait=wait
    )


async def remove(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    *,
    actor: str,
    reason: str,
    check: Callable[[Sandbox], None] | None = None,
    wait: bool = True,
) -> Sandbox:
    """Bring it to `destroyed`. The intent is recorded first, so that a start finishes what a crash
    interrupted.

    `check` may refuse it in the transaction that records the intent. Without `wait` the rest goes on by
    itself, unless something else is under way on it.
    """
    if sandbox.state is State.DESTROYED:
        return sandbox
    await _mark(dependencies, sandbox, actor=actor, reason=reason, check=check)

    async def act() -> Sandbox:
        return await finish(dependencies, sandbox.id, actor=actor)

    if not wait and dependencies.operations.running(sandbox.id) is None:
        dependencies.operations.start(sandbox.id, "destroy", act)
        return dependencies.repository.peek(sandbox.id) or sandbox
    return await dependencies.operations.preempt(sandbox.id, "destroy", act)


async def finish(dependencies: SandboxDependencies, sandbox_id: str, *, actor: str) -> Sandbox:
    """Tear down a sandbox that is `destroying`. Destroyed already is success."""
    sandbox = await dependencies.repository.find(sandbox_id)
    if sandbox is None:
        raise Broken(why=f"sandbox {sandbox_id} is being destroyed without a record")
    if sandbox.state is State.DESTROYED:
        return sandbox
    report = await torn_down(dependencies.backend_of(sandbox), sandbox_id)
    # Its environment may hold secrets and is erased; the rest of the record stays.
    gone: dict[str, object] = {
        "handle": None,
        "env": {},
        "ended_at": dependencies.clock.now(),
        "expires_at": None,
        "ttl_left": None,
    }
    data = {} if report is None else {"cleanup": report.as_json()}
    done = await dependencies.repository.move(
        sandbox_id, Step(signal=Signal.TORN_DOWN, actor=actor, reason=sandbox.reason, changes=gone, data=data)
    )
    dependencies.activity.forget(sandbox_id)
    return done


async def _mark(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    *,
    actor: str,
    reason: str,
    check: Callable[[Sandbox], None] | None,
) -> None:
    if sandbox.state in _ENDING:
        return
    intent = Step(
        signal=Signal.DESTROY,
        actor=actor,
        reason=reason,
        changes={"expires_at": dependencies.clock.now() + RETRY},
        check=check,
    )
    try:
        await dependencies.repository.move(sandbox.id, intent)
    except IllegalTransition:
        # Another destroy came first; it will be joined.
        current = await dependencies.repository.find(sandbox.id)
        if current is None or current.state not in _ENDING:
            raise
