"""A `Way` tells the checkout what is taken on a chain, who checks and settles it, how its nonce is read and
how its fate is looked up. Chains register theirs; nothing here names one. `Opening` is what a chain's opener
is given to make its ways.

The operator's settings for x402 are read here: on which networks, in which assets, to which address, settled
by whom.
"""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from sandboxer.kernel.clock import Clock, parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.payments.chains.contract import Check, Standings
from sandboxer.payments.rates import ASSETS, Asset
from sandboxer.payments.records import Payment

IN_PROCESS = "in_process"
_NETWORK_FIELDS = frozenset(
    {
        "network",
        "pay_to",
        "assets",
        "schemes",
        "facilitator",
        "facilitator_auth",
        "rpc_url",
        "second_rpc_url",
        "confirmations",
        "missing_blocks",
        "options",
    }
)
_FIELDS = frozenset(
    {
        "networks",
        "signer_key_file",
        "minimum_sats",
        "pending_limit_sats",
        "unsettled_limit",
        "offer_for",
        "settle_timeout",
    }
)


@value_class
class NetworkSettings:
    # CAIP-2.
    network: str
    pay_to: str
    assets: tuple[Accepted, ...]
    schemes: tuple[str, ...] = ("exact",)
    # `in_process`, or the address of a facilitator or relay.
    facilitator: str = IN_PROCESS
    # Files with what a hosted facilitator wants to see.
    facilitator_auth: Mapping[str, Any] = field(default_factory=dict)
    # A node to ask what became of a payment.
    rpc_url: str | None = None
    # Another, of somebody else: nothing is taken back unless both say so.
    second_rpc_url: str | None = None
    confirmations: int = 1
    # For how many blocks a payment that was final must be missing before it is taken back.
    missing_blocks: int = 12
    # For the chain's own opener.
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.network.partition(":")[0]


@value_class
class X402Settings:
    networks: tuple[NetworkSettings, ...]
    signer_key_file: str | None = None
    # No offer is smaller: chains have fees.
    minimum_sats: int = 100
    # What one payer may have credited before it is final.
    pending_limit_sats: int = 20_000
    # How many payments of one payer may be under way at once.
    unsettled_limit: int = 3
    # For how long a price is good.
    offer_for: timedelta = timedelta(minutes=5)
    # How long a settlement is waited for before it is `settlement_pending`.
    settle_timeout: timedelta = timedelta(seconds=30)


def read_settings(given: Mapping[str, Any]) -> X402Settings | None:
    """Read the settings; None where nothing is configured. Raises InvalidRequest naming what is wrong."""
    if not given:
        return None
    _only(given, _FIELDS, "x402")
    networks = given.get("networks")
    if not isinstance(networks, Sequence) or isinstance(networks, str) or not networks:
        raise _wrong("networks", "it lists at least one network")
    values: dict[str, Any] = {}
    for name in ("minimum_sats", "pending_limit_sats", "unsettled_limit"):
        if name in given:
            values[name] = _whole(given[name], name)
    for name in ("offer_for", "settle_timeout"):
        if name in given:
            values[name] = parse_duration(_text(given, name, "x402"), field=f"x402.{name}")
    if given.get("signer_key_file") is not None:
        values["signer_key_file"] = _text(given, "signer_key_file", "x402")
    return X402Settings(networks=tuple(_network(entry) for entry in networks), **values)


def _network(given: object) -> NetworkSettings:
    if not isinstance(given, Mapping):
        raise _wrong("networks", "each is an object")
    network = _text(given, "network", "networks")
    if network.count(":") != 1:
        raise _wrong("networks", f"{network} is no CAIP-2 name such as eip155:8453")
    _only(given, _NETWORK_FIELDS, network)
    assets = given.get("assets")
    if not isinstance(assets, Sequence) or isinstance(assets, str) or not assets:
        raise _wrong(network, "it names at least one asset")
    schemes = given.get("schemes", ["exact"])
    if not isinstance(schemes, Sequence) or not all(isinstance(one, str) for one in schemes) or not schemes:
        raise _wrong(network, "schemes is a list of words")
    return NetworkSettings(
        network=network,
        pay_to=_text(given, "pay_to", network),
        assets=tuple(_asset(one, network) for one in assets),
        schemes=tuple(schemes),
        facilitator=_text(given, "facilitator", network) if "facilitator" in given else IN_PROCESS,
        facilitator_auth=_object(given.get("facilitator_auth"), network),
        rpc_url=_optional(given, "rpc_url", network),
        second_rpc_url=_optional(given, "second_rpc_url", network),
        confirmations=_whole(given.get("confirmations", 1), f"{network}.confirmations"),
        missing_blocks=_whole(given.get("missing_blocks", 12), f"{network}.missing_blocks"),
        options=dict(given.get("options") or {}),
    )


def _asset(given: object, network: str) -> Accepted:
    if not isinstance(given, Mapping):
        raise _wrong(network, "each asset is an object")
    if (code := _text(given, "code", network)) not in ASSETS:
        raise _wrong(network, f"unknown asset {code}; known are {', '.join(sorted(ASSETS))}")
    extra = {name: value for name, value in given.items() if name not in ("code", "id")}
    return Accepted(asset=ASSETS[code], id=_text(given, "id", network), extra=extra)


def _only(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if unknown := sorted(set(given) - known):
        raise _wrong(where, f"unknown {unknown[0]}; known are {', '.join(sorted(known))}")


def _text(given: Mapping[str, Any], name: str, where: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise _wrong(where, f"{name} is a text")
    return value


def _object(given: object, where: str) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise _wrong(where, "facilitator_auth is an object")
    return dict(given or {})


def _optional(given: Mapping[str, Any], name: str, where: str) -> str | None:
    return None if given.get(name) is None else _text(given, name, where)


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 10**15:
        raise _wrong(name, "it is a whole number above zero")
    return value


def _wrong(where: str, why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"{where}: {why}")


if TYPE_CHECKING:
    from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse


@value_class
class Accepted:
    """An asset that is taken: `id` is its name on the wire (a contract, or `STX`)."""

    asset: Asset
    id: str
    # What the scheme's client needs to sign, such as an EIP-712 domain.
    extra: Mapping[str, Any] = field(default_factory=dict)


@value_class
class Authorization:
    """What a presented payment says of itself, before anybody has checked it."""

    # Canonical: the same wallet never has two spellings.
    payer: str
    nonce: str
    amount: int
    valid_until: datetime | None


class Fate(StrEnum):
    # Not on the chain, and it still can be.
    UNSEEN = "unseen"
    # On its way; nothing more is known.
    SEEN = "seen"
    CONFIRMED = "confirmed"
    # It can never be: spent by something else, expired, aborted.
    FAILED = "failed"
    REPLACED = "replaced"
    FORGOTTEN = "forgotten"
    # Whoever was asked cannot tell: it is behind, has forgotten, or contradicts itself.
    UNKNOWN = "unknown"


@value_class
class Sighting:
    fate: Fate
    txid: str | None = None
    # Hash and height of the block it is in.
    block: str | None = None
    height: int | None = None
    confirmations: int = 0
    # The chain's height when it was looked at; None: nobody looked at the chain.
    head: int | None = None
    # Whether the block in which it was once confirmed is still the chain's; None: that was not looked up.
    is_block_there: bool | None = None
    # Something else has spent its nonce for good.
    is_spent_otherwise: bool = False
    # A stable word, such as a terminal reason of the relay.
    reason: str = ""


class Facilitator(Protocol):
    """Checks and settles payments; the x402 package's own classes have this shape. It may raise anything and
    may never answer.
    """

    async def verify(self, payload: PaymentPayload, requirements: PaymentRequirements) -> VerifyResponse: ...

    async def settle(self, payload: PaymentPayload, requirements: PaymentRequirements) -> SettleResponse: ...


class Reader(Protocol):
    def read(self, payload: PaymentPayload) -> Authorization:
        """Read what a payment says of itself. Raises InvalidRequest for what is no payment of this kind."""

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """Return whether the payer signed it, without asking a chain."""

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """Return whether the payer is a key, the same on every chain, and not a contract of this one."""


class Watcher(Protocol):
    async def look(self, payment: Payment) -> Sighting:
        """Return what the chain says of a payment now. Raises ChainUnavailable."""


@value_class
class Way:
    # CAIP-2.
    network: str
    scheme: str
    pay_to: str
    accepts: tuple[Accepted, ...]
    facilitator: Facilitator = field(repr=False)
    reader: Reader = field(repr=False)
    watcher: Watcher = field(repr=False)
    # Asks a second node, where the operator named one: nothing is taken back unless both say so.
    witness: Watcher | None = field(repr=False, default=None)
    # Whether its network is what the settings say.
    check: Check | None = field(repr=False, default=None)
    # How deep a transaction must be to be final.
    confirmations: int = 1
    # For how many blocks a payment that was final must be missing before it is taken back.
    missing_blocks: int = 12
    # Whether a successful settle means that it is in a block, or only that it was broadcast.
    settles_in_block: bool = False
    # Whether less than was signed may be settled.
    settles_less: bool = False
    # For how long a payer's signature should be good.
    timeout_s: int = 300
    # What the scheme wants in every requirement beside the asset's own.
    extra: Mapping[str, Any] = field(default_factory=dict)
    # Names of the network in version 1 of the protocol.
    v1_names: tuple[str, ...] = ()

    def accepted(self, asset_id: str) -> Accepted | None:
        return next((one for one in self.accepts if one.id.lower() == asset_id.lower()), None)


@value_class
class Opening:
    clock: Clock
    # For nodes, facilitators and relays.
    client: httpx.AsyncClient = field(repr=False)
    # The operator's key that pays for gas.
    signer_key: str | None = field(repr=False, default=None)
    settle_timeout: timedelta = timedelta(seconds=30)


# By CAIP-2 namespace: `eip155`, `stacks`.
Opener = Callable[[NetworkSettings, Opening], Awaitable[list[Way]]]


class Ways(Standings):
    """The registered ways, in the order in which they are offered; networks can be off."""

    def __init__(self) -> None:
        super().__init__()
        self._ways: dict[tuple[str, str], Way] = {}

    def register(self, way: Way) -> None:
        if (way.network, way.scheme) in self._ways:
            raise InvalidRequest(field="x402", why=f"{way.scheme} on {way.network} is given twice")
        self._ways[way.network, way.scheme] = way

    def find(self, network: str, scheme: str) -> Way | None:
        return self._ways.get((network, scheme))

    @property
    def open_ones(self) -> list[Way]:
        return [way for way in self if self.why_off(way.network) is None]

    def of_v1(self, name: str, scheme: str) -> Way | None:
        return next((w for w in self if w.scheme == scheme and name in (w.network, *w.v1_names)), None)

    def __iter__(self) -> Iterator[Way]:
        return iter(self._ways.values())


def read_secret(path: Path, setting: str) -> str:
    """Read a file that holds a secret. Raises InvalidRequest if it cannot be read, or others may read it."""
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii").strip()
    except (OSError, ValueError):
        raise _wrong(setting, f"{path} cannot be read") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _wrong(setting, f"others may read {path}; chmod 600 it")
    return text
