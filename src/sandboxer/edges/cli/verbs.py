"""Which module holds which verb. `--help` reads this table; a module is imported only when its verb is run.

So `sandboxer exec` does not pay for the server, nor `sandboxer up` for the client.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sandboxer.edges.cli.exits import EXIT_HELP

ROOM = "sandboxer.edges.cli."
CODE = "Run code"
SANDBOXES, INSIDE, PLATFORM, HOST = "Sandboxes", "Inside a sandbox", "The platform", "This host"
MONEY = "Money and books"


@dataclass(frozen=True, slots=True)
class Verb:
    module: str
    panel: str
    summary: str
    # A group of verbs of its own, as in `image build`.
    is_group: bool = False


VERBS: Mapping[str, Verb] = {
    "up": Verb("serving", PLATFORM, "Start the platform."),
    "run": Verb("work.code", CODE, "Run a program in a sandbox of its own."),
    "jobs": Verb("work.jobs", CODE, "Look at, wait for and cancel jobs.", is_group=True),
    "session": Verb("work.sessions", CODE, "Interpreters that keep their state.", is_group=True),
    "create": Verb(
        "creating", SANDBOXES, "Create a sandbox; without arguments a canary that reports on its host."
    ),
    "list": Verb("finding", SANDBOXES, "List sandboxes."),
    "get": Verb("finding", SANDBOXES, "Show one sandbox."),
    "freeze": Verb("changing", SANDBOXES, "Pause every process in memory."),
    "thaw": Verb("changing", SANDBOXES, "Let a frozen sandbox go on."),
    "stop": Verb("changing", SANDBOXES, "End all processes, keep the disk."),
    "resume": Verb("changing", SANDBOXES, "Start a stopped sandbox again."),
    "recreate": Verb("changing", SANDBOXES, "Give a sandbox a new disk from its image."),
    "lock": Verb("changing", SANDBOXES, "Guard a sandbox by a second proof."),
    "unlock": Verb("changing", SANDBOXES, "Take that guard away, with a second proof."),
    "extend-ttl": Verb("changing", SANDBOXES, "Let a sandbox live longer."),
    "destroy": Verb("changing", SANDBOXES, "Remove sandboxes for good."),
    "snapshot": Verb(
        "artifacts.snapshots", SANDBOXES, "Keep disks, go back to them, fork them.", is_group=True
    ),
    "volume": Verb("artifacts.volumes", SANDBOXES, "Keep disks that outlive sandboxes.", is_group=True),
    "logs": Verb("finding", SANDBOXES, "Show what happened to a sandbox."),
    "exec": Verb("running", INSIDE, "Run a command in a sandbox."),
    "shell": Verb("shell", INSIDE, "Open a terminal in a sandbox."),
    "cp": Verb("copying", INSIDE, "Copy files and folders in or out."),
    "ssh": Verb("access.ssh", INSIDE, "Open a shell in a sandbox, or run a command, with the stock ssh."),
    "ssh-config": Verb("access.ssh_config", INSIDE, "Print a block for ~/.ssh/config, for editors and git."),
    "ssh-key": Verb("access.ssh_keys", INSIDE, "Keys that open sandboxes by SSH.", is_group=True),
    "secrets": Verb("access.secrets", INSIDE, "Keep secrets, inject and wipe them.", is_group=True),
    "egress": Verb(
        "access.egress", INSIDE, "What a sandbox of trust level `semi` may reach outside.", is_group=True
    ),
    "preview": Verb("access.previews", INSIDE, "Open a port inside a sandbox by a link.", is_group=True),
    "languages": Verb("work.languages", PLATFORM, "List languages and shells, and how to begin."),
    "status": Verb("status", PLATFORM, "Show health, what is free, and what you may still do."),
    "service": Verb(
        "work.services", INSIDE, "Processes with a name and an address, kept running.", is_group=True
    ),
    "expire": Verb("upkeep", PLATFORM, "Show, or end, sandboxes past their time."),
    "inspect": Verb("upkeep", PLATFORM, "Look at the host and at leftovers.", is_group=True),
    "reap-stale": Verb("upkeep", PLATFORM, "Remove what no record accounts for."),
    "keys": Verb("keys", PLATFORM, "Make, delegate, list and end keys.", is_group=True),
    "webhooks": Verb("webhooks", PLATFORM, "Be told of what happens, by signed requests.", is_group=True),
    "wallets": Verb("wallets", PLATFORM, "Link, list and revoke wallets.", is_group=True),
    "credits": Verb("credits", MONEY, "Show, add and move sats.", is_group=True),
    "pricing": Verb("credits", MONEY, "Show what things cost here."),
    "quote": Verb("credits", MONEY, "Say what a sandbox would cost, and hold that price for a while."),
    "pay": Verb(
        "pay", MONEY, "Pay with an agent's own wallet; see how, on chains of this machine.", is_group=True
    ),
    "payments": Verb("payments", MONEY, "Pay with a wallet by x402, and look at payments.", is_group=True),
    "invoices": Verb("invoices", MONEY, "Pay in coins, by invoice.", is_group=True),
    "refunds": Verb("invoices", MONEY, "What has to go back (operator).", is_group=True),
    "gift": Verb("gift_cards", MONEY, "Prepaid dollars behind four words.", is_group=True),
    "rates": Verb("invoices", MONEY, "Show what the platform takes each coin to be worth."),
    "wallet": Verb("wallet", MONEY, "Keep a wallet of your own, with caps.", is_group=True),
    "ledger": Verb("books", MONEY, "Prove the ledger.", is_group=True),
    "audit": Verb("books", MONEY, "Prove and export the audit log.", is_group=True),
    "edge": Verb("access.edge", HOST, "TLS in front of the platform.", is_group=True),
    "doctor": Verb("doctor", HOST, "Say what this host can and cannot do, and why."),
    "backend": Verb("backend", HOST, "Check a backend against the contract.", is_group=True),
    "image": Verb("image", HOST, "Build base images; publish, share and start from others.", is_group=True),
    "bench": Verb("bench", HOST, "Measure this host against bwrap, podman and a bare web server."),
    "backup": Verb("backup", HOST, "Copy the platform's state into one file."),
    "restore": Verb("backup", HOST, "Bring a backup back into an empty state folder."),
    "adopt-pool": Verb("adoption", HOST, "Put a database and a storage pool together on purpose."),
    "config": Verb("config", HOST, "Show the settings in force.", is_group=True),
}

COMPLETION = frozenset({"install_completion", "show_completion"})

INTRO = f"""Walled computers for agents.

Start with [bold]sandboxer up[/], then [bold]sandboxer create[/].

{EXIT_HELP}
"""


def load(name: str) -> TyperCommand | TyperGroup:
    """The real command, importing its module."""
    verb = VERBS[name]
    module: Any = importlib.import_module(ROOM + verb.module)
    apps: Mapping[str, typer.Typer] = getattr(module, "groups", {})
    made: Any = typer.main.get_command(apps.get(name) or module.app)
    # Typer takes each verb for a whole program and offers to install completion for it, which would not work.
    made.params = [option for option in made.params if option.name not in COMPLETION]
    if name in apps:
        made.name = name
        return made  # type: ignore[no-any-return]
    return made.commands[name] if isinstance(made, TyperGroup) else made  # type: ignore[return-value]


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
