"""Routes of what the operator does to accounts. Every action has a reason and a row in the audit log.

The books say whether the ledger is consistent and who did what, and let the operator pay out income.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandboxer.accounts import audit, operators, records
from sandboxer.accounts.audit import Checkpoint
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.use_cases import operate
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, Handler, bind
from sandboxer.edges.http.requests import moment, platform_of
from sandboxer.edges.http.routes.accounts import account
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money import verification
from sandboxer.wire import accounts as wire
from sandboxer.wire.operations import accounts as operations
from sandboxer.wire.operations.declaration import NoParameters

# GET /v1/accounts/me would take it for the caller's own account.
RESERVED = frozenset({"me"})
NDJSON = "application/x-ndjson"


def _answer(request: Request, changed: records.Account, status: int = 200) -> Response:
    return json_response(account(changed, now=platform_of(request).clock.now()), status)


async def create(asked: AskedBody[wire.CreateAccount]) -> Response:
    if asked.body.id in RESERVED:
        raise InvalidRequest(field="id", why="this name is reserved")
    made = await operate(
        asked.platform.store,
        operators.create_account,
        asked.caller,
        id=asked.body.id,
        name=asked.body.name,
        caps=Caps(**asked.body.caps.model_dump()),
        reason=asked.body.reason,
        now=asked.platform.clock.now(),
    )
    return _answer(asked.request, made, 201)


async def list_accounts(asked: AskedQuery[operations.ListAccountsQuery]) -> wire.AccountPage:
    platform, operator = asked.platform, asked.caller
    found = await platform.store.read(
        lambda conn: operators.list_accounts(conn, operator, after=asked.query.after, limit=asked.query.limit)
    )
    now = platform.clock.now()
    shown = [account(one, now=now) for one in found]
    following = found[-1].id if len(found) == asked.query.limit else None
    return wire.AccountPage(accounts=shown, next_after=following)


async def show(asked: Asked[operations.AccountPath]) -> wire.AccountReport:
    platform, operator = asked.platform, asked.caller
    now = platform.clock.now()
    seen = await platform.store.read(
        lambda conn: operators.view_account(conn, operator, asked.path.account_id, now=now)
    )
    money = None if seen.money is None else from_record(wire.Balance, seen.money)
    return wire.AccountReport(account=account(seen.account, now=now), money=money)


def _verb(act: operators.Act) -> Handler[operations.AccountPath, NoParameters, wire.ChangeAccount]:
    """Returns the handler of a verb that needs the account and a reason, and answers with the account."""

    async def handle(asked: AskedPathBody[operations.AccountPath, wire.ChangeAccount]) -> Response:
        changed = await operate(
            asked.platform.store,
            act,
            asked.caller,
            asked.path.account_id,
            reason=asked.body.reason,
            now=asked.platform.clock.now(),
        )
        return _answer(asked.request, changed)

    return handle


async def entitle(asked: AskedPathBody[operations.AccountPath, wire.EntitleAccount]) -> Response:
    entitled = await operate(
        asked.platform.store,
        operators.entitle_account,
        asked.caller,
        asked.path.account_id,
        tier=asked.body.tier,
        until=moment(asked.body.until, field="until"),
        reason=asked.body.reason,
        now=asked.platform.clock.now(),
    )
    return _answer(asked.request, entitled)


async def cap(asked: AskedPathBody[operations.AccountPath, wire.CapAccount]) -> Response:
    capped = await operate(
        asked.platform.store,
        operators.cap_account,
        asked.caller,
        asked.path.account_id,
        Caps(**asked.body.caps.model_dump()),
        reason=asked.body.reason,
        now=asked.platform.clock.now(),
    )
    return _answer(asked.request, capped)


async def adjust(asked: AskedPathBody[operations.AccountPath, wire.AdjustAccount]) -> wire.Moved:
    is_new = await operate(
        asked.platform.store,
        operators.adjust,
        asked.caller,
        asked.path.account_id,
        asked.body.sats,
        id=asked.body.id,
        reason=asked.body.reason,
        now=asked.platform.clock.now(),
    )
    return wire.Moved(id=asked.body.id, sats=asked.body.sats, is_new=is_new)


async def pay_out(asked: AskedBody[wire.PayOut]) -> wire.Moved:
    is_new = await operate(
        asked.platform.store,
        operators.pay_out,
        asked.caller,
        asked.body.sats,
        id=asked.body.id,
        reason=asked.body.reason,
        now=asked.platform.clock.now(),
    )
    return wire.Moved(id=asked.body.id, sats=asked.body.sats, is_new=is_new)


async def totals(asked: Asked) -> wire.LedgerTotals:
    found = await asked.platform.store.read(lambda conn: operators.totals(conn, asked.caller))
    return wire.LedgerTotals(totals=found)


async def verify_ledger(asked: Asked) -> wire.LedgerProof:
    return from_record(wire.LedgerProof, await asked.platform.store.read(verification.verify))


async def list_audit(asked: AskedQuery[operations.ListAuditQuery]) -> wire.AuditPage:
    found = await asked.platform.store.read(
        lambda conn: audit.page(
            conn, after=asked.query.after, subject=asked.query.subject, limit=asked.query.limit
        )
    )
    shown = [wire.AuditEntry.model_validate(audit.as_json(entry)) for entry in found]
    following = found[-1].seq if len(found) == asked.query.limit else None
    return wire.AuditPage(entries=shown, next_after=following)


async def export_audit(asked: Asked) -> Response:
    return StreamingResponse(audit.export(asked.platform.store), media_type=NDJSON)


async def verify_audit(asked: AskedQuery[operations.VerifyAuditQuery]) -> wire.AuditProof:
    if (asked.query.anchor_seq is None) is not (asked.query.anchor_hash is None):
        raise InvalidRequest(field="anchor_seq", why="an anchor is a number and its hash")
    anchor = None
    if asked.query.anchor_seq is not None and asked.query.anchor_hash is not None:
        anchor = Checkpoint(seq=asked.query.anchor_seq, hash=asked.query.anchor_hash)
    proof = await asked.platform.store.read(lambda conn: audit.verify(conn, anchor=anchor))
    return from_record(wire.AuditProof, proof, head_seq=proof.head.seq, head_hash=proof.head.hash)


BINDINGS = (
    bind(operations.CREATE_ACCOUNT, create),
    bind(operations.LIST_ACCOUNTS, list_accounts),
    bind(operations.SHOW_ACCOUNT, show),
    bind(operations.SUSPEND_ACCOUNT, _verb(operators.suspend_account)),
    bind(operations.REINSTATE_ACCOUNT, _verb(operators.reinstate_account)),
    bind(operations.CLOSE_ACCOUNT, _verb(operators.close_account)),
    bind(operations.ENTITLE_ACCOUNT, entitle),
    bind(operations.CAP_ACCOUNT, cap),
    bind(operations.ADJUST_ACCOUNT, adjust),
    bind(operations.PAY_OUT, pay_out),
    bind(operations.SHOW_LEDGER_TOTALS, totals),
    bind(operations.VERIFY_LEDGER, verify_ledger),
    bind(operations.LIST_AUDIT, list_audit),
    bind(operations.EXPORT_AUDIT, export_audit),
    bind(operations.VERIFY_AUDIT, verify_audit),
)
