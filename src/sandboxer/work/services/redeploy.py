"""Redeploy: a new process takes over without losing a request, or the old one stays and the answer says why.

A program that listens on $PORT gets the other port: its successor starts beside it, becomes well, is sent the
requests from then on, and the old one ends when it had time to finish. A program with a port of its own must
end first: requests wait at the proxy meanwhile, and if the new one never gets well the old one is started
again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sandboxer.backends.guest import Guest
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.ids import new_id
from sandboxer.work.services.keeping import processes as health
from sandboxer.work.services.keeping import processes as launching
from sandboxer.work.services.keeping.decisions import exit_in_words
from sandboxer.work.services.keeping.means import Means
from sandboxer.work.services.keeping.processes import Pump
from sandboxer.work.services.keeping.reconciler import ServiceReconciler
from sandboxer.work.services.records import Service
from sandboxer.work.services.repository import Step
from sandboxer.work.services.specs import Spec, next_port
from sandboxer.work.services.states import Signal

_GLANCE_S = 0.05
# A process that was replaced a moment ago has this long, and its own times to drain and to stop.
_DRAINS_WITHIN_S = 5.0


async def replace_process(
    means: Means, reconciler: ServiceReconciler, service: Service, spec: Spec, *, actor: str
) -> Service:
    """Of a service that runs; its reconciler is held. Raises Conflict, and then it runs as before."""
    if spec.port is None and service.spec.port is None:
        return await _beside(means, reconciler, service, spec, actor=actor)
    return await _in_place(means, reconciler, service, spec, actor=actor)


async def _beside(
    means: Means, reconciler: ServiceReconciler, service: Service, spec: Spec, *, actor: str
) -> Service:
    new = replace(
        service,
        spec=spec,
        process_id=new_id(launching.PREFIX),
        port=next_port(spec, service.port),
        run=means.next_run(service),
        launched_at=means.clock.now(),
    )
    await _until_free(await means.guest(service), new, service.spec)
    means.note(new, f"redeploy: starting process {new.run} on port {new.port} beside the present one")
    guest = await reconciler.start(new)
    assert new.process_id is not None
    pump = reconciler.pump(new.process_id, new.run, guest)
    why = await _until_well(guest, new, pump)
    if why is not None:
        await launching.end(guest, new.process_id, patience_s=spec.stop_timeout_s)
        raise _stays(means, new, why, "the old process goes on")
    changes = {
        "spec": spec,
        "process_id": new.process_id,
        "port": new.port,
        "run": new.run,
        "launched_at": new.launched_at,
        "crashes": (),
        "deployed_at": means.clock.now(),
    }
    taken = await means.repository.amend(service.id, "redeployed", actor=actor, decide=lambda _: changes)
    taken = await means.repository.move(
        taken.id, Step(signal=Signal.HEALTHY, reason="redeployed", actor=actor)
    )
    reconciler.take_over(taken, pump)
    means.note(taken, f"process {taken.run} took over")
    if service.process_id is not None:
        reconciler.retire(guest, service.process_id, service.spec)
    return taken


async def _in_place(
    means: Means, reconciler: ServiceReconciler, service: Service, spec: Spec, *, actor: str
) -> Service:
    await reconciler.end_process(service, service.spec.stop_timeout_s)
    new = await _exchange(means, reconciler, service, spec, actor=actor)
    guest = await means.guest(new)
    pump = reconciler.present_pump
    why = "it could not be started" if pump is None else await _until_well(guest, new, pump)
    if why is None:
        changes = {"deployed_at": means.clock.now(), "crashes": ()}
        await means.repository.amend(new.id, "redeployed", actor=actor, decide=lambda _: changes)
        return await means.repository.move(
            new.id, Step(signal=Signal.HEALTHY, reason="redeployed", actor=actor)
        )
    failure = _stays(means, new, why, "the old one was started again")
    await reconciler.end_process(new, spec.stop_timeout_s)
    await _exchange(means, reconciler, means.repository.peek(new.id) or new, service.spec, actor=actor)
    raise failure


async def _exchange(
    means: Means, reconciler: ServiceReconciler, service: Service, spec: Spec, *, actor: str
) -> Service:
    changes = {"spec": spec, "port": spec.port}
    changed = await means.repository.amend(service.id, "changed", actor=actor, decide=lambda _: changes)
    return await reconciler.launch(changed, "redeploy")


async def _until_free(guest: Guest, new: Service, present: Spec) -> None:
    """The process before the present one may still drain there, and would be taken for the new one."""
    assert new.port is not None
    listens = replace(new.spec.health, path=None)
    patience = _DRAINS_WITHIN_S + present.drain_s + present.stop_timeout_s
    deadline = asyncio.get_running_loop().time() + patience
    while (await health.look(guest, new.port, listens)).is_well:
        if asyncio.get_running_loop().time() >= deadline:
            raise Conflict(
                why=f"something else of this sandbox listens on port {new.port}, which the new process needs",
                reason="port_taken",
                hint="End what listens there, then redeploy again.",
            )
        await asyncio.sleep(_GLANCE_S)


async def _until_well(guest: Guest, service: Service, pump: Pump) -> str | None:
    """None once it is well; else why it is not, when its time is over or it has ended."""
    limits = service.spec.health
    deadline = asyncio.get_running_loop().time() + limits.start_timeout_s
    assert service.port is not None
    while True:
        verdict = await health.look(guest, service.port, limits)
        if pump.exit is not None:
            return exit_in_words(pump.exit)
        if pump.is_over:
            return "the line to its sandbox broke"
        if verdict.is_well:
            return None
        if asyncio.get_running_loop().time() >= deadline:
            return f"{verdict.why}, {limits.start_timeout_s:g} s after it was started"
        await asyncio.sleep(_GLANCE_S)


def _stays(means: Means, new: Service, why: str, outcome: str) -> Conflict:
    means.note(new, f"redeploy failed: {why}; {outcome}")
    return Conflict(
        why=f"the new process never got well ({why}); {outcome}",
        reason="not_healthy",
        log=means.last_words(new, run=new.run),
        hint="Read `log` (or the service's logs), mend what it runs, and redeploy again.",
    )
