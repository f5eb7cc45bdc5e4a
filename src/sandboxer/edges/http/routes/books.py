"""The operator's books: is the ledger whole, who did what, paying out income."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandboxer.accounts import audit, operators
from sandboxer.accounts.audit import Checkpoint
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.state import platform_of, require_owner
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money import verification
from sandboxer.wire import accounts as wire
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX

router = APIRouter(prefix="/v1", tags=["operators"])
MAX_SEQ = 2**53
NDJSON = "application/x-ndjson"


@router.post(
    "/payouts",
    operation_id="payOut",
    status_code=201,
    response_model=wire.Moved,
    responses=failures(402, 409),
    summary="Take income out, at most what was earned; the same id pays once (owner)",
)
async def pay_out(request: Request, body: wire.PayOut) -> Response:
    platform, operator = platform_of(request), require_owner(request)
    now = platform.clock.now()
    is_new = await platform.store.write(
        lambda conn: operators.pay_out(conn, operator, body.sats, id=body.id, reason=body.reason, now=now)
    )
    return json_response(wire.Moved(id=body.id, sats=body.sats, is_new=is_new), 201)


@router.get(
    "/ledger/totals",
    operation_id="showLedgerTotals",
    response_model=wire.LedgerTotals,
    responses=failures(),
    summary="What all ledger accounts of each kind hold (owner)",
)
async def totals(request: Request) -> Response:
    operator = require_owner(request)
    found = await platform_of(request).store.read(lambda conn: operators.totals(conn, operator))
    return json_response(wire.LedgerTotals(totals=found))


@router.get(
    "/ledger/verify",
    operation_id="verifyLedger",
    response_model=wire.LedgerProof,
    responses=failures(),
    summary="Recompute everything derived and compare (owner)",
)
async def verify_ledger(request: Request) -> Response:
    require_owner(request)
    proof = await platform_of(request).store.read(verification.verify)
    return json_response(ledger_proof(proof))


@router.get(
    "/audit",
    operation_id="listAudit",
    response_model=wire.AuditPage,
    responses=failures(),
    summary="Who did what, oldest first (owner)",
)
async def list_audit(
    request: Request,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    subject: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    require_owner(request)
    found = await platform_of(request).store.read(
        lambda conn: audit.page(conn, after=after, subject=subject, limit=limit)
    )
    shown = [wire.AuditEntry.model_validate(audit.as_json(entry)) for entry in found]
    following = found[-1].seq if len(found) == limit else None
    return json_response(wire.AuditPage(entries=shown, next_after=following))


@router.get(
    "/audit/export",
    operation_id="exportAudit",
    response_class=StreamingResponse,
    responses={
        **failures(),
        200: {
            "description": "One JSON object a line; the last one's seq and hash are an anchor.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        },
    },
    summary="The whole audit log (owner)",
)
async def export_audit(request: Request) -> Response:
    require_owner(request)
    return StreamingResponse(audit.export(platform_of(request).store), media_type=NDJSON)


@router.get(
    "/audit/verify",
    operation_id="verifyAudit",
    response_model=wire.AuditProof,
    responses=failures(),
    summary="Walk the chain of the audit log, from an anchor kept elsewhere if you have one (owner)",
)
async def verify_audit(
    request: Request,
    anchor_seq: Annotated[int | None, Query(ge=0, le=MAX_SEQ)] = None,
    anchor_hash: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$", max_length=64)] = None,
) -> Response:
    require_owner(request)
    if (anchor_seq is None) is not (anchor_hash is None):
        raise InvalidRequest(field="anchor_seq", why="an anchor is a number and its hash")
    anchor = None
    if anchor_seq is not None and anchor_hash is not None:
        anchor = Checkpoint(seq=anchor_seq, hash=anchor_hash)
    proof = await platform_of(request).store.read(lambda conn: audit.verify(conn, anchor=anchor))
    return json_response(audit_proof(proof))


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
