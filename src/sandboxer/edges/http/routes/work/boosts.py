"""More CPUs and memory for a running sandbox, and back."""

from __future__ import annotations

from sandboxer.edges.http import answers
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.wire.boosts import Boost
from sandboxer.wire.operations import sandboxes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.sandboxes import Sandbox


async def boost(asked: Asked[SandboxPath, NoParameters, Boost]) -> Sandbox:
    record = await asked.platform.sandboxes.boost(asked.path.sandbox_id, asked.body.vcpus, asked.caller)
    return answers.sandbox(record)


async def unboost(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    record = await asked.platform.sandboxes.unboost(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.BOOST_SANDBOX, boost),
    bind(operations.UNBOOST_SANDBOX, unboost),
)
