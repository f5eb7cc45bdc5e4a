"""Feeds for programs that keep what others did in forms of their own: lifecycle events as progress of a State
Hub (`hub.progress`), and what an ended sandbox cost as usage of a fin-hub (`hub.usage`).

They are read from the event log, so they cost no write, and go to whoever names these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal
from typing import Any

from sqlalchemy import Connection, func, select

from sandboxer.kernel.clock import format_duration
from sandboxer.money.statements import UsageLine, actuals
from sandboxer.observe.events import Event, events
from sandboxer.observe.webhooks.endpoints import is_anyone_naming
from sandboxer.observe.webhooks.outbox import Happening
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.promises import WORKSPACE
from sandboxer.sandboxes.records import Sandbox, rows, sandboxes
from sandboxer.store.rows import from_row

PROGRESS, USAGE = "hub.progress", "hub.usage"
AUTHOR = "sandboxer"
_ENDED = f"sandbox.{State.DESTROYED.value}"
_STATES = {f"sandbox.{state.value}": state for state in State}
# A bitcoin is 10^17 billionths of a sat. Wide enough that nothing is rounded.
_BTC_DIGITS = 17
_EXACT = Context(prec=80)


class _HubFeed:
    """Reads the event log. Named as the kind that it tells of."""

    name = ""

    def last(self, conn: Connection, *, now: datetime) -> int:
        return conn.execute(select(func.max(events.c.id))).scalar() or 0

    def read(self, conn: Connection, after: int, limit: int, *, now: datetime) -> Sequence[Happening]:
        """Return what is to be told of the next events. The last may be for nobody: it says how far."""
        if not is_anyone_naming(conn, self.name):
            newest = self.last(conn, now=now)
            return [] if newest <= after else [_nothing(newest, now)]
        query = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        found = [from_row(Event, row) for row in conn.execute(query)]
        told = [one for event in found if (one := self._of(conn, event, now)) is not None]
        if found and (not told or told[-1].position < found[-1].id):
            told.append(_nothing(found[-1].id, found[-1].at))
        return told

    def next_at(self, *, now: datetime) -> datetime | None:
        return None

    def _of(self, conn: Connection, event: Event, now: datetime) -> Happening | None:
        raise NotImplementedError


class StateHubFeed(_HubFeed):
    """Tells of every change of a sandbox's state."""

    name = PROGRESS

    def _of(self, conn: Connection, event: Event, now: datetime) -> Happening | None:
        if (state := _STATES.get(event.kind)) is None or "signal" not in event.data:
            return None
        if (sandbox := rows.load(conn, event.subject)) is None:
            return None
        return Happening(
            position=event.id,
            id=f"prg_{event.id}",
            kind=PROGRESS,
            account=sandbox.account,
            at=event.at,
            data=progress_of(event, state, sandbox),
        )


class FinHubFeed(_HubFeed):
    """Tells what each sandbox cost in all, once it is gone."""

    name = USAGE

    def __init__(self, usd_per_btc: Decimal | None) -> None:
        """`usd_per_btc`: the operator's fixed rate; without one nothing is said in dollars."""
        self._usd_per_btc = usd_per_btc

    def _of(self, conn: Connection, event: Event, now: datetime) -> Happening | None:
        if event.kind != _ENDED or (sandbox := rows.load(conn, event.subject)) is None:
            return None
        lines = actuals(conn, sandbox.account, sandbox.id, now=now)
        return Happening(
            position=event.id,
            id=f"bil_{event.id}",
            kind=USAGE,
            account=sandbox.account,
            at=event.at,
            data=usage_of(sandbox, lines, event.at, self._usd_per_btc),
        )

    def page(
        self, conn: Connection, after: int, limit: int, *, owner: str | None, now: datetime
    ) -> Sequence[Happening]:
        """Return the same of the next sandboxes that ended, for who asks instead of being told; of every
        account if `owner` is None.
        """
        query = select(events).join(sandboxes, sandboxes.c.id == events.c.subject)
        query = query.where(events.c.kind == _ENDED, events.c.id > after).order_by(events.c.id).limit(limit)
        if owner is not None:
            query = query.where(sandboxes.c.account == owner)
        found = [from_row(Event, row) for row in conn.execute(query)]
        return [told for event in found if (told := self._of(conn, event, now)) is not None]


def progress_of(event: Event, state: State, sandbox: Sandbox) -> Mapping[str, Any]:
    """Return the body of a State Hub's `POST /progress/`: a request is a note, the rest are milestones."""
    expires = None if sandbox.expires_at is None else sandbox.expires_at.isoformat()
    return {
        "summary": f"sandbox {sandbox.id} ({sandbox.profile}) state:{state.value}",
        "event_type": "note" if state is State.REQUESTED else "milestone",
        "author": AUTHOR,
        "detail": {
            "sandbox_id": sandbox.id,
            "profile_id": sandbox.profile,
            "extension_id": sandbox.backend,
            "consumer": dict(sandbox.consumer),
            "state": state.value,
            "from": event.data.get("from"),
            "reason": event.reason,
            "actor": event.actor,
            "at": event.at.isoformat(),
            "ttl": format_duration(sandbox.ttl),
            "expires_at": expires,
            "reachability": {"remote_dir": WORKSPACE, "path": f"/v1/sandboxes/{sandbox.id}/reachability"},
        },
    }


def usage_of(
    sandbox: Sandbox, lines: Sequence[UsageLine], ended_at: datetime, usd_per_btc: Decimal | None
) -> Mapping[str, Any]:
    """Return the body of a fin-hub's `POST /usage/sandbox`. Amounts are exact: whole billionths of a sat, and
    dollars as a decimal text at the operator's rate, never a binary fraction.
    """
    nsats = sum(line.nsats for line in lines)
    lived = (ended_at - sandbox.ready_at).total_seconds() if sandbox.ready_at is not None else 0.0
    return {
        "sandbox_id": sandbox.id,
        "extension_id": sandbox.backend,
        "profile_id": sandbox.profile,
        "account": sandbox.account,
        "consumer": dict(sandbox.consumer),
        "duration_s": round(lived, 6),
        "actual_usd": None if usd_per_btc is None else dollars_of(nsats, usd_per_btc),
        "actual_nsats": nsats,
        "usd_per_btc": None if usd_per_btc is None else format(usd_per_btc, "f"),
    }


def dollars_of(nsats: int, usd_per_btc: Decimal) -> str:
    """Return an amount in dollars, every digit of it."""
    return format(_EXACT.multiply(nsats, usd_per_btc).scaleb(-_BTC_DIGITS, _EXACT), "f")


def _nothing(position: int, at: datetime) -> Happening:
    """Return what nobody hears of, which moves the cursor on."""
    return Happening(position=position, id=f"none_{position}", kind="hub.none", account=None, at=at, data={})
