"""Egress policies and outlets as rows. Plain functions inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from sandboxer.access.egress.rules import Action, Injection, Limits, Policy, Rule
from sandboxer.accounts.delegation import accounts_above
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.values import value_class
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata, required
from sandboxer.store.rows import from_row


@value_class
class KeptPolicy:
    # The id of a sandbox, or of an account for rules of all its sandboxes.
    subject: str
    account: str
    policy: Policy
    version: int
    changed_at: datetime


@value_class
class KeptOutlet:
    sandbox_id: str
    account: str
    certificate: bytes
    sealed_key: bytes
    # Bytes sent and received; how many of the sent ones are paid for, and in how many charges.
    sent: int = 0
    received: int = 0
    charged: int = 0
    charges: int = 0
    denials: tuple[Mapping[str, Any], ...] = ()


policies = Table(
    "egress_policies",
    metadata,
    # The id of a sandbox, or of an account for rules of all its sandboxes.
    Column("subject", Text, primary_key=True),
    Column("account", Text, nullable=False),
    Column("policy", JsonValue, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
)
outlets = Table(
    "egress_outlets",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("account", Text, nullable=False),
    *required(LargeBinary, "certificate", "sealed_key"),
    # Bytes sent and received; how many of the sent ones are paid for, and in how many charges.
    *required(BigInteger, "sent", "received", "charged"),
    Column("charges", Integer, nullable=False),
    Column("denials", JsonValue, nullable=False),
)


# Built once: each of these is used whenever a sandbox with a way out is made.
_LOAD_POLICY = select(policies).where(policies.c.subject == bindparam("wanted_subject"))
_INSERT_POLICY, _INSERT_OUTLET = insert(policies).inline(), insert(outlets).inline()


def load_policy(conn: Connection, subject: str) -> KeptPolicy | None:
    row = conn.execute(_LOAD_POLICY, {"wanted_subject": subject}).one_or_none()
    if row is None:
        return None
    return KeptPolicy(
        subject=row.subject,
        account=row.account,
        policy=policy_from(row.policy),
        version=row.version,
        changed_at=row.changed_at,
    )


def wider_policies(conn: Connection, account: str) -> list[Policy]:
    """Returns what applies to all sandboxes of an account: its rules, and what the accounts above it deny.

    Otherwise an account with delegated keys could get around a deny with a sandbox of its child. What the
    accounts above allow applies to them only.
    """
    own = load_policy(conn, account)
    found = [] if own is None else [own.policy]
    for above in accounts_above(conn, [account]).get(account, ()):
        if (kept := load_policy(conn, above)) is not None:
            found.append(Policy(rules=tuple(r for r in kept.policy.rules if r.action is Action.DENY)))
    return found


# Said in the account's words: a sandbox's rules are shown beside them.
LOOK_AGAIN = "Look at them again (GET /v1/egress, GET /v1/sandboxes/{sandbox_id}/egress), and change those."


def save_policy(conn: Connection, kept: KeptPolicy) -> None:
    """Saves the next version. Raises Conflict if somebody else saved that version first."""
    values = {"policy": policy_json(kept.policy), "version": kept.version, "changed_at": kept.changed_at}
    if kept.version == 1:
        conn.execute(_INSERT_POLICY, {"subject": kept.subject, "account": kept.account, **values})
        return
    is_next = (policies.c.subject == kept.subject) & (policies.c.version == kept.version - 1)
    if conn.execute(update(policies).where(is_next).values(**values)).rowcount != 1:
        raise Conflict(why="the rules were changed by somebody else meanwhile", hint=LOOK_AGAIN)


def load_outlet(conn: Connection, sandbox_id: str) -> KeptOutlet | None:
    row = conn.execute(select(outlets).where(outlets.c.sandbox_id == sandbox_id)).one_or_none()
    return None if row is None else from_row(KeptOutlet, row, denials=tuple(row.denials))


def insert_outlet(conn: Connection, kept: KeptOutlet) -> None:
    conn.execute(_INSERT_OUTLET, {**asdict(kept), "denials": list(kept.denials)})


def save_traffic(conn: Connection, kept: KeptOutlet) -> None:
    values = {
        "sent": kept.sent,
        "received": kept.received,
        "charged": kept.charged,
        "charges": kept.charges,
        "denials": list(kept.denials),
    }
    conn.execute(update(outlets).where(outlets.c.sandbox_id == kept.sandbox_id).values(**values))


def forget_authority(conn: Connection, sandbox_id: str) -> None:
    """Deletes the authority of a sandbox that is gone; its traffic and denials stay on record."""
    conn.execute(delete(policies).where(policies.c.subject == sandbox_id))
    conn.execute(update(outlets).where(outlets.c.sandbox_id == sandbox_id).values(sealed_key=b""))


def policy_json(policy: Policy) -> dict[str, Any]:
    return {
        "default": policy.default.value,
        "rules": [{**asdict(rule), "action": rule.action.value} for rule in policy.rules],
        "secrets": [asdict(one) for one in policy.secrets],
        "limits": asdict(policy.limits),
    }


def policy_from(kept: Mapping[str, Any]) -> Policy:
    return Policy(
        default=Action(kept["default"]),
        rules=tuple(
            Rule(
                action=Action(one["action"]),
                host=one["host"],
                ports=tuple(one["ports"]),
                methods=tuple(one["methods"]),
                path=one["path"],
                note=one["note"],
            )
            for one in kept["rules"]
        ),
        secrets=tuple(Injection(**one) for one in kept["secrets"]),
        limits=Limits(**kept["limits"]),
    )
