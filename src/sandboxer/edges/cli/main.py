"""The `sandboxer` command: loads only the verb that is run, and turns errors into words and exit codes.

`VERBS` says which module holds which verb. `--help` reads this table; a module is imported only when its verb
is run. So `sandboxer exec` does not pay for the server, nor `sandboxer up` for the client; and where only the
client is installed, every verb runs but those of the server, which say what is missing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from sandboxer import __version__
from sandboxer.edges.cli.exits import EXIT_HELP, Exit, exit_of, missing_part
from sandboxer.edges.cli.output import print_error, print_usage
from sandboxer.edges.cli.words import mistake, readable, unknown
from sandboxer.kernel.program import imported

# httpx would load a command line of its own with it, and colours for code: half of what it takes to import.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
ROOM = "sandboxer.edges.cli."
CODE = "Run code"
SANDBOXES, INSIDE, PLATFORM, HOST = "Sandboxes", "Inside a sandbox", "The platform", "This host"
MONEY = "Money and books"
# The verb by which a shell asks what to offer.
COMPLETE = "__complete"
COMPLETION = frozenset({"install_completion", "show_completion"})
INTRO = f"""Walled computers for agents.

Start with [bold]sandboxer up[/], then [bold]sandboxer create[/].

{EXIT_HELP}
"""


class Verb(NamedTuple):
    module: str
    panel: str
    summary: str
    # A group of verbs of its own, as in `image build`.
    is_group: bool = False
    # Needs more than the client brings: the extra `server`.
    is_of_server: bool = False


VERBS: Mapping[str, Verb] = {
    "up": Verb("up", PLATFORM, "Start the platform.", is_of_server=True),
    "down": Verb("background", PLATFORM, "Stop the platform of this machine.", is_of_server=True),
    "run": Verb("work.code", CODE, "Run a program in a sandbox of its own."),
    "job": Verb("work.code", CODE, "Look at, wait for and cancel jobs.", is_group=True),
    "session": Verb("work.sessions", CODE, "Interpreters that keep their state.", is_group=True),
    "create": Verb("sandboxes", SANDBOXES, "Create a sandbox."),
    "canary": Verb("sandboxes", SANDBOXES, "Create a self-test sandbox, which reports on its host."),
    "list": Verb("sandboxes", SANDBOXES, "List sandboxes."),
    "tree": Verb("sandboxes", SANDBOXES, "Show sandboxes, and those that they made."),
    "show": Verb("sandboxes", SANDBOXES, "Show one sandbox."),
    "reachability": Verb("sandboxes", SANDBOXES, "Show by which ways a sandbox can be reached."),
    "profile": Verb("catalogue", SANDBOXES, "What sandboxes can be made of.", is_group=True),
    "route": Verb("routes", SANDBOXES, "Which backend makes a sandbox, and why.", is_group=True),
    "boost": Verb("lifecycle", SANDBOXES, "Give a sandbox more CPUs and memory at once."),
    "unboost": Verb("lifecycle", SANDBOXES, "Take back what a boost gave."),
    "freeze": Verb("lifecycle", SANDBOXES, "Pause every process in memory."),
    "thaw": Verb("lifecycle", SANDBOXES, "Let a frozen sandbox go on."),
    "stop": Verb("lifecycle", SANDBOXES, "End all processes, keep the disk."),
    "resume": Verb("lifecycle", SANDBOXES, "Start a stopped sandbox again."),
    "recreate": Verb("lifecycle", SANDBOXES, "Give a sandbox a new disk from its image."),
    "lock": Verb("lifecycle", SANDBOXES, "Guard a sandbox by a second proof."),
    "unlock": Verb("lifecycle", SANDBOXES, "Take that guard away, with a second proof."),
    "update": Verb("lifecycle", SANDBOXES, "Name or label a sandbox anew, or let it live longer."),
    "delete": Verb("lifecycle", SANDBOXES, "Remove sandboxes for good."),
    "snapshot": Verb(
        "artifacts.snapshots", SANDBOXES, "Keep disks, go back to them, fork them.", is_group=True
    ),
    "volume": Verb("artifacts.volumes", SANDBOXES, "Keep disks that outlive sandboxes.", is_group=True),
    "events": Verb("sandboxes", SANDBOXES, "Show what happened to a sandbox."),
    "exec": Verb("exec", INSIDE, "Run a command in a sandbox."),
    "shell": Verb("shell", INSIDE, "Open a terminal in a sandbox."),
    "cp": Verb("cp", INSIDE, "Copy files and folders in or out."),
    "file": Verb("work.inside", INSIDE, "List, move, remove and watch files.", is_group=True),
    "logs": Verb(
        "work.inside", INSIDE, "Show what the background processes of a sandbox, or a service, have printed."
    ),
    "process": Verb(
        "work.inside", INSIDE, "Look at, wait for and end processes in the background.", is_group=True
    ),
    "terminal": Verb("work.inside", INSIDE, "Look at and end terminals.", is_group=True),
    "ssh": Verb(
        "access.connections", INSIDE, "Open a shell in a sandbox, or run a command, with the stock ssh."
    ),
    "ssh-config": Verb("access.connections", INSIDE, "Print a block for ~/.ssh/config, for editors and git."),
    "ssh-key": Verb("access.connections", INSIDE, "Keys that open sandboxes by SSH.", is_group=True),
    "secret": Verb("access.secrets", INSIDE, "Keep secrets, inject and wipe them.", is_group=True),
    "egress": Verb(
        "access.egress", INSIDE, "What a sandbox with a filtered network may reach.", is_group=True
    ),
    "preview": Verb("access.connections", INSIDE, "Open a port inside a sandbox by a link.", is_group=True),
    "agent": Verb(
        "agent_check", INSIDE, "Let agents make sandboxes: layers, clones, debates.", is_group=True
    ),
    "language": Verb("work.languages", PLATFORM, "What programs can be written in.", is_group=True),
    "capabilities": Verb("catalogue", PLATFORM, "Show what this platform can do."),
    "discover": Verb("catalogue", PLATFORM, "Show what a stranger finds at this platform."),
    "status": Verb("status", PLATFORM, "Show health, what is free, and what you may still do."),
    "service": Verb(
        "work.services", INSIDE, "Processes with a name and an address, kept running.", is_group=True
    ),
    "flows": Verb("flows", PLATFORM, "Check a platform from outside, flow by flow.", is_group=True),
    "expire": Verb("status", PLATFORM, "Show, or end, sandboxes past their time."),
    "inspect": Verb("status", PLATFORM, "Look at the host and at leftovers.", is_group=True),
    "reap-stale": Verb("status", PLATFORM, "Remove what no record accounts for."),
    "completion": Verb("completion", PLATFORM, "Let a shell complete verbs, names and ids."),
    "login": Verb("contexts", PLATFORM, "Log in to a platform, and use it from now on."),
    "context": Verb("contexts", PLATFORM, "Platforms that you have logged in to.", is_group=True),
    "mcp": Verb("mcp", PLATFORM, "Give hosts of models (Claude, Cursor, VS Code, …) a platform's tools."),
    "key": Verb("keys", PLATFORM, "Make, delegate, list and end keys.", is_group=True),
    "e2b": Verb("e2b", PLATFORM, "Let programs written for E2B use this platform.", is_group=True),
    "webhook": Verb("webhooks", PLATFORM, "Be told of what happens, by signed requests.", is_group=True),
    "credit": Verb("credits", MONEY, "Show, add and move sats.", is_group=True),
    "pricing": Verb("credits", MONEY, "Show what things cost here."),
    "quote": Verb("credits", MONEY, "Say what a sandbox would cost, and hold that price for a while."),
    "pay": Verb("payments", MONEY, "Pay by x402 with a wallet, and look at payments.", is_group=True),
    "invoice": Verb("payments", MONEY, "Pay in coins, by invoice.", is_group=True),
    "refund": Verb("payments", MONEY, "What has to go back (operator).", is_group=True),
    "gift": Verb("gift_cards", MONEY, "Prepaid dollars behind four words.", is_group=True),
    "rate": Verb("payments", MONEY, "What the platform takes each coin to be worth.", is_group=True),
    "wallet": Verb("wallet", MONEY, "A wallet of your own, and those of your account.", is_group=True),
    "account": Verb("accounts", MONEY, "Open, look at and close accounts (operator).", is_group=True),
    "ledger": Verb("books", MONEY, "Look at the ledger and prove it (operator).", is_group=True),
    "audit": Verb("books", MONEY, "Look at the audit log and prove it (operator).", is_group=True),
    "edge": Verb("config", HOST, "TLS in front of the platform.", is_group=True, is_of_server=True),
    "install": Verb("installation", HOST, "Make the platform a service of this machine.", is_of_server=True),
    "uninstall": Verb(
        "installation", HOST, "Take the platform away; what it keeps stays.", is_of_server=True
    ),
    "doctor": Verb("doctor", HOST, "Say what this host can and cannot do, and why.", is_of_server=True),
    "backend": Verb(
        "backends", HOST, "Ways to make sandboxes: list, check, write.", is_group=True, is_of_server=True
    ),
    "image": Verb(
        "artifacts.images",
        HOST,
        "Build base images; publish, share and start from others.",
        is_group=True,
    ),
    "bench": Verb(
        "bench", HOST, "Measure this host against bwrap, podman and a bare web server.", is_of_server=True
    ),
    "backup": Verb("backup", HOST, "Copy the platform's state into one file.", is_of_server=True),
    "restore": Verb("backup", HOST, "Bring a backup back into an empty state folder.", is_of_server=True),
    "adopt-pool": Verb(
        "backup", HOST, "Put a database and a storage pool together on purpose.", is_of_server=True
    ),
    "config": Verb("config", HOST, "Show the settings in force.", is_group=True, is_of_server=True),
}

# What people's fingers type after years of other tools.
ALIASES: Mapping[str, str] = {"ls": "list", "ps": "list", "rm": "delete"}
HELP = {"help_option_names": ["-h", "--help"]}


def main() -> None:
    """The console script."""
    words = sys.argv[1:]
    code = run(words)
    verb = VERBS.get(words[0]) if words else None
    if verb is None or not verb.is_of_server:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> None:
    """Ends the process at once: to take apart all that was imported would cost a call a tenth more.

    Returns, so that Python ends as always, where a thread still works or nobody reads what we say.
    """
    if threading.active_count() > 1:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    atexit._run_exitfuncs()
    os._exit(code)


def run(words: list[str]) -> int:
    """Runs one command line and returns its exit code. Nothing that a user can cause is a traceback."""
    if words[:1] == [COMPLETE]:
        return int(imported(ROOM + "completion").answer(root_command(), words[1:]))
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
    if hasattr(error, "format_message"):
        return _usage(error, is_json=is_json)
    print_error(error, is_json=is_json)
    return exit_of(error)


def _usage(error: Any, *, is_json: bool) -> int:
    """Of a mistake that the parser of the command line found, which prints itself."""
    ctx = getattr(error, "ctx", None)
    if ctx is not None:
        readable(ctx.command, ctx)
        error.format_message = partial(str, mistake(error))
    if is_json:
        print_usage(error.format_message(), ctx.command_path if ctx else "sandboxer")
    else:
        error.show()
    return int(getattr(error, "exit_code", Exit.USAGE))


def wants_json(words: list[str]) -> bool:
    ours = words[: words.index("--")] if "--" in words else words
    return "--json" in ours


def load(name: str) -> TyperCommand | TyperGroup:
    """Imports the module of a verb and makes its command. Other verbs of the module are not made."""
    module: Any = imported(ROOM + VERBS[name].module)
    app: typer.Typer | None = getattr(module, "groups", {}).get(name)
    if app is None:
        app = typer.Typer(rich_markup_mode="rich")
        app.registered_commands = [verb for verb in module.app.registered_commands if verb.name == name]
    made: Any = typer.main.get_command(app)
    # Typer takes each verb for a whole program and offers to install completion for it, which would not work.
    made.params = [option for option in made.params if option.name not in COMPLETION]
    made.name = name
    made.context_settings = {**made.context_settings, **HELP}
    return made  # type: ignore[no-any-return]


class Verbs(TyperGroup):
    """Shows the table, loads what is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if (verb := VERBS.get(cmd_name)) is None:
            return None
        return TyperCommand(name=cmd_name, help=verb.summary, rich_help_panel=verb.panel)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        readable(self, ctx)
        super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in {*VERBS, *ALIASES}:
            ctx.fail(unknown(args[0], [*VERBS, *ALIASES]))
        name, found, rest = super().resolve_command(ctx, args)
        if (name := ALIASES.get(name or "", name)) is None or name not in VERBS:
            return name, found, rest
        command = load(name)
        if not rest or {*rest} & {*HELP["help_option_names"]}:
            readable(command, ctx)
        return name, command, rest


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"sandboxer {__version__}")
        raise typer.Exit


def root_command() -> TyperGroup:
    # A Typer app only to get its options for help and completion; the verbs come from the table.
    app = typer.Typer(
        name="sandboxer",
        cls=Verbs,
        help=INTRO,
        no_args_is_help=True,
        rich_markup_mode="rich",
        add_completion=False,
        context_settings=HELP,
    )

    @app.callback()
    def entry(
        version: Annotated[
            bool,
            typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version),
        ] = False,
        context: Annotated[
            str | None,
            typer.Option(
                "--context", help="Use this platform (`sandboxer login`) for one command.", metavar="NAME"
            ),
        ] = None,
    ) -> None:
        """Nothing happens before a verb."""
        if context is not None:
            imported("sandboxer.sdk.credentials").choose_context(context)

    made = typer.main.get_command(app)
    assert isinstance(made, TyperGroup)
    made.help = INTRO
    return made


if __name__ == "__main__":
    main()
