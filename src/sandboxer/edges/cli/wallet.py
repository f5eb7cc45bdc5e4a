"""`wallet create|show|address|cap|balance|send`: an agent's own wallet, on this machine."""

from __future__ import annotations

import asyncio
import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, err, facts_table, out, print_json
from sandboxer.kernel.clock import SystemClock
from sandboxer.payments.assets import ASSETS, as_text, asset_named, to_atomic
from sandboxer.payments.chains.configuration import CHAINS, ChainPlan, chains_from_json
from sandboxer.payments.wallet.agent import AgentWallet, create_wallet, open_payer, open_wallet
from sandboxer.payments.wallet.caps import DAY, Cap

app = typer.Typer(help="Keep a wallet of your own, with caps.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"wallet": app}

NODE = "Which node"
DEFAULT = Path("~/.config/sandboxer/agent.wallet")
ADDRESSES = ("EVM", "STX", "BTC", "LTC", "DOGE")

File = Annotated[Path, typer.Option("--file", help="The wallet's file.")]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="Read its password there; without: asked for.")
]
Network = Annotated[str, typer.Option("--network", help="mainnet, testnet or regtest.")]
Coin = Annotated[str, typer.Argument(help=", ".join(CHAINS), metavar="COIN")]
Rpc = Annotated[str | None, typer.Option("--rpc", help="A Core-style node.", rich_help_panel=NODE)]
Esplora = Annotated[str | None, typer.Option("--esplora", help="An Esplora server.", rich_help_panel=NODE)]
WalletRpc = Annotated[
    str | None, typer.Option("--wallet-rpc", help="monero-wallet-rpc.", rich_help_panel=NODE)
]
User = Annotated[str | None, typer.Option("--user", help="Login at the node.", rich_help_panel=NODE)]
NodePassword = Annotated[
    Path | None, typer.Option("--node-password-file", help="Its password.", rich_help_panel=NODE)
]


@app.command("create")
def create(
    file: File = DEFAULT,
    words_file: Annotated[
        Path | None, typer.Option("--words-file", help="Take the seed's words from there; without: new ones.")
    ] = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Make a wallet. It spends nothing until caps are set.

    Examples:

        sandboxer wallet create --password-file pw
    """
    words = None if words_file is None else words_file.read_text("utf-8")
    wallet = create_wallet(file.expanduser(), _password(password_file, twice=True), words=words)
    _show(wallet, json=json)
    if words is None:
        err.print("[yellow]Write the seed down: sandboxer wallet show --words[/]")


@app.command("show")
def show(
    file: File = DEFAULT,
    password_file: PasswordFile = None,
    words: Annotated[bool, typer.Option("--words", help="Print the seed's words, and nothing else.")] = False,
    json: Json = False,
) -> None:
    """Show addresses, caps and what was spent in the last 24 hours.

    Examples:

        sandboxer wallet show --json
    """
    wallet = open_file(file, password_file)
    if words:
        print(wallet.seed.words)
        return
    _show(wallet, json=json)


@app.command("address")
def address(
    coin: Annotated[str, typer.Argument(help=", ".join(ADDRESSES), metavar="COIN")],
    file: File = DEFAULT,
    password_file: PasswordFile = None,
    network: Network = "mainnet",
    json: Json = False,
) -> None:
    """Print where this wallet receives.

    Examples:

        sandboxer wallet address LTC
    """
    found = _address(open_file(file, password_file), coin.upper(), network)
    if json:
        print_json({"coin": coin.upper(), "address": found})
        return
    print(found)


@app.command("cap")
def cap(
    coin: Annotated[str, typer.Argument(help=", ".join(ASSETS), metavar="COIN")],
    per_payment: Annotated[str, typer.Option(help="The most for one payment, fee included.")],
    per_day: Annotated[str, typer.Option(help="The most in 24 hours.")],
    file: File = DEFAULT,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Let the wallet spend this coin, up to here.

    Examples:

        sandboxer wallet cap LTC --per-payment 0.5 --per-day 2
    """
    asset = asset_named(coin)
    wallet = open_file(file, password_file)
    wallet.set_cap(asset.code, Cap(to_atomic(per_payment, asset), to_atomic(per_day, asset)))
    if json:
        print_json({"coin": asset.code, "per_payment": per_payment, "per_day": per_day})
        return
    out.print(f"{asset.code}: {per_payment} for a payment, {per_day} a day.")


@app.command("balance")
def balance(
    coin: Coin,
    rpc: Rpc = None,
    esplora: Esplora = None,
    wallet_rpc: WalletRpc = None,
    user: User = None,
    node_password_file: NodePassword = None,
    network: Network = "mainnet",
    file: File = DEFAULT,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Ask a node what this wallet could spend.

    Examples:

        sandboxer wallet balance BTC --esplora https://esplora.example/api
    """
    plan = _plan(coin, rpc, esplora, wallet_rpc, user, node_password_file, network)
    wallet = open_file(file, password_file)

    async def ask() -> int:
        async with open_payer(wallet, plan, SystemClock()) as payer:
            return await payer.balance()

    amount = as_text(asyncio.run(ask()), ASSETS[plan.code])
    if json:
        print_json({"coin": plan.code, "balance": amount})
        return
    out.print(f"{amount} {plan.code}")


@app.command("send")
def send(
    coin: Coin,
    to: Annotated[str, typer.Argument(help="Address of the payee.", metavar="ADDRESS")],
    amount: Annotated[str, typer.Argument(help="How much, in whole coins.", metavar="AMOUNT")],
    rpc: Rpc = None,
    esplora: Esplora = None,
    wallet_rpc: WalletRpc = None,
    user: User = None,
    node_password_file: NodePassword = None,
    network: Network = "mainnet",
    file: File = DEFAULT,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Pay, within the caps. Prints the transaction's id.

    Examples:

        sandboxer wallet send LTC ltc1q… 0.25 --rpc http://127.0.0.1:9332 --user u --node-password-file pw
    """
    plan = _plan(coin, rpc, esplora, wallet_rpc, user, node_password_file, network)
    atomic = to_atomic(amount, ASSETS[plan.code])
    wallet = open_file(file, password_file)

    async def pay() -> str:
        async with open_payer(wallet, plan, SystemClock()) as payer:
            return await payer.send(to, atomic)

    txid = asyncio.run(pay())
    if json:
        print_json({"coin": plan.code, "txid": txid, "amount": as_text(atomic, ASSETS[plan.code])})
        return
    print(txid)


def _plan(
    coin: str,
    rpc: str | None,
    esplora: str | None,
    wallet_rpc: str | None,
    user: str | None,
    password_file: Path | None,
    network: str,
) -> ChainPlan:
    given = {
        "rpc": rpc,
        "esplora": esplora,
        "wallet_rpc": wallet_rpc,
        "user": user,
        "password_file": None if password_file is None else str(password_file),
        "network": network,
        # The wallet's own key takes its place; the reader of plans only wants to see one.
        "xpub": None if coin.upper() == "XMR" else "of the wallet",
    }
    (plan,) = chains_from_json({coin.upper(): {name: value for name, value in given.items() if value}})
    return plan


def open_file(file: Path, password_file: Path | None) -> AgentWallet:
    return open_wallet(file.expanduser(), _password(password_file))


def _password(file: Path | None, *, twice: bool = False) -> str:
    if file is not None:
        return file.read_text("utf-8").rstrip("\n")
    if not sys.stdin.isatty():
        raise CommandFailed("the wallet's password is needed", next_step="Give it with --password-file FILE.")
    password = getpass.getpass("Password of the wallet: ")
    if twice and getpass.getpass("Again: ") != password:
        raise CommandFailed("the two passwords differ", next_step="Try again.")
    return password


def _address(wallet: AgentWallet, coin: str, network: str) -> str:
    if coin == "EVM":
        return wallet.seed.evm_address()
    if coin == "STX":
        return wallet.seed.stacks_address(mainnet=network == "mainnet")
    if coin not in ADDRESSES:
        raise CommandFailed(f"no address for {coin} here", next_step=f"One of {', '.join(ADDRESSES)}.")
    return wallet.seed.account(coin, network).address(0)


def _show(wallet: AgentWallet, *, json: bool) -> None:
    addresses = {coin: _address(wallet, coin, "mainnet") for coin in ADDRESSES}
    caps = {
        code: {
            "per_payment": as_text(cap.per_payment, ASSETS[code]),
            "per_day": as_text(cap.per_day, ASSETS[code]),
            "spent": as_text(_spent(wallet, code), ASSETS[code]),
        }
        for code, cap in wallet.caps.items()
    }
    if json:
        print_json({"addresses": addresses, "caps": caps})
        return
    out.print(facts_table(addresses.items()))
    rows = [(code, each["per_payment"], each["per_day"], each["spent"]) for code, each in caps.items()]
    if rows:
        out.print(columns(rows, "COIN", "A PAYMENT", "A DAY", "SPENT TODAY"))
    else:
        out.print("No caps yet, so it spends nothing: sandboxer wallet cap …")


def _spent(wallet: AgentWallet, code: str) -> int:
    since = datetime.now(UTC) - DAY
    return sum(each.amount for each in wallet.content.journal if each.asset == code and each.at > since)
