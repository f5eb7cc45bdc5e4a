"""`service freeze|thaw|stop|start|lock|unlock`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from sandboxer.edges.cli.confirming import GivenProof, Wallet, with_wallet
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.work.service_words import Ref, tell, waiting
from sandboxer.sdk.confirming import Confirmer
from sandboxer.sdk.signing import Credentials
from sandboxer.sdk.sync.services import Services
from sandboxer.wire.services import Service

app = typer.Typer(rich_markup_mode="rich")


@app.command("freeze")
def freeze(service: Ref, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Put it to sleep now.

    Examples:

        sandboxer service freeze hello
    """
    _act(service, Services.freeze, json, url, state_dir)


@app.command("thaw")
def thaw(service: Ref, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Wake it.

    Examples:

        sandboxer service thaw hello
    """
    _act(service, Services.thaw, json, url, state_dir)


@app.command("stop")
def stop(service: Ref, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """End its process and stop its sandbox; the disk is kept.

    Examples:

        sandboxer service stop hello
    """
    _act(service, Services.stop, json, url, state_dir)


@app.command("start")
def start(service: Ref, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Start what was stopped, has failed, or was given up.

    Examples:

        sandboxer service start hello
    """
    _act(service, Services.start, json, url, state_dir)


@app.command("lock")
def lock(service: Ref, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Guard it by a second proof: removing and unlocking it then need the account's other factor.

    Examples:

        sandboxer service lock hello
    """
    _act(service, Services.lock, json, url, state_dir)


@app.command("unlock")
def unlock(
    service: Ref,
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Take that guard away, with a second proof.

    Examples:

        sandboxer service unlock hello --wallet ~/.wallet.key
    """
    _act(service, Services.unlock, json, url, state_dir, with_wallet(wallet, proof))


def _act(
    service: str,
    verb: Callable[[Services, str], Service],
    json: bool,
    url: str | None,
    state_dir: Path | None,
    confirm: Callable[[Credentials], Confirmer] | None = None,
) -> None:
    with client(url, state_dir, confirm=confirm) as platform, waiting(f"{verb.__name__} …", json):
        done = verb(platform.services, service)
    tell(done, json)
