# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import BYTES, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.accounts import (
        Account,
        AccountPage,
        AccountReport,
        AuditPage,
        AuditProof,
        LedgerProof,
        LedgerTotals,
        Moved,
    )


def create_account(
    *, reason: str, id: str | None = None, name: str | None = None, caps: Mapping[str, Any] | None = None
) -> Call[Account]:
    """Open an account (owner)."""
    return Call(
        operation="createAccount",
        method="POST",
        target="/v1/accounts",
        answer="sandboxer.wire.accounts:Account",
        body=json_body({"reason": reason}, id=id, name=name, caps=caps),
        headers=headers_of(content_type="application/json"),
    )


def list_accounts(*, after: str | None = None, limit: int | None = None) -> Call[AccountPage]:
    """List all accounts, oldest first (owner)."""
    return Call(
        operation="listAccounts",
        method="GET",
        target=target_of("/v1/accounts", after=after, limit=limit),
        answer="sandboxer.wire.accounts:AccountPage",
    )


def show_account(account_id: str) -> Call[AccountReport]:
    """Show an account and its balance (owner)."""
    return Call(
        operation="showAccount",
        method="GET",
        target=target_of("/v1/accounts/{}", account_id),
        answer="sandboxer.wire.accounts:AccountReport",
    )


def suspend_account(account_id: str, *, reason: str) -> Call[Account]:
    """Suspend an account and all below it; nothing is destroyed (owner)."""
    return Call(
        operation="suspendAccount",
        method="POST",
        target=target_of("/v1/accounts/{}/suspend", account_id),
        answer="sandboxer.wire.accounts:Account",
        body=json_body({"reason": reason}),
        headers=headers_of(content_type="application/json"),
    )


def reinstate_account(account_id: str, *, reason: str) -> Call[Account]:
    """Let a suspended account act again (owner)."""
    return Call(
        operation="reinstateAccount",
        method="POST",
        target=target_of("/v1/accounts/{}/reinstate", account_id),
        answer="sandboxer.wire.accounts:Account",
        body=json_body({"reason": reason}),
        headers=headers_of(content_type="application/json"),
    )


def close_account(account_id: str, *, reason: str) -> Call[Account]:
    """Close an account for good; record and ledger stay. 409 while anything of it is left (owner)."""
    return Call(
        operation="closeAccount",
        method="POST",
        target=target_of("/v1/accounts/{}/close", account_id),
        answer="sandboxer.wire.accounts:Account",
        body=json_body({"reason": reason}),
        headers=headers_of(content_type="application/json"),
    )


def entitle_account(
    account_id: str, *, reason: str, tier: int | None = None, until: str | None = None
) -> Call[Account]:
    """Give an account a tier until a date, or take it away (owner)."""
    return Call(
        operation="entitleAccount",
        method="POST",
        target=target_of("/v1/accounts/{}/entitle", account_id),
        answer="sandboxer.wire.accounts:Account",
        body=json_body({"reason": reason}, tier=tier, until=until),
        headers=headers_of(content_type="application/json"),
    )


def cap_account(account_id: str, *, caps: Mapping[str, Any], reason: str) -> Call[Account]:
    """Set an account's spending caps (owner)."""
    return Call(
        operation="capAccount",
        method="PUT",
        target=target_of("/v1/accounts/{}/caps", account_id),
        answer="sandboxer.wire.accounts:Account",
        body=json_body({"caps": caps, "reason": reason}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def adjust_account(account_id: str, *, sats: int, id: str, reason: str) -> Call[Moved]:
    """Give an account sats, or take some, with a reason; the same id adjusts once (owner)."""
    return Call(
        operation="adjustAccount",
        method="POST",
        target=target_of("/v1/accounts/{}/adjust", account_id),
        answer="sandboxer.wire.accounts:Moved",
        body=json_body({"sats": sats, "id": id, "reason": reason}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def pay_out(*, sats: int, id: str, reason: str) -> Call[Moved]:
    """Pay income out, at most what was earned; the same id pays once (owner)."""
    return Call(
        operation="payOut",
        method="POST",
        target="/v1/payouts",
        answer="sandboxer.wire.accounts:Moved",
        body=json_body({"sats": sats, "id": id, "reason": reason}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def show_ledger_totals() -> Call[LedgerTotals]:
    """Show what the ledger's accounts of each kind hold (owner)."""
    return Call(
        operation="showLedgerTotals",
        method="GET",
        target="/v1/ledger/totals",
        answer="sandboxer.wire.accounts:LedgerTotals",
    )


def verify_ledger() -> Call[LedgerProof]:
    """Recompute every balance and charge from the transfers, and compare (owner)."""
    return Call(
        operation="verifyLedger",
        method="GET",
        target="/v1/ledger/verify",
        answer="sandboxer.wire.accounts:LedgerProof",
        timeout_s=600.0,
    )


def list_audit(
    *, after: int | None = None, subject: str | None = None, limit: int | None = None
) -> Call[AuditPage]:
    """List who did what, oldest first (owner)."""
    return Call(
        operation="listAudit",
        method="GET",
        target=target_of("/v1/audit", after=after, subject=subject, limit=limit),
        answer="sandboxer.wire.accounts:AuditPage",
    )


def export_audit() -> Call[bytes]:
    """Export the whole audit log (owner)."""
    return Call(
        operation="exportAudit",
        method="GET",
        target="/v1/audit/export",
        answer=BYTES,
        timeout_s=600.0,
    )


def verify_audit(*, anchor_seq: int | None = None, anchor_hash: str | None = None) -> Call[AuditProof]:
    """Check the hash chain of the audit log, from an anchor kept elsewhere if you have one (owner)."""
    return Call(
        operation="verifyAudit",
        method="GET",
        target=target_of("/v1/audit/verify", anchor_seq=anchor_seq, anchor_hash=anchor_hash),
        answer="sandboxer.wire.accounts:AuditProof",
        timeout_s=600.0,
    )
