"""The wallets that `agent run` pays with: an EVM key in a file, or one's own wallet, for x402 and for coins.

A wallet is opened when it is first asked to sign, so that one which cannot be opened holds up the run at that
step, under a name.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.wallet import open_file, plan_of
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import Conflict, Refused, SandboxerError
from sandboxer.kernel.program import late
from sandboxer.sdk.agent.outside import PayerWallet
from sandboxer.sdk.agent.payment import CoinWallet, NotBroadcast, Signed, WalletLocked, X402Wallet
from sandboxer.sdk.agent.progress import Way

if TYPE_CHECKING:
    from sandboxer.payments.chains import configuration
    from sandboxer.payments.wallet import agent, spenders, x402
    from sandboxer.sdk import payers
else:
    agent, x402 = late("sandboxer.payments.wallet.agent"), late("sandboxer.payments.wallet.x402")
    spenders, payers = late("sandboxer.payments.wallet.spenders"), late("sandboxer.sdk.payers")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the command line says about wallets."""

    wallet: Path
    password_file: Path | None
    key_file: Path | None
    network: str | None
    asset: str | None
    most: int | None
    tokens: tuple[str, ...]
    coin: str | None
    coin_network: str
    node: Mapping[str, str | None]
    node_password_file: Path | None


def wallets_of(way: Way, chosen: Chosen) -> tuple[X402Wallet | None, CoinWallet | None]:
    """Returns what pays in this way; nothing is opened yet."""
    if way is Way.INVOICE:
        if chosen.coin is None:
            raise typer.BadParameter("--pay invoice needs --coin, and a node: --rpc, --esplora …")
        return None, OwnCoins(chosen)
    if way is not Way.X402:
        return None, None
    return (OwnTokens(chosen) if chosen.key_file is None else _of_key(chosen, chosen.key_file)), None


def _of_key(chosen: Chosen, file: Path) -> X402Wallet:
    if chosen.network is None or chosen.asset is None or chosen.most is None:
        raise typer.BadParameter("--key-file needs --network, --asset and --most")
    if os.stat(file).st_mode & 0o077:
        raise typer.BadParameter(f"others may read {file}; chmod 600 it", param_hint="--key-file")
    cap = payers.Cap(
        network=chosen.network, asset=chosen.asset, per_payment=chosen.most, in_total=chosen.most
    )
    payer = payers.EvmPayer(file.read_text().strip(), [cap])
    return PayerWallet(payer, payer.sign_text)


class _Opened:
    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._wallet: agent.AgentWallet | None = None

    def open(self) -> agent.AgentWallet:
        if self._wallet is None:
            try:
                self._wallet = open_file(self._chosen.wallet, self._chosen.password_file)
            except (SandboxerError, CommandFailed, OSError, UnicodeError) as error:
                raise WalletLocked(str(error)) from None
        return self._wallet


class OwnTokens(_Opened):
    """One's own wallet, for x402."""

    def sign_payment(self, required: Mapping[str, Any]) -> str:
        tokens = [x402.token_named(text) for text in self._chosen.tokens]
        payer = x402.X402Payer(self.open(), SystemClock(), tokens=tokens)
        try:
            return str(payer(required))
        except Refused as error:
            raise WalletLocked(str(error)) from None

    def sign_text(self, text: str) -> str:
        return payers.EvmPayer(self.open().seed.evm_key().hex(), []).sign_text(text)


class OwnCoins(_Opened):
    """One's own wallet, for invoices. What is signed counts against the caps before it can be sent."""

    def prepare(self, address: str, atomic: int) -> Signed:
        wallet = self.open()

        async def prepared(spender: agent.Preparing) -> Signed:
            made = await spender.prepare(address, atomic)
            wallet.charge(made.txid, spender.code, atomic + made.fee, now=SystemClock().now())
            return Signed(made.txid, made.raw.hex())

        try:
            return self._with_spender(prepared)
        except Conflict as error:
            raise NotBroadcast(str(error)) from None
        except Refused as error:
            raise WalletLocked(str(error)) from None

    def broadcast(self, signed: Signed) -> None:
        prepared = spenders.Prepared(signed.txid, bytes.fromhex(signed.raw), 0)

        async def sent(spender: agent.Preparing) -> None:
            if await spender.depth(signed.txid) is None:
                await spender.broadcast(prepared)

        try:
            self._with_spender(sent)
        except WalletLocked:
            raise
        except SandboxerError as error:
            raise NotBroadcast(str(error)) from None

    def _with_spender(self, act: Callable[[agent.Preparing], Awaitable[T]]) -> T:
        wallet, plan = self.open(), self._plan()

        async def acted() -> T:
            async with agent.open_spender(wallet, plan) as spender:
                return await act(spender)

        try:
            return asyncio.run(acted())
        except SandboxerError as error:
            if isinstance(error, Refused):
                raise
            raise NotBroadcast(str(error)) from None

    def _plan(self) -> configuration.ChainPlan:
        node, chosen = self._chosen.node, self._chosen
        assert chosen.coin is not None
        return plan_of(
            chosen.coin,
            node["rpc"],
            node["esplora"],
            node["wallet_rpc"],
            node["user"],
            chosen.node_password_file,
            chosen.coin_network,
        )
