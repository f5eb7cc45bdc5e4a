"""`install` and `uninstall`: the platform as a service of this machine, and what is taken away again.

`deploy/install.sh` puts the program into `/opt/sandboxer` and calls `install`. The unit is written with the
place of the program that runs, so that one from a checkout can be installed too.
"""

from __future__ import annotations

import json as encoding
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli import background
from sandboxer.edges.cli.exits import CommandFailed, demand_root
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import err
from sandboxer.edges.cli.verbs import Answer, show_answer
from sandboxer.kernel.program import UNIT
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.settings import Settings, load_settings
from sandboxer.store.lock import open_holder

app = typer.Typer(rich_markup_mode="rich")
ENVIRONMENT = Path("/etc/sandboxer/env")
INSTALLED_UNIT = Path("/etc/systemd/system") / background.UNIT
COMMAND = Path("/usr/local/bin/sandboxer")
# Where `deploy/install.sh` puts the program; the mark tells its folder from a checkout in the same place.
PROGRAM = Path("/opt/sandboxer")
MARK = PROGRAM / ".installed-by-install.sh"
IN_UNIT = "/opt/sandboxer/venv/bin/sandboxer"
SETTINGS = """\
# Settings of the platform, as SANDBOXER_NAME=value; `sandboxer config show` lists them with their meaning.
# After a change: systemctl restart sandboxer
"""
Where = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="All state in this folder.")]


@app.command("install")
def install(state_dir: Where = None, json: Json = False) -> None:
    """Make the platform a service of this machine: write the systemd unit, start it, say where it is.

    Settings go into /etc/sandboxer/env. Repeating it writes the unit anew and starts the program of now.

    Examples:

        sudo sandboxer install
    """
    demand_root("`install` changes this machine")
    _demand_systemd()
    settings = load_settings(state_dir=state_dir)
    ENVIRONMENT.parent.mkdir(mode=0o755, exist_ok=True)
    if not ENVIRONMENT.exists():
        # It may come to hold passwords.
        ENVIRONMENT.touch(mode=0o600)
        ENVIRONMENT.write_text(SETTINGS)
    INSTALLED_UNIT.write_text(unit(_program(), settings))
    for words in (["daemon-reload"], ["enable", background.UNIT], ["restart", background.UNIT]):
        _systemctl(*words)
    # The unit's settings are not those of this command; the platform has written down where it serves.
    url = encoding.loads(settings.owner_file.read_text())["url"]
    made = {"url": url, "unit": str(INSTALLED_UNIT), "settings": str(ENVIRONMENT)}
    said = (
        f"[bold green]●[/] sandboxer serves at [bold]{url}[/]",
        "  [dim]log:[/]  journalctl -u sandboxer",
        f"  [dim]key:[/]  {settings.owner_file}",
        f"  [dim]set:[/]  {ENVIRONMENT}",
        "  [dim]next:[/] sandboxer create",
    )
    show_answer(Answer(made, *said, sep="\n"), is_json=json)


def unit(program: str, settings: Settings) -> str:
    """Returns the unit for this program and this place of its state."""
    text = UNIT.read_text().replace(IN_UNIT, program)
    text = text.replace("/var/lib/sandboxer", str(settings.state_dir))
    usual = Settings.model_fields["state_dir"].default
    # systemd makes and owns folders below /var/lib only.
    return text if settings.state_dir == usual else text.replace("StateDirectory", "#StateDirectory")


@app.command("uninstall")
def uninstall(
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove every sandbox, disk, key, record and setting.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state_dir: Where = None,
    json: Json = False,
) -> None:
    """Take the platform away; what it keeps stays.

    It is stopped, and its service, its command and its program are removed. With --purge also everything
    that it keeps.

    Examples:

        sudo sandboxer uninstall

        sudo sandboxer uninstall --purge
    """
    demand_root("`uninstall` changes this machine")
    settings = load_settings(state_dir=state_dir)
    gone = [path for path in _of_program() if os.path.lexists(path)]
    kept = [path for path in (settings.state_dir, ENVIRONMENT.parent) if path.exists()]
    _ask(gone, kept, purge=purge, yes=yes)
    if purge:
        _destroy_everything(settings)
    if INSTALLED_UNIT.exists():
        _systemctl("disable", "--now", background.UNIT)
    background.stop(settings.state_dir, background.PATIENCE_S)
    if purge:
        _unmount_all(settings)
        gone, kept = gone + kept, []
    for path in gone:
        _remove(path)
    if INSTALLED_UNIT in gone:
        _systemctl("daemon-reload")
    left = f" Kept: {', '.join(map(str, kept))}." if kept else ""
    said = f"Removed: {', '.join(map(str, gone)) or 'nothing'}.{left}"
    done = {"removed": [*map(str, gone)], "kept": [*map(str, kept)]}
    show_answer(Answer(done, said), is_json=json)


def _of_program() -> Iterator[Path]:
    yield INSTALLED_UNIT
    if COMMAND.is_symlink() and PROGRAM in Path(os.readlink(COMMAND)).parents:
        yield COMMAND
    if MARK.exists():
        yield PROGRAM


def _ask(gone: list[Path], kept: list[Path], *, purge: bool, yes: bool) -> None:
    going = [*gone, *(kept if purge else ())]
    for path in going:
        err.print(f"  remove {path}")
    for path in () if purge else kept:
        err.print(f"  keep   {path}")
    if purge:
        err.print("[bold red]Every sandbox, disk, key and record of this platform will be gone.[/]")
    if not yes and going:
        typer.confirm("Go on?", abort=True, err=True)


def _destroy_everything(settings: Settings) -> None:
    """Sandboxes outlive their platform: only while it runs can they be ended in order."""
    if (found := open_holder(settings.state_dir)) is None:
        return
    os.close(found[1])
    with Sandboxer(owner_file=settings.owner_file) as platform:
        for sandbox in platform.list():
            platform.sandbox(sandbox.id).destroy()


def _unmount_all(settings: Settings) -> None:
    # The second is there where the machine itself mounts no cgroup2.
    for place in (settings.state_dir / "pool", settings.state_dir / "cgroup2"):
        if not os.path.ismount(place):
            continue
        done = subprocess.run(["umount", str(place)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandFailed(
                f"{place} is in use, by sandboxes that still run: {done.stderr.strip()}",
                next_step="Start the platform (sandboxer up -d) and repeat this: it ends them first.",
            )


def _remove(path: Path) -> None:
    """Removes what is there, but not across a mount: what an operator has mounted there stays, and so does a
    mount point itself.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    itself = ["-mindepth", "1"] if os.path.ismount(path) else []
    words = ["find", str(path), "-xdev", *itself, "-depth", "-delete"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(
            f"Not all of {path} could be removed: {done.stderr.strip().splitlines()[0]}",
            next_step=f"Unmount what is mounted below it (findmnt --submounts {path}), and repeat this.",
        )


def _program() -> str:
    """Returns the command that stays: the link that an upgrade turns, or the one beside this interpreter."""
    here = str(Path(sys.executable).parent / "sandboxer")
    return IN_UNIT if os.path.exists(IN_UNIT) and MARK.exists() else here


def _demand_systemd() -> None:
    # As sd_booted(3) does.
    if not Path("/run/systemd/system").is_dir() or shutil.which("systemctl") is None:
        raise CommandFailed(
            "This machine is not run by systemd, so there is no service to make.",
            next_step="Start the platform with `sandboxer up -d`, and stop it with `sandboxer down`.",
        )


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(
            f"systemctl {' '.join(words)} failed: {done.stderr.strip()}", next_step="journalctl -u sandboxer"
        )
