"""What others wrote is shown, never obeyed."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from sandboxer.edges.cli.output import columns, facts_table

HOSTILE = "[/] [red]x\x1b]0;owned\x07\x1b[2J"


def test_a_tenants_words_are_neither_markup_nor_orders_to_the_terminal() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=200, color_system=None)
    console.print(columns([(HOSTILE, "fine")], "LABEL", "STATE"))
    console.print(facts_table([(HOSTILE, HOSTILE)]))
    text = shown.getvalue()
    assert text.count("[/] [red]x") == 3
    assert "\x1b" not in text
    assert "\x07" not in text


def test_ids_and_addresses_stay_on_one_line_and_names_give_way() -> None:
    snapshot, sandbox = "snp_0123456789abcdefghjkmnpqrs", "sbx_0123456789abcdefghjkmnpqrs"
    address = "http://the-name-of-it.alice.localhost:8080"
    name = "a very long name of something that somebody keeps"
    tables = [
        (
            (snapshot, name, "kept", "≤ 10.0 MiB", sandbox, "3m 20s ago", "in 6d 23h", "locked"),
            ("ID", "NAME", "STATE", "SIZE", "OF", "TAKEN", "GOES", ""),
        ),
        (
            (name, "running", "3m 20s ago", address, "python3 -m http.server 8080", sandbox),
            ("NAME", "STATE", "SINCE", "ADDRESS", "RUN", "SANDBOX"),
        ),
    ]
    for row, headings in tables:
        lines = _lines(columns([row], *headings, width=100), 100)
        assert len(lines) == 2, lines
        assert sandbox in lines[1]
        assert (snapshot if headings[0] == "ID" else address) in lines[1]
    # Too narrow for both: the id stays whole, and nothing of the other is lost.
    lines = _lines(columns([tables[0][0]], *tables[0][1], width=60), 60)
    assert snapshot in "".join(lines)
    wide = _lines(columns([tables[0][0]], *tables[0][1], width=200), 200)
    assert name in wide[1]


def _lines(table: Table, width: int) -> list[str]:
    shown = io.StringIO()
    Console(file=shown, width=width, color_system=None).print(table)
    return shown.getvalue().splitlines()
