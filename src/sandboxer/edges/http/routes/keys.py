"""Keys: the owner makes them for accounts, everyone for their own; lists, trees, revocation."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import delegation, records, revocation
from sandboxer.accounts import tree as trees
from sandboxer.accounts.revocation import CutKeys
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.auditing import written_down
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import confirm_new_factor
from sandboxer.edges.http.delegated import shown_key
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.identity import keys
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotFound
from sandboxer.wire.keys import CreateKey, Key, KeyList, KeyNode, NewKey
from sandboxer.wire.operations import keys as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import PublicKeyPath


async def create(asked: Asked[NoParameters, NoParameters, CreateKey]) -> Response:
    who = asked.caller
    account = await _account_for(asked.request, asked.body.account)

    async def act(bind: Bind | None) -> Response:
        platform, actor = asked.platform, f"key:{who.public_key}"
        now = platform.clock.now()
        write_down = written_down(asked.request, "key.create", account=account, name=asked.body.name)

        def also(conn: Connection, public_key: str) -> None:
            # So that it can be given sats before it is first used.
            records.ensure(conn, account, actor=actor, now=now)
            write_down(conn, public_key)
            if bind is not None:
                bind(conn, public_key)

        made = await platform.keys.create(
            account, asked.body.name, asked.body.accepts_v1, actor=actor, also=also
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
    return _node(await platform.store.read(lambda conn: trees.tree(conn, account, now=now)))


async def revoke(asked: Asked[PublicKeyPath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    known = {key.public_key for key in await platform.keys.list(None if who.is_owner else who.account)}
    actor, now = f"key:{who.public_key}", platform.clock.now()

    write_down = written_down(asked.request, "key.revoke")

    def end_delegated(conn: Connection) -> list[str]:
        found = delegation.find_below(conn, who.account, asked.path.public_key)
        ended = revocation.revoke(conn, found.account, actor=actor, reason="asked", now=now)
        write_down(conn, asked.path.public_key)
        return list(ended.public_keys)

    if asked.path.public_key in known:
        cut = CutKeys(asked.path.public_key, actor=actor, now=now)

        def also(conn: Connection, revoked: str) -> None:
            cut.end(conn)
            write_down(conn, revoked)

        await platform.keys.revoke(asked.path.public_key, actor=actor, also=also)
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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_KEY, create),
    bind(operations.LIST_KEYS, list_keys),
    bind(operations.SHOW_KEY_TREE, tree),
    bind(operations.REVOKE_KEY, revoke),
)
