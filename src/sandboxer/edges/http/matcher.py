"""Finds the operation that a request asks for. It is looked up once, at the outermost layer; nothing else
looks at a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxer.wire.operations.declaration import AnyOperation

_MATCHED = "sandboxer.matched"


@dataclass(frozen=True)
class Binding:
    """An operation and what serves it."""

    operation: AnyOperation
    make: Callable[[], BaseRoute]
    # Serves the same path over WebSocket.
    websocket: BaseRoute | None = None

    @cached_property
    def route(self) -> BaseRoute:
        """The route, made when it is first needed: all of them together would take a tenth of the server's
        start.
        """
        return self.make()

    def routes(self) -> Iterator[BaseRoute]:
        yield self.route
        if self.websocket is not None:
            yield self.websocket


@dataclass(frozen=True, slots=True)
class Matched:
    operation: AnyOperation
    # The values of the names in the path.
    names: Mapping[str, str]
    # None if the path is known but does not serve this method.
    route: BaseRoute | None


def matched(scope: Scope) -> Matched | None:
    """Returns the match, or None if nothing is served at this path with this method."""
    found: Matched | None = scope.get(_MATCHED)
    return found


def operation_of(scope: Scope) -> AnyOperation | None:
    found = matched(scope)
    return None if found is None else found.operation


@dataclass(slots=True)
class _Node:
    """A node in the tree of paths: what follows for a fixed word, what follows for any word, and what ends
    here.
    """

    words: dict[str, _Node] = field(default_factory=dict)
    any_word: _Node | None = None
    bindings: dict[str, tuple[Binding, Sequence[str]]] = field(default_factory=dict)

    def grow(self, word: str) -> _Node:
        if word.startswith("{"):
            self.any_word = self.any_word or _Node()
            return self.any_word
        return self.words.setdefault(word, _Node())


class Matcher:
    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._root = _Node()
        for binding in bindings:
            words = binding.operation.path.split("/")
            node = self._root
            for word in words:
                node = node.grow(word)
            names = [word[1:-1] for word in words if word.startswith("{")]
            node.bindings[binding.operation.method] = (binding, names)

    def match(self, scope: Scope) -> Matched | None:
        words: list[str] = scope["path"].split("/")
        is_upgrade = scope["type"] == "websocket"
        method = "GET" if is_upgrade else scope["method"]
        if found := _find(self._root, words, 0, method, []):
            (binding, names), values = found
            route = binding.websocket if is_upgrade else binding.route
            return Matched(binding.operation, dict(zip(names, values, strict=True)), route)
        if method == "HEAD" and (found := _find(self._root, words, 0, "GET", [])):
            # Judged like a GET of the same path, and then refused.
            (binding, names), values = found
            return Matched(binding.operation, dict(zip(names, values, strict=True)), None)
        return None

    def methods(self, path: str) -> list[str]:
        """Returns all methods that are served at this path."""
        known = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        return [one for one in known if _find(self._root, path.split("/"), 0, one, [])]


_Found = tuple[tuple[Binding, Sequence[str]], list[str]]


def _find(node: _Node, words: list[str], at: int, method: str, values: list[str]) -> _Found | None:
    """Searches the tree. A fixed word takes precedence over a name that stands for any word."""
    if at == len(words):
        ends = node.bindings.get(method)
        return None if ends is None else (ends, values)
    word = words[at]
    if (further := node.words.get(word)) and (found := _find(further, words, at + 1, method, values)):
        return found
    if node.any_word is not None and word:
        return _find(node.any_word, words, at + 1, method, [*values, word])
    return None


class Matching:
    """Stores in the scope what a request asks for."""

    def __init__(self, app: ASGIApp, matcher: Matcher) -> None:
        self._app = app
        self._matcher = matcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope[_MATCHED] = self._matcher.match(scope)
        await self._app(scope, receive, send)


class Dispatch:
    """Hands a request to the route that it was matched with."""

    def __init__(self, otherwise: ASGIApp, matcher: Matcher) -> None:
        self._otherwise = otherwise
        self._matcher = matcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = matched(scope)
        if found is not None and found.route is not None:
            scope.update(path_params=dict(found.names), route=found.route)
            await found.route.handle(scope, receive, send)
        elif scope["type"] == "http":
            raise self._refusal(scope["path"])
        else:
            await self._otherwise(scope, receive, send)

    def _refusal(self, path: str) -> HTTPException:
        if methods := self._matcher.methods(path):
            return HTTPException(405, headers={"allow": ", ".join(methods)})
        return HTTPException(404)
