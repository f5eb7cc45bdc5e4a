"""What the CLI prints: tables and words for people, JSON for programs, one paragraph for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unicodedata import category

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.kernel.errors import Refused, SandboxerError
from sandboxer.sdk.errors import ApiError, SdkError

# Not a terminal: nobody counts columns, and an id must stay on one line to be found by grep.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 200)

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


# Columns that are kept on one line, the first ones first: half a size is a wrong one, half an id is none.
_WHOLE = (
    "ID",
    "SIZE",
    "STATE",
    "SANDBOX",
    "OF",
    "ADDRESS",
    "IMAGE",
    "KEY",
    "DOMAIN",
    "TRANSACTION",
    "ATTACHED",
)
# Those that are cut rather than folded.
_SHORTENED = frozenset({"NAME", "RUN", "SINCE", "TAKEN", "GOES", "MADE", "CREATED", "STARTED", ""})
# Those that are left out where nothing stands in them.
_RARE = frozenset({"GOES", ""})
_LEAST, _BETWEEN = 2, 2


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


def plain(value: object) -> Text:
    """Words of others as they are: never as markup, never as orders to the terminal. A `Text` is ours."""
    if isinstance(value, Text):
        return value
    return Text("".join("\ufffd" if category(c) == "Cc" and c != "\n" else c for c in str(value)))


def table(*headings: str, title: str | None = None, whole: Collection[int] | None = None) -> Table:
    """`whole`: which columns are never folded; the one with ids, unless told."""
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        is_whole = heading.strip() == "ID" if whole is None else number in whole
        title_cell = Text(heading, no_wrap=True, overflow="ellipsis")
        made.add_column(title_cell, overflow="fold", no_wrap=is_whole)
    return made


def facts_table(facts: Iterable[tuple[str, object]], *, title: str | None = None) -> Table:
    made = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in facts:
        if value not in (None, "", {}, []):
            made.add_row(plain(name), plain(value))
    return made


def ago(moment: datetime | None) -> str:
    return "" if moment is None else f"{span((datetime.now(UTC) - moment).total_seconds())} ago"


def until(moment: datetime | None) -> str:
    if moment is None:
        return ""
    left = (moment - datetime.now(UTC)).total_seconds()
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


def error_facts(error: BaseException) -> dict[str, Any]:
    """Says an error to a program: its code and message, who is to blame, what to do next."""
    facts: dict[str, Any] = {"code": "error", "message": str(error), "fault": "caller", "next_step": ""}
    if isinstance(error, SdkError):
        facts |= {"code": error.code, "fault": error.fault, "next_step": error.next_step}
    elif isinstance(error, CommandFailed):
        facts |= {"code": error.code, "next_step": error.remedy}
    elif isinstance(error, SandboxerError):
        fault = "caller" if isinstance(error, Refused) else "platform"
        facts |= {"code": error.code, "fault": fault, "next_step": error.next_step}
    if isinstance(error, ApiError):
        facts |= {"status": error.status, "request_id": error.request_id}
    return facts


FAULTS = {
    "caller": "This can be mended on your side",
    "platform": "This is the platform's fault",
    "network": "The platform did not answer",
}


def print_error(error: BaseException, *, is_json: bool) -> None:
    facts = error_facts(error)
    if is_json:
        print(json.dumps({"error": facts}, default=str), file=sys.stderr, flush=True)
        return
    said = str(facts["message"]).strip() or type(error).__name__
    paragraph = Text.assemble(("error ", "bold red"), (f"[{facts['code']}] ", "dim"), plain(said))
    if not said.endswith((".", "!", "?")):
        paragraph.append(".")
    paragraph.append(f" {FAULTS.get(facts['fault'], facts['fault'])}.", style="yellow")
    if facts["next_step"]:
        paragraph.append(f" {facts['next_step']}", style="bold")
    if facts.get("request_id"):
        paragraph.append(f" (request {facts['request_id']})", style="dim")
    err.print(paragraph)


def columns(rows: Sequence[Sequence[object]], *headings: str, width: int | None = None) -> Table:
    """What is copied from a terminal stays on one line where there is room for it; names give way."""
    cells = [[plain(cell) for cell in row] for row in rows]
    shown = [n for n, name in enumerate(headings) if name not in _RARE or any(row[n] for row in cells)]
    cells = [[row[n] for n in shown] for row in cells]
    names = [headings[n] for n in shown]
    made = table(*names, whole=_whole(cells, names, width or out.width))
    for row in cells:
        for heading, cell in zip(names, row, strict=True):
            if heading in _SHORTENED:
                cell.no_wrap, cell.overflow = True, "ellipsis"
        made.add_row(*row)
    return made


def _whole(cells: Sequence[Sequence[Text]], headings: Sequence[str], width: int) -> set[int]:
    wanted = sorted((_WHOLE.index(name), n) for n, name in enumerate(headings) if name in _WHOLE)
    left, whole = width - len(headings) * (_LEAST + _BETWEEN), set[int]()
    for _, number in wanted:
        needed = max([len(headings[number]), *(row[number].cell_len for row in cells)]) - _LEAST
        if needed <= left or headings[number] == "ID":
            whole.add(number)
            left -= needed
    return whole


def print_answer(answer: object, *, is_json: bool) -> None:
    """Prints any answer of the platform: its facts, a line each; a list in columns."""
    found = as_json(answer)
    if is_json:
        print_json(found)
    elif isinstance(found, dict):
        out.print(facts_table(found.items()))
    elif isinstance(found, list) and found:
        names = [name for name in found[0] if any(row.get(name) not in (None, "", [], {}) for row in found)]
        rows = [[_cell(row.get(name)) for name in names] for row in found]
        out.print(columns(rows, *(name.upper() for name in names)))


def _cell(value: object) -> object:
    return "" if value is None else value


@contextmanager
def waiting(words: str, *, is_json: bool) -> Iterator[None]:
    """Shows something that moves while a person waits for the platform."""
    if is_json or not err.is_terminal:
        yield
        return
    with err.status(words):
        yield
