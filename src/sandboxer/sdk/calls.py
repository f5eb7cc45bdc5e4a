"""One call to the platform as a value: what to send and how to read the answer.

The sync and the async client differ only in how they carry a `Call` over the network; what calls exist and
what they mean is written once, in `routes/`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from sandboxer.sdk.bodies import NO_BODY, Body, body_of
from sandboxer.sdk.errors import ApiError, BrokenAnswer, api_error

T_co = TypeVar("T_co", covariant=True)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer, whichever client carried it."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except ValueError:
            raise BrokenAnswer(f"The answer is not JSON: {self.content[:80]!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    method: str
    # Path with query, exactly as it is signed and sent.
    target: str
    read: Callable[[Answer], T_co]
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


def target(path: str, *segments: str, query: Mapping[str, object] | None = None) -> str:
    """`target("/v1/sandboxes/{}/exec", id, query={...})`: segments are quoted, absent values left out."""
    filled = path.format(*(quote(segment, safe="") for segment in segments))
    pairs = [f"{key}={_quoted(_text(value))}" for key, value in (query or {}).items() if value is not None]
    return filled + ("?" + "&".join(pairs) if pairs else "")


def _quoted(text: str) -> str:
    """Percent-encoded bytes; surrogates stand for bytes that are no UTF-8, as in file names."""
    return quote(text.encode("utf-8", "surrogateescape"), safe="/")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def json_body(value: object) -> tuple[Body, Mapping[str, str]]:
    return body_of(json.dumps(value, separators=(",", ":")).encode()), {"content-type": "application/json"}


def new_idempotency_key() -> str:
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
