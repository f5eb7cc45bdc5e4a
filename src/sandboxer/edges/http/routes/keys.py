"""Keys, for the owner: so that others than the owner can call."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import IdempotencyKey, once
from sandboxer.edges.http.state import platform_of, require_owner
from sandboxer.identity import keys
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.keys import CreateKey, Key, KeyList, NewKey

router = APIRouter(prefix="/v1/keys", tags=["keys"])
PublicKey = Annotated[str, Path(pattern=r"^sbx-pk-[0-9a-hjkmnp-tv-z]{26}$", max_length=33)]


@router.post(
    "",
    operation_id="createKey",
    status_code=201,
    response_model=NewKey,
    responses=failures(403, 409),
    summary="Make a key; its secret is shown this once",
)
async def create(request: Request, body: CreateKey, idempotency_key: IdempotencyKey = None) -> Response:
    owner = require_owner(request)
    if body.account == keys.OWNER_ACCOUNT:
        raise InvalidRequest(field="account", why="this is the account of the platform's owner")

    async def act() -> Response:
        made = await platform_of(request).keys.create(
            body.account, body.name, body.accepts_v1, actor=f"key:{owner.public_key}"
        )
        shown = NewKey(
            public_key=made.public_key,
            secret_key=made.secret_key,
            name=made.name,
            account=made.account,
            accepts_v1=made.accepts_v1,
        )
        return json_response(shown, 201)

    return await once(request, act, keep_answer=False)


@router.get(
    "", operation_id="listKeys", response_model=KeyList, responses=failures(403), summary="List keys (owner)"
)
async def list_keys(request: Request) -> Response:
    require_owner(request)
    known = await platform_of(request).keys.list()
    return json_response(KeyList.model_construct(keys=[_shown(key) for key in known]))


@router.delete(
    "/{public_key}",
    operation_id="revokeKey",
    status_code=204,
    responses=failures(403, 404, 409),
    summary="Revoke a key; revoked already is success",
)
async def revoke(request: Request, public_key: PublicKey) -> Response:
    owner = require_owner(request)
    await platform_of(request).keys.revoke(public_key, actor=f"key:{owner.public_key}")
    return nothing()


def _shown(key: keys.Key) -> Key:
    return Key.model_construct(
        public_key=key.public_key,
        name=key.name,
        account=key.caller.account,
        is_owner=key.caller.is_owner,
        accepts_v1=key.caller.accepts_v1,
        created_at=key.created_at,
        revoked_at=key.revoked_at,
    )
