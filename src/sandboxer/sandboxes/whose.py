"""Whose an event is: its subject is a sandbox, a key or an account; anything else is the operator's alone."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from sandboxer.accounts.tables import accounts
from sandboxer.identity.keys import keys
from sandboxer.sandboxes.records import sandboxes


def owners_of(conn: Connection, subjects: Iterable[str]) -> dict[str, str]:
    """The account of each subject that has one."""
    wanted = list(subjects)
    found: dict[str, str] = {}
    for name, account in (
        (sandboxes.c.id, sandboxes.c.account),
        (keys.c.public_key, keys.c.account),
        (accounts.c.id, accounts.c.id.label("account")),
    ):
        rows = conn.execute(select(name.label("name"), account.label("account")).where(name.in_(wanted)))
        found |= {row.name: row.account for row in rows}
    return found
