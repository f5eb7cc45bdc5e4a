"""`pay demo|top-up|key`: a wallet pays by x402, within its caps: one's own, or an EVM key in a file."""

from __future__ import annotations

import json as jsons
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, Url, anyone
from sandboxer.edges.cli.output import facts_table, out, print_json
from sandboxer.edges.cli.verbs import group
from sandboxer.edges.cli.wallet import DEFAULT, PasswordFile, open_file
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.program import late
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.payments import Bought

if TYPE_CHECKING:
    from sandboxer.identity import seal
    from sandboxer.payments.wallet import x402
    from sandboxer.sdk import payers
else:
    # Who only looks at payments has no need of them, and the client alone does not bring them.
    seal, payers = late("sandboxer.identity.seal"), late("sandboxer.sdk.payers")
    x402 = late("sandboxer.payments.wallet.x402")

app = group("Pay by x402 with a wallet, and look at payments.")
CHECKOUT = Path(__file__).resolve().parents[4]
WITH = "Pay with"

Wallet = Annotated[
    Path, typer.Option("--wallet", help="The wallet's file (sandboxer wallet create).", rich_help_panel=WITH)
]
Asset = Annotated[
    list[str] | None,
    typer.Option(
        "--asset",
        help="Only in this asset, as USDC; can be repeated. With --key-file: address of its token.",
        rich_help_panel=WITH,
    ),
]
Tokens = Annotated[
    list[str] | None,
    typer.Option("--token", help="Take a contract for an asset: eip155:8453/0x…=USDC.", rich_help_panel=WITH),
]
StacksNode = Annotated[
    str | None,
    typer.Option(help="A Stacks node, which tells the wallet's next nonce.", rich_help_panel=WITH),
]
WITH_KEY = "Pay with the key of an EVM wallet instead"
KeyFile = Annotated[
    Path | None, typer.Option(help="File with its private key, mode 600.", rich_help_panel=WITH_KEY)
]
KeyNetwork = Annotated[
    str | None,
    typer.Option("--network", help="The network to pay on, as CAIP-2.", rich_help_panel=WITH_KEY),
]
Most = Annotated[
    int | None,
    typer.Option(help="Pay no more than this, in the token's smallest units.", rich_help_panel=WITH_KEY),
]
SaveKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the key there, if one is given (for SANDBOXER_CREDENTIALS)."),
]


@app.command("demo")
def demo(
    only: Annotated[
        str | None, typer.Option(metavar="CHAINS", help="Only these of evm, stacks, ltc, xmr: evm,ltc")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Let chains and platform run until Ctrl-C, to look around.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; the story goes to stderr.")] = False,
) -> None:
    """Show an agent with nothing but a wallet: 402, pay, sandbox, output, receipt. Needs root and a checkout.

    Starts chains and a platform of its own on this machine, pays on each chain, tells what moved, and removes
    everything. Exit code 1 when a chain could not be started or paid on.

    Examples:

        sandboxer pay demo

        sandboxer pay demo --only evm,ltc --json
    """
    if not (CHECKOUT / "testchains" / "demo" / "__main__.py").is_file():
        raise CommandFailed(
            "The demo's chains are part of the source checkout, which is not here.",
            next_step="Run it from a clone: .venv/bin/sandboxer pay demo.",
        )
    words = [sys.executable, "-m", "testchains.demo"]
    words += ["--only", only] if only else []
    words += ["--keep"] if keep else []
    words += ["--json"] if json else []
    _become(words)


@app.command("top-up")
def top_up(
    sats: Annotated[int, typer.Argument(min=1, help="How much credit to buy.", metavar="SATS")],
    account: Annotated[
        str | None, typer.Option(help="Public id of the account to pay for; the wallet's own otherwise.")
    ] = None,
    wallet: Wallet = DEFAULT,
    password_file: PasswordFile = None,
    asset: Asset = None,
    token: Tokens = None,
    stacks_node: StacksNode = None,
    key_file: KeyFile = None,
    network: KeyNetwork = None,
    most: Most = None,
    save_key: SaveKey = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Buy credit, for the wallet's own account or for anybody's by public id.

    Examples:

        sandboxer pay top-up 10000 --url https://example.com --save-key key.json

        sandboxer pay top-up 10000 --asset SBTC --stacks-node https://node.example

        sandboxer pay top-up 10000 --key-file k --network eip155:8453 --asset 0x83…
    """
    _demand_shop(url)
    payer = (
        _payer(wallet, password_file, asset, token, stacks_node)
        if key_file is None
        else payer_of_key(key_file, network, asset or [], most)
    )
    with Sandboxer(url=url, wallet=payer) as platform:
        bought = platform.payments.top_up(sats, account=account)
        _tell(bought, payer, platform.credentials.url, save_key, is_json=json)


@app.command("key")
def key(
    tier: Annotated[int, typer.Argument(min=1, max=32, help="Which tier.", metavar="TIER")],
    months: Annotated[int, typer.Option(min=1, help="For how long.")] = 1,
    wallet: Wallet = DEFAULT,
    password_file: PasswordFile = None,
    asset: Asset = None,
    token: Tokens = None,
    stacks_node: StacksNode = None,
    save_key: SaveKey = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Buy a tier for some months, and the key that goes with it.

    Examples:

        sandboxer pay key 1 --months 3 --wallet agent.wallet --save-key key.json
    """
    _demand_shop(url)
    payer = _payer(wallet, password_file, asset, token, stacks_node)
    with Sandboxer(url=url, wallet=payer) as platform:
        bought = platform.payments.buy_key(tier, months)
        _tell(bought, payer, platform.credentials.url, save_key, is_json=json)


def _demand_shop(url: str | None) -> None:
    """Asks before the wallet is opened whether anything is sold for what is in it."""
    with anyone(url, None) as platform:
        prices = platform.account.pricing()
    if prices.networks:
        return
    if prices.coins:
        raise CommandFailed(
            "This platform takes coins, and nothing by x402.",
            next_step=f"Ask for an address: sandboxer invoice create {prices.coins[0].coin} --sats 10000",
        )
    raise CommandFailed(
        "Nothing is sold here: this platform takes no payments.",
        next_step="Go on without: sandboxer create. Its operator sells by docs/guides/pay.md.",
    )


def _become(words: list[str]) -> NoReturn:
    """In place of this process: signals then reach the one that has to stop what it started."""
    sys.stdout.flush()
    os.chdir(CHECKOUT)
    os.execv(words[0], words)


def _payer(
    file: Path,
    password_file: Path | None,
    assets: list[str] | None,
    tokens: list[str] | None,
    stacks_node: str | None,
) -> x402.X402Payer:
    wallet = open_file(file, password_file)
    return x402.X402Payer(
        wallet,
        SystemClock(),
        tokens=[x402.token_named(text) for text in tokens or ()],
        assets=[code.upper() for code in assets or ()],
        stacks_node=stacks_node,
    )


def payer_of_key(file: Path, network: str | None, assets: list[str], most: int | None) -> payers.EvmPayer:
    if network is None or most is None or len(assets) != 1:
        raise typer.BadParameter("--key-file needs --network, one --asset and --most")
    if os.stat(file).st_mode & 0o077:
        raise typer.BadParameter(f"others may read {file}; chmod 600 it", param_hint="--key-file")
    cap = payers.Cap(network=network, asset=assets[0], per_payment=most, in_total=most)
    return payers.EvmPayer(file.read_text().strip(), [cap])


def _tell(bought: Bought, payer: Any, url: str, save_key: Path | None, *, is_json: bool) -> None:
    """Prints the key first: it is shown once."""
    where: Path | None = None
    if bought.key is not None and save_key is not None:
        content = {"url": url, "public_key": bought.key.public_key, "secret_key": bought.key.secret_key}
        if seal.create_private_file(save_key.expanduser(), jsons.dumps(content, indent=2) + "\n"):
            where = save_key
    if is_json:
        print_json(bought)
        return
    payment, signed = bought.payment, getattr(payer, "signed", None)
    facts = [
        ("payment", payment.id),
        ("state", payment.state),
        ("sats", payment.sats),
        ("paid", "" if signed is None else f"{signed.amount} {signed.code}"),
        ("on", payment.network),
        ("transaction", payment.transaction or "not known yet"),
        ("account", bought.account),
    ]
    out.print(facts_table(facts))
    if where is not None:
        out.print(f"Its key is in {where}: SANDBOXER_CREDENTIALS={where} sandboxer create")
    elif bought.key is not None:
        keys = [("public key", bought.key.public_key), ("secret key (shown once)", bought.key.secret_key)]
        out.print(facts_table(keys))
