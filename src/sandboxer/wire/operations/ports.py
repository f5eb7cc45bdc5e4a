"""The door by path to ports inside a sandbox; the proxy of ports serves it (`edges/proxy/path_door.py`)."""

from __future__ import annotations

from sandboxer.wire.operations.declaration import AnyOperation, Empty, NoParameters, Operation, Relay
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.operations.terms import Access, RateClass, Scope, Visit, needs

RELAY_PORT = Operation(
    id="relayPort",
    method="*",
    path="/v1/sandboxes/{sandbox_id}/ports/{port}/{rest}",
    noun="previews",
    summary="Speak with what listens on a port inside",
    parameters=SandboxPath,
    query=NoParameters,
    body=Empty(),
    answer=Relay(words="Whatever the program answers."),
    access=Access.EITHER,
    # What listens there can do whatever a command can.
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    visit=Visit(thing="sandbox", action="sandbox.ports"),
)

OPERATIONS: tuple[AnyOperation, ...] = (RELAY_PORT,)
