"""What an agent knows of its run, as one value that is written to a file after every act.

Ids that the platform is given are made of the run's own id and of how often it began anew, so they are known
before anything is asked for: whoever reads the file after a crash asks for the same thing again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import Enum, StrEnum
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
FORMAT = 1
# Of what happened, so many lines are kept.
MOST_EVENTS = 200
# Of what a child printed, of each word that it says of itself, and of how many layers below it.
KEPT_OUTPUT = 64 * 1024
MOST_WORD, MOST_LAYERS = 400, 64
# Where and why a layer gave up.
CAUSE = ("sandbox", "depth", "step", "blocker", "why")


class Step(StrEnum):
    INSIDE_SANDBOX = "inside_sandbox"
    DISCOVER_TOOLS = "discover_tools"
    FETCH_PRICING = "fetch_pricing"
    CREATE_INVOICE = "create_invoice"
    SEND_PAYMENT = "send_payment"
    POLL_CONFIRMATION = "poll_confirmation"
    RECEIVE_KEYS = "receive_keys"
    INSTALL_TOOLS = "install_tools"
    CREATE_CHILD = "create_child"
    EXECUTE_IN_CHILD = "execute_in_child"


class Way(StrEnum):
    """How the run is paid for."""

    # It has a key of an account with credit; or is inside, and the parent gave it a budget.
    KEY = "key"
    X402 = "x402"
    INVOICE = "invoice"
    GIFT_CARD = "gift-card"


class End(StrEnum):
    DONE = "done"
    GAVE_UP = "gave_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for: so many layers of children, and a command that runs in the last."""

    depth: int
    task: str
    way: Way = Way.KEY
    url: str = ""
    # What the whole tree may spend.
    budget_sats: int = 0
    # Of each layer.
    ttl_s: int = 600
    vcpus: float = 0.5
    memory_mb: int = 128
    disk_mb: int = 64
    pids: int = 64
    image: str | None = None
    # Of a way to pay.
    coin: str | None = None
    gift_code: str | None = field(default=None, repr=False)
    # Children stay when it is over.
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the loop itself runs."""

    sandbox: str | None = None
    # By which it asks the platform, if it is in a sandbox.
    socket: str | None = None
    # How many accounts are above it.
    depth: int = 0
    ends_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    version: str
    url: str
    is_charged: bool
    takes_strangers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    # Of one layer for its whole time, and of all that are still to come.
    layer_sats: int
    total_sats: int
    # Of that, for its memory: a child that is made anew may get more.
    memory_sats: int = 0
    networks: tuple[str, ...] = ()
    coins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is to be paid: x402's offers, an invoice, or the id under which a gift card is redeemed."""

    sats: int
    id: str
    offers: str | None = None
    address: str | None = None
    atomic: str | None = None
    expires_at: str | None = None
    # By this a secret is fetched once.
    claim: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """Signed first, sent then: what was signed is sent again after a crash, and never signed anew."""

    # The header of x402, or the bytes of a transaction in hex.
    signed: str | None = field(default=None, repr=False)
    txid: str | None = None
    # Until then (unix seconds) somebody could still use what was signed.
    valid_until: int | None = None
    is_sent: bool = False
    # Its id and its state at the platform.
    id: str | None = None
    state: str | None = None
    # Of the account that it opened.
    public_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    public_key: str
    secret_key: str = field(repr=False)
    # Of the wallet that paid, instead of a key whose secret was lost.
    session: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a child is given to be able to do the same."""

    sha256: str
    size: int
    # What the account may spend.
    available_sats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    id: str
    ends_at: str | None = None
    is_installed: bool = False
    process: str | None = None
    # How often the loop in it was started again after something had killed it.
    restarts: int = 0
    extensions: int = 0
    # What it may cost until its time is over, and what it may spend in turn.
    cost_sats: int = 0
    granted_sats: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    exit_code: int
    output: str = ""
    errors: str = ""
    spent_sats: int = 0
    # What the child reports of its own run; None: it ran the command itself.
    below: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The named state in which the run is held up."""

    blocker: str
    why: str
    # What it does about it, and not before when (unix seconds).
    reaction: str
    at: float
    not_before: float
    # In a child, how far below the cause is, and what it is.
    cause: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at: float
    step: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    run: str
    order: Order
    begun_at: float
    format: int = FORMAT
    step: Step = Step.INSIDE_SANDBOX
    place: Place | None = None
    platform: Platform | None = None
    price: Price | None = None
    bill: Bill | None = None
    payment: Payment | None = None
    key: Key | None = None
    tools: Tools | None = None
    child: Child | None = None
    result: Result | None = None
    trouble: Trouble | None = None
    end: End | None = None
    ended_at: float | None = None
    # How often each named state was met, and how often a step was begun anew.
    tries: Mapping[str, int] = field(default_factory=dict)
    rounds: Mapping[str, int] = field(default_factory=dict)
    # How far the platform's clock is ahead of ours.
    clock_offset_s: float = 0.0
    # Children that are of no use any more, and still have to be ended.
    leftovers: tuple[str, ...] = ()
    # What children cost that came to nothing, at most until they have ended; and what they were granted.
    lost: Mapping[str, int] = field(default_factory=dict)
    lost_grants_sats: int = 0
    # What was passed without anything to do, and why.
    passed: Mapping[str, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    def id_for(self, what: str, step: Step) -> str:
        """Returns the id under which this run asks for something; another after each new beginning."""
        return f"agent-{self.run}-{what}-{self.rounds.get(step, 0)}"

    @property
    def left_sats(self) -> int:
        """What of the budget nothing was promised to yet."""
        child = self.child or Child(id="")
        lost = sum(self.lost.values()) + self.lost_grants_sats
        return self.order.budget_sats - lost - child.cost_sats - child.granted_sats

    @property
    def child_sats(self) -> int:
        """What a child costs for its whole time, with the memory that it gets now."""
        if self.price is None:
            return 0
        times = (1 << self.tries.get("memory", 0)) - 1
        return self.price.layer_sats + times * self.price.memory_sats

    @property
    def memory_mb(self) -> int:
        """What the next child gets: twice as much after each that ran out of it."""
        return self.order.memory_mb << self.tries.get("memory", 0)


def begin(order: Order, *, now: float, run: str | None = None) -> Progress:
    return Progress(run=run or secrets.token_hex(16), order=order, begun_at=now)


def below(progress: Progress, *, budget_sats: int, now: float) -> Progress:
    """Returns the beginning of the child's run: the same, one layer less deep."""
    order = replace(
        progress.order,
        depth=progress.order.depth - 1,
        way=Way.KEY,
        url="",
        budget_sats=budget_sats,
        coin=None,
        gift_code=None,
    )
    return begin(order, now=now, run=f"{progress.run}-{order.depth}")


def report(progress: Progress) -> dict[str, Any]:
    """Returns what came of a run, with what its layers below report, as JSON that holds no secret."""
    result, trouble, child = progress.result, progress.trouble, progress.child
    said: dict[str, Any] = {
        "run": progress.run,
        "state": "running" if progress.end is None else progress.end.value,
        "step": progress.step.value,
        "depth": progress.order.depth,
        "sandbox": None if progress.place is None else progress.place.sandbox,
        "child": None if child is None else child.id,
        "exit_code": None if result is None else result.exit_code,
        "output": "" if result is None else result.output,
        "errors": "" if result is None else result.errors,
        "spent_sats": spent(progress),
        "seconds": round((progress.ended_at or progress.begun_at) - progress.begun_at, 3),
        "blocked": None,
        "left": list(progress.leftovers),
        "below": None if result is None else result.below,
    }
    if trouble is not None:
        said["blocked"] = {
            "blocker": trouble.blocker,
            "why": trouble.why,
            "reaction": trouble.reaction,
            "cause": trouble.cause,
        }
    return said


def read_report(text: str) -> dict[str, Any] | None:
    """Returns what a child says of its run; None: it says nothing that could be understood.

    It was written by whoever runs in the child, so only what `report` says is kept, and in its form.
    """
    try:
        said = json.loads(text)
        printed = {name: str(said[name])[-KEPT_OUTPUT:] for name in ("output", "errors")}
        if said["state"] is None:
            return None
        return _of_layer(said, MOST_LAYERS) | printed
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError):
        return None


def _of_layer(said: Mapping[str, Any], layers: int) -> dict[str, Any]:
    left, under, took = said.get("left"), said.get("below"), float(said.get("seconds") or 0)
    code = int(said.get("exit_code") or 0)
    return {
        **{name: _word(said.get(name)) for name in ("run", "state", "step", "sandbox", "child")},
        "depth": _count(said.get("depth")),
        # As a process ends, and none that says so of a failure by chance ends well.
        "exit_code": code if 0 <= code < 256 else 1,
        "spent_sats": _count(said.get("spent_sats")),
        "seconds": took if 0 <= took < 1e9 else 0.0,
        "blocked": _blocked(said.get("blocked")),
        "left": [_word(one) for one in left[:100]] if isinstance(left, list) else [],
        "below": _of_layer(under, layers - 1) if isinstance(under, Mapping) and layers else None,
    }


def _blocked(said: object) -> dict[str, Any] | None:
    if not isinstance(said, Mapping):
        return None
    cause = said.get("cause")
    return {name: _word(said.get(name)) for name in ("blocker", "why", "reaction")} | {
        "cause": {name: _word(cause.get(name)) for name in CAUSE} | {"depth": _count(cause.get("depth"))}
        if isinstance(cause, Mapping)
        else None
    }


def _word(value: object) -> str | None:
    return value[:MOST_WORD] if isinstance(value, str) else None


def _count(value: object) -> int:
    return min(max(value, 0), 2**53) if isinstance(value, int) else 0


def spent(progress: Progress) -> int:
    """Returns what the layers below cost, as each of them said at its end, and children that were lost."""
    lost = sum(progress.lost.values())
    if progress.result is None:
        return lost
    under = progress.result.below or {}
    return lost + progress.result.spent_sats + int(under.get("spent_sats") or 0)


def after_end(progress: Progress, sandbox_id: str, spent_sats: object) -> Progress:
    """Returns what is known once a child that came to nothing has ended: what it cost, if that was said."""
    known = progress.lost.get(sandbox_id)
    left = tuple(one for one in progress.leftovers if one != sandbox_id)
    if known is None or not isinstance(spent_sats, int):
        return replace(progress, leftovers=left)
    return replace(progress, leftovers=left, lost={**progress.lost, sandbox_id: max(spent_sats, 0)})


def to_json(progress: Progress) -> dict[str, Any]:
    return asdict(progress)


def from_json(known: Mapping[str, Any]) -> Progress:
    """Raises ValueError for anything that `to_json` would not have written."""
    if not isinstance(known, Mapping) or known.get("format") != FORMAT:
        raise ValueError(f"it does not say that it is of format {FORMAT}")
    try:
        found: Progress = _read(Progress, known)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not the progress of a run: {error!r}") from None
    return found


def _read(kind: Any, value: Any) -> Any:
    if get_origin(kind) is UnionType:
        inner = next(one for one in get_args(kind) if one is not type(None))
        return None if value is None else _read(inner, value)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        names = {one.name for one in fields(kind)}
        return kind(**{name: _read(hints[name], each) for name, each in value.items() if name in names})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], each) for each in value)
    return value
