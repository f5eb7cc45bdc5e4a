"""What is said to a verb that does not exist: which one is meant.

Verbs have the same names on every noun: `create`, `list`, `show`, `update`, `delete`. Who comes from other
tools, or typed too fast, is told ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from typer.core import TyperGroup

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


def unknown(word: str, known: Collection[str]) -> str:
    """Says that there is no such verb, and which of the known ones may have been meant."""
    close = [ours for ours, theirs in _MEANT.items() if word in theirs and ours in known]
    close += difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    shown = list(dict.fromkeys(close))[:3]
    hint = f"Did you mean {' or '.join(shown)}?" if shown else f"There are: {', '.join(known)}."
    return f"There is no verb {word!r}. {hint}"


class Group(TyperGroup):
    """The verbs of a noun."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(unknown(args[0], list(self.commands)))
        return super().resolve_command(ctx, args)
