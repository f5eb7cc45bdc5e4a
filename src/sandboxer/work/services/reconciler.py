"""The reconciler of one service looks at its sandbox, its process and its health, and takes one step at a
time.

A step is short and is taken under a lock, the same one that a request of its owner (stop, redeploy, …) takes.
Observing and deciding is in `processes.py` and `lifecycle.py`; this module only acts. The supervisor runs one
reconciler for each service and tells it what happens to the service's sandbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from sandboxer.backends.guest import Guest
from sandboxer.kernel.errors import Forbidden, InsufficientCredit, NotFound, SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.kernel.values import new_id
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step as SandboxStep
from sandboxer.sandboxes.use_cases import lifetime, pause
from sandboxer.store.reconciler import wait_until
from sandboxer.work.services import processes
from sandboxer.work.services.dependencies import SYSTEM, ServiceDependencies
from sandboxer.work.services.lifecycle import (
    ALIVE,
    KEPT,
    Policy,
    SandboxStatus,
    Signal,
    Spec,
    State,
    after_exit,
    exit_in_words,
    next_port,
    sleeps_at,
)
from sandboxer.work.services.processes import Pump
from sandboxer.work.services.records import Service
from sandboxer.work.services.repository import Step

log = logging.getLogger(__name__)
_FAR = datetime.max.replace(tzinfo=UTC)
# After a failure of the platform (a sandbox that does not answer, a full host) the reconciler tries again
# after this time.
RETRY = timedelta(seconds=2)
# A new process is checked after this time, then less and less often, up to once a second.
_FIRST_LOOK = timedelta(milliseconds=30)
_LAST_WAIT = timedelta(seconds=1)
# The reverse proxy caches for a second which port a name leads to.
_LEAST_DRAIN_S = 1.5
_WHY_DOWN = {
    SandboxStatus.STOPPED: "its sandbox was stopped",
    SandboxStatus.REAPED: "its sandbox was stopped for lack of sats; it starts again when someone pays",
}


class ServiceReconciler:
    def __init__(self, dependencies: ServiceDependencies, service_id: str, tasks: TaskOwner) -> None:
        self._dependencies = dependencies
        self._id = service_id
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._pump: Pump | None = None
        self._failures = 0
        # Whether this process was ever healthy. One that never was is not restarted for being unhealthy.
        self._was_well = False
        self._look_at: datetime | None = None
        self._look_wait = _FIRST_LOOK

    async def run(self) -> None:
        """Reconciles until it is cancelled. What it started goes on without it."""
        while True:
            self._stirred.clear()
            try:
                async with self._lock:
                    until = await self._step()
            except NotFound:
                # Removed meanwhile.
                return
            except SandboxerError as error:
                log.info("service %s: %s", self._id, error)
                until = self._now() + RETRY
            except Exception:
                # An outermost loop: one service's trouble must not end the others'.
                log.exception("service %s could not be kept", self._id)
                until = self._now() + RETRY
            await wait_until(until, self._stirred, self._dependencies.clock)

    def stir(self) -> None:
        """Makes the loop look at once, because something may have changed."""
        self._stirred.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Service]:
        """Holds the lock, so that nobody else acts on this service meanwhile; the service is looked at
        afterwards.
        """
        async with self._lock:
            try:
                yield self.service()
            finally:
                self._stirred.set()

    async def settle(self) -> Service:
        """Takes one step now, for a caller who wants to see its result."""
        async with self._lock:
            await self._step()
        self._stirred.set()
        return self.service()

    def service(self) -> Service:
        return self._dependencies.repository.known(self._id)

    async def _step(self) -> datetime:
        """Takes one step and returns when to look again. Anything that happens earlier calls `stir`."""
        service = self.service()
        sandbox_status = self._dependencies.sandbox_status(service)
        if service.state is State.CREATING or sandbox_status is SandboxStatus.COMING:
            return _FAR
        if sandbox_status is SandboxStatus.GONE:
            if service.state is not State.FAILED:
                await self._move(Signal.BROKE, "its sandbox is gone", process_id=None)
            return _FAR
        if sandbox_status is SandboxStatus.FROZEN:
            if service.state in (*ALIVE, State.RESTARTING):
                await self._move(Signal.SLEEP, "its sandbox is frozen")
            return _FAR
        if sandbox_status in _WHY_DOWN:
            if service.state in KEPT:
                await self._move(Signal.STOP, _WHY_DOWN[sandbox_status], process_id=None)
            return _FAR
        if sandbox_status is SandboxStatus.HALTED and service.state in (*ALIVE, State.SLEEPING):
            reason = self._dependencies.sandboxes.repository.peek(service.sandbox_id)
            why = "its sandbox ended" if reason is None else f"its sandbox ended: {reason.reason}"
            await self.exited(service, why, is_failure=True)
            return self._now()
        return await self._step_down_or_up(service, sandbox_status)

    async def _step_down_or_up(self, service: Service, sandbox_status: SandboxStatus) -> datetime:
        if service.state is State.RESTARTING:
            if service.restart_at is not None and service.restart_at > self._now():
                return service.restart_at
            return await self._restart(service)
        if sandbox_status is SandboxStatus.HALTED:
            return _FAR
        if service.state is State.STOPPED and service.is_wanted:
            # Its sandbox had been stopped, and runs again.
            await self.launch(service, "its sandbox runs again")
            return self._now()
        if service.state is State.SLEEPING:
            await self._wake(service)
            return self._now()
        if service.state in ALIVE:
            return await self._attend(service)
        return _FAR

    async def _restart(self, service: Service) -> datetime:
        try:
            await self.launch(service, service.reason)
        except (InsufficientCredit, Forbidden) as error:
            # Its sandbox is not allowed to run again; trying every other second would change nothing.
            await self._move(Signal.STOP, f"its sandbox cannot be started again: {error}")
        return self._now()

    async def _wake(self, service: Service) -> None:
        self._dependencies.requests[service.sandbox_id] = self._now()
        there = service.process_id in await processes.ours(await self._dependencies.guest(service))
        if there:
            self._was_well, self._failures, self._look_at = True, 0, None
            await self._move(Signal.WAKE, "its sandbox runs again")
        else:
            await self.launch(service, "its sandbox was started again")

    async def _attend(self, service: Service) -> datetime:
        """Handles a service that should run: whether its process exists, is healthy and is still needed."""
        if (pump := self._pump) is not None and pump.is_over and pump.exit is None:
            # The connection broke. It is not reopened at once, since it may break again for the same reason.
            self._pump = None
            return self._now() + RETRY
        if pump is None or pump.process_id != service.process_id:
            return await self._find(service)
        if pump.exit is not None:
            ended = pump.exit
            self._pump = None
            is_failure = ended.code != 0 or ended.reason is not None
            await self.exited(service, exit_in_words(ended), is_failure=is_failure)
            return self._now()
        if self._look_at is None or self._look_at <= self._now():
            await self._look(service)
            service = self.service()
            if service.state not in ALIVE:
                return self._now()
        return min(self._look_at or _FAR, await self._rest(service))

    async def _find(self, service: Service) -> datetime:
        """Finds the process after a restart of the server or a broken connection: it runs, has ended, or was
        lost.
        """
        guest = await self._dependencies.guest(service)
        await processes.end_others(guest, service.process_id)
        if service.process_id is None or service.process_id not in await processes.ours(guest):
            await self.launch(service, "its process was not there any more")
            return self._now()
        self.attach(service, guest)
        return self._now()

    def attach(self, service: Service, guest: Guest) -> None:
        """Attaches a pump: from now on output goes to the log and the end of the process is noticed."""
        assert service.process_id is not None
        self._look_at, self._look_wait, self._failures = None, _FIRST_LOOK, 0
        self._was_well = service.state is State.RUNNING
        self._pump = self.pump(service.process_id, service.run, guest)

    def pump(self, process_id: str, run: int, guest: Guest) -> Pump:
        pump = Pump(process_id=process_id, run=run, on_end=self._stirred.set)
        self._tasks.start(pump.carry(self._dependencies, self._id, guest), name=f"log of {self._id}")
        return pump

    @property
    def present_pump(self) -> Pump | None:
        return self._pump

    def take_over(self, service: Service, pump: Pump) -> None:
        """Makes the new process of a redeploy the one that is watched."""
        self._pump = pump
        self._was_well, self._failures = True, 0
        self._look_at = self._now() + timedelta(seconds=service.spec.health.interval_s)

    async def launch(self, service: Service, reason: str) -> Service:
        """Starts a new process, whose id is recorded first. Never raises for what the program does."""
        dependencies = self._dependencies
        if dependencies.sandbox_status(service) in (SandboxStatus.HALTED, SandboxStatus.STOPPED):
            await pause.resume(dependencies.sandboxes, service.sandbox_id, SYSTEM)
        self._pump = None
        port = service.spec.port or service.port or next_port(service.spec, None)
        started = {
            "process_id": new_id(processes.PREFIX),
            "port": port,
            "run": dependencies.next_run(service),
            "launched_at": self._now(),
            "restart_at": None,
        }
        service = await self._move(Signal.LAUNCHED, reason, **started)
        dependencies.note(service, f"starting process {service.run} on port {port} ({reason})")
        try:
            guest = await self.start(service)
        except SandboxerError as error:
            return await self.exited(service, f"it could not be started: {error}", is_failure=True)
        self.attach(service, guest)
        return service

    async def start(self, service: Service) -> Guest:
        """Starts the process that the record names."""
        assert service.process_id is not None
        assert service.port is not None
        guest = await self._dependencies.guest(service)
        await processes.start(
            guest,
            service,
            process_id=service.process_id,
            port=service.port,
            sandbox_env=await self._dependencies.environment(service),
            secrets=self._dependencies.vault.open(service),
        )
        return guest

    async def exited(self, service: Service, why: str, *, is_failure: bool) -> Service:
        """Records that the process ended, and decides whether it is restarted."""
        self._pump = None
        dependencies = self._dependencies
        after = after_exit(service.spec.restart, service.crashes, is_failure=is_failure, now=self._now())
        dependencies.note(service, why)
        changes: dict[str, object] = {"crashes": after.crashes, "restart_at": after.restart_at}
        if after.signal is Signal.ENDED:
            changes["is_wanted"] = False
        if after.signal in (Signal.CRASH_LOOP, Signal.BROKE) and (words := dependencies.last_words(service)):
            why = f"{why}; it last printed: {words}"
        if after.signal is Signal.CRASH_LOOP:
            window = service.spec.restart.window_s
            why = f"it ended {len(after.crashes)} times within {window:g} s; {why}"
        return await self._move(after.signal, why, process_id=None, **changes)

    async def _look(self, service: Service) -> None:
        now, spec = self._now(), service.spec
        assert service.port is not None
        verdict = await processes.look(await self._dependencies.guest(service), service.port, spec.health)
        if self._pump is not None and self._pump.exit is not None:
            return
        if verdict.is_well:
            self._failures, self._was_well = 0, True
            self._look_at = now + timedelta(seconds=spec.health.interval_s)
            if service.state is not State.RUNNING:
                await self._move(Signal.HEALTHY, verdict.why)
            return
        self._failures += 1
        if service.state is State.STARTING:
            await self._still_starting(service, verdict.why, now)
            return
        self._look_at = now + timedelta(seconds=spec.health.interval_s)
        await self._unwell(service, verdict.why)

    async def _still_starting(self, service: Service, why: str, now: datetime) -> None:
        limit = timedelta(seconds=service.spec.health.start_timeout_s)
        self._look_wait = min(self._look_wait * 1.5, _LAST_WAIT)
        self._look_at = now + self._look_wait
        if now - service.state_since >= limit:
            self._look_at = now + timedelta(seconds=service.spec.health.interval_s)
            words = f"{why}, {limit.total_seconds():g} s after it was started"
            if service.spec.port is None:
                words += f"; it must listen on $PORT, which is {service.port}"
            await self._move(Signal.SICK, words)

    async def _unwell(self, service: Service, why: str) -> None:
        """Marks the service unhealthy after some failures; after twice as many its process is replaced."""
        threshold = service.spec.health.threshold
        if service.state is State.RUNNING and self._failures >= threshold:
            self._dependencies.note(service, f"unhealthy: {why}")
            await self._move(Signal.SICK, why)
        elif (
            self._was_well
            and self._failures >= 2 * threshold
            and service.spec.restart.policy is not Policy.NEVER
        ):
            pump, self._pump = self._pump, None
            if pump is not None:
                guest = await self._dependencies.guest(service)
                await processes.end(guest, pump.process_id, patience_s=service.spec.stop_timeout_s)
            await self.exited(service, f"it was unhealthy for too long: {why}", is_failure=True)

    async def _rest(self, service: Service) -> datetime:
        """Puts the service to sleep if no request came for long enough; returns when to look again."""
        now = self._now()
        moment = sleeps_at(
            service.spec,
            since=service.state_since,
            last_request=self._dependencies.requests.get(service.sandbox_id),
        )
        if moment is None or service.state is State.STARTING:
            return _FAR
        if moment > now:
            return moment
        if self._dependencies.has_visitors(service):
            return now + timedelta(seconds=min(service.spec.idle_s, 1.0))
        await pause.freeze(self._dependencies.sandboxes, service.sandbox_id, SYSTEM)
        idle = f"no request for {service.spec.idle_s:g} s"
        self._dependencies.note(service, f"sleeping: {idle}")
        await self._move(Signal.SLEEP, idle)
        return _FAR

    async def end_process(self, service: Service, patience_s: float) -> None:
        """Ends the process on purpose, so that its end does not count as a crash."""
        self._pump = None
        if service.process_id is not None and self._dependencies.sandbox_status(service) is SandboxStatus.UP:
            guest = await self._dependencies.guest(service)
            await processes.end(guest, service.process_id, patience_s=patience_s)

    def retire(self, guest: Guest, process_id: str, spec: Spec) -> None:
        """Ends a process whose successor took over, after its clients had time to finish."""

        async def drain() -> None:
            try:
                await self._dependencies.clock.sleep(timedelta(seconds=max(spec.drain_s, _LEAST_DRAIN_S)))
                await processes.end(guest, process_id, patience_s=spec.stop_timeout_s)
            except SandboxerError as error:
                log.info("the old process of %s could not be ended: %s", self._id, error)
            except Exception:
                # The end of a task of its own, which must not end the platform.
                log.exception("the old process of %s could not be ended", self._id)

        self._tasks.start(drain(), name=f"old process of {self._id}")

    async def _move(self, signal: Signal, reason: str, **changes: object) -> Service:
        return await self._dependencies.repository.move(
            self._id, Step(signal=signal, reason=reason, changes=changes)
        )

    def _now(self) -> datetime:
        return self._dependencies.clock.now()


HALF_MADE = "the platform was restarted while it was being made; remove it and create it again"


class Supervisor:
    def __init__(self, dependencies: ServiceDependencies, tasks: TaskOwner) -> None:
        self._dependencies = dependencies
        self._tasks = tasks
        self._reconcilers: dict[str, ServiceReconciler] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        dependencies.sandboxes.repository.on_change(self._hear)

    async def adopt(self) -> None:
        """Gives up services that were half made when the server stopped, and starts reconcilers for the
        others.
        """
        for service in self._dependencies.repository.living():
            if service.state is State.CREATING:
                await self._dependencies.repository.move(
                    service.id, Step(signal=Signal.BROKE, reason=HALF_MADE)
                )
                try:
                    await lifetime.destroy(
                        self._dependencies.sandboxes, service.sandbox_id, SYSTEM, despite_lock=True
                    )
                except SandboxerError as error:
                    log.warning("the sandbox of half-made %s is left: %s", service.id, error)
            self.keep(service.id)

    def keep(self, service_id: str) -> ServiceReconciler:
        reconciler = ServiceReconciler(self._dependencies, service_id, self._tasks)
        self._reconcilers[service_id] = reconciler
        self._running[service_id] = self._tasks.start(reconciler.run(), name=f"reconciler of {service_id}")
        return reconciler

    def reconciler(self, service_id: str) -> ServiceReconciler:
        return self._reconcilers[service_id]

    def let_go(self, service_id: str) -> None:
        self._reconcilers.pop(service_id, None)
        if (task := self._running.pop(service_id, None)) is not None:
            task.cancel()

    def _hear(self, sandbox: Sandbox, steps: Sequence[SandboxStep]) -> None:
        service = self._dependencies.repository.by_sandbox(sandbox.id)
        reconciler = None if service is None else self._reconcilers.get(service.id)
        if reconciler is not None:
            reconciler.stir()
