"""Terminals over WebSocket: binary frames are bytes of the terminal, text frames are these, as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.problems import Problem
from sandboxer.wire.processes import ProcessId
from sandboxer.wire.words import Answer, Moment, Request

Cells = Annotated[int, Field(ge=1, le=1000)]


class Resize(Request):
    """Client to server."""

    type: Literal["resize"]
    cols: Cells
    rows: Cells


class TerminalReady(Answer):
    """Server to client, once, before the first byte. `terminal_id` re-attaches later."""

    type: Literal["ready"] = "ready"
    terminal_id: ProcessId
    reattached: bool


class TerminalExit(Answer):
    """Server to client, once: the program ended. The server closes with 1000 after it."""

    type: Literal["exit"] = "exit"
    exit_code: int
    reason: str | None = None


class TerminalProblem(Answer):
    """Server to client, once: the terminal broke. The server closes with 1011 after it."""

    type: Literal["error"] = "error"
    problem: Problem


class Terminal(Answer):
    terminal_id: ProcessId
    argv: list[str]
    started_at: Moment
    running: bool
    exit_code: int | None = None


class TerminalList(Answer):
    terminals: list[Terminal]
