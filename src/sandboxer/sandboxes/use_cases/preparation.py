"""Preparation runs inside a new sandbox what was promised before it is ready: its profile's setup, the
repository of its inputs, instructions. If something fails, the create fails with what that printed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sandboxer.backends.contract import Backend, Handle, Order, Stops
from sandboxer.backends.guest import Command, Exit, Guest, Output, Stream
from sandboxer.backends.shared import RunsStacks
from sandboxer.kernel.errors import NotAvailable, ProvisionFailed
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies, secret_refs_of
from sandboxer.sandboxes.profiles import Profile, Setup
from sandboxer.sandboxes.promises import Task, tasks_of
from sandboxer.sandboxes.records import Sandbox

# Of one command.
TIMEOUT_S = 600
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_REPORT_BYTES = 64 * 1024
# Of what a failed command printed, in the error.
TOLD_BYTES = 1000
# Of a secret of several lines, such lines are left out alone: a bracket is in every output.
SHORTEST_LINE = 4


@value_class
class Preparation:
    """Everything that one sandbox needs before it is ready."""

    setup: Setup
    tasks: tuple[Task, ...]
    # Names of all secrets that it is made with.
    secret_refs: frozenset[str]

    @property
    def is_empty(self) -> bool:
        return self.setup.is_empty and not self.tasks and not self.secret_refs


def preparation_of(sandbox: Sandbox, profile: Profile) -> Preparation:
    """Return what it needs before it is ready. A copy of a disk was set up before it was made. Pure."""
    setup = profile.setup if sandbox.origin is None else replace(profile.setup, commands=(), report="")
    refs = frozenset(secret_refs_of(profile, sandbox))
    return Preparation(setup=setup, tasks=tasks_of(sandbox.promises), secret_refs=refs)


async def prepare(
    dependencies: SandboxDependencies, handle: Handle, sandbox: Sandbox, wanted: Preparation
) -> Mapping[str, object] | None:
    """Run it, and return the report if the profile asks for one. Raises ProvisionFailed."""
    setup = wanted.setup
    if not (setup.commands or setup.report or wanted.tasks):
        return None
    guest = await dependencies.backend_of(sandbox).guest(handle)
    env = dependencies.environment(sandbox)
    secrets = [env[name] for name in wanted.secret_refs if env.get(name)]
    for command in setup.commands:
        await _run(guest, _shell("setup.commands", command), env, secrets)
    for task in wanted.tasks:
        await _run(guest, task, env, secrets)
    if not setup.report:
        return None
    return _parse_report(await _run(guest, _shell("setup.report", setup.report), env, secrets))


async def bring_stack_up(dependencies: SandboxDependencies, handle: Handle, sandbox: Sandbox) -> bool:
    """Bring up the services of the compose file in its workspace, where its backend does that. Returns
    whether there are any.

    Raises ProvisionFailed if they do not come up, or if the file that was to be there is not.
    """
    backend, promises = dependencies.backend_of(sandbox), sandbox.promises
    if not isinstance(backend, RunsStacks):
        return False
    is_up = await backend.bring_up(handle, promises.bundle, dependencies.environment(sandbox))
    if not is_up and promises.expects_bundle:
        task = Task(promise="inputs.compose_bundle_ref")
        raise _failed(task, f"there is no file {promises.bundle} in the workspace")
    return is_up


async def start_closed(
    dependencies: SandboxDependencies, backend: Backend, sandbox: Sandbox, handle: Handle, order: Order
) -> Handle:
    """End all that the preparation left running, and start it again with its folders as promised."""
    if not isinstance(backend, Stops):
        raise NotAvailable(what="workspace.access", why=f"{backend.name} cannot start a sandbox again")
    await backend.stop(handle)
    # What a disk begins with is on it by now.
    handle = await backend.resume(handle, replace(order, files=()))
    await dependencies.on_start(sandbox, handle)
    return handle


def _shell(promise: str, command: str) -> Task:
    return Task(promise=promise, argv=("/bin/sh", "-c", command))


async def _run(guest: Guest, task: Task, environment: Mapping[str, str], secrets: Collection[str]) -> bytes:
    """Run one command and return what it printed, bounded.

    Raises ProvisionFailed with the end of that unless it exits with 0; secrets are left out of it.
    """
    printed = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    order = Command(argv=task.argv, env=dict(environment))
    try:
        async with asyncio.timeout(TIMEOUT_S), await guest.run(order) as process:
            end = None
            async for item in process.output():
                if isinstance(item, Exit):
                    end = item
                else:
                    _keep(printed, item)
        await guest.forget(process.process_id)
    except TimeoutError:
        raise _failed(task, f"it took longer than {TIMEOUT_S} s") from None
    if end is None or end.code != 0:
        code = "none" if end is None else end.code
        raise _failed(
            task, f"it exited with {code}: {told([bytes(one) for one in printed.values()], secrets)}"
        )
    return bytes(printed[Stream.STDOUT])


def told(printed: Sequence[bytes], secrets: Collection[str], *, most: int = MAX_OUTPUT_BYTES) -> str:
    """Return the end of what was printed, without secrets: not as a whole, nor a line of one. Pure."""
    lines = {line.strip() for secret in secrets for line in secret.splitlines()}
    hidden = {secret.strip() for secret in secrets} | {line for line in lines if len(line) >= SHORTEST_LINE}
    # Where it was cut off, the beginning of a secret may stand.
    cut = max((len(secret.encode()) for secret in secrets), default=0)
    parts = ((one[: most - cut] if len(one) >= most else one) for one in printed)
    said = "\n".join(text for part in parts if (text := part.decode("utf-8", "replace").strip()))
    # The longest first: one may be a part of another.
    for secret in sorted(hidden - {""}, key=len, reverse=True):
        said = said.replace(secret, "***")
    return said.strip()[-TOLD_BYTES:]


def _failed(task: Task, why: str) -> ProvisionFailed:
    return ProvisionFailed(
        step="setup",
        promise=task.promise,
        why=f"{task.promise}: {why}",
        hint=f"Mend what {task.promise} runs, and create it again.",
    )


def _keep(printed: dict[Stream, bytearray], item: Output) -> None:
    """Keep the first bytes: of a report all of them are needed, and a failure says its reason soon enough."""
    kept = printed[item.stream]
    room = MAX_OUTPUT_BYTES - len(kept)
    kept += item.data[:room]


def _parse_report(printed: bytes) -> Mapping[str, object]:
    try:
        report = json.loads(printed[:MAX_REPORT_BYTES])
        # It goes into answers: NaN and unpaired surrogates would break every one of them.
        json.dumps(report, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict):
        raise ProvisionFailed(step="setup", why="the report command did not print a JSON object")
    return report
