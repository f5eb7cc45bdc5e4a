"""How a request in unsandbox's words is made of one of our own: the same caller, our body, our answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from sandboxer.edges.http.authentication import CALLER
from sandboxer.edges.http.binding import Asked
from sandboxer.edges.http.bodies import LargeAnswer
from sandboxer.edges.http.matcher import name_fields
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import Broken, InvalidRequest
from sandboxer.wire.operations.declaration import NoParameters, Parameters
from sandboxer.wire.unsandbox.models import InputFile, NetworkMode

M = TypeVar("M", bound=BaseModel)
AnyAsked = Asked[Any, Any, Any]
ZERO_TRUST, SEMI_TRUSTED = "zerotrust", "semitrusted"
_MOST = 500


async def ask(
    handler: Callable[[Any], Awaitable[Any]],
    asked: AnyAsked,
    *,
    path: Parameters | None = None,
    query: Parameters | None = None,
    body: BaseModel | None = None,
) -> dict[str, Any]:
    """Returns what one of our own handlers answers to the same caller, or to the same stranger."""
    if CALLER in asked.request.scope:
        body = await name_fields(asked.platform, body, asked.caller)
    ours = Asked(asked.request, asked.path if path is None else path, query or NoParameters(), body)
    return await plain(await handler(ours), asked.lease)


async def plain(answer: object, lease: Lease) -> dict[str, Any]:
    """Returns an answer of ours as plain values."""
    if answer is None:
        return {}
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if isinstance(answer, LargeAnswer):
        found = json.loads(await answer.whole(lease))
    elif isinstance(answer, Response):
        found = json.loads(bytes(answer.body) or b"{}")
    else:
        raise Broken(why=f"{type(answer).__name__} is no answer that can be said otherwise")
    assert isinstance(found, dict)
    return found


def ours(model: type[M], **values: Any) -> M:
    """Returns a body of ours, without what is None. Raises InvalidRequest in the words of its fields."""
    try:
        return model(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise InvalidRequest(field=field, why=first["msg"]) from None


async def sent(asked: AnyAsked) -> bytes:
    """Returns the body as it came."""
    return await asked.request.body()


def read(model: type[M], body: bytes) -> M:
    """Returns a body that clients may leave out, or send as they like. Raises InvalidRequest."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(field=".".join(map(str, first["loc"])) or "body", why=first["msg"]) from None


def told(values: BaseModel | Mapping[str, Any], status: int = 200) -> Response:
    """Returns the answer, without what is not known."""
    if isinstance(values, BaseModel):
        text = values.model_dump_json(exclude_none=True)
    else:
        kept = {name: value for name, value in values.items() if value is not None}
        text = json.dumps(kept, separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def listed(name: str, things: Sequence[BaseModel]) -> Response:
    shown = [one.model_dump(mode="json", exclude_none=True) for one in things]
    return told({name: shown, "count": len(shown)})


def trust_of(mode: NetworkMode) -> str:
    return "zero" if mode.startswith("zero") else "semi"


def mode_of(trust: object) -> str:
    return ZERO_TRUST if str(trust) == "zero" else SEMI_TRUSTED


def seconds(ttl: int | None) -> str | None:
    return None if ttl is None else f"{ttl}s"


def bytes_in(file: InputFile) -> bytes:
    try:
        return base64.b64decode(file.content, validate=True)
    except ValueError:
        raise InvalidRequest(field="input_files.content", why="it is not base 64") from None


async def every(
    handler: Callable[[Any], Awaitable[Any]],
    asked: AnyAsked,
    query: type[Parameters],
    name: str,
    **wanted: Any,
) -> list[dict[str, Any]]:
    """Returns the first thousand of a list of ours: theirs have no pages."""
    found: list[dict[str, Any]] = []
    cursor = None
    for _ in range(2):
        page = await ask(handler, asked, query=query.model_construct(limit=_MOST, cursor=cursor, **wanted))
        found += page[name]
        if (cursor := page.get("next_cursor")) is None:
            break
    return found
