"""A key after its making: is it good, fetch its secret, have a new one, suspend it, let it expire."""

from __future__ import annotations

from starlette.responses import Response

from sandboxer.accounts import records
from sandboxer.accounts.limits import free_slots, requests_per_minute
from sandboxer.edges.http.answers import nothing
from sandboxer.edges.http.auditing import written_down
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import confirm_new_factor, is_wallet
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.keys import own_key, shown_new
from sandboxer.edges.http.state import require_owner
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
from sandboxer.wire.operations import keys as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import PublicKeyPath
from sandboxer.wiring import Platform


async def validate(asked: Asked[NoParameters, NoParameters, ValidateKey]) -> KeyReport:
    platform = asked.platform
    report = await platform.key_life.validate(asked.body.public_key, tier_of=_tiers(platform))
    tier = report.tier
    return KeyReport(
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


async def reveal(asked: Asked[PublicKeyPath, NoParameters, RevealKey]) -> NewKey:
    life = asked.platform.key_life
    fetch = life.regenerate_by_claim if asked.body.regenerate else life.reveal
    return shown_new(await fetch(asked.path.public_key, asked.body.claim))


async def regenerate(asked: Asked[PublicKeyPath, NoParameters, None]) -> NewKey:
    who = asked.caller
    if not who.is_owner:
        await own_key(asked.request, asked.path.public_key)
        # The key may be what was lost, so a wallet confirms for a wallet.
        factor: Factor | None = "wallet" if is_wallet(asked.request) else None
        await confirm_new_factor(
            asked.request, action="regenerate_key", resource=asked.path.public_key, factor=factor
        )
    made = await asked.platform.key_life.regenerate(
        asked.path.public_key,
        account=None if who.is_owner else who.account,
        actor=f"key:{who.public_key}",
        also=written_down(asked.request, "key.regenerate"),
    )
    return shown_new(made)


async def suspend(asked: Asked[PublicKeyPath, NoParameters, SuspendKey]) -> Response:
    owner = require_owner(asked.request)
    also = written_down(asked.request, "key.suspend", reason=asked.body.why)
    await asked.platform.key_life.suspend(
        asked.path.public_key, why=asked.body.why, actor=f"key:{owner.public_key}", also=also
    )
    return nothing()


async def unsuspend(asked: Asked[PublicKeyPath, NoParameters, None]) -> Response:
    owner = require_owner(asked.request)
    also = written_down(asked.request, "key.unsuspend")
    await asked.platform.key_life.unsuspend(asked.path.public_key, actor=f"key:{owner.public_key}", also=also)
    return nothing()


async def set_expiry(asked: Asked[PublicKeyPath, NoParameters, SetExpiry]) -> Response:
    owner = require_owner(asked.request)
    until = moment(asked.body.expires_at, field="expires_at")
    also = written_down(asked.request, "key.set_expiry", expires_at=asked.body.expires_at)
    await asked.platform.key_life.set_expiry(
        asked.path.public_key, until, actor=f"key:{owner.public_key}", also=also
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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.VALIDATE_KEY, validate),
    bind(operations.REVEAL_KEY, reveal),
    bind(operations.REGENERATE_KEY, regenerate),
    bind(operations.SUSPEND_KEY, suspend),
    bind(operations.UNSUSPEND_KEY, unsuspend),
    bind(operations.SET_KEY_EXPIRY, set_expiry),
)
