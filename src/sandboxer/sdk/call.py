"""One call to the platform as a value: what to send and what comes back.

The builders of `calls/` are generated from the table of operations. The sync and the async client differ only
in how they carry a `Call` over the network. A model of `wire/` is built when an answer is read, not before: a
command line that sends one call should not pay for all of them.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeGuard, TypeVar, cast
from urllib.parse import quote

from sandboxer.sdk.bodies import NO_BODY, Body, body_of
from sandboxer.sdk.errors import ApiError, BrokenAnswer, api_error

if TYPE_CHECKING:
    from pydantic import BaseModel

    M = TypeVar("M", bound=BaseModel)

T_co = TypeVar("T_co", covariant=True)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# What `Call.answer` says where there is no model: the bytes as they came, or nothing to read.
BYTES, NOTHING = "bytes", "nothing"
# Between two pieces of a stream; the server sends comments to show that it is alive.
STREAM_TIMEOUT_S = 120.0
EVENT_STREAM = "text/event-stream"


class Answer(NamedTuple):
    """A complete answer, whichever client carried it."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """One request and how its answer is read; `client.send` carries it."""

    # Id of the operation, as in the OpenAPI document.
    operation: str
    method: str
    # Path with query, exactly as it is signed and sent.
    target: str
    # Where the model of the answer is (`module:name`), `BYTES` or `NOTHING`.
    answer: str
    body: Body = NO_BODY
    headers: Mapping[str, str] = field(default_factory=dict)
    # Answers of 400 and above that are no problem documents, and read like any other.
    also_reads: frozenset[int] = frozenset()
    # Sending it twice does what sending it once does.
    is_repeatable: bool = False
    # False: sent by nobody in particular, whatever key the client has.
    is_signed: bool = True
    # How long the server may take, where that is not the client's default.
    timeout_s: float | None = None

    def read(self, answer: Answer) -> T_co:
        """Returns the model of an answer, its bytes, or None."""
        if self.answer == NOTHING:
            return cast(T_co, None)
        if self.answer == BYTES:
            return cast(T_co, answer.content)
        return cast(T_co, parse(found_at(self.answer), answer.content))

    def streamed(self) -> Call[None]:
        """Returns the same call, answered as server-sent events."""
        headers = {**self.headers, "accept": EVENT_STREAM}
        call: Call[Any] = replace(self, headers=headers, answer=NOTHING, timeout_s=STREAM_TIMEOUT_S)
        return call

    def within(self, seconds: float | None) -> Call[T_co]:
        """Returns the same call, which waits for so many seconds."""
        return replace(self, timeout_s=seconds)

    def bearing(self, token: str) -> Call[T_co]:
        """Returns the same call, sent by the session of this token instead of a key."""
        headers = {**self.headers, "authorization": f"Bearer {token}"}
        return replace(self, headers=headers, is_signed=False)

    def as_bytes(self) -> Call[bytes]:
        """Returns the same call, for another form of its answer."""
        call: Call[Any] = replace(self, answer=BYTES)
        return call

    def repeatable(self, is_so: bool) -> Call[T_co]:
        """Returns the same call, which may be sent again after a lost answer or may not."""
        return replace(self, is_repeatable=is_so)

    def by_anybody(self, is_so: bool = True) -> Call[T_co]:
        """Returns the same call, not signed."""
        return replace(self, is_signed=not is_so)


@cache
def found_at(place: str) -> Any:
    """What `module:name` names, imported now."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def lazily(owner: object, name: str, places: Mapping[str, str], package: str | None) -> Any:
    """The class of an attribute that is made when it is first asked for."""
    if name not in places:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    return found_at(f"{package}.{places[name]}")


def described(thing: object, info: Any) -> str:
    """Returns how an object of the client shows itself: `<Sandbox sbx_… 'dev' ready>`."""
    words = [type(thing).__name__.removeprefix("Async"), getattr(thing, "id", "")]
    if info is not None:
        words += [repr(info.name)] if info.name else []
        words.append(info.state)
    return f"<{' '.join(words)}>"


def parse(kind: type[M], text: bytes | str) -> M:
    """Returns the model that the text says; raises `BrokenAnswer`."""
    try:
        return kind.model_validate_json(text)
    except ValueError as error:
        words = error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
        raise BrokenAnswer(f"The answer is no {kind.__name__}: {words}") from None


def target_of(path: str, /, *segments: str | int, **query: object) -> str:
    """`target_of("/v1/jobs/{}", id, wait_s=5)`: segments are quoted, absent values left out."""
    filled = path.format(*(quote(str(segment), safe="") for segment in segments))
    pairs = [
        f"{key}={_quoted(_text(one))}"
        for key, value in query.items()
        for one in (value if _is_list(value) else [value])
        if one is not None
    ]
    return filled + ("?" + "&".join(pairs) if pairs else "")


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _quoted(text: str) -> str:
    """Percent-encoded bytes; surrogates stand for bytes that are no UTF-8, as in file names."""
    return quote(text.encode("utf-8", "surrogateescape"), safe="/")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def json_body(required: Mapping[str, object], /, **optional: object) -> Body:
    """Optional fields that are None are left out: absent and None are the same."""
    fields = {**required, **{name: value for name, value in optional.items() if value is not None}}
    return body_of(_JSON.encode(fields).encode())


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


_JSON = json.JSONEncoder(separators=(",", ":"), default=_plain)


def headers_of(**named: str | int | None) -> dict[str, str]:
    """Returns the headers that are given, by their names."""
    return {name.replace("_", "-"): str(value) for name, value in named.items() if value is not None}


def new_idempotency_key() -> str:
    """Returns a key that no other call has."""
    return secrets.token_urlsafe(18)


def problem_of(answer: Answer) -> ApiError:
    """The typed error of a refusal; an answer that is no problem document still becomes one."""
    request_id = answer.headers.get("x-request-id")
    try:
        problem = json.loads(answer.content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": f"HTTP {answer.status}", "detail": answer.content[:200].decode(errors="replace")}
    return api_error(answer.status, problem, request_id)
