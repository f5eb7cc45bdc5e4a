"""What an operator says about x402: on which networks, in which assets, to which address, settled by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import ASSETS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetSettings:
    # BTC, SBTC, USDC, …: what the oracle calls it.
    code: str
    # Its name on the wire: a contract's address, or `STX`.
    id: str
    # What signing clients need besides, such as name and version of an EIP-712 domain.
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    # CAIP-2.
    network: str
    pay_to: str
    assets: tuple[AssetSettings, ...]
    schemes: tuple[str, ...] = ("exact",)
    # `in_process`, or the address of a facilitator or relay.
    facilitator: str = IN_PROCESS
    # Files with what a hosted facilitator wants to see (`credentials.py`).
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def parse(given: Mapping[str, Any]) -> X402Settings | None:
    """None where nothing is configured. Raises InvalidRequest naming what is wrong."""
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


def _asset(given: object, network: str) -> AssetSettings:
    if not isinstance(given, Mapping):
        raise _wrong(network, "each asset is an object")
    code = _text(given, "code", network)
    if code not in ASSETS:
        raise _wrong(network, f"unknown asset {code}; known are {', '.join(sorted(ASSETS))}")
    extra = {name: value for name, value in given.items() if name not in ("code", "id")}
    return AssetSettings(code=code, id=_text(given, "id", network), extra=extra)


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
