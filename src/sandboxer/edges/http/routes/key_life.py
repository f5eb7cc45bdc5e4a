"""A key after its making: is it good, fetch its secret, have a new one, suspend it, let it expire."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import records
from sandboxer.accounts.limits import free_slots, requests_per_minute
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.auditing import written_down
from sandboxer.edges.http.confirming import confirm_new_factor, is_wallet
from sandboxer.edges.http.failures import failures, stranger_failures
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.keys import PublicKey, own_key, shown_new
from sandboxer.edges.http.state import caller, platform_of, require_owner
from sandboxer.identity.key_life import Tier, TierOf
from sandboxer.identity.second_proof import Factor
from sandboxer.wire.keys import (
    KeyReport,
    KeyTier,
    NewKey,
    RevealKey,
    SetExpiry,
    SuspendKey,
    ValidateKey,
)
from sandboxer.wiring import Platform

router = APIRouter(prefix="/v1/keys", tags=["keys"])


@router.post(
    "/validate",
    operation_id="validateKey",
    response_model=KeyReport,
    responses=stranger_failures(),
    summary="Would this key be let in, with which tier and limits?",
)
async def validate(request: Request, body: ValidateKey) -> Response:
    platform = platform_of(request)
    report = await platform.key_life.validate(body.public_key, tier_of=_tiers(platform))
    tier = report.tier
    shown = KeyReport(
        public_key=report.public_key,
        is_valid=report.is_valid,
        reason=report.reason,
        expires_at=report.expires_at,
        expired_ago_s=report.expired_ago_s,
        tier=None
        if tier is None
        else KeyTier(
            level=tier.level,
            requests_per_minute=tier.requests_per_minute,
            slots=tier.slots,
            until=tier.until,
        ),
    )
    return json_response(shown)


@router.post(
    "/{public_key}/reveal",
    operation_id="revealKey",
    response_model=NewKey,
    responses=stranger_failures(404, 409),
    summary="Fetch the secret of a key that was paid for: once, within 15 minutes",
)
async def reveal(request: Request, public_key: PublicKey, body: RevealKey) -> Response:
    life = platform_of(request).key_life
    fetch = life.regenerate_by_claim if body.regenerate else life.reveal
    return json_response(shown_new(await fetch(public_key, body.claim)))


@router.post(
    "/{public_key}/regenerate",
    operation_id="regenerateKey",
    response_model=NewKey,
    responses=failures(404, 409, 428),
    summary="A new secret for the same key; the old one ends at once",
)
async def regenerate(request: Request, public_key: PublicKey) -> Response:
    who = caller(request)
    if not who.is_owner:
        await own_key(request, public_key)
        # The key may be what was lost, so a wallet confirms for a wallet.
        factor: Factor | None = "wallet" if is_wallet(request) else None
        await confirm_new_factor(request, action="regenerate_key", resource=public_key, factor=factor)
    made = await platform_of(request).key_life.regenerate(
        public_key,
        account=None if who.is_owner else who.account,
        actor=f"key:{who.public_key}",
        also=written_down(request, "key.regenerate"),
    )
    return json_response(shown_new(made))


@router.post(
    "/{public_key}/suspend",
    operation_id="suspendKey",
    status_code=204,
    responses=failures(404, 409),
    summary="It signs nothing until unsuspended (owner)",
)
async def suspend(request: Request, public_key: PublicKey, body: SuspendKey) -> Response:
    owner = require_owner(request)
    also = written_down(request, "key.suspend", reason=body.why)
    await platform_of(request).key_life.suspend(
        public_key, why=body.why, actor=f"key:{owner.public_key}", also=also
    )
    return nothing()


@router.post(
    "/{public_key}/unsuspend",
    operation_id="unsuspendKey",
    status_code=204,
    responses=failures(404),
    summary="Let a suspended key sign again (owner)",
)
async def unsuspend(request: Request, public_key: PublicKey) -> Response:
    owner = require_owner(request)
    also = written_down(request, "key.unsuspend")
    await platform_of(request).key_life.unsuspend(public_key, actor=f"key:{owner.public_key}", also=also)
    return nothing()


@router.put(
    "/{public_key}/expiry",
    operation_id="setKeyExpiry",
    status_code=204,
    responses=failures(404, 409),
    summary="When it ends by itself (owner)",
)
async def set_expiry(request: Request, public_key: PublicKey, body: SetExpiry) -> Response:
    owner = require_owner(request)
    until = moment(body.expires_at, field="expires_at")
    also = written_down(request, "key.set_expiry", expires_at=body.expires_at)
    await platform_of(request).key_life.set_expiry(
        public_key, until, actor=f"key:{owner.public_key}", also=also
    )
    return nothing()


def _tiers(platform: Platform) -> TierOf:
    async def tier_of(account: str) -> Tier | None:
        found = await platform.store.read(lambda conn: records.find(conn, account))
        level = None if found is None else found.tier_at(platform.clock.now())
        if found is None or level is None:
            return None
        return Tier(
            level=level,
            requests_per_minute=requests_per_minute(level, policy=platform.limits) or 0,
            slots=free_slots(level, policy=platform.limits),
            until=found.entitled_until,
        )

    return tier_of
