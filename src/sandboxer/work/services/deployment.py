"""Functions that create a service, and that replace its process when it is redeployed.

A service's record is written in the same transaction as its sandbox's, so that neither exists without the
other.

A redeploy loses no request. A program that listens on $PORT gets the other of two ports: the new process
starts beside the old one, passes its health check and receives the requests from then on; the old one ends
after it had time to finish. A program with a fixed port must end first: requests wait at the proxy meanwhile,
and if the new process never becomes healthy, the old one is started again.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from sandboxer.backends.guest import Guest, whole
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration
from sandboxer.kernel.errors import Conflict, InvalidRequest
from sandboxer.kernel.values import brief_value_class, new_id
from sandboxer.sandboxes.requests import CreateRequest, name_within
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line
from sandboxer.store.repository import Also
from sandboxer.work.files import check_path
from sandboxer.work.lines import WORKSPACE
from sandboxer.work.services import processes
from sandboxer.work.services.dependencies import SYSTEM, ServiceDependencies
from sandboxer.work.services.lifecycle import (
    NewFile,
    NewService,
    Signal,
    Spec,
    State,
    exit_in_words,
    next_port,
)
from sandboxer.work.services.processes import Pump
from sandboxer.work.services.reconciler import ServiceReconciler, Supervisor
from sandboxer.work.services.records import Service
from sandboxer.work.services.repository import Step

# Its sandboxes have no time limit: they live as long as their account has sats.
PROFILE = "profile.service"
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?")
_SUFFIX = "0123456789abcdefghjkmnpqrstvwxyz"


async def create(
    dependencies: ServiceDependencies,
    supervisor: Supervisor,
    wanted: NewService,
    caller: Caller,
    *,
    also: Also | None,
) -> Service:
    """Creates the sandbox, writes the files and starts the process. The process may still fail afterwards."""
    service = _requested(dependencies, wanted, caller)

    def record(conn: Connection, sandbox_id: str) -> None:
        placed = replace(service, sandbox_id=sandbox_id)
        dependencies.repository.add(conn, placed, also=also, now=service.created_at)

    try:
        sandbox = await creation.create(
            dependencies.sandboxes, _sandbox(dependencies, wanted), caller, also=record
        )
    except BaseException:
        if await dependencies.repository.recall(service.id):
            await dependencies.repository.move(
                service.id, Step(signal=Signal.REMOVE, reason="its sandbox could not be made")
            )
        raise
    opened = replace(service, sandbox_id=sandbox.id)
    dependencies.repository.announce(opened)
    reconciler = supervisor.keep(opened.id)
    async with reconciler.alone() as made:
        try:
            await write_files(dependencies, made.sandbox_id, wanted.files)
            if made.spec.is_public:
                await dependencies.before_opening(made, caller, wanted.inspect)
        except BaseException:
            await lifetime.destroy(dependencies.sandboxes, made.sandbox_id, SYSTEM, despite_lock=True)
            await dependencies.repository.move(
                made.id, Step(signal=Signal.REMOVE, reason="its files could not be written, or show too much")
            )
            supervisor.let_go(made.id)
            dependencies.forget(made)
            raise
        return await reconciler.launch(made, "created")


async def write_files(dependencies: ServiceDependencies, sandbox_id: str, files: Sequence[NewFile]) -> None:
    if not files:
        return
    async with open_line(dependencies.sandboxes, sandbox_id, SYSTEM, activity=ActivityKind.FILES) as guest:
        for file in files:
            path = file.path if file.path.startswith("/") else f"{WORKSPACE}/{file.path}"
            await guest.files.write(check_path(path, field="files"), whole(file.content), mode=file.mode)


def _requested(dependencies: ServiceDependencies, wanted: NewService, caller: Caller) -> Service:
    if _NAME.fullmatch(wanted.name) is None:
        raise InvalidRequest(
            field="name",
            why="it must be a DNS label: a to z, 0 to 9 and -, at most 48, beginning with a letter",
        )
    service_id, now = new_id("svc"), dependencies.clock.now()
    suffix = "".join(secrets.choice(_SUFFIX) for _ in range(6))
    return Service(
        id=service_id,
        account=caller.account,
        created_by=caller.public_key,
        name=wanted.name,
        slug=f"{wanted.name}-{suffix}",
        # Filled in when the record of its sandbox is written.
        sandbox_id="",
        state=State.CREATING,
        reason="requested",
        state_since=now,
        is_wanted=True,
        spec=wanted.spec,
        vault=dependencies.vault.close(service_id, wanted.secrets),
        vault_names=tuple(sorted(wanted.secrets)),
        vault_at=now if wanted.secrets else None,
        created_at=now,
        deployed_at=now,
    )


def price_request(dependencies: ServiceDependencies, wanted: NewService) -> CreateRequest:
    """Returns the request to quote a price for. A service without an end is quoted for a month."""
    asked = _sandbox(dependencies, wanted)
    return asked if wanted.sandbox.ttl or asked.profile != PROFILE else replace(asked, ttl="30d")


def _sandbox(dependencies: ServiceDependencies, wanted: NewService) -> CreateRequest:
    """Returns the request for the service's sandbox. Idleness never ends it: sleeping is a setting of the
    service.
    """
    request = wanted.sandbox
    profile = dependencies.sandboxes.profiles.get(request.profile or PROFILE)
    most = format_duration(profile.ttl_max)
    return replace(
        request,
        profile=profile.id,
        name=name_within(wanted.name),
        ttl=request.ttl or most,
        idle_timeout=most,
        labels={**request.labels, "service": wanted.name},
    )


_GLANCE_S = 0.05
# A process that was just replaced may take this long to go, besides its own drain and stop times.
_DRAINS_WITHIN_S = 5.0


@brief_value_class
class Redeployment:
    """Replaces the process of a running service; the caller holds its reconciler."""

    dependencies: ServiceDependencies
    reconciler: ServiceReconciler
    service: Service
    spec: Spec
    actor: str

    async def replace_process(self) -> Service:
        """Returns the service with its new process. Raises Conflict if that never becomes healthy; the
        service then runs as before.
        """
        if self.spec.port is None and self.service.spec.port is None:
            return await self._beside()
        return await self._in_place()

    async def _beside(self) -> Service:
        dependencies, reconciler, service = self.dependencies, self.reconciler, self.service
        process_id = new_id(processes.PREFIX)
        started: dict[str, Any] = {
            "spec": self.spec,
            "process_id": process_id,
            "port": next_port(self.spec, service.port),
            "run": dependencies.next_run(service),
            "launched_at": dependencies.clock.now(),
        }
        new = replace(service, **started)
        await _until_free(await dependencies.guest(service), new, service.spec)
        dependencies.note(
            new, f"redeploy: starting process {new.run} on port {new.port} beside the present one"
        )
        guest = await reconciler.start(new)
        pump = reconciler.pump(process_id, new.run, guest)
        if (why := await _until_well(guest, new, pump)) is not None:
            await processes.end(guest, process_id, patience_s=self.spec.stop_timeout_s)
            raise self._stays(new, why, "the old process goes on")
        taken = await self._took_over(**started)
        reconciler.take_over(taken, pump)
        dependencies.note(taken, f"process {taken.run} took over")
        if service.process_id is not None:
            reconciler.retire(guest, service.process_id, service.spec)
        return taken

    async def _in_place(self) -> Service:
        reconciler, service = self.reconciler, self.service
        await reconciler.end_process(service, service.spec.stop_timeout_s)
        new = await self._exchange(service, self.spec)
        guest = await self.dependencies.guest(new)
        pump = reconciler.present_pump
        why = "it could not be started" if pump is None else await _until_well(guest, new, pump)
        if why is None:
            return await self._took_over()
        failure = self._stays(new, why, "the old one was started again")
        await reconciler.end_process(new, self.spec.stop_timeout_s)
        await self._exchange(self.dependencies.repository.peek(new.id) or new, service.spec)
        raise failure

    async def _exchange(self, service: Service, spec: Spec) -> Service:
        changed = await self.dependencies.repository.amend(
            service.id, "changed", actor=self.actor, spec=spec, port=spec.port
        )
        return await self.reconciler.launch(changed, "redeploy")

    async def _took_over(self, **changes: Any) -> Service:
        """Records that the new process is healthy."""
        repository, now = self.dependencies.repository, self.dependencies.clock.now()
        taken = await repository.amend(
            self.service.id, "redeployed", actor=self.actor, crashes=(), deployed_at=now, **changes
        )
        step = Step(signal=Signal.HEALTHY, reason="redeployed", actor=self.actor)
        return await repository.move(taken.id, step)

    def _stays(self, new: Service, why: str, outcome: str) -> Conflict:
        self.dependencies.note(new, f"redeploy failed: {why}; {outcome}")
        return Conflict(
            why=f"the new process never became healthy ({why}); {outcome}",
            reason="not_healthy",
            log=self.dependencies.last_words(new, run=new.run),
            hint=f"Read what it printed (GET /v1/services/{new.name}/logs), correct it, and redeploy again.",
        )


async def _until_free(guest: Guest, new: Service, present: Spec) -> None:
    """Waits until nothing listens on the new port. A process that still drains there would be mistaken for
    the new one.
    """
    assert new.port is not None
    listens = replace(new.spec.health, path=None)
    patience = _DRAINS_WITHIN_S + present.drain_s + present.stop_timeout_s
    deadline = asyncio.get_running_loop().time() + patience
    while (await processes.look(guest, new.port, listens)).is_well:
        if asyncio.get_running_loop().time() >= deadline:
            raise Conflict(
                why=f"something else of this sandbox listens on port {new.port}, which the new process needs",
                reason="port_taken",
                hint=f"End what listens there (POST /v1/sandboxes/{new.sandbox_id}/exec), and redeploy.",
            )
        await asyncio.sleep(_GLANCE_S)


async def _until_well(guest: Guest, service: Service, pump: Pump) -> str | None:
    """Returns None once the process is healthy, or the reason why it is not when its time is over or it has
    ended.
    """
    limits = service.spec.health
    deadline = asyncio.get_running_loop().time() + limits.start_timeout_s
    assert service.port is not None
    while True:
        verdict = await processes.look(guest, service.port, limits)
        if pump.exit is not None:
            return exit_in_words(pump.exit)
        if pump.is_over:
            return "the line to its sandbox broke"
        if verdict.is_well:
            return None
        if asyncio.get_running_loop().time() >= deadline:
            return f"{verdict.why}, {limits.start_timeout_s:g} s after it was started"
        await asyncio.sleep(_GLANCE_S)
