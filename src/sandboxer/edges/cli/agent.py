"""`agent run|status`: the loop by which an agent gives itself sandboxes, and how far a run has come."""

from __future__ import annotations

import json as jsons
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sandboxer.edges.cli.agent_wallets import Chosen, wallets_of
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import Json, StateDir, Url, mebibytes
from sandboxer.edges.cli.output import err, out, plain, print_json, span
from sandboxer.edges.cli.verbs import group
from sandboxer.edges.cli.wallet import DEFAULT as WALLET
from sandboxer.edges.cli.wallet import (
    Esplora,
    NodePassword,
    PasswordFile,
    Rpc,
    User,
    WalletRpc,
)
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.values import counted
from sandboxer.sdk.agent import loop, progress, steps
from sandboxer.sdk.agent.outside import forget_ended, surroundings
from sandboxer.sdk.agent.progress import End, Order, Progress, Step, Way
from sandboxer.sdk.credentials import Credentials, find_credentials, own_files
from sandboxer.wire.next_steps import Door, retold

# The rest of its verbs is in `agent_check`, by which it is loaded.
app = group("Let agents make sandboxes: layers, clones, debates.")
LAYERS, PAY, COINS = "Each layer", "Pay", "Pay an invoice from which node"
FOLDER = "agents"
LEAST_MB = 16


def _megabytes(given: str | int) -> int:
    """Reads a size as `create` takes it; a number alone is of megabytes."""
    text = str(given)
    found = int(text) if text.lstrip("-").isdecimal() else mebibytes(text)
    if found < LEAST_MB:
        raise typer.BadParameter(f"it should be at least {LEAST_MB} MB: write {LEAST_MB}m or more")
    return found


def _sized(words: str) -> Any:
    return typer.Option(help=words, metavar="SIZE", parser=_megabytes, rich_help_panel=LAYERS)


Task = Annotated[str | None, typer.Option(help="The command that runs in the last layer.", metavar="CMD")]
Depth = Annotated[int, typer.Option(min=1, max=64, help="So many layers, each made by the last.")]
Budget = Annotated[int, typer.Option(min=0, help="Sats for all of it; bought first with --pay.")]
State = Annotated[
    Path | None, typer.Option(help="File of the run; one that is there goes on.", metavar="FILE")
]
Ttl = Annotated[str, typer.Option(help="Life of a layer, as 10m.", rich_help_panel=LAYERS)]
Vcpus = Annotated[float, typer.Option(min=0.05, help="Its CPUs.", rich_help_panel=LAYERS)]
Memory = Annotated[int, _sized("Its memory, as 128m, 2g.")]
Disk = Annotated[int, _sized("Its disk, as 64m, 2g.")]
Image = Annotated[str | None, typer.Option(help="Its image, with Python 3.11.", rich_help_panel=LAYERS)]
Keep = Annotated[
    bool, typer.Option("--keep", help="Let layers live until their time.", rich_help_panel=LAYERS)
]
Pay = Annotated[
    Way, typer.Option(help="`key`: with the credit of a key; else buy --budget.", rich_help_panel=PAY)
]
CodeFile = Annotated[
    Path | None, typer.Option(help="File with a gift card's words.", metavar="FILE", rich_help_panel=PAY)
]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with an EVM wallet's key, mode 600.", rich_help_panel=PAY)
]
Network = Annotated[
    str | None, typer.Option(help="With --key-file: its network, as CAIP-2.", rich_help_panel=PAY)
]
Asset = Annotated[
    str | None, typer.Option(help="With --key-file: address of the token.", rich_help_panel=PAY)
]
Most = Annotated[
    int | None, typer.Option(help="With --key-file: at most so many units.", rich_help_panel=PAY)
]
OwnWallet = Annotated[
    Path, typer.Option("--wallet", help="Your wallet (sandboxer wallet create).", rich_help_panel=PAY)
]
Tokens = Annotated[
    list[str] | None, typer.Option("--token", help="Take a contract for an asset.", rich_help_panel=PAY)
]
Coin = Annotated[
    str | None, typer.Option(help="Of an invoice: BTC, LTC, DOGE or XMR.", rich_help_panel=COINS)
]
CoinNetwork = Annotated[str, typer.Option(help="mainnet, testnet or regtest.", rich_help_panel=COINS)]
_GAVE_UP, _STOPPED = Exit.REFUSED, Exit.UNAVAILABLE
# What mends or explains a named state, besides running the file again.
_TYPED = {
    steps.Blocker.LOCKED_WALLET: "sandboxer wallet show, sandboxer wallet cap -h",
    steps.Blocker.NO_MONEY: "sandboxer credit show, sandboxer pay top-up -h",
    steps.Blocker.NO_WAY_TO_PAY: "sandboxer pricing",
    steps.Blocker.NO_PYTHON: "sandboxer image list",
    steps.Blocker.CHILD_LOST: "sandboxer events ID",
    steps.Blocker.UNAVAILABLE: "sandboxer status",
}


@app.command("run")
def run(
    ctx: typer.Context,
    task: Task = None,
    depth: Depth = 1,
    budget: Budget = 0,
    state: State = None,
    ttl: Ttl = "10m",
    vcpus: Vcpus = 0.5,
    memory: Memory = 128,
    disk: Disk = 64,
    image: Image = None,
    keep: Keep = False,
    pay: Pay = Way.KEY,
    code: CodeFile = None,
    key_file: KeyFile = None,
    network: Network = None,
    asset: Asset = None,
    most: Most = None,
    wallet: OwnWallet = WALLET,
    password_file: PasswordFile = None,
    token: Tokens = None,
    coin: Coin = None,
    coin_network: CoinNetwork = "mainnet",
    rpc: Rpc = None,
    esplora: Esplora = None,
    wallet_rpc: WalletRpc = None,
    user: User = None,
    node_password_file: NodePassword = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> int:
    """Find the platform, pay, make a child, run in it, where the child does the same; end what was made.

    A run is one file. Whatever ends this program, the same command with --state goes on with it: it pays
    once, and makes one child. Ends with the code of the command, 4 if it gave up, 5 if it waits for you.

    Examples:

        sandboxer agent run --depth 3 --task 'uname -a'

        sandboxer agent run --task 'uname -a' --budget 2000 --pay x402

        sandboxer agent run --task id --budget 2000 --pay gift-card --code words

        sandboxer agent run --state run.json
    """
    if state is None or not state.expanduser().exists():
        _demand_whole(pay, budget, code)
    given = ctx.params
    node = {name: given[name] for name in ("rpc", "esplora", "wallet_rpc", "user")}
    rest = {name: given[name] for name in Chosen.__slots__ if name in given}
    order = Order(
        depth=depth,
        task=task or "",
        way=pay,
        budget_sats=budget,
        ttl_s=int(parse_duration(ttl, field="ttl").total_seconds()),
        vcpus=vcpus,
        memory_mb=memory,
        disk_mb=disk,
        image=image,
        coin=coin.upper() if coin else None,
        gift_code=None if code is None else _words_in(code),
        keep=keep,
    )
    chosen = Chosen(tokens=tuple(token or ()), node=node, **rest)
    return _run(order, chosen, state, url=url, state_dir=state_dir, is_json=json)


def _demand_whole(way: Way, budget_sats: int, code: Path | None) -> None:
    """Of a new run. One that goes on has in its file what it was begun with."""
    if way is not Way.KEY and not budget_sats:
        raise typer.BadParameter("--pay buys --budget SATS; say how much")
    if way is Way.GIFT_CARD and code is None:
        raise typer.BadParameter("--pay gift-card needs the card's words in a file: --code FILE")


def _words_in(file: Path) -> str:
    if found := file.expanduser().read_text().strip():
        return found
    raise typer.BadParameter(f"there are no words of a gift card in {file}", param_hint="--code")


def _run(
    order: Order,
    chosen: Chosen,
    state: Path | None,
    *,
    url: str | None,
    state_dir: Path | None,
    is_json: bool,
) -> int:
    now, folder = time.time(), own_files().folder / FOLDER
    forget_ended(folder, now=now)
    begun = progress.begin(order, now=now)
    path = (state or folder / f"{begun.run}.json").expanduser()
    file = loop.StateFile(path)
    if not (order.task or path.exists()):
        raise CommandFailed("there is nothing to run", next_step="Name a command: --task 'uname -a'.")
    try:
        with file.alone():
            kept = _read(file)
            known = begun if kept is None else kept
            found = _credentials(known.order, url, state_dir)
            _demand_address(found.url)
            known = steps.with_order(known, url=found.url, budget_sats=order.budget_sats)
            wallet, coins = wallets_of(known.order.way, chosen)
            around = surroundings(
                replace(found, url=known.order.url), wallet=wallet, coins=coins, now=time.time
            )
            with _shown(is_json=is_json) as watch:
                ended = loop.run(file, known, around, watch=watch)
    except loop.HeldElsewhere as error:
        why = steps.RULES[steps.Blocker.RACE]
        raise CommandFailed(f"{error} ({steps.Blocker.RACE.value})", next_step=why.do) from None
    except KeyboardInterrupt:
        _say_how_to_go_on(path, is_json=is_json)
        raise
    return _tell(ended, path, is_json=is_json)


def _credentials(order: Order, url: str | None, state_dir: Path | None) -> Credentials:
    """Who pays for itself begins without a key, and must not borrow one by chance."""
    if order.way is Way.KEY:
        owner_file = None if state_dir is None else state_dir / "owner.json"
        return find_credentials(url=url or order.url or None, owner_file=owner_file)
    found = find_credentials(url=url or order.url or None, is_optional=True)
    return Credentials("", "", found.url)


def _demand_address(url: str) -> None:
    """A run would wait for one that nobody can answer."""
    if not url.startswith(("http://", "https://", "unix:")):
        raise CommandFailed(f"{url} is no address", next_step="Begin it with http:// or https://: --url.")


def _read(file: loop.StateFile) -> Progress | None:
    try:
        return file.read()
    except loop.UnreadableState as error:
        raise CommandFailed(str(error), next_step="Name a file that agent run wrote, or a new one.") from None


@contextmanager
def _shown(*, is_json: bool) -> Iterator[loop.Watcher]:
    """Shows the steps as they are done, to people; the result goes to stdout when it is there."""
    if is_json:
        yield lambda known: None
        return
    if not err.is_terminal:
        yield _Waits().tell
        return
    with Live(console=err, refresh_per_second=8, transient=True) as live:
        yield lambda known: live.update(table_of(known))


class _Waits:
    """Says to a log what holds a run up, once for each cause: it may wait for long, and would be silent."""

    def __init__(self) -> None:
        self._told: str | None = None

    def tell(self, known: Progress) -> None:
        trouble = known.trouble
        if trouble is None or trouble.reaction != steps.Reaction.WAIT or trouble.why == self._told:
            return
        self._told = trouble.why
        err.print(f"{trouble.blocker}:", _told(trouble.why), *_advice(trouble.blocker), soft_wrap=True)


def _advice(blocker: str) -> list[Text]:
    named = steps.Blocker(blocker)
    words = [steps.RULES[named].do, f"Type: {_TYPED[named]}" if named in _TYPED else ""]
    return [Text(" ".join(filter(None, words)), "dim")]


def _told(words: str) -> Text:
    """What a platform said, with commands in the place of requests."""
    return plain(retold(Door.CLI, words))


def _say_how_to_go_on(path: Path, *, is_json: bool) -> None:
    if not is_json and path.exists():
        err.print(f"Go on: sandboxer agent run --state {path}", soft_wrap=True)


def _tell(ended: Progress, path: Path, *, is_json: bool) -> int:
    said = {**progress.report(ended), "file": str(path)}
    if is_json:
        print_json(said)
    else:
        if ended.result is not None:
            out.out(ended.result.output, end="", highlight=False)
            err.out(ended.result.errors, end="", highlight=False)
        err.print(table_of(ended))
        if ended.end is None:
            _say_how_to_go_on(path, is_json=False)
    if ended.end is End.DONE:
        return 0 if ended.result is None else ended.result.exit_code
    return int(_GAVE_UP if ended.end is End.GAVE_UP else _STOPPED)


@app.command("status")
def status(
    file: Annotated[Path, typer.Argument(help="File of a run.", metavar="FILE")], json: Json = False
) -> None:
    """Show how far a run has come, what holds it up, and what to do.

    Examples:

        sandboxer agent status run.json
    """
    known = _read(loop.StateFile(file.expanduser()))
    if known is None:
        raise CommandFailed(f"There is no run in {file}.", next_step="Begin one: sandboxer agent run.")
    if json:
        print_json({**progress.report(known), "steps": [dict(row) for row in _rows(known)]})
        return
    out.print(table_of(known))
    if known.result is not None and known.result.below:
        out.print(plain(jsons.dumps(known.result.below, indent=2)))


def _rows(known: Progress) -> Iterator[dict[str, Any]]:
    """What became of each step, with the last thing that was said of it."""
    order = [row.step for row in steps.TABLE]
    here = order.index(known.step)
    said = {event.step: event.what for event in known.events}
    for number, step in enumerate(order):
        if step.value in known.passed:
            yield {"step": step.value, "state": "nothing to do", "what": known.passed[step.value]}
            continue
        state = "done" if number < here or known.end is End.DONE else ""
        if number == here and known.end is not End.DONE:
            state = "now" if known.trouble is None else known.trouble.reaction
        yield {"step": step.value, "state": state, "what": said.get(step.value, "")}


_STYLES = {"done": "green", "now": "bold", "wait": "yellow", "stop": "bold red", "give_up": "bold red"}


def table_of(known: Progress) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    # The name of a step is whole; what is said of it gives way.
    for name, least in (("STEP", max(map(len, Step))), ("", None), ("WHAT", None)):
        table.add_column(name, overflow="ellipsis", no_wrap=True, min_width=least)
    for row in _rows(known):
        state = Text(row["state"].replace("_", " "), style=_STYLES.get(row["state"], "dim"))
        table.add_row(row["step"], state, _told(row["what"].split("\n", 1)[0]))
    return Group(table, *_footer(known))


def _footer(known: Progress) -> Iterator[Text]:
    if known.trouble is not None:
        yield Text(f"\n{known.trouble.blocker}: ", "bold") + _told(known.trouble.why)
        yield from _advice(known.trouble.blocker)
    if known.ended_at is not None:
        took = span(known.ended_at - known.begun_at)
        how = (known.end or End.DONE).value.replace("_", " ")
        yield Text(f"\n{how} after {took}, {counted(progress.spent(known), 'sat')}", "dim")
