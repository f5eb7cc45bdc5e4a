"""The operations on terminals."""

from __future__ import annotations

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    NoParameters,
    Nothing,
    Operation,
    Upgrade,
)
from sandboxer.wire.operations.paths import SandboxPath, TerminalPath
from sandboxer.wire.operations.terms import Access, RateClass, Scope, Visit, needs
from sandboxer.wire.terminals import TerminalList

OPEN_TERMINAL = Operation(
    id="openTerminal",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/terminal",
    noun="terminals",
    summary="A terminal (WebSocket)",
    parameters=SandboxPath,
    query=NoParameters,
    body=Empty(),
    answer=Upgrade(words="The terminal, over WebSocket."),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 426, 502),
    visit=Visit(thing="sandbox", action="sandbox.terminal"),
)
LIST_TERMINALS = Operation(
    id="listTerminals",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/terminals",
    noun="terminals",
    summary="List terminals, oldest first",
    parameters=SandboxPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=TerminalList),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.terminals"),
)
END_TERMINAL = Operation(
    id="endTerminal",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/terminals/{terminal_id}",
    noun="terminals",
    summary="Kill what runs in a terminal, and forget it",
    parameters=TerminalPath,
    query=NoParameters,
    body=Empty(),
    answer=Nothing(),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.terminals"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    OPEN_TERMINAL,
    LIST_TERMINALS,
    END_TERMINAL,
)
