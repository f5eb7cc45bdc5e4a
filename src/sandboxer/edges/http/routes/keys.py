"""Routes of keys: the owner makes them for accounts, everyone for their own; lists, trees, revocation.

After its creation a key can be checked, its secret fetched or replaced, and it can be suspended or left to
expire. A child key is cut from the caller's own account, and can be given more.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import audit, delegation, records, use_cases
from sandboxer.accounts.authority import parse_scopes, scopes_to_json
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.limits import free_slots, requests_per_minute
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import confirm, confirm_new_factor, is_wallet
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.requests import caller, moment, platform_of
from sandboxer.identity import keys
from sandboxer.identity.key_life import Tier, TierOf
from sandboxer.identity.keys import Also
from sandboxer.identity.second_proof import Factor
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotFound
from sandboxer.wire.keys import (
    CreateKey,
    CutKey,
    DelegatedKey,
    Key,
    KeyList,
    KeyNode,
    KeyReport,
    KeyTier,
    NewDelegatedKey,
    NewKey,
    RevealKey,
    SetExpiry,
    SuspendKey,
    TopUpKey,
    ValidateKey,
)
from sandboxer.wire.operations import keys as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import PublicKeyPath
from sandboxer.wiring import Platform


async def create(asked: Asked[NoParameters, NoParameters, CreateKey]) -> Response:
    account = await _account_for(asked.request, asked.body.account)

    async def act(bind: Bind | None) -> Response:
        made = await use_cases.create_key(
            asked.platform.keys,
            account,
            asked.body.name,
            asked.body.accepts_v1,
            who=asked.caller,
            now=asked.platform.clock.now(),
            bind=bind,
        )
        return json_response(shown_new(made), 201)

    return await once_bound(asked.request, act, keep_answer=False)


async def list_keys(asked: Asked[NoParameters, NoParameters, None]) -> KeyList:
    who = asked.caller
    known = await asked.platform.keys.list(None if who.is_owner else who.account)
    return KeyList.model_construct(keys=[_shown(key) for key in known])


async def tree(asked: Asked[NoParameters, NoParameters, None]) -> KeyNode:
    platform, account = asked.platform, asked.caller.account
    await platform.authorities.of(asked.caller)
    now = platform.clock.now()
    return _node(await platform.store.read(lambda conn: delegation.tree(conn, account, now=now)))


async def revoke(asked: Asked[PublicKeyPath, NoParameters, None]) -> Response:
    platform = asked.platform
    await use_cases.revoke_key(
        platform.store, platform.keys, asked.caller, asked.path.public_key, now=platform.clock.now()
    )
    return nothing()


async def _account_for(request: Request, wanted: str | None) -> str:
    """Returns the account that a key is made for. A second factor confirms what the owner does not decide."""
    who = caller(request)
    if who.is_owner:
        if wanted is None:
            raise InvalidRequest(field="account", why="say whose key it is")
        if wanted == keys.OWNER_ACCOUNT:
            raise InvalidRequest(field="account", why="this is the account of the platform's owner")
        return wanted
    if wanted not in (None, who.account):
        raise Forbidden(why="you can make keys for your own account only")
    authority = await platform_of(request).authorities.of(who)
    if authority.is_delegated:
        raise Forbidden(why="a delegated key has no siblings", hint="Cut a child: POST /v1/keys/delegated.")
    # Otherwise a thief of a session or key could keep access.
    await confirm_new_factor(request, action="create_key", resource=who.account)
    return who.account


async def own_key(request: Request, public_key: str) -> None:
    """Raises NotFound unless the key belongs to the caller's account."""
    known = await platform_of(request).keys.list(caller(request).account)
    if public_key not in {key.public_key for key in known if key.revoked_at is None}:
        raise NotFound(what="key", id=public_key)


def shown_new(made: keys.NewKey) -> NewKey:
    return NewKey(
        public_key=made.public_key,
        secret_key=made.secret_key,
        name=made.name,
        account=made.account,
        accepts_v1=made.accepts_v1,
    )


def _shown(key: keys.Key) -> Key:
    return Key.model_construct(
        public_key=key.public_key,
        name=key.name,
        account=key.caller.account,
        is_owner=key.caller.is_owner,
        accepts_v1=key.caller.accepts_v1,
        created_at=key.created_at,
        revoked_at=key.revoked_at,
        suspended_at=key.suspended_at,
        expires_at=key.expires_at,
    )


def _node(node: delegation.Node) -> KeyNode:
    return KeyNode(
        account=node.account,
        key=None if node.key is None else shown_key(node.key),
        given=node.totals.given,
        returned=node.totals.returned,
        outside=node.totals.outside,
        passed_on=node.totals.passed_on,
        spent=node.totals.spent,
        balance=node.totals.balance,
        subtree_spent=node.subtree_spent,
        children=[_node(child) for child in node.children],
    )


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
        # The key may be what was lost, so a wallet may confirm for a wallet.
        factor: Factor | None = "wallet" if is_wallet(asked.request) else None
        await confirm_new_factor(
            asked.request, action="regenerate_key", resource=asked.path.public_key, factor=factor
        )
    made = await asked.platform.key_life.regenerate(
        asked.path.public_key,
        account=None if who.is_owner else who.account,
        actor=f"key:{who.public_key}",
        also=_written_down(asked, "key.regenerate"),
    )
    return shown_new(made)


async def suspend(asked: Asked[PublicKeyPath, NoParameters, SuspendKey]) -> Response:
    owner = asked.caller
    also = _written_down(asked, "key.suspend", reason=asked.body.why)
    await asked.platform.key_life.suspend(
        asked.path.public_key, why=asked.body.why, actor=f"key:{owner.public_key}", also=also
    )
    return nothing()


async def unsuspend(asked: Asked[PublicKeyPath, NoParameters, None]) -> Response:
    owner = asked.caller
    also = _written_down(asked, "key.unsuspend")
    await asked.platform.key_life.unsuspend(asked.path.public_key, actor=f"key:{owner.public_key}", also=also)
    return nothing()


async def set_expiry(asked: Asked[PublicKeyPath, NoParameters, SetExpiry]) -> Response:
    owner = asked.caller
    until = moment(asked.body.expires_at, field="expires_at")
    also = _written_down(asked, "key.set_expiry", expires_at=asked.body.expires_at)
    await asked.platform.key_life.set_expiry(
        asked.path.public_key, until, actor=f"key:{owner.public_key}", also=also
    )
    return nothing()


def _written_down(
    asked: Asked[PublicKeyPath, NoParameters, Any], action: str, *, reason: str = "asked", **data: Any
) -> Also:
    now = asked.platform.clock.now()
    return audit.by_owner(asked.caller, action, reason=reason, data=data, now=now)


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


async def cut(asked: Asked[NoParameters, NoParameters, CutKey]) -> Response:
    platform, who = asked.platform, asked.caller
    wish = delegation.Cut(
        name=asked.body.name,
        budget_sats=asked.body.budget_sats,
        scopes=parse_scopes(asked.body.scopes),
        depth=asked.body.depth,
        slots=asked.body.slots,
        expires_at=moment(asked.body.expires_at, field="expires_at"),
        caps=Caps(**asked.body.caps.model_dump()),
    )
    if is_wallet(asked.request):
        # The key would outlive the session that made it.
        await confirm(asked.request, action="cut_key", resource=who.account)
    await platform.authorities.of(who)

    async def act(bind: Bind | None) -> Response:
        made, new = await use_cases.cut_key(
            platform.store,
            platform.keys,
            platform.admission.slots,
            who,
            wish,
            now=platform.clock.now(),
            bind=bind,
            is_charged=platform.settings.charging,
        )
        shown = NewDelegatedKey(**facts(made), secret_key=new.secret_key, budget_sats=wish.budget_sats)
        return json_response(shown, 201)

    return await once_bound(asked.request, act, keep_answer=False)


async def top_up(asked: Asked[PublicKeyPath, NoParameters, TopUpKey]) -> DelegatedKey:
    topped_up = await use_cases.top_up_key(
        asked.platform.store,
        asked.caller,
        asked.path.public_key,
        asked.body.sats,
        id=asked.body.id,
        now=asked.platform.clock.now(),
    )
    return shown_key(topped_up)


def shown_key(key: delegation.DelegatedKey) -> DelegatedKey:
    return DelegatedKey(**facts(key))


def facts(key: delegation.DelegatedKey) -> dict[str, Any]:
    return {
        "public_key": key.public_key,
        "account": key.account,
        "name": key.name,
        "parent": key.parent,
        "generation": key.generation,
        "scopes": scopes_to_json(key.scopes),
        "depth": key.depth,
        "slots": key.slots,
        "expires_at": key.expires_at,
        "state": key.state.value,
        "reason": key.reason,
        "created_at": key.created_at,
        "ended_at": key.ended_at,
    }


BINDINGS: tuple[Binding, ...] = (
    bind(operations.VALIDATE_KEY, validate),
    bind(operations.REVEAL_KEY, reveal),
    bind(operations.REGENERATE_KEY, regenerate),
    bind(operations.SUSPEND_KEY, suspend),
    bind(operations.UNSUSPEND_KEY, unsuspend),
    bind(operations.SET_KEY_EXPIRY, set_expiry),
    bind(operations.CUT_KEY, cut),
    bind(operations.TOP_UP_KEY, top_up),
    bind(operations.CREATE_KEY, create),
    bind(operations.LIST_KEYS, list_keys),
    bind(operations.SHOW_KEY_TREE, tree),
    bind(operations.REVOKE_KEY, revoke),
)
