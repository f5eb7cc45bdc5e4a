"""The operator's books: is the ledger whole, who did what, paying out income."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from sandboxer.accounts import audit, operators
from sandboxer.accounts.audit import Checkpoint
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.state import require_owner
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money import verification
from sandboxer.wire import accounts as wire
from sandboxer.wire.accounts import AuditPage, AuditProof, LedgerProof, LedgerTotals, Moved, PayOut
from sandboxer.wire.operations import operators as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.operators import ListAuditQuery, VerifyAuditQuery

NDJSON = "application/x-ndjson"


async def pay_out(asked: Asked[NoParameters, NoParameters, PayOut]) -> Moved:
    platform, operator = asked.platform, require_owner(asked.request)
    now = platform.clock.now()
    is_new = await platform.store.write(
        lambda conn: operators.pay_out(
            conn, operator, asked.body.sats, id=asked.body.id, reason=asked.body.reason, now=now
        )
    )
    return wire.Moved(id=asked.body.id, sats=asked.body.sats, is_new=is_new)


async def totals(asked: Asked[NoParameters, NoParameters, None]) -> LedgerTotals:
    operator = require_owner(asked.request)
    found = await asked.platform.store.read(lambda conn: operators.totals(conn, operator))
    return wire.LedgerTotals(totals=found)


async def verify_ledger(asked: Asked[NoParameters, NoParameters, None]) -> LedgerProof:
    require_owner(asked.request)
    proof = await asked.platform.store.read(verification.verify)
    return ledger_proof(proof)


async def list_audit(asked: Asked[NoParameters, ListAuditQuery, None]) -> AuditPage:
    require_owner(asked.request)
    found = await asked.platform.store.read(
        lambda conn: audit.page(
            conn, after=asked.query.after, subject=asked.query.subject, limit=asked.query.limit
        )
    )
    shown = [wire.AuditEntry.model_validate(audit.as_json(entry)) for entry in found]
    following = found[-1].seq if len(found) == asked.query.limit else None
    return wire.AuditPage(entries=shown, next_after=following)


async def export_audit(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    require_owner(asked.request)
    return StreamingResponse(audit.export(asked.platform.store), media_type=NDJSON)


async def verify_audit(asked: Asked[NoParameters, VerifyAuditQuery, None]) -> AuditProof:
    require_owner(asked.request)
    if (asked.query.anchor_seq is None) is not (asked.query.anchor_hash is None):
        raise InvalidRequest(field="anchor_seq", why="an anchor is a number and its hash")
    anchor = None
    if asked.query.anchor_seq is not None and asked.query.anchor_hash is not None:
        anchor = Checkpoint(seq=asked.query.anchor_seq, hash=asked.query.anchor_hash)
    proof = await asked.platform.store.read(lambda conn: audit.verify(conn, anchor=anchor))
    return audit_proof(proof)


def ledger_proof(proof: verification.Proof) -> wire.LedgerProof:
    return wire.LedgerProof(
        is_whole=proof.is_whole,
        accounts=proof.accounts,
        transfers=proof.transfers,
        segments=proof.segments,
        sums=proof.sums,
        faults=proof.faults,
    )


def audit_proof(proof: audit.Proof) -> wire.AuditProof:
    return wire.AuditProof(
        is_whole=proof.is_whole,
        rows=proof.rows,
        head_seq=proof.head.seq,
        head_hash=proof.head.hash,
        broken_at=proof.broken_at,
        why=proof.why,
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.PAY_OUT, pay_out),
    bind(operations.SHOW_LEDGER_TOTALS, totals),
    bind(operations.VERIFY_LEDGER, verify_ledger),
    bind(operations.LIST_AUDIT, list_audit),
    bind(operations.EXPORT_AUDIT, export_audit),
    bind(operations.VERIFY_AUDIT, verify_audit),
)
