"""`payments list|show|top-up|goods`: what was paid by x402, and paying with a wallet's key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, facts_table, out, print_json
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.kernel.late import late
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.payments import Payment

if TYPE_CHECKING:
    from sandboxer.sdk import payers
else:
    payers = late("sandboxer.sdk.payers")

app = typer.Typer(rich_markup_mode="rich")
SUMMARY = "Pay with a wallet by x402, and look at payments."
paying = group(SUMMARY)
groups = {"payments": paying}


@verb(paying, "list")
def list_payments(platform: Sandboxer) -> Answer:
    """Payments for this account, newest first.

    Examples:

        sandboxer payments list --json
    """
    found = list(platform.payments.list())
    rows = [(one.id, one.state, one.purpose, one.sats, one.network, ago(one.created_at)) for one in found]
    return Answer({"payments": found}, columns(rows, "ID", "STATE", "FOR", "SATS", "NETWORK", "MADE"))


@verb(paying, "show")
def show(
    platform: Sandboxer, id: Annotated[str, typer.Argument(help="Id of the payment (pay_…).", metavar="ID")]
) -> object:
    """What became of a payment.

    Examples:

        sandboxer payments show pay_0123…
    """
    payment = platform.payments.get(id)
    return Answer(payment, _facts(payment))


@paying.command("top-up")
def top_up(
    sats: Annotated[int, typer.Argument(help="How much credit to buy.")],
    key_file: Annotated[Path, typer.Option(help="File with the private key of an EVM wallet, mode 600.")],
    network: Annotated[str, typer.Option(help="The network to pay on, as CAIP-2.")],
    asset: Annotated[str, typer.Option(help="Address of the token to pay in.")],
    most: Annotated[int, typer.Option(help="Pay no more than this, in its smallest units.")],
    account: Annotated[str | None, typer.Option(help="Public id of the account to pay for.")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Buy credit with a wallet, for any account by its public id.

    Examples:

        sandboxer payments top-up 10000 --key-file k --network eip155:8453 --asset 0x8335… --most 20000000
    """
    if os.stat(key_file).st_mode & 0o077:
        raise typer.BadParameter(f"others may read {key_file}; chmod 600 it", param_hint="--key-file")
    cap = payers.Cap(network=network, asset=asset, per_payment=most, in_total=most)
    wallet = payers.EvmPayer(key_file.read_text().strip(), [cap])
    with client(url, state_dir) as known:
        address = known.credentials.url
    with Sandboxer(url=address, wallet=wallet) as platform:
        bought = platform.payments.top_up(sats, account=account)
    if json:
        print_json(bought)
        return
    out.print(_facts(bought.payment))
    if bought.key is not None:
        out.print(f"public key  {bought.key.public_key}\nsecret key  {bought.key.secret_key}  (shown once)")


@verb(paying, "goods")
def goods(platform: Sandboxer) -> Answer:
    """What can be paid for in the request itself.

    Examples:

        sandboxer payments goods
    """
    found = platform.payments.goods()
    networks = [sorted({str(offer["network"]) for offer in good.accepts}) for good in found]
    rows = [
        (good.operation, good.resource, ", ".join(names)) for good, names in zip(found, networks, strict=True)
    ]
    return Answer({"items": list(found)}, columns(rows, "OPERATION", "RESOURCE", "NETWORKS"))


def _facts(payment: Payment) -> Table:
    facts = [
        ("id", payment.id),
        ("state", f"{payment.state} ({payment.reason})"),
        ("for", payment.purpose),
        ("sats", str(payment.sats)),
        ("paid", f"{payment.amount} of {payment.asset} on {payment.network}"),
        ("by", payment.payer),
        ("transaction", payment.transaction or "–"),
    ]
    return facts_table(facts)
