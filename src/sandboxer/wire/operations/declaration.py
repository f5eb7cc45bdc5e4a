"""One operation of the API, declared once: everything that routes, authentication, scopes, auditing, limits,
clients and documents need to know of it.

An `Operation` is generic over the models of its path, query, body and answer, so that a type checker compares
it with the handler it is bound to (`edges/http/binding.py`) and with the calls that clients make of it.

The terms of a declaration are plain values: who may call, what is needed, how it is counted. Nothing here
knows a use case, and nothing here reads a path.

Groups of operations. What the operations of a noun below one path have in common is said once, by their
group; an entry says its id, method and path, its words for people, its models, and in what it differs.

An operation that is like no other is declared as an `Operation` of its own.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Any, Generic, Literal, cast

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

P = TypeVar("P", bound="Parameters", default="NoParameters")
Q = TypeVar("Q", bound="Parameters", default="NoParameters")
B = TypeVar("B", default=None)
A = TypeVar("A", default=Any)
# `*`: whatever method a program inside understands.
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "*"]


@dataclass(frozen=True, slots=True)
class InHeader:
    """Marks a field of a query model that is sent as a header of this name."""

    name: str


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
    # What callers get who do not accept the first one.
    other_media_type: str | None = None
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


class Access(StrEnum):
    """Who may send a request."""

    # Anybody. Nobody is asked who they are.
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    # A known caller, or a stranger who proves itself by what it sends or acts for nobody.
    EITHER = "either"
    # A known caller, or a stranger, who is told what it costs (402).
    PAYABLE = "payable"
    # Signed by the owner of the platform.
    OWNER = "owner"
    # Whoever holds a token of the sandbox that the path names.
    SANDBOX = "sandbox"
    # The same, or whoever holds an address of one file that such a token signed.
    FILE = "file"
    # The same, or a token for the traffic to that sandbox alone.
    TRAFFIC = "traffic"
    # Anybody on this machine; others as the operator allows.
    LOOPBACK = "loopback"


class Scope(StrEnum):
    """What a delegated key may do. Every other key may do what its account may."""

    SANDBOXES_READ = "sandboxes:read"
    SANDBOXES_CREATE = "sandboxes:create"
    # Extend, freeze, thaw, stop, resume, recreate.
    SANDBOXES_MANAGE = "sandboxes:manage"
    SANDBOXES_DESTROY = "sandboxes:destroy"
    # Commands, processes, terminals.
    EXEC = "exec"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    ACCOUNT_READ = "account:read"
    # Buy, top up, redeem; caps and other settings of the account.
    ACCOUNT_MANAGE = "account:manage"
    # Delegate, top up and revoke child keys.
    KEYS_DELEGATE = "keys:delegate"


class RateClass(StrEnum):
    """How limits count a request."""

    # Asked by load balancers and scrapers, many times a minute from one address; costs nothing.
    UNCOUNTED = "uncounted"
    API = "api"
    # Challenges, sessions, key validation: where secrets could be guessed.
    AUTH = "auth"
    # Open to strangers: pricing, discovery.
    PUBLIC = "public"


class Idempotency(StrEnum):
    """What a repeated `Idempotency-Key` gets."""

    # The header is not read.
    NONE = "none"
    # The first answer again.
    PLAIN = "plain"
    # The same, and a thing whose answer was lost is looked up and answered for.
    BOUND = "bound"
    # As bound, for several things made by one request.
    MANY = "many"
    # The first answer held a secret and was not kept: 409.
    SECRET = "secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyScope:
    """A scope that a field of the body adds: where it says something (not false, not empty), or nothing."""

    field: str
    scope: Scope
    is_given: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a delegated key needs: all of these scopes, or there are none with which it may."""

    all_of: frozenset[Scope] = frozenset()
    is_never_delegated: bool = False
    adds: tuple[BodyScope, ...] = ()


ANY_KEY = Needs()
NEVER_DELEGATED = Needs(is_never_delegated=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """Says that an operation leads a network into a sandbox or out of one, or makes the platform ask a
    network for what its caller names. Programs in a sandbox that has no network may not.
    """

    # Only where the body or the query says something in one of these; none: always.
    fields: tuple[str, ...] = ()

    @property
    def is_always(self) -> bool:
        return not self.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAudit:
    """What the audit log says before the operator does this with what belongs to a tenant."""

    # The thing that the first parameter of the path names: "sandbox", "volume".
    thing: str
    # Stored in the log: "sandbox.files.content".
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """Says that an operation will go: since when it is not to be used, and from when it may be gone."""

    since: date
    # At least half a year after `since`.
    sunset: date
    # The id of the operation to use instead.
    instead: str | None = None

    def __post_init__(self) -> None:
        if (self.sunset - self.since).days < 180:
            raise ValueError("callers have at least 180 days between a deprecation and its sunset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """Says that a tool names a thing by which the one is found that the path names: the answer of another
    operation, which shows that thing, has its id.
    """

    # Its id.
    operation: str
    # The parameter of the path, which is also the field of that answer.
    finds: str


class Offer(StrEnum):
    """To whom a tool is offered, unless somebody asks for more."""

    # The dozen with which most can be done.
    CORE = "core"
    STANDARD = "standard"
    # Only to who wants all there is.
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Tool:
    """An operation as a model calls it: the name of the tool, and in what it differs from the operation."""

    # Empty: as the operation.
    name: str = ""
    _: KW_ONLY
    offer: Offer = Offer.STANDARD
    # One line for a model, where that of the operation says something else.
    summary: str = ""
    # Fields that it does not have.
    leaves_out: tuple[str, ...] = ()
    through: Through | None = None


class Parameters(BaseModel):
    """What a path or a query says. Names are as in the URL unless a field has an alias."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, defer_build=True)


class NoParameters(Parameters):
    """The path has no names in it, or there is nothing to ask for in the query."""


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


NO_PARAMETERS: Any = NoParameters
EMPTY: Any = Empty()


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
    answer: Answer[A]
    needs: Needs
    # What the path names, the query asks for and the body says: nothing, unless told.
    parameters: type[P] = NO_PARAMETERS
    query: type[Q] = NO_PARAMETERS
    body: Body[B] = EMPTY
    access: Access = Access.SIGNED
    rate: RateClass = RateClass.API
    idempotency: Idempotency = Idempotency.NONE
    # Sending it twice does what sending it once does, without a key. A PUT is so of itself.
    is_repeatable: bool = False
    # What was there before cannot be had back. A DELETE and a PUT are so of themselves.
    is_lossy: bool = False
    # As which tools models call it; none: as one of its own name, which only those get who want all of them.
    tools: tuple[Tool, ...] = ()
    # How long an answer may take, where that is longer than what clients wait for.
    patience_s: float | None = None
    # For how many seconds anybody may keep a success of it; what depends on the caller is kept by nobody.
    cache_s: int = 0
    # Statuses of refusals that it adds to those that every request of its access can meet.
    failures: tuple[int, ...] = ()
    way_out: WayOut | None = None
    # None: the use case writes down what the operator does by it, or it shows and changes nothing of others'.
    operator_audit: OperatorAudit | None = None
    # Told in every answer (`Deprecation`, `Sunset`) and in the document.
    deprecated: Deprecation | None = None


AnyOperation = Operation[Any, Any, Any, Any]


def needs(*scopes: Scope, adds: tuple[BodyScope, ...] = ()) -> Needs:
    return Needs(all_of=frozenset(scopes), adds=adds)


Below = TypeVar("Below", bound=Parameters)
# What is done with a thing by the method alone, as the audit log calls it.
_DONE_WITH_IT = {"DELETE": "destroy", "PATCH": "patch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Generic[P]):
    """Holds what the operations of a noun below one path have in common."""

    noun: str
    # What all paths of the group begin with, and what that names.
    path: str = ""
    parameters: type[P] = NO_PARAMETERS
    needs: Needs
    # What a GET or a HEAD needs, where that is something else.
    reads: Needs | None = None
    access: Access = Access.SIGNED
    rate: RateClass = RateClass.API
    is_repeatable: bool = False
    patience_s: float | None = None
    cache_s: int = 0
    failures: tuple[int, ...] = ()
    way_out: WayOut | None = None
    # What the path names, where the audit log says what the operator does with it.
    audited: str | None = None

    def below(self, path: str, parameters: type[Below], *, audited: str | None = None) -> Group[Below]:
        """Returns the group of what a path below this one names. There may be no such thing: 404."""
        made = replace(
            self,
            path=self.path + path,
            parameters=cast(Any, parameters),
            failures=(*self.failures, 404),
            audited=audited or self.audited,
        )
        return cast("Group[Below]", made)

    def operation(
        self,
        id: str,
        route: str,
        summary: str,
        answer: type[A] | Answer[A],
        *,
        query: type[Q] = NO_PARAMETERS,
        body: type[B] | Body[B] = EMPTY,
        needs: Needs | None = None,
        idempotency: Idempotency = Idempotency.NONE,
        is_repeatable: bool = False,
        patience_s: float | None = None,
        failures: tuple[int, ...] = (),
        audited_as: str | None = None,
        way_out: WayOut | None = None,
        deprecated: Deprecation | None = None,
        is_lossy: bool = False,
        tools: tuple[Tool, ...] = (),
    ) -> Operation[P, Q, B, A]:
        """Declares an operation: `route` is its method and what follows the path of the group, `failures` are
        beside those of the group.

        The audited action follows from the path: a request to `/files/stat` of a sandbox is a
        `sandbox.files.stat`. At the path of the thing itself, `audited_as` says what is done with it.
        """
        method, _, rest = route.partition(" ")
        path = self.path + rest
        default = self.reads if self.reads and method in ("GET", "HEAD") else self.needs
        return Operation(
            id=id,
            method=cast(Method, method),
            path=path,
            noun=self.noun,
            summary=summary,
            answer=answer if isinstance(answer, Answer) else Answered(model=answer),
            needs=needs or default,
            parameters=self.parameters,
            query=query,
            body=body if isinstance(body, Body) else Json(body),
            access=self.access,
            rate=self.rate,
            idempotency=idempotency,
            is_repeatable=is_repeatable or self.is_repeatable,
            patience_s=patience_s or self.patience_s,
            cache_s=self.cache_s,
            failures=tuple(sorted({*self.failures, *failures})),
            way_out=way_out or self.way_out,
            operator_audit=self._audit(path, audited_as or _DONE_WITH_IT.get(method)),
            deprecated=deprecated,
            is_lossy=is_lossy,
            tools=tools,
        )

    def _audit(self, path: str, done_with_it: str | None) -> OperatorAudit | None:
        words = [word for word in path.partition("}")[2].split("/") if word and not word.startswith("{")]
        action = ".".join(words) or done_with_it
        if self.audited is None or action is None:
            return None
        return OperatorAudit(thing=self.audited, action=f"{self.audited}.{action}")


def created(model: type[A]) -> Answered[A]:
    """Returns the answer that says what was made."""
    return Answered(model=model, status=201)
