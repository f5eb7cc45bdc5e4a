"""The verification proves that the ledger is consistent: it recomputes everything derived and compares it.

It reads every transfer and segment once, in pages, and keeps one line per account in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, select

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.amounts import MAX_AMOUNT, NSATS_PER_MSAT, NSATS_PER_SAT
from sandboxer.money.policy import nsats_between
from sandboxer.money.records import bucket_id, debt_id
from sandboxer.money.tables import (
    ledger_accounts,
    ledger_pendings,
    meter_segments,
    meters,
    money_buckets,
    spent_days,
)
from sandboxer.money.transfers import (
    DIGEST_MODULUS,
    MAX_ID_CHARACTERS,
    MAY_OVERDRAW,
    AccountKind,
    Phase,
    Transfer,
    TransferRow,
    digest_of,
    read_transfers,
)

_PAGE = 5_000
MAX_FAULTS = 100


# The totals of an account are kept in a list in the order of these columns, for speed.
_TOTALS = ("debits_posted", "debits_pending", "credits_posted", "credits_pending", "transfers", "digest")
_DEBITS, _CREDITS, _TRANSFERS, _DIGEST = 0, 2, 4, 5
_OF_DEBTS = debt_id("")


@dataclass(slots=True)
class Proof:
    """The result. `is_whole` means that every total, hold, charge and fraction follows from the transfers."""

    accounts: int = 0
    transfers: int = 0
    segments: int = 0
    # The sum over all accounts by asset; it must be zero.
    sums: dict[str, int] = field(default_factory=dict)
    # The first faults, in words; at most `MAX_FAULTS`.
    faults: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.faults

    def find(self, fault: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)


def verify(conn: Connection) -> Proof:
    """Recompute everything and compare. Use it in `store.read`, which sees one snapshot of the database."""
    proof = Proof()
    totals: dict[str, list[int]] = {}
    pendings: dict[str, Transfer] = {}
    charged: Counter[str] = Counter()
    repaid: Counter[str] = Counter()
    accounts = {row.id: row for row in conn.execute(select(ledger_accounts))}
    assets = {id: row.asset for id, row in accounts.items()}
    for row in read_transfers(conn):
        _read_transfer(row, assets, totals, pendings, charged, repaid, proof)
    _compare_accounts(accounts, totals, proof)
    _compare_pendings(conn, pendings, proof)
    _compare_buckets(conn, charged, repaid, proof)
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
    row: TransferRow,
    assets: dict[str, str],
    totals: dict[str, list[int]],
    pendings: dict[str, Transfer],
    charged: Counter[str],
    repaid: Counter[str],
    proof: Proof,
) -> None:
    proof.transfers += 1
    is_plain = (
        row.phase == "single"
        and row.pending_id is None
        and 0 < row.amount <= MAX_AMOUNT
        and row.debit != row.credit
        and 0 < len(row.id) <= MAX_ID_CHARACTERS
    )
    if is_plain:
        posted, pending = row.amount, 0
    else:
        try:
            posted, pending = _effect(row.as_transfer(), pendings, proof)
        except (InvalidRequest, ValueError) as error:
            proof.find(f"transfer {row.id} is not a valid transfer: {error}")
            return
    if digest_of(*row[1:-1]) != row.digest:
        proof.find(f"transfer {row.id} was changed: its digest does not match")
    for side, account_id in ((_DEBITS, row.debit), (_CREDITS, row.credit)):
        if assets.get(account_id) != row.asset:
            proof.find(f"transfer {row.id}: there is no account {account_id} in {row.asset}")
        if (total := totals.get(account_id)) is None:
            total = totals[account_id] = [0] * len(_TOTALS)
        total[side] += posted
        total[side + 1] += pending
        total[_TRANSFERS] += 1
        total[_DIGEST] += row.digest
    if row.kind == "charge":
        charged[row.debit] += row.amount
    elif row.kind == "repay":
        repaid[row.debit] += row.amount
    elif row.kind == "refund":
        charged[row.credit] -= row.amount
    elif row.kind == "reversal" and row.debit.startswith(_OF_DEBTS):
        # The part of a reversed payment that had been spent already.
        repaid[row.debit] -= row.amount


def _effect(transfer: Transfer, pendings: dict[str, Transfer], proof: Proof) -> tuple[int, int]:
    """Return what the transfer adds to the posted and to the pending totals of both its sides."""
    if transfer.phase is Phase.SINGLE:
        return transfer.amount, 0
    if transfer.phase is Phase.PENDING:
        pendings[transfer.id] = transfer
        return 0, transfer.amount
    if (held := pendings.pop(transfer.pending_id or "", None)) is None:
        proof.find(f"transfer {transfer.id} resolves {transfer.pending_id}, which is not pending")
        return 0, 0
    if (held.debit, held.credit, held.asset) != (transfer.debit, transfer.credit, transfer.asset):
        proof.find(f"transfer {transfer.id} has other sides than {held.id}, which it resolves")
    if transfer.amount > held.amount:
        proof.find(f"transfer {transfer.id} posts more than {held.id} held")
    return (transfer.amount if transfer.phase is Phase.POST else 0), -held.amount


def _compare_accounts(accounts: dict[str, Row[Any]], totals: dict[str, list[int]], proof: Proof) -> None:
    for id, row in accounts.items():
        proof.accounts += 1
        wanted = totals.get(id, [0] * len(_TOTALS))
        wanted[_DIGEST] %= DIGEST_MODULUS
        for name, total in zip(_TOTALS, wanted, strict=True):
            if row._mapping[name] != total:
                proof.find(f"account {id}: {name} is {row._mapping[name]}, the transfers say {total}")
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
        if (wanted := pendings.get(id)) is None or kept.get(id) != (wanted.debit, wanted.amount):
            proof.find(f"the list of holds is wrong about {id}")


def _compare_buckets(conn: Connection, charged: Counter[str], repaid: Counter[str], proof: Proof) -> None:
    """Compare rate × time of all segments and open meters with what was charged, to the nanosat."""
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
        if (bucket := buckets.get(owner)) is None:
            proof.find(f"account {owner} is metered and has no balance")
            continue
        if bucket.rate_msats != rates[owner]:
            proof.find(f"balance of {owner}: its rate is {bucket.rate_msats}, its meters say {rates[owner]}")
        sats = charged[bucket_id(owner)] + charged[debt_id(owner)]
        collected = charged[bucket_id(owner)] + repaid[bucket_id(owner)] + repaid[debt_id(owner)]
        if bucket.collected_sats != collected:
            proof.find(
                f"balance of {owner}: {bucket.collected_sats} sats collected, transfers say {collected}"
            )
        if not 0 <= bucket.carried_nsats < NSATS_PER_SAT:
            proof.find(f"balance of {owner}: {bucket.carried_nsats} nanosats is no fraction of a sat")
        if used[owner] != sats * NSATS_PER_SAT + bucket.carried_nsats:
            proof.find(
                f"balance of {owner}: used {used[owner]} nanosats, charged {sats} sats and carried"
                f" {bucket.carried_nsats} nanosats"
            )


def _compare_days(conn: Connection, used: Counter[tuple[str, str]], proof: Proof) -> None:
    """Compare the days that caps count with the segments."""
    counted: Counter[tuple[str, str]] = Counter()
    for row in conn.execute(select(spent_days)):
        counted[row.account, row.key] += row.used_sats * NSATS_PER_SAT + row.used_nsats
    for owner, key in counted.keys() | used.keys():
        if counted[owner, key] != used[owner, key]:
            proof.find(
                f"account {owner}: its days say that the key {key or '(none)'} used {counted[owner, key]}"
                f" nanosats, its segments {used[owner, key]}"
            )
