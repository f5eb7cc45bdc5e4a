"""Starts chains and platform, lets an agent pay on each, tells what moved, and leaves nothing behind."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from sandboxer.kernel.errors import SandboxerError
from sandboxer.payments.wallet.agent import AgentWallet, Cap, create_wallet
from sandboxer.payments.wallet.spenders import Seed, new_seed
from sandboxer.sdk.sync.client import Sandboxer
from testchains.demo import platform
from testchains.demo.agent import Agent
from testchains.demo.lives import Life, running, wait_for
from testchains.demo.places import PLACES, Evm, Ltc, Stacks, Xmr
from testchains.demo.platform import Shop
from testchains.demo.show import Starting, Terminal, table_of
from testchains.demo.story import Story

FAILED, INTERRUPTED = 1, 130
PLATFORM = "sandboxer (the platform)"


def main(words: Sequence[str]) -> int:
    asked = _arguments(words)
    stream = sys.stderr if asked.json else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else 160)
    if why := platform.why_not():
        console.print(f"[red]The demo cannot run here:[/] {why}", soft_wrap=True)
        return FAILED
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    terminal = Terminal(console)
    stories = [Story(key, PLACES[key].title, terminal) for key in asked.only]
    books: dict[str, Any] = {}
    try:
        with platform.own_folder() as folder:
            _play(folder, stories, terminal, books, keep=asked.keep)
            console.print("\n[dim]stopping chains and platform …[/]")
    except KeyboardInterrupt:
        console.print("[yellow]interrupted; what the demo had started is stopped and removed[/]")
        return INTERRUPTED
    return _conclude(stories, books, console, as_json=asked.json)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sandboxer pay demo")
    parser.add_argument("--only", type=_chosen, default=list(PLACES))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def _chosen(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names or any(name not in PLACES for name in names):
        raise argparse.ArgumentTypeError(f"{text!r}: choose of {', '.join(PLACES)}")
    return list(dict.fromkeys(names))


def _interrupt(*_: object) -> None:
    # The next one must not break the stopping that the first one asks for.
    _be_deaf()
    print("\nstopping …", file=sys.stderr, flush=True)
    raise KeyboardInterrupt


def _be_deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _play(
    folder: Path, stories: Sequence[Story], terminal: Terminal, books: dict[str, Any], *, keep: bool
) -> None:
    seed = new_seed()
    places = [PLACES[story.chain](_folder(folder / story.chain)) for story in stories]
    with ExitStack() as stack:
        lives = stack.enter_context(running(places))
        with Starting(terminal.console, [*(place.title for place in places), PLATFORM]) as lines:
            lines.says(PLATFORM, "waits for the chains")
            wait_for(lives, lines)
            alive = [life.place for life in lives if life.error is None]
            if not alive:
                lines.failed(PLATFORM, "there is no chain to be paid on")
                for story, life in zip(stories, lives, strict=True):
                    story.error = life.error
                return
            lines.says(PLATFORM, "starting")
            shop = stack.enter_context(platform.open_shop(folder, alive, seed))
            lines.ready(PLATFORM)
        for story, life in sorted(zip(stories, lives, strict=True), key=lambda pair: pair[1].place.is_slow):
            _tell(shop, life, _wallet(folder, story.chain), seed, story, terminal)
        books.update(_prove(shop))
        if keep:
            _wait(shop, folder, terminal)
        _be_deaf()


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _wallet(folder: Path, chain: str) -> AgentWallet:
    """As `sandboxer wallet create` makes one, allowed to spend one coin, and not much of it."""
    asset = PLACES[chain].asset
    wallet = create_wallet(folder / f"{chain}.wallet", secrets.token_hex(16))
    whole = 10**asset.decimals
    wallet.set_cap(asset.code, Cap(per_payment=2 * whole, per_day=4 * whole))
    return wallet


def _tell(shop: Shop, life: Life, wallet: AgentWallet, seed: Seed, story: Story, terminal: Terminal) -> None:
    story.error = life.error
    if story.error is not None:
        return
    terminal.chapter(story)
    agent = Agent(shop, wallet, seed, story)
    try:
        if life.place.is_slow:
            with story.step("chain") as step:
                step.says(life.wait())
        match life.place:
            case Evm() | Stacks() as place:
                agent.buy_by_x402(place)
            case Ltc() | Xmr() as place:
                agent.buy_by_invoice(place)
    except Exception as error:
        # One chain's failure is told, and the others go on.
        next_step = f" {error.next_step}" if isinstance(error, SandboxerError) else ""
        story.error = f"{type(error).__name__}: {error}{next_step}"
        terminal.failed(story)


def _prove(shop: Shop) -> dict[str, Any]:
    with Sandboxer(owner_file=shop.owner_file, url=shop.url) as owner:
        return owner.operator.verify_ledger().model_dump(mode="json")


def _wait(shop: Shop, folder: Path, terminal: Terminal) -> None:
    console = terminal.console
    console.print(
        f"\n[bold green]●[/] kept: the platform serves at [bold]{shop.url}[/] [dim](Ctrl-C ends all)[/]"
    )
    console.print(f"  [dim]try:[/] sandboxer invoice list --state-dir {shop.state_dir} --url {shop.url}")
    console.print(f"  [dim]log:[/] {folder / 'up.log'}")
    signal.pause()


def _conclude(stories: Sequence[Story], books: dict[str, Any], console: Console, *, as_json: bool) -> int:
    console.print()
    console.print(table_of(stories))
    if books:
        word = "[green]whole[/]" if books.get("is_whole") else "[red]NOT whole[/]"
        console.print(f"\nThe platform's books are {word}.")
    for story in stories:
        if story.error is not None:
            console.print(f"[red]{story.title}:[/] {story.error}", soft_wrap=True)
    is_well = all(story.is_complete for story in stories) and bool(books.get("is_whole"))
    if as_json:
        print(json.dumps({"ok": is_well, "chains": [story.as_json() for story in stories], "books": books}))
    return 0 if is_well else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
