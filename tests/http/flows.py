"""Which test shows which route. `@flow("createSandbox")` is a claim that the fixture checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import WebSocketRoute

F = TypeVar("F", bound=Callable[..., object])
CLAIMED: set[str] = set()


def flow(*operations: str) -> Callable[[F], F]:
    def mark(test: F) -> F:
        test.__flows__ = operations  # type: ignore[attr-defined]
        CLAIMED.update(operations)
        return test

    return mark


def flows_of(test: object) -> tuple[str, ...]:
    return getattr(test, "__flows__", ())


def operations(app: FastAPI) -> dict[str, tuple[str, str]]:
    """Operation id to (method, path template), WebSocket routes included."""
    found = {}
    for route in app.routes:
        if isinstance(route, APIRoute):
            assert route.operation_id, route.path
            (method,) = route.methods - {"HEAD"} or {"HEAD"}
            found[route.operation_id] = (method, route.path)
        elif isinstance(route, WebSocketRoute):
            found[f"websocket {route.path}"] = ("WEBSOCKET", route.path)
    return found
