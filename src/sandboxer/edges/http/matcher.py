"""Finds the operation that a request asks for. It is looked up once, at the outermost layer; nothing else
looks at a path.

Finds out which thing a request means by a name, or by the beginning of an id.

Asked once for what the path names, before anything is written down or done, and once for what the query and
the body name; behind that there are whole ids only. A whole id is not looked up here.

A word means what its caller could list, and it never means two things: then all of them are listed, and
nothing is done. What is not there and what belongs to somebody else is the same 404.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.backends.contract import KnowsImages
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Ambiguous, Broken, InvalidRequest, NotFound
from sandboxer.kernel.program import imported
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes import records as sandboxes
from sandboxer.store.rows import Rows
from sandboxer.wire.operations.declaration import Access, AnyOperation
from sandboxer.wire.words import Naming, names_in
from sandboxer.wiring import Platform
from sandboxer.work.jobs import records as jobs
from sandboxer.work.services import records as services
from sandboxer.work.sessions import records as sessions

log = logging.getLogger(__name__)
_MATCHED = "sandboxer.matched"
# The scope key of what kept a match from being made.
_FAILED = "sandboxer.match_failed"


@dataclass(frozen=True)
class Binding:
    """An operation and what serves it."""

    operation: AnyOperation
    make: Callable[[], BaseRoute]
    # Makes what serves the same path over WebSocket.
    make_websocket: Callable[[], BaseRoute] | None = None

    @cached_property
    def route(self) -> BaseRoute:
        """The route, made when it is first needed: all of them together would take a tenth of the server's
        start.
        """
        return self.make()

    @cached_property
    def websocket(self) -> BaseRoute | None:
        return self.make_websocket() if self.make_websocket is not None else None


class Routes:
    """Names a module that binds operations, and the paths at which and below which all of them are. The
    module is imported when such a path is first asked for: models and handlers of all nouns take a quarter
    of a start.
    """

    def __init__(self, module: str, *paths: str) -> None:
        self.module = module
        self.paths = paths

    @property
    def is_imported(self) -> bool:
        return "bindings" in vars(self)

    @cached_property
    def bindings(self) -> Sequence[Binding]:
        found: Sequence[Binding] = imported(self.module).BINDINGS
        for path in (one.operation.path for one in found):
            if not any(path == above or path.startswith(f"{above}/") for above in self.paths):
                raise ValueError(f"{self.module} serves {path}, which is below none of the paths it is for")
        return found


@brief_value_class
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


def rename(scope: Scope, names: Mapping[str, str]) -> None:
    """Puts other values in the place of those that the path has."""
    found = scope[_MATCHED]
    scope[_MATCHED] = replace(found, names={**found.names, **names})


def operation_of(scope: Scope) -> AnyOperation | None:
    found = matched(scope)
    return None if found is None else found.operation


@dataclass(slots=True)
class _Node:
    """A node in the tree of paths: what follows for a fixed word, what follows for any word, what ends here,
    and what is not imported yet of here and below.
    """

    words: dict[str, _Node] = field(default_factory=dict)
    any_word: _Node | None = None
    bindings: dict[str, tuple[Binding, Sequence[str]]] = field(default_factory=dict)
    late: list[Routes] = field(default_factory=list)

    def grow(self, path: str) -> _Node:
        node = self
        for word in path.split("/"):
            if word.startswith("{"):
                node.any_word = node.any_word or _Node()
                node = node.any_word
            else:
                node = node.words.setdefault(word, _Node())
        return node


class Matcher:
    def __init__(self, routes: Iterable[Routes]) -> None:
        self._root = _Node()
        self._late = list(routes)
        for each in self._late:
            for path in each.paths:
                self._root.grow(path).late.append(each)

    async def load(self, path: str) -> None:
        """Imports what may serve this path, if nobody has asked for it before."""
        if self._late:
            await self._add([each for each in _late(self._root, path.split("/"), 0) if each in self._late])

    async def load_all(self) -> None:
        """Imports what is left, a module at a time: what the disk has later may be of another version. One
        that is broken is told, and keeps no other from being imported.
        """
        for each in tuple(self._late):
            try:
                await self._add([each])
            except Exception:
                log.exception("%s cannot be imported; requests for what it serves will fail", each.module)

    async def _add(self, routes: Sequence[Routes]) -> None:
        if any(not each.is_imported for each in routes):
            # Beside the loop: it takes up to a tenth of a second.
            await asyncio.to_thread(lambda: [each.bindings for each in routes])
        for each in routes:
            # Somebody else may have waited for it too.
            if each in self._late:
                self._late.remove(each)
                self._grow(each.bindings)

    def _grow(self, bindings: Iterable[Binding]) -> None:
        for binding in bindings:
            path = binding.operation.path
            names = [word[1:-1] for word in path.split("/") if word.startswith("{")]
            self._root.grow(path).bindings[binding.operation.method] = (binding, names)

    def match(self, scope: Scope) -> Matched | None:
        words: list[str] = scope["path"].split("/")
        is_upgrade = scope["type"] == "websocket"
        method = "GET" if is_upgrade else scope["method"]
        if found := _find(self._root, words, 0, method, []):
            (binding, names), values = found
            route = binding.websocket if is_upgrade else binding.route
            return Matched(binding.operation, dict(zip(names, values, strict=True)), route)
        if method == "HEAD" and (found := _find(self._root, words, 0, "GET", [])):
            # Judged like a GET of the same path. What anybody may ask for is answered, without its body; the
            # rest, streams among it, is refused.
            (binding, names), values = found
            route = binding.route if binding.operation.access is Access.UNSIGNED else None
            return Matched(binding.operation, dict(zip(names, values, strict=True)), route)
        return None

    def methods(self, path: str) -> list[str]:
        """Returns all methods that are served at this path."""
        known = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        return [one for one in known if _find(self._root, path.split("/"), 0, one, [])]

    def close_to(self, path: str) -> str | None:
        """Returns the noun that a path with a mistake may mean; None if there is no such."""
        nouns = self._root.words[""].words["v1"].words
        said = path.removeprefix("/v1").strip("/").partition("/")[0][:40]
        close = [said] if said in nouns else difflib.get_close_matches(said, nouns, n=1)
        return f"/v1/{close[0]}" if close else None


def _late(node: _Node, words: list[str], at: int) -> Iterator[Routes]:
    """Yields what is on any way through the tree, whichever of them the path will take."""
    yield from node.late
    if at < len(words):
        if further := node.words.get(words[at]):
            yield from _late(further, words, at + 1)
        if node.any_word is not None:
            yield from _late(node.any_word, words, at + 1)


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
            scope[_MATCHED] = None
            try:
                await self._matcher.load(scope["path"])
                scope[_MATCHED] = self._matcher.match(scope)
            except Exception as error:
                # Told to known callers; to others it is a path like any that is not served.
                scope[_FAILED] = error
        await self._app(scope, receive, send)


class Dispatch:
    """Hands a request to the route that it was matched with."""

    def __init__(self, otherwise: ASGIApp, matcher: Matcher) -> None:
        self._otherwise = otherwise
        self._matcher = matcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (found := matched(scope)) is not None and found.route is not None:
            scope.update(path_params=dict(found.names), route=found.route)
            await found.route.handle(scope, receive, send)
        elif (failed := scope.get(_FAILED)) is not None:
            raise Broken(why=f"what serves {scope['path'][:200]!r} cannot be made: {failed}") from failed
        elif scope["type"] == "http":
            raise self._refusal(scope["path"], scope["method"])
        else:
            await self._otherwise(scope, receive, send)

    def _refusal(self, path: str, method: str) -> HTTPException:
        if methods := self._matcher.methods(path):
            allowed = ", ".join(methods)
            return HTTPException(405, f"This path takes {allowed}, not {method}.", {"allow": allowed})
        close = self._matcher.close_to(path)
        meant = f" Did you mean {close}?" if close else ""
        return HTTPException(404, f"There is nothing at this path.{meant}")


T = TypeVar("T")
_ROWS: Mapping[str, Rows[Any]] = {
    "sandbox": sandboxes.rows,
    "snapshot": snapshots.rows,
    "image": images.rows,
    "volume": volumes.rows,
    "service": services.rows,
    "session": sessions.rows,
    "job": jobs.light,
}
# An ended job is its result.
_OF_USE_WHEN_OVER = frozenset({"job"})
_WHOLE = re.compile("[a-z]{3}_[0-9a-hjkmnp-tv-z]{26}")
# What could be looked up: other words are refused where requests are checked.
_WORD = re.compile("[a-z]{3}_[0-9a-hjkmnp-tv-z]{1,26}|[A-Za-z0-9][A-Za-z0-9._ -]{0,62}")


async def name_path(platform: Platform, scope: Scope, caller: Caller) -> None:
    """Puts whole ids in the place of what the path names. Raises NotFound, Ambiguous."""
    if (found := matched(scope)) is None or found.route is None:
        return
    parameters: Any = found.operation.parameters
    for name, how in names_in(parameters):
        word = found.names[name]
        if isinstance(how, Naming) and _WHOLE.fullmatch(word) is None:
            rename(scope, {name: await _meant(platform, how, word, caller, must_be=True)})


async def name_fields(platform: Platform, said: T, caller: Caller, *, must_be: bool = False) -> T:
    """Returns a query or a body with whole ids. Raises Ambiguous, and NotFound if what it names `must_be`
    there. A body may be a repetition of what was done while it was there.
    """
    if not isinstance(said, BaseModel):
        return said
    changed: dict[str, Any] = {}
    for name, how in names_in(type(said)):
        if not (given := getattr(said, name)):
            continue
        if isinstance(how, Naming):
            is_whole = _WHOLE.fullmatch(given) is not None
            named: Any = given if is_whole else await _meant(platform, how, given, caller, must_be)
        else:
            named = [await name_fields(platform, one, caller) for one in given]
        if named != given:
            changed[name] = named
    return said.model_copy(update=changed) if changed else said


async def _meant(platform: Platform, how: Naming, word: str, caller: Caller, must_be: bool) -> str:
    rows = _ROWS[how.thing]
    if _WORD.fullmatch(word) is None or ("_" in word and not word.startswith(rows.prefix)):
        return word
    if how.may_be_of_host and is_of_host(platform, word):
        return word
    found = await platform.store.read(
        lambda conn: rows.meant(
            conn,
            word,
            account=caller.account,
            sees_all=caller.is_owner,
            ended_too=how.thing in _OF_USE_WHEN_OVER,
        )
    )
    if len(found) > 1:
        fits = [{"id": id_, "name": name} for id_, name in found]
        listed = ", ".join(f"{id_} ({name})" if name else id_ for id_, name in found)
        raise Ambiguous(what=how.thing, word=word, fits=fits, listed=listed)
    if not found and must_be:
        raise NotFound(what=how.thing, id=word)
    return found[0][0] if found else word


def is_of_host(platform: Platform, word: str) -> bool:
    """Tells whether it is the name of an image of this host."""
    for backend in platform.backends.values():
        if isinstance(backend, KnowsImages):
            with suppress(InvalidRequest):
                backend.check_image(word)
                return True
    return False
