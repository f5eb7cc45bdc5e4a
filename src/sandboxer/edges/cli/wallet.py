"""`wallet create|show|address|cap|balance|send`: a wallet of one's own, on this machine.

`wallet link|list|unlink|end-sessions|sign-in|…`: the wallets of this account, its other factor.
"""

from __future__ import annotations

import asyncio
import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import (
    GivenProof,
    Json,
    StateDir,
    Url,
    Wallet,
    WalletFile,
    client,
    with_wallet,
)
from sandboxer.edges.cli.output import ago, columns, err, facts_table, out, print_json
from sandboxer.edges.cli.verbs import Answer, gone, group, show_answer, verb
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.program import late
from sandboxer.kernel.values import counted
from sandboxer.sdk.sync.client import Sandboxer

if TYPE_CHECKING:
    from sandboxer.payments import rates
    from sandboxer.payments.chains import configuration
    from sandboxer.payments.wallet import agent
else:
    # Most verbs of wallets are the account's, and the client alone has no chains in it.
    rates, agent = late("sandboxer.payments.rates"), late("sandboxer.payments.wallet.agent")
    configuration = late("sandboxer.payments.chains.configuration")

app = group("A wallet of your own, and those of your account.")
groups = {"wallet": app}

NODE = "Which node"
DEFAULT = Path("~/.config/sandboxer/agent.wallet")
ADDRESSES = ("EVM", "STX", "BTC", "LTC", "DOGE")

File = Annotated[Path, typer.Option("--file", help="The wallet's file.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", help="File with its password alone, as text; without: asked for.", metavar="FILE"
    ),
]
Network = Annotated[str, typer.Option("--network", help="mainnet, testnet or regtest.")]
Coin = Annotated[str, typer.Argument(help="BTC, LTC, DOGE or XMR.", metavar="COIN")]
Rpc = Annotated[str | None, typer.Option("--rpc", help="A Core-style node.", rich_help_panel=NODE)]
Esplora = Annotated[str | None, typer.Option("--esplora", help="An Esplora server.", rich_help_panel=NODE)]
WalletRpc = Annotated[
    str | None, typer.Option("--wallet-rpc", help="monero-wallet-rpc.", rich_help_panel=NODE)
]
User = Annotated[str | None, typer.Option("--user", help="Login at the node.", rich_help_panel=NODE)]
NodePassword = Annotated[
    Path | None,
    typer.Option(
        "--node-password-file", help="File with that login's password.", metavar="FILE", rich_help_panel=NODE
    ),
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
    wallet = agent.create_wallet(file.expanduser(), _password(password_file, twice=True), words=words)
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
    coin: Annotated[str, typer.Argument(help="A coin or token: BTC, USDC, SBTC, …", metavar="COIN")],
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
    asset = rates.asset_named(coin)
    wallet = open_file(file, password_file)
    wallet.set_cap(
        asset.code, configuration.Cap(rates.to_atomic(per_payment, asset), rates.to_atomic(per_day, asset))
    )
    value = {"coin": asset.code, "per_payment": per_payment, "per_day": per_day}
    said = f"{asset.code}: {per_payment} for a payment, {per_day} a day."
    show_answer(Answer(value, said), is_json=json)


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
    plan = plan_of(coin, rpc, esplora, wallet_rpc, user, node_password_file, network)
    wallet = open_file(file, password_file)

    async def ask() -> int:
        async with agent.open_payer(wallet, plan, SystemClock()) as payer:
            return await payer.balance()

    amount = rates.as_text(asyncio.run(ask()), rates.ASSETS[plan.code])
    show_answer(Answer({"coin": plan.code, "balance": amount}, f"{amount} {plan.code}"), is_json=json)


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

        sandboxer wallet send LTC ltc1q… 0.25 --user u --node-password-file pw
    """
    plan = plan_of(coin, rpc, esplora, wallet_rpc, user, node_password_file, network)
    atomic = rates.to_atomic(amount, rates.ASSETS[plan.code])
    wallet = open_file(file, password_file)

    async def pay() -> str:
        async with agent.open_payer(wallet, plan, SystemClock()) as payer:
            return await payer.send(to, atomic)

    txid = asyncio.run(pay())
    if json:
        print_json(
            {"coin": plan.code, "txid": txid, "amount": rates.as_text(atomic, rates.ASSETS[plan.code])}
        )
        return
    print(txid)


def plan_of(
    coin: str,
    rpc: str | None,
    esplora: str | None,
    wallet_rpc: str | None,
    user: str | None,
    password_file: Path | None,
    network: str,
) -> configuration.ChainPlan:
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
    (plan,) = configuration.chains_from_json(
        {coin.upper(): {name: value for name, value in given.items() if value}}
    )
    return plan


def open_file(file: Path, password_file: Path | None) -> agent.AgentWallet:
    if not file.expanduser().exists():
        raise CommandFailed(
            f"There is no wallet at {file}.",
            next_step=f"Make one: sandboxer wallet create --file {file}",
        )
    return agent.open_wallet(file.expanduser(), _password(password_file))


def _password(file: Path | None, *, twice: bool = False) -> str:
    if file is not None:
        return file.read_text("utf-8").rstrip("\n")
    if not sys.stdin.isatty():
        raise CommandFailed("the wallet's password is needed", next_step="Give it with --password-file FILE.")
    password = getpass.getpass("Password of the wallet: ")
    if twice and getpass.getpass("Again: ") != password:
        raise CommandFailed("the two passwords differ", next_step="Try again.")
    return password


def _address(wallet: agent.AgentWallet, coin: str, network: str) -> str:
    if coin == "EVM":
        return wallet.seed.evm_address()
    if coin == "STX":
        return wallet.seed.stacks_address(mainnet=network == "mainnet")
    if coin not in ADDRESSES:
        raise CommandFailed(f"no address for {coin} here", next_step=f"One of {', '.join(ADDRESSES)}.")
    return wallet.seed.account(coin, network).address(0)


def _show(wallet: agent.AgentWallet, *, json: bool) -> None:
    addresses = {coin: _address(wallet, coin, "mainnet") for coin in ADDRESSES}
    caps = {
        code: {
            "per_payment": rates.as_text(cap.per_payment, rates.ASSETS[code]),
            "per_day": rates.as_text(cap.per_day, rates.ASSETS[code]),
            "spent": rates.as_text(_spent(wallet, code), rates.ASSETS[code]),
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


def _spent(wallet: agent.AgentWallet, code: str) -> int:
    since = datetime.now(UTC) - configuration.DAY
    return sum(each.amount for each in wallet.content.journal if each.asset == code and each.at > since)


@verb(app, "list")
def list_wallets(platform: Sandboxer) -> Answer:
    """List the wallets of this account.

    Examples:

        sandboxer wallet list
    """
    wallets = platform.wallets.list()
    rows = [
        (one.address, ago(one.created_at), f"revoked {ago(one.revoked_at)}" if one.revoked_at else "")
        for one in wallets
    ]
    return Answer(list(wallets), columns(rows, "ADDRESS", "LINKED", ""))


@app.command("link")
def link_wallet(
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Make a wallet the other factor of this account: it signs in, and confirms what is locked.

    Examples:

        sandboxer wallet link --wallet ~/.wallet.key
    """
    file = _file(wallet)
    with client(url, state_dir, confirm=with_wallet(wallet, proof)) as platform:
        challenge = platform.wallets.challenge()
        linked = platform.wallets.link(challenge.nonce, file.address, file.sign(challenge.message))
    show_answer(Answer(linked, f"linked {linked.address}"), is_json=json)


@verb(app, "unlink")
def revoke_wallet(
    platform: Sandboxer, address: Annotated[str, typer.Argument(help="As `wallet list` shows it (CAIP-10).")]
) -> Answer:
    """Let a wallet sign in no more; its sessions end, and every key it delegated.

    Examples:

        sandboxer wallet unlink eip155:1:0x…
    """
    platform.wallets.revoke(address)
    return gone(address=address)


@verb(app, "end-sessions")
def end_sessions(
    platform: Sandboxer,
    address: Annotated[str | None, typer.Argument(help="Only those of this wallet.")] = None,
) -> Answer:
    """End every session of this account; wallets may sign in again.

    Examples:

        sandboxer wallet end-sessions
    """
    ended = platform.wallets.end_sessions(address)
    return Answer({"ended": ended}, f"ended {counted(ended, 'session')}")


@verb(app, "sign-in")
def sign_in(platform: Sandboxer, wallet: Wallet = None) -> object:
    """Open a session of a wallet; its token signs requests as `Authorization: Bearer …`.

    Examples:

        sandboxer wallet sign-in --wallet ~/.wallet.key
    """
    file = _file(wallet)
    return platform.wallets.sign_in(file.sign, address=file.address)


@verb(app, "offer")
def offer(platform: Sandboxer) -> object:
    """Show what to complete and sign for Sign-in-with-X (CAIP-122).

    Examples:

        sandboxer wallet offer --json
    """
    return platform.wallets.offer()


@verb(app, "sign-in-with-x")
def sign_in_with_x(
    platform: Sandboxer,
    message: Annotated[Path, typer.Argument(help="File with the signed text.", metavar="FILE")],
    signature: Annotated[str, typer.Argument(help="As the wallet gives it.")],
) -> object:
    """Open a session by a completed and signed offer.

    Examples:

        sandboxer wallet sign-in-with-x message.txt 0x…
    """
    return platform.wallets.sign_in_with_x(message.read_text(), signature)


@verb(app, "sign-out")
def sign_out(
    platform: Sandboxer, token: Annotated[str, typer.Argument(help="Of the session.", metavar="TOKEN")]
) -> object:
    """End the session of a token.

    Examples:

        sandboxer wallet sign-out TOKEN
    """
    platform.wallets.sign_out(token)
    return {"signed_out": True}


@verb(app, "genesis")
def genesis(platform: Sandboxer) -> object:
    """Show what a Bitcoin and a Stacks wallet sign to pass the genesis gate.

    Examples:

        sandboxer wallet genesis --json
    """
    return platform.wallets.challenge_genesis()


def _file(wallet: Path | None) -> WalletFile:
    if wallet is None:
        raise CommandFailed("no wallet was named", next_step="Name the file of its key: --wallet FILE.")
    return WalletFile(wallet)
