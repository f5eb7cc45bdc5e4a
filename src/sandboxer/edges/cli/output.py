"""What the CLI prints: tables and words for people, JSON for programs, one paragraph for an error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any
from unicodedata import category

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.kernel.errors import Refused, SandboxerError
from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.wire.next_steps import Door, next_step

if TYPE_CHECKING:
    from sandboxer.wire.previews import Exposure

# Not a terminal: nobody counts columns, and an id must stay on one line to be found by grep.
# No `:word:` is meant as an emoji; their table alone would take longer to load than a line to print.
out = Console(
    highlight=False, emoji=False, width=None if sys.stdout.isatty() else get_terminal_size((200, 24)).columns
)
err = Console(stderr=True, highlight=False, emoji=False, width=None if sys.stderr.isatty() else 200)

STATE_STYLES = {
    "ready": "green",
    "active": "bold green",
    "frozen": "cyan",
    "stopped": "yellow",
    "provisioning": "blue",
    "requested": "blue",
    "failed": "bold red",
    "expired": "magenta",
    "destroying": "dim",
    "destroyed": "dim",
}
# What a trust level is to a person.
NETWORKS = {"zero": "none", "semi": "filtered"}
DISK_STYLES = {
    "kept": "green",
    "ready": "green",
    "unpaid": "yellow",
    "lost": "bold red",
    "failed": "bold red",
}


# Text that may be cut to a few characters where there is little room; everything else is shown whole or not.
_SOFT = frozenset(
    {
        *("NAME", "RUN", "URL", "PATH", "REASON", "RESOURCE", "NETWORKS", "KINDS", "KIND", "ALSO"),
        *("LANGUAGE", "WHAT", "TO", "FOR", "TITLE", "CAN", "SAID BY", "PAID BY", "SEEN BY", "SYSTEM", ""),
    }
)
# Sentences, which go on in the next line.
_PROSE = frozenset({"WHY", "MEANING", "WHY IT MATTERS", "NO INVOICES BECAUSE", "NOTE", "CHECK"})
# Where there is no room, these columns are left out first, in this order; then those furthest to the right.
_FIRST_TO_GO = (
    *("ALSO", "DIGEST", "SIGNATURES", "FINGERPRINT", "SPENDS", "PROOF", "PHASE", "VARIABLE"),
    *("ATTACHED", "RUN"),
    *("CREATED", "MADE", "STARTED", "ADDED", "TAKEN", "LINKED", "SET", "SINCE", "CREATED AT", "UPDATED AT"),
)
# Those that are left out where nothing stands in them.
_RARE = frozenset({"GOES", ""})
# What ends later than this was meant to go on: a service's sandbox lives for ten years.
_NEVER_S = 5 * 365 * 86400
# A name that is cut can be typed by nobody: it has so much room before a column that matters less stays.
_LEAST, _LEAST_OF_NAME, _LEAST_OF_PROSE, _BETWEEN = 8, 16, 20, 2
# How an answer of several pages says where the next one begins.
_CURSORS = {"next_cursor", "next_after"}


def as_json(value: object) -> Any:
    # Models of answers, without importing their library for those who print none.
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    return value


def print_json(value: object) -> None:
    """Prints one document, on one line unless a person looks at it."""
    text = json.dumps(as_json(value), indent=2 if sys.stdout.isatty() else None, default=str)
    print(text, flush=True)


def state_text(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def disk_state(state: str) -> Text:
    """Of a disk that outlives its sandbox: a snapshot, a volume."""
    return Text(state, style=DISK_STYLES.get(state, "dim"))


def plain(value: object) -> Text:
    """Words of others as they are: never as markup, never as orders to the terminal. A `Text` is ours."""
    if isinstance(value, Text):
        return value
    return Text("".join("\ufffd" if category(c) == "Cc" and c != "\n" else c for c in str(value)))


def facts_table(facts: Iterable[tuple[str, object]], *, title: str | None = None) -> Table:
    made = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in facts:
        if value not in (None, "", {}, []):
            made.add_row(plain(name), plain(value))
    return made


def lacks_list(lacks: Iterable[Any]) -> Group:
    """What a host lacks and why; each remedy in a line of its own, so that a command can be copied whole."""
    said = (
        part
        for lack in lacks
        for part in (Text(lack.what, "yellow") + plain(f": {lack.why}"), Padding(plain(lack.remedy), (0, 4)))
    )
    return Group(Text("\nThis host lacks", style="bold"), *said)


def ago(moment: datetime | None) -> str:
    return "" if moment is None else f"{span((datetime.now(UTC) - moment).total_seconds())} ago"


def until(moment: datetime | None) -> str:
    if moment is None:
        return ""
    if (left := (moment - datetime.now(UTC)).total_seconds()) > _NEVER_S:
        return "never"
    return f"in {span(left)}" if left > 0 else "now"


def span(seconds: float) -> str:
    """Says it in the two largest units: `3m 20s`, `2d 4h`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


# What kind of error it is stands in its code; the sentence says what is wrong.
_KIND = re.compile(r"Conflict: |The request was refused: |Invalid (?=\S+: )")


def error_facts(error: BaseException) -> dict[str, Any]:
    """Says an error to a program: its code and message, who is to blame, what to do next."""
    facts: dict[str, Any] = {"code": "error", "message": str(error), "fault": "caller", "next_step": ""}
    if isinstance(error, ApiError):
        facts["message"] = error.said(Door.CLI)
    if isinstance(error, SdkError):
        step = error.next(Door.CLI) if isinstance(error, ApiError) else error.next_step
        facts |= {"code": error.code, "fault": error.fault, "next_step": step}
    elif isinstance(error, CommandFailed):
        facts |= {"code": error.code, "next_step": error.remedy}
    elif isinstance(error, SandboxerError):
        fault = "caller" if isinstance(error, Refused) else "platform"
        step = next_step(Door.CLI, error.code, str(error.facts.get("hint") or error.what_next()))
        facts |= {"code": error.code, "fault": fault, "next_step": step}
    elif isinstance(error, OSError) and error.filename is not None:
        facts |= {
            "message": f"{error.filename} cannot be used: {error.strerror}",
            "next_step": "Check its name.",
        }
    if isinstance(error, ApiError):
        facts |= {"status": error.status, "request_id": error.request_id}
    if kind := _KIND.match(facts["message"]):
        facts["message"] = _as_typed(facts["message"][kind.end() :])
    return facts


def _as_typed(message: str) -> str:
    """Names a field by the option that this command was given for it."""
    field, colon, rest = message.partition(": ")
    # Of a field in a part of the request: the option has the field's own name.
    option = f"--{field.rpartition('.')[2].replace('_', '-')}"
    return option + colon + rest if option in (word.partition("=")[0] for word in sys.argv) else message


def print_error(error: BaseException, *, is_json: bool) -> None:
    facts = error_facts(error)
    if is_json:
        print(json.dumps({"error": facts}, default=str), file=sys.stderr, flush=True)
        return
    # All of it may be the words of a platform that means harm.
    facts = {name: plain(value).plain for name, value in facts.items() if value is not None}
    said = facts["message"].strip() or type(error).__name__
    paragraph = Text.assemble(("error: ", "bold red"), said)
    if not said.endswith((".", "!", "?")):
        paragraph.append(".")
    if facts["next_step"]:
        paragraph.append(f" {facts['next_step']}", style="bold")
    if facts.get("request_id") and facts["fault"] == "platform":
        paragraph.append(f" (request {facts['request_id']})", style="dim")
    err.print(paragraph)


def print_usage(message: str, command: str) -> None:
    """Says to a program that its command line is wrong."""
    step = f"See how it is used: {command} -h"
    facts = {"code": "usage", "message": message, "fault": "caller", "next_step": step}
    print(json.dumps({"error": facts}), file=sys.stderr, flush=True)


def columns(rows: Sequence[Sequence[object]], *headings: str, width: int | None = None) -> Table:
    """A table that fits: ids are whole or not there, names are cut, what matters less is left out."""
    cells = [[plain(cell) for cell in row] for row in rows]
    kept = [n for n, name in enumerate(headings) if name not in _RARE or any(row[n] for row in cells)]
    drawn = [_Column(headings[n], [row[n] for row in cells]) for n in kept]
    widths = _fitted(drawn, width or out.width)
    made = Table(title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column, given in widths:
        head = Text(column.heading, no_wrap=True, overflow="ellipsis")
        made.add_column(head, max_width=given, no_wrap=not column.is_prose, overflow=column.overflow)
    for number in range(len(cells)):
        made.add_row(*(column.cells[number] for column, _ in widths))
    return made


class _Column:
    def __init__(self, heading: str, cells: Sequence[Text]) -> None:
        self.heading, self.cells = heading, cells
        self.word = heading.strip()
        self.is_prose = self.word in _PROSE
        self.overflow: Any = "fold" if self.is_prose else "ellipsis"
        lines = [len(line) for cell in cells for line in cell.plain.split("\n")]
        self.natural = max([*map(len, self.word.split("\n")), *lines])
        self.least = min(self.natural, self._wanted())

    def _wanted(self) -> int:
        """How many characters of it are worth a column."""
        if self.is_prose:
            return _LEAST_OF_PROSE
        if self.word == "NAME":
            return _LEAST_OF_NAME
        return _LEAST if self.word in _SOFT else self.natural


def _fitted(drawn: list[_Column], width: int) -> list[tuple[_Column, int]]:
    """The columns there is room for, and how wide each may be."""
    # The one that names the thing, and how it is, stay.
    first = next((column for column in drawn if column.word == "ID"), drawn[0])
    fixed = [first, *(column for column in drawn if column.word == "STATE")]
    while _room(drawn, width) < 0 and (goes := _least_important(drawn, fixed)) is not None:
        drawn = [column for column in drawn if column is not goes]
    left, widths = max(0, _room(drawn, width)), []
    for column in drawn:
        more = min(left, column.natural - column.least)
        widths.append((column, column.least + more))
        left -= more
    return widths


def _room(drawn: Sequence[_Column], width: int) -> int:
    return width - sum(column.least + _BETWEEN for column in drawn) + _BETWEEN


def _least_important(drawn: Sequence[_Column], fixed: Sequence[_Column]) -> _Column | None:
    loose = [column for column in drawn if column not in fixed]
    named = sorted((c for c in loose if c.word in _FIRST_TO_GO), key=lambda c: _FIRST_TO_GO.index(c.word))
    return next(iter([*named, *reversed(loose)]), None)


def resource(value: object) -> Any:
    """What programs get: the resource as it is, or `items` and where the `next` of them begin."""
    found = as_json(value)
    if isinstance(found, list):
        return {"items": found, "next": None}
    cursor = _CURSORS & found.keys() if isinstance(found, dict) else None
    if not cursor:
        return found
    items = next(part for part in found.values() if isinstance(part, list))
    return {"items": items, "next": found[cursor.pop()]}


def print_answer(answer: object, *, is_json: bool) -> None:
    """Prints any answer of the platform: its facts, a line each; a list in columns."""
    found = resource(answer)
    if is_json:
        print_json(found)
    elif "next" not in found:
        out.print(facts_table(_flat(found.items())))
    elif items := found["items"]:
        names = [name for name in items[0] if any(row.get(name) not in (None, "", [], {}) for row in items)]
        rows = [[_cell(row.get(name)) for name in names] for row in items]
        out.print(columns(rows, *(name.upper().replace("_", " ") for name in names)))
    else:
        out.print("[dim]none[/]")


def _flat(facts: Iterable[tuple[str, object]], of: str = "") -> Iterator[tuple[str, object]]:
    """Facts a line each, also those of a part, which are named after it."""
    for name, value in facts:
        named = f"{of} {name.replace('_', ' ')}".lstrip()
        if isinstance(value, dict):
            yield from _flat(value.items(), named)
        else:
            yield named, value if value is None else _cell(value)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case dict():
            parts = ((name.replace("_", " "), _cell(part)) for name, part in value.items())
            return "; ".join(f"{name}: {said}" for name, said in parts if said)
        case list():
            return ("\n" if any(isinstance(one, dict) for one in value) else ", ").join(map(_cell, value))
    return str(value)


@contextmanager
def waiting(words: str, *, is_json: bool) -> Iterator[None]:
    """Shows something that moves while a person waits for the platform."""
    if is_json or not err.is_terminal:
        yield
        return
    with err.status(words):
        yield


def tell_exposure(found: Exposure) -> None:
    """Names, for people, what whoever reaches a port may be shown."""
    for one in found.findings:
        err.print(plain(f"whoever reaches it may be shown {one.path} (mode {one.mode:o})"), style="yellow")
    if found.why is not None:
        err.print(plain(f"not everything in it was looked at: {found.why}"), style="dim")
