"""The `sandboxer` command: loads only the verb that is run, and turns errors into words and exit codes.

`VERBS` says which module holds which verb. `--help` reads this table; a module is imported only when its verb
is run. So `sandboxer exec` does not pay for the server, nor `sandboxer up` for the client; and where only the
client is installed, every verb runs but those of the server, which say what is missing.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sandboxer.edges.cli.exits import EXIT_HELP, Exit, exit_of, missing_part
from sandboxer.edges.cli.output import print_error

ROOM = "sandboxer.edges.cli."
CODE = "Run code"
SANDBOXES, INSIDE, PLATFORM, HOST = "Sandboxes", "Inside a sandbox", "The platform", "This host"
MONEY = "Money and books"
COMPLETION = frozenset({"install_completion", "show_completion"})
INTRO = f"""Walled computers for agents.

Start with [bold]sandboxer up[/], then [bold]sandboxer create[/].

{EXIT_HELP}
"""


@dataclass(frozen=True, slots=True)
class Verb:
    module: str
    panel: str
    summary: str
    # A group of verbs of its own, as in `image build`.
    is_group: bool = False
    # Needs more than the client brings: the extra `server`.
    is_of_server: bool = False


VERBS: Mapping[str, Verb] = {
    "up": Verb("up", PLATFORM, "Start the platform.", is_of_server=True),
    "run": Verb("work.code", CODE, "Run a program in a sandbox of its own."),
    "jobs": Verb("work.code", CODE, "Look at, wait for and cancel jobs.", is_group=True),
    "session": Verb("work.sessions", CODE, "Interpreters that keep their state.", is_group=True),
    "create": Verb(
        "sandboxes", SANDBOXES, "Create a sandbox; without arguments a canary that reports on its host."
    ),
    "list": Verb("sandboxes", SANDBOXES, "List sandboxes."),
    "get": Verb("sandboxes", SANDBOXES, "Show one sandbox."),
    "reachability": Verb("sandboxes", SANDBOXES, "Show by which ways a sandbox can be reached."),
    "profiles": Verb("sandboxes", SANDBOXES, "List profiles that sandboxes can be made of."),
    "boost": Verb("lifecycle", SANDBOXES, "Give a sandbox more CPUs and memory at once."),
    "unboost": Verb("lifecycle", SANDBOXES, "Take back what a boost gave."),
    "freeze": Verb("lifecycle", SANDBOXES, "Pause every process in memory."),
    "thaw": Verb("lifecycle", SANDBOXES, "Let a frozen sandbox go on."),
    "stop": Verb("lifecycle", SANDBOXES, "End all processes, keep the disk."),
    "resume": Verb("lifecycle", SANDBOXES, "Start a stopped sandbox again."),
    "recreate": Verb("lifecycle", SANDBOXES, "Give a sandbox a new disk from its image."),
    "lock": Verb("lifecycle", SANDBOXES, "Guard a sandbox by a second proof."),
    "unlock": Verb("lifecycle", SANDBOXES, "Take that guard away, with a second proof."),
    "extend-ttl": Verb("lifecycle", SANDBOXES, "Let a sandbox live longer."),
    "destroy": Verb("lifecycle", SANDBOXES, "Remove sandboxes for good."),
    "snapshot": Verb(
        "artifacts.snapshots", SANDBOXES, "Keep disks, go back to them, fork them.", is_group=True
    ),
    "volume": Verb("artifacts.volumes", SANDBOXES, "Keep disks that outlive sandboxes.", is_group=True),
    "logs": Verb("sandboxes", SANDBOXES, "Show what happened to a sandbox."),
    "exec": Verb("exec", INSIDE, "Run a command in a sandbox."),
    "shell": Verb("shell", INSIDE, "Open a terminal in a sandbox."),
    "cp": Verb("cp", INSIDE, "Copy files and folders in or out."),
    "files": Verb("work.files", INSIDE, "List, move, remove and watch files.", is_group=True),
    "process": Verb(
        "work.processes", INSIDE, "Look at, wait for and end processes in the background.", is_group=True
    ),
    "ssh": Verb("access.ssh", INSIDE, "Open a shell in a sandbox, or run a command, with the stock ssh."),
    "ssh-config": Verb("access.ssh", INSIDE, "Print a block for ~/.ssh/config, for editors and git."),
    "ssh-key": Verb("access.ssh", INSIDE, "Keys that open sandboxes by SSH.", is_group=True),
    "secrets": Verb("access.secrets", INSIDE, "Keep secrets, inject and wipe them.", is_group=True),
    "egress": Verb(
        "access.egress", INSIDE, "What a sandbox of trust level `semi` may reach outside.", is_group=True
    ),
    "preview": Verb("access.previews", INSIDE, "Open a port inside a sandbox by a link.", is_group=True),
    "languages": Verb("work.languages", PLATFORM, "List languages and shells, and how to begin."),
    "capabilities": Verb("sandboxes", PLATFORM, "Show what this platform can do."),
    "status": Verb("status", PLATFORM, "Show health, what is free, and what you may still do."),
    "service": Verb(
        "work.services", INSIDE, "Processes with a name and an address, kept running.", is_group=True
    ),
    "expire": Verb("status", PLATFORM, "Show, or end, sandboxes past their time."),
    "inspect": Verb("status", PLATFORM, "Look at the host and at leftovers.", is_group=True),
    "reap-stale": Verb("status", PLATFORM, "Remove what no record accounts for."),
    "keys": Verb("keys", PLATFORM, "Make, delegate, list and end keys.", is_group=True),
    "webhooks": Verb("webhooks", PLATFORM, "Be told of what happens, by signed requests.", is_group=True),
    "wallets": Verb("wallets", PLATFORM, "Link, list and revoke wallets.", is_group=True),
    "credits": Verb("credits", MONEY, "Show, add and move sats.", is_group=True),
    "pricing": Verb("credits", MONEY, "Show what things cost here."),
    "quote": Verb("credits", MONEY, "Say what a sandbox would cost, and hold that price for a while."),
    "pay": Verb(
        "pay",
        MONEY,
        "Pay with an agent's own wallet; see how, on chains of this machine.",
        is_group=True,
        is_of_server=True,
    ),
    "payments": Verb("payments", MONEY, "Pay with a wallet by x402, and look at payments.", is_group=True),
    "invoices": Verb("invoices", MONEY, "Pay in coins, by invoice.", is_group=True),
    "refunds": Verb("invoices", MONEY, "What has to go back (operator).", is_group=True),
    "gift": Verb("gift_cards", MONEY, "Prepaid dollars behind four words.", is_group=True),
    "rates": Verb("invoices", MONEY, "Show what the platform takes each coin to be worth."),
    "wallet": Verb(
        "wallet", MONEY, "Keep a wallet of your own, with caps.", is_group=True, is_of_server=True
    ),
    "accounts": Verb("accounts", MONEY, "Open, look at and close accounts (operator).", is_group=True),
    "ledger": Verb("books", MONEY, "Prove the ledger.", is_group=True, is_of_server=True),
    "audit": Verb("books", MONEY, "Prove and export the audit log.", is_group=True, is_of_server=True),
    "edge": Verb("access.edge", HOST, "TLS in front of the platform.", is_group=True, is_of_server=True),
    "doctor": Verb("doctor", HOST, "Say what this host can and cannot do, and why.", is_of_server=True),
    "backend": Verb(
        "checks", HOST, "Check a backend against the contract.", is_group=True, is_of_server=True
    ),
    "image": Verb(
        "artifacts.images",
        HOST,
        "Build base images; publish, share and start from others.",
        is_group=True,
    ),
    "bench": Verb(
        "checks", HOST, "Measure this host against bwrap, podman and a bare web server.", is_of_server=True
    ),
    "backup": Verb("backup", HOST, "Copy the platform's state into one file.", is_of_server=True),
    "restore": Verb("backup", HOST, "Bring a backup back into an empty state folder.", is_of_server=True),
    "adopt-pool": Verb(
        "backup", HOST, "Put a database and a storage pool together on purpose.", is_of_server=True
    ),
    "config": Verb("config", HOST, "Show the settings in force.", is_group=True, is_of_server=True),
}


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Runs one command line and returns its exit code. Nothing that a user can cause is a traceback."""
    try:
        result = root_command().main(args=words, prog_name="sandboxer", standalone_mode=False)
        return int(result) if isinstance(result, int) else Exit.OK
    except typer.Exit as left:
        return left.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`); nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.ERROR
    except Exception as error:
        return _explain(error, is_json=wants_json(words))


def _explain(error: Exception, *, is_json: bool) -> int:
    if isinstance(error, ModuleNotFoundError):
        error = missing_part(error)
    show = getattr(error, "show", None)
    if show is not None:
        # A usage error of the command line parser: it prints itself.
        show()
        return int(getattr(error, "exit_code", Exit.USAGE))
    print_error(error, is_json=is_json)
    return exit_of(error)


def wants_json(words: list[str]) -> bool:
    ours = words[: words.index("--")] if "--" in words else words
    return "--json" in ours


def load(name: str) -> TyperCommand | TyperGroup:
    """Imports the module of a verb and makes its command. Other verbs of the module are not made."""
    module: Any = _imported(ROOM + VERBS[name].module)
    app: typer.Typer | None = getattr(module, "groups", {}).get(name)
    if app is None:
        app = typer.Typer(rich_markup_mode="rich")
        app.registered_commands = [verb for verb in module.app.registered_commands if verb.name == name]
    made: Any = typer.main.get_command(app)
    # Typer takes each verb for a whole program and offers to install completion for it, which would not work.
    made.params = [option for option in made.params if option.name not in COMPLETION]
    made.name = name
    return made  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    """What is imported stays until the end: the collector need not walk it, now or ever again."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


class Verbs(TyperGroup):
    """Shows the table, loads what is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        return TyperCommand(name=cmd_name, help=verb.summary, rich_help_panel=verb.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, load(name) if name is not None and name in VERBS else found, rest


def root_command() -> TyperGroup:
    # A Typer app only to get its options for help and completion; the verbs come from the table.
    app = typer.Typer(
        name="sandboxer",
        cls=Verbs,
        help=INTRO,
        no_args_is_help=True,
        rich_markup_mode="rich",
        add_completion=False,
    )

    @app.callback()
    def entry() -> None:
        """Nothing happens before a verb."""

    made = typer.main.get_command(app)
    assert isinstance(made, TyperGroup)
    made.help = INTRO
    return made


if __name__ == "__main__":
    main()
