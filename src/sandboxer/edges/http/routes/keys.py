"""Keys: the owner makes them for accounts, everyone for their own; lists, trees, revocation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import delegation, records, revocation
from sandboxer.accounts import tree as trees
from sandboxer.accounts.revocation import CutKeys
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.auditing import written_down
from sandboxer.edges.http.confirming import confirm_new_factor
from sandboxer.edges.http.delegated import shown_key
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.identity import keys
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotFound
from sandboxer.wire.keys import CreateKey, Key, KeyList, KeyNode, NewKey

router = APIRouter(prefix="/v1/keys", tags=["keys"])
PublicKey = Annotated[str, Path(pattern=r"^sbx-pk-[0-9a-hjkmnp-tv-z]{26}$", max_length=33)]


@router.post(
    "",
    operation_id="createKey",
    status_code=201,
    response_model=NewKey,
    responses=failures(409, 428),
    summary="Make a key; its secret is shown this once",
)
async def create(request: Request, body: CreateKey, idempotency_key: IdempotencyKey = None) -> Response:
    who = caller(request)
    account = await _account_for(request, body.account)

    async def act(bind: Bind | None) -> Response:
        platform, actor = platform_of(request), f"key:{who.public_key}"
        now = platform.clock.now()
        write_down = written_down(request, "key.create", account=account, name=body.name)

        def also(conn: Connection, public_key: str) -> None:
            # So that it can be given sats before it is first used.
            records.ensure(conn, account, actor=actor, now=now)
            write_down(conn, public_key)
            if bind is not None:
                bind(conn, public_key)

        made = await platform.keys.create(account, body.name, body.accepts_v1, actor=actor, also=also)
        return json_response(shown_new(made), 201)

    return await once_bound(request, act, keep_answer=False)


@router.get(
    "",
    operation_id="listKeys",
    response_model=KeyList,
    responses=failures(),
    summary="The keys of this account; for the owner, all",
)
async def list_keys(request: Request) -> Response:
    who = caller(request)
    known = await platform_of(request).keys.list(None if who.is_owner else who.account)
    return json_response(KeyList.model_construct(keys=[_shown(key) for key in known]))


@router.get(
    "/tree",
    operation_id="showKeyTree",
    response_model=KeyNode,
    responses=failures(),
    summary="This account, every key below it, and what each has spent",
)
async def tree(request: Request) -> Response:
    platform, account = platform_of(request), caller(request).account
    await platform.authorities.of(caller(request))
    now = platform.clock.now()
    return json_response(_node(await platform.store.read(lambda conn: trees.tree(conn, account, now=now))))


@router.delete(
    "/{public_key}",
    operation_id="revokeKey",
    status_code=204,
    responses=failures(404, 409),
    summary="Revoke a key and all that was cut from it; revoked already is success",
)
async def revoke(request: Request, public_key: PublicKey) -> Response:
    platform, who = platform_of(request), caller(request)
    known = {key.public_key for key in await platform.keys.list(None if who.is_owner else who.account)}
    actor, now = f"key:{who.public_key}", platform.clock.now()

    write_down = written_down(request, "key.revoke")

    def end_delegated(conn: Connection) -> list[str]:
        found = delegation.find_below(conn, who.account, public_key)
        ended = revocation.revoke(conn, found.account, actor=actor, reason="asked", now=now)
        write_down(conn, public_key)
        return list(ended.public_keys)

    if public_key in known:
        cut = CutKeys(public_key, actor=actor, now=now)

        def also(conn: Connection, revoked: str) -> None:
            cut.end(conn)
            write_down(conn, revoked)

        await platform.keys.revoke(public_key, actor=actor, also=also)
        gone = cut.ended
    else:
        gone = await platform.store.write(end_delegated)
    for one in gone:
        platform.keys.forget(one)
    return nothing()


async def _account_for(request: Request, wanted: str | None) -> str:
    """For whom a key is made. A second factor confirms what is not the owner's to decide."""
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
    # Else whoever stole a session or a key could keep what it stole.
    await confirm_new_factor(request, action="create_key", resource=who.account)
    return who.account


async def own_key(request: Request, public_key: str) -> None:
    """Raises NotFound unless it is the caller's account's, whoever else it belongs to."""
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


def _node(node: trees.Node) -> KeyNode:
    return KeyNode(
        account=node.account,
        key=None if node.key is None else shown_key(node.key),
        given=node.figures.given,
        returned=node.figures.returned,
        outside=node.figures.outside,
        passed_on=node.figures.passed_on,
        spent=node.figures.spent,
        balance=node.figures.balance,
        subtree_spent=node.subtree_spent,
        children=[_node(child) for child in node.children],
    )
