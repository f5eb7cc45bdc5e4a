"""Routes of keys: the owner makes them for accounts, everyone for their own; lists, trees, revocation.

After its creation a key can be checked, its secret fetched or replaced, and it can be suspended or left to
expire. A child key is cut from the caller's own account, and can be given more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import audit, delegation, records, use_cases
from sandboxer.accounts.authority import parse_scopes, scopes_to_json
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.limits import free_slots, requests_per_minute
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, bind
from sandboxer.edges.http.bodies import LargeAnswer
from sandboxer.edges.http.demands import confirm, confirm_new_factor, is_wallet
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.requests import caller, moment, platform_of
from sandboxer.identity import keys
from sandboxer.identity.key_life import Tier, TierOf
from sandboxer.identity.keys import Also
from sandboxer.identity.second_proof import Factor
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotFound
from sandboxer.wire.keys import (
    CreateKey,
    DelegatedKey,
    DelegateKey,
    Key,
    KeyList,
    KeyNode,
    KeyReport,
    KeyTier,
    NewBearer,
    NewDelegatedKey,
    NewKey,
    RevealKey,
    SetExpiry,
    SuspendKey,
    TopUpKey,
    ValidateKey,
)
from sandboxer.wire.operations import auth as operations
from sandboxer.wiring import Platform

# Of the tree of keys: about half a millisecond.
PARTS_IN_A_PIECE = 32


async def create(asked: AskedBody[CreateKey]) -> Response:
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
        return json_response(from_record(NewKey, made), 201)

    return await once_bound(asked.request, act, keep_answer=False)


async def list_keys(asked: Asked) -> KeyList:
    who = asked.caller
    known = await asked.platform.keys.list(None if who.is_owner else who.account)
    return KeyList.model_construct(keys=[_shown(key) for key in known])


async def tree(asked: Asked) -> Response:
    platform, account = asked.platform, asked.caller.account
    await platform.authorities.of(asked.caller)
    now = platform.clock.now()
    found = await platform.store.read(lambda conn: delegation.tree(conn, account, now=now))
    # Thousands of nodes would hold the loop for as long as they take to write.
    return LargeAnswer(tree_in_pieces(found))


async def revoke(asked: Asked[operations.PublicKeyPath]) -> None:
    platform = asked.platform
    await use_cases.revoke_key(
        platform.store, platform.keys, asked.caller, asked.path.public_key, now=platform.clock.now()
    )


async def _account_for(request: Request, wanted: str | None) -> str:
    """Returns the account that a key is made for. A second factor confirms what the owner does not decide."""
    who = caller(request)
    if who.is_owner:
        if wanted is None:
            raise InvalidRequest(field="account", why="say whose key it is")
        if wanted == keys.OWNER_ACCOUNT:
            raise InvalidRequest(field="account", why="this is the account of the platform's owner")
        await _confirm_owners_token(request, action="create_key", resource=wanted)
        return wanted
    if wanted not in (None, who.account):
        raise Forbidden(why="you can make keys for your own account only")
    authority = await platform_of(request).authorities.of(who)
    if authority.is_delegated:
        raise Forbidden(
            why="a delegated key makes child keys only", hint="Delegate one: POST /v1/keys/delegated."
        )
    # Otherwise a thief of a session or key could keep access.
    await confirm_new_factor(request, action="create_key", resource=who.account)
    return who.account


async def _confirm_owners_token(request: Request, *, action: str, resource: str) -> None:
    """Raises SecondProofNeeded if the owner came by a bearer token. Whoever stole it could make keys of
    every account, which would outlive it; signed requests of the owner prove the secret by themselves.
    """
    if caller(request).came_by_bearer:
        await confirm(request, action=action, resource=resource)


async def own_key(request: Request, public_key: str) -> None:
    """Raises NotFound unless the key belongs to the caller's account."""
    known = await platform_of(request).keys.list(caller(request).account)
    if public_key not in {key.public_key for key in known if key.revoked_at is None}:
        raise NotFound(what="key", id=public_key)


def _shown(key: keys.Key) -> Key:
    return from_record(
        Key,
        key,
        account=key.caller.account,
        is_owner=key.caller.is_owner,
        accepts_v1=key.caller.accepts_v1,
    )


def _written(node: delegation.Node) -> Iterator[bytes]:
    """Yields a KeyNode as JSON, node by node."""
    shown = from_record(
        KeyNode,
        node.totals,
        account=node.account,
        key=None if node.key is None else shown_key(node.key),
        subtree_spent=node.subtree_spent,
        children=[],
    )
    # Its children come last, between the brackets.
    yield shown.model_dump_json().encode().removesuffix(b"]}")
    for number, child in enumerate(node.children):
        if number:
            yield b","
        yield from _written(child)
    yield b"]}"


def tree_in_pieces(node: delegation.Node) -> Iterator[bytes]:
    """Yields a tree as JSON, a few nodes at a time."""
    pieces = _written(node)
    while some := b"".join(islice(pieces, PARTS_IN_A_PIECE)):
        yield some


async def validate(asked: AskedBody[ValidateKey]) -> KeyReport:
    platform = asked.platform
    report = await platform.key_life.validate(asked.body.public_key, tier_of=_tiers(platform))
    tier = report.tier
    return from_record(KeyReport, report, tier=None if tier is None else from_record(KeyTier, tier))


async def reveal(asked: AskedPathBody[operations.PublicKeyPath, RevealKey]) -> NewKey:
    life = asked.platform.key_life
    fetch = life.regenerate_by_claim if asked.body.regenerate else life.reveal
    return from_record(NewKey, await fetch(asked.path.public_key, asked.body.claim))


async def regenerate(asked: Asked[operations.PublicKeyPath]) -> NewKey:
    who = asked.caller
    if not who.is_owner:
        await own_key(asked.request, asked.path.public_key)
        # The key may be what was lost, so a wallet may confirm for a wallet.
        factor: Factor | None = "wallet" if is_wallet(asked.request) else None
        await confirm_new_factor(
            asked.request, action="regenerate_key", resource=asked.path.public_key, factor=factor
        )
    else:
        await _confirm_owners_token(asked.request, action="regenerate_key", resource=asked.path.public_key)
    made = await asked.platform.key_life.regenerate(
        asked.path.public_key,
        account=None if who.is_owner else who.account,
        actor=asked.actor,
        also=_written_down(asked, "key.regenerate"),
    )
    return from_record(NewKey, made)


async def issue_bearer(asked: Asked[operations.PublicKeyPath]) -> NewBearer:
    who, public_key = asked.caller, asked.path.public_key
    if not who.is_owner:
        await own_key(asked.request, public_key)
        # Whoever signs with the key's own secret gains nothing by it. A thief of a session or a token would.
        if who.public_key != public_key or who.came_by_bearer:
            await confirm_new_factor(asked.request, action="issue_bearer", resource=public_key)
    else:
        await _confirm_owners_token(asked.request, action="issue_bearer", resource=public_key)
    token = await asked.platform.key_life.issue_bearer(
        public_key,
        account=None if who.is_owner else who.account,
        actor=asked.actor,
        also=_written_down(asked, "key.issue_bearer"),
    )
    return NewBearer(public_key=public_key, bearer_token=token)


async def end_bearer(asked: Asked[operations.PublicKeyPath]) -> None:
    who = asked.caller
    await asked.platform.key_life.end_bearer(
        asked.path.public_key,
        account=None if who.is_owner else who.account,
        actor=asked.actor,
        also=_written_down(asked, "key.end_bearer"),
    )


async def suspend(asked: AskedPathBody[operations.PublicKeyPath, SuspendKey]) -> None:
    also = _written_down(asked, "key.suspend", reason=asked.body.why)
    await asked.platform.key_life.suspend(
        asked.path.public_key, why=asked.body.why, actor=asked.actor, also=also
    )


async def unsuspend(asked: Asked[operations.PublicKeyPath]) -> None:
    also = _written_down(asked, "key.unsuspend")
    await asked.platform.key_life.unsuspend(asked.path.public_key, actor=asked.actor, also=also)


async def set_expiry(asked: AskedPathBody[operations.PublicKeyPath, SetExpiry]) -> None:
    until = moment(asked.body.expires_at, field="expires_at")
    also = _written_down(asked, "key.set_expiry", expires_at=asked.body.expires_at)
    await asked.platform.key_life.set_expiry(asked.path.public_key, until, actor=asked.actor, also=also)


def _written_down(
    asked: AskedPathBody[operations.PublicKeyPath, Any], action: str, *, reason: str = "asked", **data: Any
) -> Also:
    return audit.by_owner(asked.caller, action, reason=reason, data=data, now=asked.platform.clock.now())


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


async def delegate(asked: AskedBody[DelegateKey]) -> Response:
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
    if is_wallet(asked.request) or who.came_by_bearer:
        # The key would outlive the session or the token that made it.
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
            is_charged=platform.settings.is_charged,
            policy=platform.limits,
        )
        shown = from_record(
            NewDelegatedKey,
            shown_key(made),
            secret_key=new.secret_key,
            budget_sats=wish.budget_sats,
        )
        return json_response(shown, 201)

    return await once_bound(asked.request, act, keep_answer=False)


async def top_up(asked: AskedPathBody[operations.PublicKeyPath, TopUpKey]) -> DelegatedKey:
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
    return from_record(DelegatedKey, key, scopes=scopes_to_json(key.scopes))


BINDINGS = (
    bind(operations.VALIDATE_KEY, validate),
    bind(operations.REVEAL_KEY, reveal),
    bind(operations.REGENERATE_KEY, regenerate),
    bind(operations.ISSUE_BEARER, issue_bearer),
    bind(operations.END_BEARER, end_bearer),
    bind(operations.SUSPEND_KEY, suspend),
    bind(operations.UNSUSPEND_KEY, unsuspend),
    bind(operations.SET_KEY_EXPIRY, set_expiry),
    bind(operations.DELEGATE_KEY, delegate),
    bind(operations.TOP_UP_KEY, top_up),
    bind(operations.CREATE_KEY, create),
    bind(operations.LIST_KEYS, list_keys),
    bind(operations.SHOW_KEY_TREE, tree),
    bind(operations.REVOKE_KEY, revoke),
)
