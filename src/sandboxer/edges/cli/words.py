"""What is said to a verb that does not exist: which one is meant. And how the help of one is set.

Verbs have the same names on every noun: `create`, `list`, `show`, `update`, `delete`. Who comes from other
tools, or typed too fast, is told ours.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection
from functools import partial
from typing import Any

from typer.core import TyperGroup

from sandboxer.kernel.errors import in_plain_words

# What other tools call it; the first of ours that the noun has is the one that is meant.
_MEANT = {
    "show": ("get", "describe", "info", "inspect", "stat", "status", "look", "cat", "balance"),
    "delete": ("destroy", "remove", "rm", "kill", "end", "revoke", "close", "terminate", "drop", "del"),
    "unlink": ("delete", "remove", "revoke", "rm"),
    "create": ("add", "new", "make", "start", "launch", "mk", "open", "claim"),
    "set": ("create", "add", "put"),
    "run": ("create", "start", "launch"),
    "update": (
        "set",
        "change",
        "edit",
        "patch",
        "modify",
        "rename",
        "resize",
        "extend-ttl",
        "extend",
        "expire",
    ),
    "list": ("ls", "ps", "all", "built"),
    "delegate": ("cut", "derive", "fork"),
    "reinstate": ("unsuspend", "resume", "enable"),
    "suspend": ("disable", "block"),
    "top-up": ("topup", "fund", "buy"),
    "freeze": ("pause", "sleep"),
    "thaw": ("unpause", "wake"),
    "resume": ("start", "restart"),
    "cp": ("copy", "upload", "download", "push", "pull"),
    "shell": ("attach", "connect", "enter", "console"),
    "pay": ("payment", "payments"),
    "credit": ("money", "balance", "bucket"),
    "secret": ("env", "vault"),
    "terminal": ("tty",),
    "events": ("history",),
    "profile": ("template", "templates"),
    "preview": ("port", "expose", "tunnel"),
}

_EXTRA = re.compile(r"Got unexpected extra argument\S* \((?P<words>.*)\)$", re.DOTALL)
# Where a word too many belongs. Other users of a machine see the words of its commands.
_INSTEAD = {
    "secret set": "The value is read from stdin, or asked for: printf %s VALUE | sandboxer secret set NAME",
}
# What the library calls a value, and what people do; a switch takes none.
_KINDS = {
    "<bool>": "",
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "N",
    "<float range>": "N",
    "<path>": "PATH",
}


def unknown(word: str, known: Collection[str]) -> str:
    """Says that there is no such verb, and which of the known ones may have been meant."""
    close = [ours for ours, theirs in _MEANT.items() if word in theirs and ours in known]
    close += difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    shown = list(dict.fromkeys(close))[:3]
    meant = " or ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)
    hint = f"Did you mean {meant}?" if shown else f"There are: {', '.join(known)}."
    return f"There is no verb {word!r}. {hint}"


def mistake(error: Any) -> str:
    """Says what is wrong with a command line: what a missing word is, where one too many goes."""
    said = str(error.format_message())
    what = getattr(getattr(error, "param", None), "help", None)
    if what and said.startswith("Missing"):
        return f"{said.rstrip('.')}: {what}"
    if (extra := _EXTRA.match(said)) is None:
        # A mistake of no one option is said without the library's word for it.
        which, colon, why = said.partition(": ")
        if which == "Invalid value":
            return why[:1].upper() + why[1:]
        return f"{which}{colon}{in_plain_words(why)}"
    verb = error.ctx.command_path.partition(" ")[2]
    has_name = any("--name" in one.opts for one in error.ctx.command.params)
    hint = _INSTEAD.get(verb) or (f"To give a name: --name {extra['words']}" if has_name else "")
    return f"There is no place for {extra['words']!r} here. {hint}".rstrip()


class Group(TyperGroup):
    """The verbs of a noun."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(unknown(args[0], list(self.commands)))
        return super().resolve_command(ctx, args)


def readable(command: Any, ctx: Any) -> None:
    """Lets the help of a command, and of all below it, fit a terminal of any width: paragraphs flow, and
    a value is called what people call it.
    """
    for one in getattr(command, "commands", {}).values():
        readable(one, ctx)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(part if "  " in part else part.replace("\n", " ") for part in paragraphs)
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            param.metavar = param.metavar or param.name.upper()
        param.display_type_rich = partial(_kind, param)


def _kind(param: Any, ctx: Any) -> str:
    if param.param_type_name == "argument":
        # Its name says it.
        return ""
    kind = str(param.display_type(ctx) if param.metavar is None else param.metavar)
    return _KINDS.get(kind, kind)
