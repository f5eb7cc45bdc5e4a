"""`Idempotency-Key` on creates: the same key and request get the first answer again."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, TypeVar

from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.authentication import target_of
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, FateUnknown, InvalidRequest, SandboxerError
from sandboxer.store import idempotency, kept_answers
from sandboxer.store.idempotency import Dropped, Fresh, InFlight, Made, Replay, Spent

T = TypeVar("T")
_FORM = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("content-type", "location", "payment-response", "x-payment-id")
Bind = idempotency.Bind
BindOne = idempotency.BindOne
Act = Callable[[Bind | None], Awaitable[Response]]
Recall = Callable[[str], Awaitable[Response | None]]
ActMany = Callable[[Mapping[int, str], BindOne | None], Awaitable[Response]]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description=(
            "The same key with the same request answers as the first time, for 24 hours; "
            "with another request it is a 409. Of large answers an account's newest 64 MiB are kept."
        ),
        examples=["order-17"],
    ),
]


async def once(
    request: Request, act: Callable[[], Awaitable[Response]], *, keep_answer: bool = True
) -> Response:
    """Acts, unless the key says that it was done. `keep_answer=False` is for answers that contain
    a secret.
    """

    async def act_unbound(bind: Bind | None) -> Response:
        return await act()

    return await once_bound(request, act_unbound, keep_answer=keep_answer)


async def once_many(request: Request, act: ActMany) -> Response:
    """Works like `once_bound` for several things at once: `act` gets, by number, the ids of those that an
    earlier attempt, whose answer was lost, began to make; it makes the others.
    """
    begun: dict[int, str] = {}

    async def recall(made: str) -> Response | None:
        begun.update((int(number), id_) for number, _, id_ in (word.partition("=") for word in made.split()))
        return None

    async def act_on(bind: Bind | None) -> Response:
        return await act(begun, None if bind is None else idempotency.numbered(bind))

    return await once_bound(request, act_on, recall=recall, is_many=True)


async def make_once(
    request: Request,
    make: Callable[[Bind | None], Awaitable[T]],
    recall: Callable[[str, Caller], Awaitable[T | None]],
    show: Callable[[T], Response],
    *,
    content: str | None = None,
    is_personal: bool = False,
) -> Response:
    """Works like `once_bound` for a use case that makes one thing, and has a `recall` of its own."""

    async def act(bind: Bind | None) -> Response:
        return show(await make(bind))

    async def look_up(id_: str) -> Response | None:
        made = await recall(id_, caller(request))
        return None if made is None else show(made)

    return await once_bound(request, act, recall=look_up, content=content, is_personal=is_personal)


async def once_bound(
    request: Request,
    act: Act,
    *,
    recall: Recall | None = None,
    keep_answer: bool = True,
    redact: Callable[[bytes], bytes] | None = None,
    owner: str | None = None,
    content: str | None = None,
    is_many: bool = False,
    is_personal: bool = False,
) -> Response:
    """Works like `once` for what is made in a transaction of ours.

    `redact` removes from the kept answer what is shown only once. `owner` is whose key it is, if not an
    account's. `content` stands for a body that is too large to be read beforehand. An answer that
    `is_personal` holds what belongs to the key of its caller: it is not kept, but made again by `recall`
    for whoever repeats the request.

    `act` hands `bind` to the transaction that makes the thing: from then on the key stands for it, even if
    the server dies before the answer is kept. `recall` then answers for it; None means that nothing came of
    it, so it is done again. What was made with a secret and without a `recall` is not made again: its answer
    is lost.
    """
    if (key := request.headers.get("idempotency-key")) is None:
        return await act(None)
    if _FORM.fullmatch(key) is None:
        raise InvalidRequest(field="Idempotency-Key", why="it must be 1 to 255 visible ASCII characters")
    begun = await _begin(request, key, owner, content)
    if not isinstance(begun, Fresh | Made):
        return _again(begun)
    fresh = begun.fresh if isinstance(begun, Made) else begun
    store = platform_of(request).store
    unsettled = unsettled_of(request)
    if isinstance(begun, Made) and recall is None and not keep_answer:
        await store.write(lambda conn: idempotency.spend(conn, fresh))
        return _again(Spent(at=platform_of(request).clock.now()))
    give_up: idempotency.Ending = idempotency.abandon
    try:
        answer = await recall(begun.id) if isinstance(begun, Made) and recall is not None else None
        if answer is None:
            # What was bound may exist all the same, if the database went away after the commit.
            give_up = idempotency.leave
            bind = idempotency.bind_one_more if is_many else idempotency.bind
            answer = await act(lambda conn, made: bind(conn, fresh, made))
    except SandboxerError:
        await unsettled.settle(store, lambda conn: give_up(conn, fresh))
        raise
    except BaseException:
        # The client went away, or the server failed; what was made goes on.
        await unsettled.settle(store, lambda conn: idempotency.leave(conn, fresh))
        raise
    if is_personal:
        await unsettled.settle(store, lambda conn: idempotency.leave(conn, fresh))
    elif keep_answer:
        kept = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
        status, body = answer.status_code, bytes(answer.body)
        body = body if redact is None else redact(body)
        await unsettled.settle(
            store, lambda c: kept_answers.finish(c, fresh, status=status, headers=kept, body=body)
        )
    else:
        await unsettled.settle(store, lambda conn: idempotency.spend(conn, fresh))
    return answer


def unsettled_of(request: Request) -> idempotency.Unsettled:
    found: idempotency.Unsettled = request.app.state.unsettled
    return found


async def _begin(request: Request, key: str, owner: str | None, content: str | None) -> idempotency.Begun:
    platform = platform_of(request)
    digest = hashlib.sha256(f"{request.method} {target_of(request.scope)}\n".encode())
    digest.update(await request.body() if content is None else content.encode())
    scope = f"{owner or caller(request).account} {request.method} {request.url.path}"
    fresh = Fresh(scope=scope, key=key, claim=idempotency.new_claim())
    begin = partial(
        idempotency.begin,
        scope=scope,
        key=key,
        request_hash=digest.hexdigest(),
        now=platform.clock.now(),
        claim=fresh.claim,
    )
    unsettled = unsettled_of(request)
    try:
        return await unsettled.begin(platform.store, begin)
    except (FateUnknown, asyncio.CancelledError):
        # Nobody works under this claim, if it exists.
        unsettled.later(lambda conn: idempotency.abandon(conn, fresh))
        raise


def _again(begun: Replay | Spent | Dropped | InFlight) -> Response:
    match begun:
        case Replay():
            headers = {**begun.headers, "idempotent-replayed": "true"}
            return Response(begun.body, begun.status, headers)
        case Spent():
            raise Conflict(
                why="this was done before, but its answer held a secret and was not kept",
                hint="If the secret is lost, end what was made and make another, with a new Idempotency-Key.",
            )
        case Dropped():
            raise Conflict(
                why="this was done before; its answer was dropped, as this account has too many large ones",
                reason="answer_dropped",
                made=begun.made,
                hint="Ask for what was made by its id. To do it again, use a new Idempotency-Key.",
            )
        case InFlight():
            raise Conflict(
                why="the first request with this Idempotency-Key is still under way",
                reason="in_flight",
                hint="Repeat the same request in a second.",
            )
