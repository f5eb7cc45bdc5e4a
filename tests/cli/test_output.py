"""What others wrote is shown, never obeyed."""

from __future__ import annotations

import io

from rich.console import Console

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
