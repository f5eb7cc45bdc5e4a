"""`Idempotency-Key` on creates: the same key and request get the first answer again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.authentication import target_of
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.errors import Conflict, InvalidRequest
from sandboxer.store import idempotency
from sandboxer.store.idempotency import Fresh, InFlight, Replay, Spent

_FORM = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("content-type", "location")

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description=(
            "The same key with the same request answers as the first time, for 24 hours; "
            "with another request it is a 409."
        ),
        examples=["order-17"],
    ),
]


async def once(
    request: Request, act: Callable[[], Awaitable[Response]], *, keep_answer: bool = True
) -> Response:
    """Do it, unless the key says it was done. `keep_answer=False` for answers that hold a secret."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return await act()
    if _FORM.fullmatch(key) is None:
        raise InvalidRequest(field="Idempotency-Key", why="it must be 1 to 255 visible ASCII characters")
    begun = await _begin(request, key)
    if not isinstance(begun, Fresh):
        return _again(begun)
    store = platform_of(request).store
    try:
        answer = await act()
    except BaseException:
        await store.write(lambda conn: idempotency.abandon(conn, begun))
        raise
    if keep_answer:
        kept = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
        status, body = answer.status_code, bytes(answer.body)
        await store.write(lambda c: idempotency.finish(c, begun, status=status, headers=kept, body=body))
    else:
        await store.write(lambda conn: idempotency.spend(conn, begun))
    return answer


async def _begin(request: Request, key: str) -> idempotency.Begun:
    platform = platform_of(request)
    digest = hashlib.sha256(f"{request.method} {target_of(request.scope)}\n".encode())
    digest.update(await request.body())
    scope = f"{caller(request).account} {request.method} {request.url.path}"
    now = platform.clock.now()
    return await platform.store.write(
        lambda conn: idempotency.begin(conn, scope=scope, key=key, request_hash=digest.hexdigest(), now=now)
    )


def _again(begun: Replay | Spent | InFlight) -> Response:
    match begun:
        case Replay():
            headers = {**begun.headers, "idempotent-replayed": "true"}
            return Response(begun.body, begun.status, headers)
        case Spent():
            raise Conflict(
                why="this was done before, but its answer held a secret and was not kept",
                hint="If the secret is lost, revoke that key and make another, with a new Idempotency-Key.",
            )
        case InFlight():
            raise Conflict(
                why="the first request with this Idempotency-Key is still under way",
                hint="Repeat the same request in a second.",
            )
