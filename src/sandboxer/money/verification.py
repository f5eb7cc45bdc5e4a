"""Proof that the ledger is whole: everything derived is recomputed from what is true, and compared.

Reads every transfer and segment once, in pages, holding one line per account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, select

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.amounts import NSATS_PER_MSAT, NSATS_PER_SAT
from sandboxer.money.buckets import bucket_id, debt_id
from sandboxer.money.ledger import from_row
from sandboxer.money.meters import nsats_between
from sandboxer.money.tables import (
    ledger_accounts,
    ledger_pendings,
    ledger_transfers,
    meter_segments,
    meters,
    money_buckets,
    spent_days,
)
from sandboxer.money.transfers import DIGEST_MODULUS, MAY_OVERDRAW, AccountKind, Phase, Transfer

_PAGE = 5_000
MAX_FAULTS = 100


@dataclass(slots=True)
class _Totals:
    debits_posted: int = 0
    credits_posted: int = 0
    debits_pending: int = 0
    credits_pending: int = 0
    transfers: int = 0
    digest: int = 0


@dataclass(slots=True)
class Proof:
    """What was found. `is_whole` means: every total, hold, charge and fraction follows from the record."""

    accounts: int = 0
    transfers: int = 0
    segments: int = 0
    # Per asset, over all accounts: nothing else than zero.
    sums: dict[str, int] = field(default_factory=dict)
    # The first of them, in words.
    faults: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.faults

    def find(self, fault: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)


def verify(conn: Connection) -> Proof:
    """Recompute all and compare. Use it in `store.read`, where the database stands still."""
    proof = Proof()
    totals: dict[str, _Totals] = {}
    pendings: dict[str, Transfer] = {}
    charged: Counter[str] = Counter()
    accounts = {row.id: row for row in conn.execute(select(ledger_accounts))}
    for row in _pages(conn, ledger_transfers):
        _read_transfer(row, accounts, totals, pendings, charged, proof)
    _compare_accounts(accounts, totals, proof)
    _compare_pendings(conn, pendings, proof)
    _compare_buckets(conn, charged, proof)
    return proof


def _pages(conn: Connection, table: Any) -> Iterator[Row[Any]]:
    last = 0
    while True:
        query = select(table).where(table.c.seq > last).order_by(table.c.seq).limit(_PAGE)
        page = conn.execute(query).all()
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1].seq


def _read_transfer(
    row: Row[Any],
    accounts: dict[str, Row[Any]],
    totals: dict[str, _Totals],
    pendings: dict[str, Transfer],
    charged: Counter[str],
    proof: Proof,
) -> None:
    proof.transfers += 1
    try:
        transfer = from_row(row)
    except (InvalidRequest, ValueError) as error:
        proof.find(f"transfer {row.id} is not a valid transfer: {error}")
        return
    if transfer.digest() != row.digest:
        proof.find(f"transfer {row.id} was changed: its digest does not match")
    posted, pending = _effect(transfer, pendings, proof)
    for side, account_id in (("debits", transfer.debit), ("credits", transfer.credit)):
        account = accounts.get(account_id)
        if account is None or account.asset != transfer.asset.value:
            proof.find(f"transfer {row.id}: there is no account {account_id} in {transfer.asset}")
        total = totals.setdefault(account_id, _Totals())
        setattr(total, f"{side}_posted", getattr(total, f"{side}_posted") + posted)
        setattr(total, f"{side}_pending", getattr(total, f"{side}_pending") + pending)
        total.transfers += 1
        total.digest = (total.digest + row.digest) % DIGEST_MODULUS
    if transfer.kind == "charge":
        charged[transfer.debit] += transfer.amount
    elif transfer.kind == "refund":
        charged[transfer.credit] -= transfer.amount


def _effect(transfer: Transfer, pendings: dict[str, Transfer], proof: Proof) -> tuple[int, int]:
    """How much it adds to the posted and the pending totals of both its sides."""
    if transfer.phase is Phase.SINGLE:
        return transfer.amount, 0
    if transfer.phase is Phase.PENDING:
        pendings[transfer.id] = transfer
        return 0, transfer.amount
    held = pendings.pop(transfer.pending_id or "", None)
    if held is None:
        proof.find(f"transfer {transfer.id} resolves {transfer.pending_id}, which is not pending")
        return 0, 0
    if (held.debit, held.credit, held.asset) != (transfer.debit, transfer.credit, transfer.asset):
        proof.find(f"transfer {transfer.id} has other sides than {held.id}, which it resolves")
    if transfer.amount > held.amount:
        proof.find(f"transfer {transfer.id} posts more than {held.id} held")
    return (transfer.amount if transfer.phase is Phase.POST else 0), -held.amount


def _compare_accounts(accounts: dict[str, Row[Any]], totals: dict[str, _Totals], proof: Proof) -> None:
    for id, row in accounts.items():
        proof.accounts += 1
        wanted = totals.get(id, _Totals())
        for name in _Totals.__slots__:
            if getattr(row, name) != getattr(wanted, name):
                proof.find(
                    f"account {id}: {name} is {row._mapping[name]}, the transfers say {getattr(wanted, name)}"
                )
        value = row.credits_posted - row.debits_posted
        proof.sums[row.asset] = proof.sums.get(row.asset, 0) + value
        kind = AccountKind(row.kind)
        if bool(row.may_overdraw) is not (kind in MAY_OVERDRAW):
            proof.find(f"account {id}: a {kind} has the wrong permission to go below zero")
        if kind not in MAY_OVERDRAW and value - row.debits_pending < 0:
            proof.find(f"account {id}: more is spent or held than came in")
        if kind is AccountKind.DEBT and value > 0:
            proof.find(f"account {id}: a debt was paid more than once")
    for asset, total in proof.sums.items():
        if total:
            proof.find(f"all accounts in {asset} sum up to {total}, not to zero")


def _compare_pendings(conn: Connection, pendings: dict[str, Transfer], proof: Proof) -> None:
    kept = {row.id: (row.debit, row.amount) for row in conn.execute(select(ledger_pendings))}
    for id in kept.keys() | pendings.keys():
        wanted = pendings.get(id)
        if wanted is None or kept.get(id) != (wanted.debit, wanted.amount):
            proof.find(f"the list of holds is wrong about {id}")


def _compare_buckets(conn: Connection, charged: Counter[str], proof: Proof) -> None:
    """Rate times time, of every segment and open meter, is what was charged and carried: to the nanosat."""
    rates: Counter[str] = Counter()
    used: Counter[str] = Counter()
    by_key: Counter[tuple[str, str]] = Counter()
    buckets = {row.owner: row for row in conn.execute(select(money_buckets))}
    for row in _pages(conn, meter_segments):
        proof.segments += 1
        nsats = nsats_between(row.rate_msats, row.began_at, row.ended_at) + row.msats * NSATS_PER_MSAT
        used[row.owner] += nsats
        by_key[row.owner, row.key] += nsats
    _compare_days(conn, by_key, proof)
    for row in conn.execute(select(meters).where(meters.c.closed_at.is_(None))):
        rates[row.owner] += row.rate_msats
        if row.owner in buckets:
            used[row.owner] += nsats_between(row.rate_msats, row.began_at, buckets[row.owner].settled_at)
    for owner in rates.keys() | used.keys() | buckets.keys():
        bucket = buckets.get(owner)
        if bucket is None:
            proof.find(f"account {owner} is metered and has no bucket")
            continue
        if bucket.rate_msats != rates[owner]:
            proof.find(f"bucket {owner}: its rate is {bucket.rate_msats}, its meters say {rates[owner]}")
        sats = charged[bucket_id(owner)] + charged[debt_id(owner)]
        if not 0 <= bucket.carried_nsats < NSATS_PER_SAT:
            proof.find(f"bucket {owner}: {bucket.carried_nsats} nanosats is no fraction of a sat")
        if used[owner] != sats * NSATS_PER_SAT + bucket.carried_nsats:
            proof.find(
                f"bucket {owner}: used {used[owner]} nanosats, charged {sats} sats and carried"
                f" {bucket.carried_nsats} nanosats"
            )


def _compare_days(conn: Connection, used: Counter[tuple[str, str]], proof: Proof) -> None:
    """What caps count is what the segments say."""
    counted: Counter[tuple[str, str]] = Counter()
    for row in conn.execute(select(spent_days)):
        counted[row.account, row.key] += row.used_sats * NSATS_PER_SAT + row.used_nsats
    for owner, key in counted.keys() | used.keys():
        if counted[owner, key] != used[owner, key]:
            proof.find(
                f"account {owner}: its days say that the key {key or '(none)'} used {counted[owner, key]}"
                f" nanosats, its segments {used[owner, key]}"
            )
