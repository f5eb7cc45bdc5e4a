"""What people call a sandbox by: its name and its labels, which change nothing of what it does."""

from __future__ import annotations

from collections.abc import Mapping

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest
from sandboxer.sandboxes.dependencies import SandboxDependencies, actor_of
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.wire.words import MAX_LABELS

_GOING = frozenset({State.DESTROYING, State.DESTROYED})


def described(sandbox: Sandbox, name: str | None, labels: Mapping[str, str | None]) -> Mapping[str, object]:
    """Return what changes of the record. A label that is None is taken away, others are set beside those
    that it has. Raises IllegalTransition, and InvalidRequest for too many labels.
    """
    if sandbox.state in _GOING:
        raise IllegalTransition(signal="change", state=sandbox.state.value)
    merged = {key: value for key, value in {**sandbox.labels, **labels}.items() if value is not None}
    if len(merged) > MAX_LABELS:
        raise InvalidRequest(field="labels", why=f"it would have {len(merged)}, and may have {MAX_LABELS}")
    changes: dict[str, object] = {}
    if name not in (None, sandbox.name):
        changes["name"] = name
    if merged != sandbox.labels:
        changes["labels"] = merged
    return changes


async def change(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    *,
    name: str | None,
    labels: Mapping[str, str | None],
) -> Sandbox:
    """Name and label a sandbox anew. What it is already is success, and no event."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    if not (changes := described(sandbox, name, labels)):
        return sandbox
    dependencies.repository.check_name(sandbox.account, name, of=sandbox.id)
    return await dependencies.repository.amend(
        sandbox_id,
        kind="sandbox.changed",
        actor=actor_of(caller),
        reason="changed_by_caller",
        decide=lambda current: described(current, name, labels),
        data=changes,
    )
