"""`completion`: what a shell offers at the Tab key, verbs and options, and live names and ids.

The shell asks `sandboxer __complete SHELL WORD…` for what could stand in the place of the last word. That has
a second for it, says nothing of errors, and asks the platform at most once in two seconds.
"""

from __future__ import annotations

import importlib
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.output import err
from sandboxer.sdk.contexts import LOCAL, Contexts
from sandboxer.sdk.credentials import Credentials, choose_context, find_credentials, own_files
from sandboxer.sdk.sync.client import Sandboxer

# Typer brings its own click, older ones stand on the package.
_CLICK = TyperGroup.__mro__[1].__module__.removesuffix(".core")
app = typer.Typer(rich_markup_mode="rich")
CACHE, FRESH_S, PATIENCE_S, MOST = "completion.json", 2.0, 1.0, 200


class Shell(NamedTuple):
    script: str
    # Below the home of its user.
    file: str


SHELLS = {
    "bash": Shell(
        """\
_sandboxer() {
    local IFS=$'\\n'
    COMPREPLY=($(sandboxer __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _sandboxer sandboxer
""",
        ".local/share/bash-completion/completions/sandboxer",
    ),
    "zsh": Shell(
        """\
#compdef sandboxer
_sandboxer() {
    local -a found
    found=("${(@f)$(sandboxer __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then _describe sandboxer found; else _files; fi
}
if [ "$funcstack[1]" = "_sandboxer" ]; then _sandboxer "$@"; else compdef _sandboxer sandboxer; fi
""",
        ".local/share/zsh/site-functions/_sandboxer",
    ),
    "fish": Shell(
        """\
function __sandboxer
    set -l words (commandline -opc) (commandline -ct)
    sandboxer __complete fish $words[2..-1] 2>/dev/null
end
complete -c sandboxer -f -a '(__sandboxer)'
""",
        ".config/fish/completions/sandboxer.fish",
    ),
}


@app.command("completion")
def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")],
    install: Annotated[bool, typer.Option("--install", help="Write it where the shell finds it.")] = False,
) -> None:
    """Let a shell complete verbs, names and ids: prints the lines that it reads for that.

    Examples:

        source <(sandboxer completion bash)

        sandboxer completion fish --install
    """
    if shell not in SHELLS:
        raise CommandFailed(f"there is no completion for {shell}", next_step="Take bash, zsh or fish.")
    made = SHELLS[shell]
    if not install:
        print(made.script, end="")
        return
    file = Path.home() / made.file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made.script)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}") from None
    more = "; its folder must be in your fpath, before compinit" if shell == "zsh" else ""
    err.print(f"[dim]written to[/] {file}[dim]{more}; new shells complete[/]", soft_wrap=True)


def answer(root: TyperGroup, words: list[str]) -> int:
    """Prints what could stand in the place of the last word; the first word is the shell. Never fails."""
    with suppress(Exception):
        shell, *before, incomplete = words
        for value, help_ in offers(root, before, incomplete):
            # Names are the platform's: one of two lines, or with a command for the terminal, is none.
            if value.isprintable():
                print(_written(shell, value, help_))
    return 0


def offers(root: TyperGroup, before: list[str], incomplete: str) -> Iterator[tuple[str, str]]:
    """Yields each word that fits, and what it is."""
    parser: Any = importlib.import_module(f"{_CLICK}.shell_completion")
    context = parser._resolve_context(root, {}, "sandboxer", before)
    wanted, incomplete = parser._resolve_incomplete(context, before, incomplete)
    if (noun := _noun_of(context, wanted)) is not None:
        if chosen := context.find_root().params.get("context"):
            choose_context(chosen)
        folder = context.params.get("state_dir")
        file = None if folder is None else Path(folder) / "owner.json"
        who = find_credentials(url=context.params.get("url"), owner_file=file)
        yield from ((value, help_) for value, help_ in live(noun, who) if value.startswith(incomplete))
        return
    for item in wanted.shell_complete(context, incomplete):
        if item.type == "plain":
            yield item.value, item.help or ""


def _noun_of(context: typer.Context, wanted: Any) -> str | None:
    """What the parameter names: by its own name, or for `id` and `name` by the noun of the verb."""
    kind, name = getattr(wanted, "param_type_name", None), str(wanted.name)
    if kind is None:
        return None
    if kind == "argument" and name in ("id", "ids", "name", "names"):
        return next((word for word in context.command_path.split() if word in LISTS), None)
    plain = name.removesuffix("s").removesuffix("_id")
    return plain if plain in LISTS else None


def _contexts(_: Any) -> Iterator[tuple[str, str]]:
    yield LOCAL, "this machine's"
    yield from ((name, one.url) for name, one in Contexts(own_files()).all.items())


def _listed(listing: Callable[[Sandboxer], Any]) -> Callable[[Sandboxer], Iterator[tuple[str, str]]]:
    def pairs(platform: Sandboxer) -> Iterator[tuple[str, str]]:
        for one in islice(listing(platform), MOST):
            name, state = getattr(one, "name", None), getattr(one, "state", "")
            if name:
                yield name, f"{one.id} {state}"
            yield one.id, f"{name or ''} {state}".strip()

    return pairs


def _keys(platform: Sandboxer) -> Iterator[tuple[str, str]]:
    for one in platform.keys.list():
        if one.revoked_at is None:
            yield from ((one.name, one.public_key), (one.public_key, one.name))


def _profiles(platform: Sandboxer) -> Iterator[tuple[str, str]]:
    return ((one.id.removeprefix("profile."), one.backend) for one in platform.profiles())


LISTS: dict[str, Callable[[Sandboxer], Iterator[tuple[str, str]]]] = {
    "sandbox": _listed(lambda platform: platform.list(limit=MOST)),
    "snapshot": _listed(lambda platform: platform.snapshots.list(limit=MOST)),
    "image": _listed(lambda platform: platform.images.list(limit=MOST)),
    "volume": _listed(lambda platform: platform.volumes.list(limit=MOST)),
    "service": _listed(lambda platform: platform.services.list(limit=MOST)),
    "session": _listed(lambda platform: platform.sessions.list(limit=MOST)),
    "job": _listed(lambda platform: platform.jobs.list(limit=MOST)),
    "public_key": _keys,
    "profile": _profiles,
    "context": _contexts,
}


def live(noun: str, who: Credentials) -> list[tuple[str, str]]:
    """Names and ids as the platform lists them now, or did so a moment ago."""
    files, now = own_files(), time.time()
    place = f"{noun} {who.url} {who.public_key}"
    kept = files.read(CACHE)
    if (known := kept.get(place)) and 0 <= now - known["at"] < FRESH_S:
        return [(value, help_) for value, help_ in known["found"]]
    with Sandboxer(
        url=who.url,
        public_key=who.public_key,
        secret_key=who.secret_key,
        api_key=who.bearer_token,
        timeout_s=PATIENCE_S,
    ) as platform:
        found = list(LISTS[noun](platform))
    fresh = {name: one for name, one in kept.items() if 0 <= now - one["at"] < FRESH_S}
    with suppress(OSError):
        files.write(CACHE, {**fresh, place: {"at": now, "found": found}})
    return found


def _written(shell: str, value: str, help_: str) -> str:
    """A line as each shell reads it; helps are one line."""
    said = "".join(filter(str.isprintable, " ".join(help_.split())))[:60]
    if shell == "bash":
        return shlex.quote(value)
    if shell == "zsh":
        return value.replace(":", "\\:") + (f":{said}" if said else "")
    return f"{value}\t{said}"
