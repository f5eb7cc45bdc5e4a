"""The chains that an operator watches are read from one JSON setting and opened here.

Reading the setting is pure: files are opened by `open_chain` alone, the only place that reads node passwords.
Secrets are never in the setting itself, which is printed by `sandboxer config`: only where they lie.

The settings of the hot wallet are read here too: a file, where its password lies, and its caps. Caps bound
what a wallet may spend per payment and per day, by asset; an asset without a cap cannot be spent at all.
Deciding by them is pure; the wallet records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.payments.chains.addresses import MONERO_PREFIXES, network_of
from sandboxer.payments.chains.contract import Chain
from sandboxer.payments.rates import ASSETS, to_atomic

if TYPE_CHECKING:
    # What reads keys and addresses of a coin is loaded only where that coin is taken.
    from sandboxer.payments.chains import bitcoin, core_rpc, core_wallet, esplora, monero
else:
    core_rpc = late("sandboxer.payments.chains.core_rpc")
    core_wallet = late("sandboxer.payments.chains.core_wallet")
    bitcoin = late("sandboxer.payments.chains.bitcoin")
    esplora = late("sandboxer.payments.chains.esplora")
    monero = late("sandboxer.payments.chains.monero")

DAY = timedelta(days=1)
_FIELDS = ("file", "password_file", "caps")
_CAP_FIELDS = ("payment", "day")
CHAINS = ("BTC", "LTC", "DOGE", "XMR")
_MOST_CONFIRMATIONS = 1000
_TEXTS = ("network", "xpub", "script", "user", "wallet")
_FILES = ("password_file", "cookie_file")


class Source(StrEnum):
    """Which software reports about the chain; also the name of the setting that holds its URL."""

    RPC = "rpc"
    ESPLORA = "esplora"
    WALLET_RPC = "wallet_rpc"


_SOURCES_OF: Mapping[str, tuple[Source, ...]] = {
    "BTC": (Source.RPC, Source.ESPLORA),
    "LTC": (Source.RPC, Source.ESPLORA),
    "DOGE": (Source.RPC, Source.ESPLORA),
    "XMR": (Source.WALLET_RPC,),
}


@brief_value_class
class ChainPlan:
    """One chain as configured; `open_chain` turns it into an adapter."""

    code: str
    source: Source
    url: str
    confirmations: int
    network: str = "mainnet"
    # Deposits go to addresses of this key (not for Monero, whose wallet has it).
    xpub: str | None = None
    script: str | None = None
    user: str | None = None
    password_file: Path | None = None
    cookie_file: Path | None = None
    # The node's watch-only wallet.
    wallet: str = "sandboxer-watch"
    # The day before which the key was never used: a new watch-only wallet reads the chain from here on.
    birthday: date | None = None
    # Monero: the account whose subaddresses are handed out, and a daemon to compare the wallet with.
    account: int = 0
    daemon: str | None = None


_OPTIONAL = {each.name for each in fields(ChainPlan)} - {"code", "source", "url"}
Adapter: TypeAlias = "core_rpc.CoreRpc | esplora.Esplora | monero.MoneroWallet"


def chains_from_json(raw: Mapping[str, Mapping[str, Any]]) -> tuple[ChainPlan, ...]:
    """`{"LTC": {"rpc": "http://127.0.0.1:9332", "user": "u", "password_file": "/…", "xpub": "zpub…"}}`."""
    return tuple(_plan(code, given) for code, given in raw.items())


def _plan(code: str, given: Mapping[str, Any]) -> ChainPlan:
    if code not in CHAINS:
        raise _wrong(code, f"is not a chain known here ({', '.join(CHAINS)})")
    if not isinstance(given, Mapping):
        raise _wrong(code, "must be an object")
    sources = [source for source in _SOURCES_OF[code] if source in given]
    if len(sources) != 1:
        raise _wrong(code, f"needs exactly one of {', '.join(_SOURCES_OF[code])}")
    rest = {name: value for name, value in given.items() if name != sources[0]}
    if unknown := sorted(set(rest) - _OPTIONAL):
        raise _wrong(code, f"has no field {unknown[0]!r} (there are {', '.join(sorted(_OPTIONAL))})")
    if code != "XMR" and "xpub" not in rest:
        raise _wrong(code, "needs an xpub: the key whose addresses are handed out")
    default = ASSETS[code].confirmations
    assert default is not None, "every chain counts confirmations"
    depth = _number(code, "confirmations", rest.get("confirmations", default), 1, _MOST_CONFIRMATIONS)
    account = _number(code, "account", rest.get("account", 0), 0, 2**31)
    texts = {name: _text(code, name, rest[name]) for name in _TEXTS if name in rest}
    files = {name: Path(_text(code, name, rest[name])) for name in _FILES if name in rest}
    daemon = _url(code, rest["daemon"]) if "daemon" in rest else None
    plan = ChainPlan(code, sources[0], _url(code, given[sources[0]]), depth, account=account, daemon=daemon)
    optional: dict[str, Any] = {**texts, **files}
    if "birthday" in rest:
        optional["birthday"] = _day(code, sources[0], rest["birthday"])
    return replace(plan, **optional)


def _url(code: str, value: Any) -> str:
    parts = urlsplit(_text(code, "url", value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _wrong(code, "needs a URL that begins with http:// or https://")
    if parts.username or parts.password:
        raise _wrong(code, "must not have a password in its URL; use user and password_file")
    return parts.geturl()


def _text(code: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(code, f"needs a text as {name}")
    return value.strip()


def _day(code: str, source: Source, value: Any) -> date:
    if source is not Source.RPC:
        raise _wrong(code, f"needs no birthday with {source}: it tells the whole past of any address")
    try:
        return date.fromisoformat(_text(code, "birthday", value))
    except ValueError:
        raise _wrong(code, "needs a day such as 2026-01-31 as birthday") from None


def _number(code: str, name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _wrong(code, f"needs a whole number between {least} and {most} as {name}")
    return value


def _wrong(code: str, why: str) -> InvalidRequest:
    return InvalidRequest(field="chains", why=f"{code[:20]} {why}")


@asynccontextmanager
async def open_chains(
    plans: Sequence[ChainPlan], *, watched_for: timedelta = timedelta(0)
) -> AsyncIterator[Mapping[str, Chain]]:
    """Open the adapters of all chains, by code. The nodes are not asked anything yet.

    `watched_for` says how long an address is watched after it was handed out.
    """
    async with AsyncExitStack() as stack:
        chains: dict[str, Chain] = {}
        for plan in plans:
            adapter = open_chain(plan, watched_for=watched_for)
            stack.push_async_callback(adapter.close)
            chains[plan.code] = adapter
        yield chains


def open_chain(plan: ChainPlan, *, watched_for: timedelta = timedelta(0)) -> Adapter:
    user, password = login_of(plan)
    if plan.source is Source.WALLET_RPC:
        known = MONERO_PREFIXES
        if plan.network not in known:
            raise InvalidRequest(field="chains", why=f"XMR: network is one of {', '.join(known)}")
        return monero.MoneroWallet(
            plan.url,
            user=user or None,
            password=password,
            account=plan.account,
            network=plan.network,
            daemon_url=plan.daemon,
        )
    keys = _keys(plan)
    if plan.source is Source.ESPLORA:
        return esplora.Esplora(keys.network, plan.url, keys=keys)
    return core_rpc.CoreRpc(
        keys.network,
        plan.url,
        user=user,
        password=password,
        keys=keys,
        wallet=plan.wallet,
        birthday=_moment(plan.birthday),
        look_back_s=max(core_wallet.LOOK_BACK_S, int(watched_for.total_seconds())),
    )


def _moment(day: date | None) -> int | None:
    return None if day is None else int(datetime.combine(day, time(), UTC).timestamp())


def _keys(plan: ChainPlan) -> bitcoin.AccountKey:
    assert plan.xpub is not None, "configuration asks for it"
    try:
        script = bitcoin.Script(plan.script) if plan.script else None
    except ValueError:
        raise InvalidRequest(
            field="chains", why=f"{plan.code}: script is one of {list(bitcoin.Script)}"
        ) from None
    return bitcoin.read_account_key(plan.xpub, network_of(plan.code, plan.network), script)


def login_of(plan: ChainPlan) -> tuple[str, str]:
    """Read user and password from the files that the plan names."""
    if plan.cookie_file:
        user, _, password = _secret(plan.cookie_file).partition(":")
        return user, password
    return plan.user or "", _secret(plan.password_file) if plan.password_file else ""


def _secret(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(field="chains", why=f"{path} cannot be read: {type(error).__name__}") from None


@brief_value_class
class Cap:
    """Atomic units; `per_day` counts the last 24 hours."""

    per_payment: int
    per_day: int

    def __post_init__(self) -> None:
        if not 0 <= self.per_payment <= self.per_day:
            raise InvalidRequest(field="cap", why="0 ≤ per payment ≤ per day is needed")


@brief_value_class
class Spent:
    id: str
    asset: str
    amount: int
    at: datetime


@value_class
class HotWalletPlan:
    file: Path
    password_file: Path
    # By coin, in its smallest unit. Without a cap nothing is sent in a coin.
    caps: Mapping[str, Cap]


_SET_CAP = "Its owner sets another cap, or pays from another wallet."


def check_spend(cap: Cap | None, journal: Iterable[Spent], asset: str, amount: int, *, now: datetime) -> None:
    """Raises `Forbidden` when this payment would pass a cap. What is sent counts, fees included."""
    if amount <= 0:
        raise InvalidRequest(field="amount", why="nothing to pay")
    if cap is None:
        raise Forbidden(why=f"this wallet has no cap for {asset}, so it spends none", hint=_SET_CAP)
    if amount > cap.per_payment:
        raise Forbidden(
            why=f"{amount} is above the cap of {cap.per_payment} for one {asset} payment", hint=_SET_CAP
        )
    today = sum(each.amount for each in journal if each.asset == asset and each.at > now - DAY)
    if today + amount > cap.per_day:
        raise Forbidden(
            why=f"{amount} on top of {today} in 24 hours is above the cap of {cap.per_day} {asset} a day",
            hint=_SET_CAP,
        )


def read_hot_wallet(given: Mapping[str, Any], chains: frozenset[str]) -> HotWalletPlan | None:
    """`{"file": "/…/hot.wallet", "password_file": "/…", "caps": {"LTC": {"payment": "1", "day": "5"}}}`, caps
    in whole coins. None: there is no hot wallet, and refunds wait for the operator."""
    if not given:
        return None
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise _wrong_wallet(f"has no field {unknown[0]!r} (there are {', '.join(_FIELDS)})")
    caps = given.get("caps")
    if not isinstance(caps, Mapping) or not caps:
        raise _wrong_wallet('needs caps: {"LTC": {"payment": "1", "day": "5"}}')
    if strange := sorted(set(caps) - chains):
        raise _wrong_wallet(f"caps {strange[0]}, which is not among the chains that invoices are paid on")
    return HotWalletPlan(
        file=_path(given, "file"),
        password_file=_path(given, "password_file"),
        caps={code: _cap(code, cap) for code, cap in caps.items()},
    )


def _path(given: Mapping[str, Any], name: str) -> Path:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _wrong_wallet(f"needs a path as {name}")
    return Path(value).expanduser()


def _cap(code: str, given: object) -> Cap:
    if not isinstance(given, Mapping) or set(given) != set(_CAP_FIELDS):
        raise _wrong_wallet(f"needs exactly payment and day as the cap of {code}")
    amounts = []
    for name in _CAP_FIELDS:
        # No numbers: JSON's are binary fractions for many who write them.
        if not isinstance(given[name], str):
            raise _wrong_wallet(f'needs a text like "1.5" as {name} of {code}')
        amounts.append(to_atomic(given[name], ASSETS[code]))
    return Cap(*amounts)


def _wrong_wallet(why: str) -> InvalidRequest:
    return InvalidRequest(field="hot_wallet", why=f"it {why}")
