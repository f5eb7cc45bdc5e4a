"""From the operator's words to adapters that listen. The only place that reads node passwords."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.configuration import ChainPlan, Source
from sandboxer.payments.chains.contract import Chain
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.chains.core_wallet import LOOK_BACK_S
from sandboxer.payments.chains.derivation import AccountKey, Script, read_account_key
from sandboxer.payments.chains.esplora import Esplora
from sandboxer.payments.chains.monero import MoneroWallet
from sandboxer.payments.chains.monero_addresses import PREFIXES

Adapter = CoreRpc | Esplora | MoneroWallet


@asynccontextmanager
async def open_chains(
    plans: Sequence[ChainPlan], *, watched_for: timedelta = timedelta(0)
) -> AsyncIterator[Mapping[str, Chain]]:
    """Adapters by code. Nothing is asked of the nodes yet: one that is down must not keep the rest from
    starting. `watched_for`: how long after it was handed out an address may still be asked about."""
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
        if plan.network not in PREFIXES:
            raise InvalidRequest(field="chains", why=f"XMR: network is one of {', '.join(PREFIXES)}")
        return MoneroWallet(
            plan.url,
            user=user or None,
            password=password,
            account=plan.account,
            network=plan.network,
            daemon_url=plan.daemon,
        )
    keys = _keys(plan)
    if plan.source is Source.ESPLORA:
        return Esplora(keys.network, plan.url, keys=keys)
    return CoreRpc(
        keys.network,
        plan.url,
        user=user,
        password=password,
        keys=keys,
        wallet=plan.wallet,
        birthday=_moment(plan.birthday),
        look_back_s=max(LOOK_BACK_S, int(watched_for.total_seconds())),
    )


def _moment(day: date | None) -> int | None:
    return None if day is None else int(datetime.combine(day, time(), UTC).timestamp())


def _keys(plan: ChainPlan) -> AccountKey:
    assert plan.xpub is not None, "configuration asks for it"
    try:
        script = Script(plan.script) if plan.script else None
    except ValueError:
        raise InvalidRequest(field="chains", why=f"{plan.code}: script is one of {list(Script)}") from None
    return read_account_key(plan.xpub, network_of(plan.code, plan.network), script)


def login_of(plan: ChainPlan) -> tuple[str, str]:
    """User and password, read from where the plan says they lie."""
    if plan.cookie_file:
        user, _, password = _secret(plan.cookie_file).partition(":")
        return user, password
    return plan.user or "", _secret(plan.password_file) if plan.password_file else ""


def _secret(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(field="chains", why=f"{path} cannot be read: {type(error).__name__}") from None
