"""Binds operations to their handlers. Each has a route of FastAPI, which validates and documents it.

An ordinary request takes a short path, straight from bytes to models to handler, without FastAPI and the
layers around it. FastAPI serves every other request (with a query, with a header value to check, with a body
that does not fit), so that there is one set of messages for what is wrong.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, Any, Generic

from fastapi import Header, Path, Query
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute, APIWebSocketRoute, request_response
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import CALLER, replayed
from sandboxer.edges.http.demands import demand_body_scopes, demand_no_way_out
from sandboxer.edges.http.idempotency import IdempotencyKey
from sandboxer.edges.http.matcher import Binding, name_fields
from sandboxer.edges.http.problems import responses_of
from sandboxer.edges.http.requests import caller, lease_of, platform_of, require_owner
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import SMALL, Lease
from sandboxer.kernel.values import brief_value_class
from sandboxer.wire.operations.declaration import (
    A,
    Access,
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    B,
    Idempotency,
    InHeader,
    Json,
    NoParameters,
    Operation,
    P,
    Parameters,
    Q,
    Stream,
)
from sandboxer.wiring import Platform


@brief_value_class
class Asked(Generic[P, Q, B]):
    """A request as its handler sees it: validated, and sent by a caller who may send it."""

    request: Request
    path: P
    query: Q
    body: B

    @property
    def platform(self) -> Platform:
        return platform_of(self.request)

    @property
    def caller(self) -> Caller:
        return caller(self.request)

    @property
    def actor(self) -> str:
        """The caller, as events name it."""
        return f"key:{self.caller.public_key}"

    @property
    def lease(self) -> Lease:
        return lease_of(self.request.scope)


# Asked without a path that names something: with a query, or with a body. Or of a named thing, with a body.
AskedQuery = Asked[NoParameters, Q]
AskedBody = Asked[NoParameters, NoParameters, B]
AskedPathBody = Asked[P, NoParameters, B]
# A handler returns the declared model, or a response of its own (headers, streams).
Handler = Callable[[Asked[P, Q, B]], Awaitable[A | Response]]
Serve = Callable[[Request], Coroutine[Any, Any, Response]]


def bind(
    operation: Operation[P, Q, B, A],
    handler: Handler[P, Q, B, A],
    *,
    websocket: Callable[..., Awaitable[None]] | None = None,
) -> Binding:
    upgraded = None if websocket is None else partial(APIWebSocketRoute, operation.path, websocket)
    return Binding(operation, partial(OperationRoute, operation, handler), upgraded)


class OperationRoute(BaseRoute):
    """Serves an operation. FastAPI's own route for it is made with the first request that is not ordinary."""

    def __init__(self, operation: AnyOperation, handler: Handler[Any, Any, Any, Any]) -> None:
        self.operation = operation
        self.handler = handler
        self.path = operation.path
        self._empty_query = _defaults(operation.query)
        body = operation.body
        self._read_body = body.model.model_validate_json if isinstance(body, Json) else None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        asked = await self._asked(request)
        if isinstance(asked, Asked):
            response = await self._answer(asked)
            await response(scope, receive, send)
        else:
            again = receive if asked is None else replayed(asked, receive)
            await self._serve_anything(scope, again, send)

    async def _asked(self, request: Request) -> Asked[Any, Any, Any] | bytes | None:
        """Returns what an ordinary request asks for. For any other, which FastAPI has to judge, it returns
        the body, or None if that has not been read.
        """
        scope, body = request.scope, None
        if scope["query_string"] or self._empty_query is None:
            return None
        if self._read_body is None:
            read = None
        elif request.headers.get("content-type") != "application/json":
            return None
        else:
            body = await request.body()
            read = partial(self._read_body, body)
        try:
            path = self.operation.parameters.model_validate(scope["path_params"])
            value = None if read is None or body is None else await lease_of(scope).work(len(body), read)
        except ValidationError:
            return body
        return Asked(request, path, self._empty_query, value)

    @cached_property
    def documented(self) -> APIRoute:
        operation, answer = self.operation, self.operation.answer
        return APIRoute(
            operation.path,
            self._endpoint(),
            methods=[operation.method],
            operation_id=operation.id,
            response_model=answer.model if isinstance(answer, Answered | AnsweredOrEvents) else None,
            status_code=answer.status,
            responses=responses_of(operation),
            response_class=JSONResponse if isinstance(answer, Answered | AnsweredOrEvents) else Response,
            tags=[operation.noun],
            summary=operation.summary,
            deprecated=operation.deprecated is not None or None,
            openapi_extra=_streamed(operation) | _sunset(operation),
        )

    @cached_property
    def _serve_anything(self) -> ASGIApp:
        serve = self._with_large_bodies(self.documented.get_route_handler())
        return AsyncExitStackMiddleware(request_response(serve))

    def _with_large_bodies(self, serve: Serve) -> Serve:
        """Parses large bodies beside the loop before FastAPI asks for them, because FastAPI parses JSON on
        the loop.
        """
        if not isinstance(self.operation.body, Json):
            return serve

        async def serve_large(request: Request) -> Response:
            body = await request.body()
            if len(body) > SMALL:
                # FastAPI itself reports what cannot be parsed.
                with suppress(ValueError):
                    # Starlette keeps parsed JSON here.
                    request._json = await lease_of(request.scope).work(len(body), partial(json.loads, body))
            return await serve(request)

        return serve_large

    async def _answer(self, asked: Asked[Any, Any, Any]) -> Response:
        operation = self.operation
        if operation.access is Access.OWNER:
            require_owner(asked.request)
        if CALLER in asked.request.scope:
            asked = await self._named(asked)
        if operation.needs.adds:
            await demand_body_scopes(asked.request, operation.needs.adds, asked.body)
        if operation.way_out is not None and CALLER in asked.request.scope:
            demand_no_way_out(asked.request, operation.way_out, asked.query, asked.body)
        answer = await self.handler(asked)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return json_response(answer, operation.answer.status)

    async def _named(self, asked: Asked[Any, Any, Any]) -> Asked[Any, Any, Any]:
        """Returns the same request, with the whole ids of what its query and its body name."""
        query = await name_fields(asked.platform, asked.query, asked.caller, must_be=True)
        body = await name_fields(asked.platform, asked.body, asked.caller)
        is_same = query is asked.query and body is asked.body
        return asked if is_same else replace(asked, query=query, body=body)

    def _endpoint(self) -> Callable[..., Awaitable[Response]]:
        """Returns the function that FastAPI sees, with a parameter for everything that a request
        may contain.
        """
        operation = self.operation
        names = frozenset(operation.parameters.model_fields)

        async def endpoint(request: Request, **given: Any) -> Response:
            given.pop("idempotency_key", None)
            body = given.pop("body", None)
            path = operation.parameters.model_construct(**{name: given.pop(name) for name in names})
            return await self._answer(Asked(request, path, operation.query.model_construct(**given), body))

        seen = [_parameter("request", Request), *_parameters(operation)]
        endpoint.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
        # The OpenAPI document describes an operation by its handler's docstring.
        endpoint.__doc__ = self.handler.__doc__
        endpoint.__name__ = operation.id
        return endpoint


def _parameters(operation: AnyOperation) -> Iterator[inspect.Parameter]:
    for name, field in operation.parameters.model_fields.items():
        yield _parameter(name, _annotated(field, Path))
    if isinstance(operation.body, Json):
        yield _parameter("body", operation.body.model)
    for name, field in operation.query.model_fields.items():
        yield _parameter(name, _annotated(field, _place(field)), _default(field))
    if operation.idempotency is not Idempotency.NONE:
        yield _parameter("idempotency_key", IdempotencyKey, None)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _annotated(field: FieldInfo, place: Callable[..., Any]) -> Any:
    """Returns the field as a parameter of a path, a query or a head."""
    rules = tuple(rule for rule in field.metadata if not isinstance(rule, InHeader))
    words: dict[str, Any] = {"description": field.description, "examples": field.examples}
    if field.alias is not None:
        words["alias"] = field.alias
    given = {name: value for name, value in words.items() if value is not None}
    return Annotated[(field.annotation, *rules, place(**given))]


def _place(field: FieldInfo) -> Callable[..., Any]:
    for rule in field.metadata:
        if isinstance(rule, InHeader):
            return partial(Header, alias=rule.name)
    return Query


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not None:
        return field.get_default(call_default_factory=True)
    return inspect.Parameter.empty if field.default is PydanticUndefined else field.default


def _defaults(query: type[Parameters]) -> Parameters | None:
    """Returns what an empty query means; None if it must not be empty, or a header may matter."""
    fields = query.model_fields.values()
    is_plain = all(not field.is_required() and _place(field) is Query for field in fields)
    return query() if is_plain else None


def _streamed(operation: AnyOperation) -> dict[str, Any]:
    if not isinstance(operation.body, Stream):
        return {}
    content = {operation.body.media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def _sunset(operation: AnyOperation) -> dict[str, Any]:
    if operation.deprecated is None:
        return {}
    dates = {"x-deprecated-since": operation.deprecated.since, "x-sunset": operation.deprecated.sunset}
    shown = {name: day.isoformat() for name, day in dates.items()}
    return (
        shown
        if operation.deprecated.instead is None
        else {**shown, "x-instead": operation.deprecated.instead}
    )
