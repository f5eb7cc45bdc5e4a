"""One operation of the API, declared once: everything that routes, authentication, scopes, auditing, limits,
clients and documents need to know of it.

An `Operation` is generic over the models of its path, query, body and answer, so that a type checker compares
it with the handler it is bound to (`edges/http/binding.py`) and with the calls that clients make of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from sandboxer.wire.operations.terms import Access, Idempotency, Needs, RateClass, Visit

# `*`: whatever method a program inside understands.
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "*"]
P = TypeVar("P", bound="Parameters")
Q = TypeVar("Q", bound="Parameters")
B = TypeVar("B")
A = TypeVar("A")


class Parameters(BaseModel):
    """What a path or a query says. Names are as in the URL unless a field has an alias."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class NoParameters(Parameters):
    """The path has no names in it, or there is nothing to ask for in the query."""


@dataclass(frozen=True, slots=True)
class InHeader:
    """Marks a field of a query model that is sent as a header of this name."""

    name: str


class Body(Generic[B]):
    """What a request carries."""


@dataclass(frozen=True)
class Empty(Body[None]):
    """No body."""


@dataclass(frozen=True)
class Json(Body[B]):
    """A body of JSON."""

    model: type[B]


@dataclass(frozen=True)
class Stream(Body[None]):
    """A body that is passed on in pieces and never held in memory."""

    media_type: str


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[A]):
    """What a success carries."""

    status: int


@dataclass(frozen=True, kw_only=True)
class Answered(Answer[A]):
    """An answer of JSON with this status."""

    model: type[A]
    status: int = 200
    # Other statuses with the same model, and what they mean.
    also: tuple[tuple[int, str], ...] = ()
    # Another form of the same answer, which a query or the Accept header asks for: media type and words.
    other_form: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class AnsweredOrEvents(Answer[A]):
    """An answer of JSON, or the same as server-sent events when the caller asks for them."""

    model: type[A]
    words: str
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class Events(Answer[None]):
    """Server-sent events, as long as there are any."""

    words: str
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class Bytes(Answer[None]):
    """Bytes of this media type, in pieces where they are many."""

    media_type: str
    words: str
    # What 206 means, where a range can be asked for.
    part_words: str | None = None
    # What is not text is `binary` in the document.
    is_text: bool = False
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class Nothing(Answer[None]):
    """Headers, and no body."""

    status: int = 204
    words: str | None = None


@dataclass(frozen=True, kw_only=True)
class Upgrade(Answer[None]):
    """A WebSocket."""

    words: str
    status: int = 101


@dataclass(frozen=True, kw_only=True)
class Relay(Answer[None]):
    """Whatever a program inside a sandbox answers."""

    words: str
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[P, Q, B, A]):
    # As in the OpenAPI document, for ever: clients are named after it.
    id: str
    method: Method
    path: str
    # The noun it belongs to, by which documents group it.
    noun: str
    # One line for people.
    summary: str
    parameters: type[P]
    query: type[Q]
    body: Body[B]
    answer: Answer[A]
    access: Access
    needs: Needs
    rate: RateClass
    idempotency: Idempotency = Idempotency.NONE
    # Statuses of refusals that it adds to those that every request of its access can meet.
    failures: tuple[int, ...] = ()
    # None: the use case writes down what the operator does by it, or it shows and changes nothing of others'.
    visit: Visit | None = None


AnyOperation = Operation[Any, Any, Any, Any]
