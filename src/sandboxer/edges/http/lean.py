"""A short way for the busiest routes: an ordinary request goes straight from bytes to model to use case.

FastAPI still documents the route, and still serves every request that is not ordinary (a query, a body that
does not fit), so there is one behaviour and one set of words for what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from inspect import signature
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.state import lease_of
from sandboxer.kernel.budget import SMALL
from sandboxer.kernel.ids import is_sandbox_id, is_session_id

# What the path may name, and the form it must have.
_IDS = {"sandbox_id": is_sandbox_id, "session_id": is_session_id}
Serve = Callable[[Request], Coroutine[Any, Any, Response]]


class LeanRoute(APIRoute):
    """For endpoints that need only the request, one id and a `body`; all else must have defaults."""

    def get_route_handler(self) -> Serve:
        serve_anything = self._with_large_bodies(super().get_route_handler())
        endpoint = self.endpoint
        needed = {p.name for p in signature(endpoint).parameters.values() if p.default is p.empty}
        if not needed <= {"request", "body", *_IDS}:
            return serve_anything
        read = _reader(get_type_hints(endpoint).get("body"))

        async def serve(request: Request) -> Response:
            scope = request.scope
            given = scope["path_params"]
            if scope["query_string"] or not all(_IDS[name](value) for name, value in given.items()):
                return await serve_anything(request)
            if read is not None:
                if request.headers.get("content-type") != "application/json":
                    return await serve_anything(request)
                body = await request.body()
                try:
                    given = {**given, "body": await lease_of(scope).work(len(body), partial(read, body))}
                except ValidationError:
                    return await serve_anything(request)
            answer: Response = await endpoint(request=request, **given)
            return answer

        return serve

    def _with_large_bodies(self, serve: Serve) -> Serve:
        """FastAPI reads JSON on the loop; what is large was read beside it when FastAPI asks."""
        if self.body_field is None:
            return serve

        async def serve_large(request: Request) -> Response:
            body = await request.body()
            if len(body) > SMALL:
                # FastAPI says itself what is wrong with what cannot be read.
                with suppress(ValueError):
                    # Where Starlette keeps what it has read.
                    request._json = await lease_of(request.scope).work(len(body), partial(json.loads, body))
            return await serve(request)

        return serve_large


def _reader(model: object) -> Callable[[bytes], BaseModel] | None:
    is_model = isinstance(model, type) and issubclass(model, BaseModel)
    return model.model_validate_json if is_model else None  # type: ignore[attr-defined]
