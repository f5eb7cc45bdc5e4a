"""How much work there is: jobs, sessions and services by state, of one account or of all."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import Connection, Table, func, select

from sandboxer.work.jobs.lifecycle import State as JobState
from sandboxer.work.jobs.records import jobs
from sandboxer.work.services.records import services
from sandboxer.work.services.states import State as ServiceState
from sandboxer.work.sessions.lifecycle import State as SessionState
from sandboxer.work.sessions.records import sessions

_KINDS: Mapping[str, tuple[Table, type[StrEnum]]] = {
    "jobs": (jobs, JobState),
    "sessions": (sessions, SessionState),
    "services": (services, ServiceState),
}


def count_work(conn: Connection, account: str | None) -> dict[str, dict[str, int]]:
    """By kind and state, zeros too. `account` None: everyone's."""
    return {kind: _by_state(conn, table, states, account) for kind, (table, states) in _KINDS.items()}


def _by_state(conn: Connection, table: Table, states: type[StrEnum], account: str | None) -> dict[str, int]:
    wanted = select(table.c.state, func.count()).group_by(table.c.state)
    if account is not None:
        wanted = wanted.where(table.c.account == account)
    found = {state: int(number) for state, number in conn.execute(wanted)}
    return {state.value: 0 for state in states} | found
