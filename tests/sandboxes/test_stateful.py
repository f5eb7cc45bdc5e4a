"""Whatever callers, time, deaths and restarts do in whatever order: records, backend and events agree."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from sandboxer.backends.contract import Presence
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, NoCapacity, NotFound, ProvisionFailed
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, inspection, lifetime
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.crash.audit import chain_complaints, everything_with_events
from tests.support.clock import ManualClock
from tests.support.sandboxes import ACTS as BY_NAME
from tests.support.sandboxes import ALICE, BOB, OWNER

T = TypeVar("T")
FOUND_AS = {
    State.READY: Presence.RUNNING,
    State.ACTIVE: Presence.RUNNING,
    State.FROZEN: Presence.FROZEN,
    State.STOPPED: Presence.STOPPED,
}
# What a caller may ask, from which states it works, and where it leads.
ACTS = {
    "freeze": ({State.READY, State.ACTIVE, State.FROZEN}, State.FROZEN),
    "thaw": ({State.READY, State.ACTIVE, State.FROZEN}, State.READY),
    "stop": ({State.READY, State.ACTIVE, State.STOPPED}, State.STOPPED),
    "resume": ({State.READY, State.ACTIVE, State.STOPPED}, State.READY),
    "recreate": ({State.READY, State.ACTIVE, State.FROZEN, State.STOPPED, State.FAILED}, State.READY),
    "destroy": (set(State), State.DESTROYED),
}


class Lives(RuleBasedStateMachine):
    sandboxes = Bundle("sandboxes")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.backend = Scripted(name="ext.namespaces", clock=self.clock)
        self.stack = AsyncExitStack()
        self.platform: Platform = self.wait(self.open())

    def wait(self, act: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(act, 20))

    async def open(self) -> Platform:
        # A record outlives the first of its events: what goes by age alone is no gap of this model's.
        chosen = Settings(state_dir=Path(self.folder.name), charging=False, events_retention="3650d")
        backends = {"ext.namespaces": self.backend}
        return await self.stack.enter_async_context(
            open_platform(chosen, clock=self.clock, backends=backends)
        )

    async def settle(self) -> None:
        """Until nothing is under way: every due step of the loops was written."""
        dependencies = self.platform.sandboxes
        for _ in range(400):
            await asyncio.sleep(0.002)
            now = self.clock.now()
            due = [
                s
                for s in dependencies.repository.living()
                if s.expires_at is not None and s.expires_at <= now
            ]
            torn = [s for s in dependencies.repository.living() if not self.agrees(s.id)]
            if (
                not due
                and not torn
                and not any(dependencies.operations.running(s.id) for s in dependencies.repository.living())
            ):
                return

    def agrees(self, sandbox_id: str) -> bool:
        sandbox = self.platform.sandboxes.repository.peek(sandbox_id)
        box = self.backend.boxes.get(sandbox_id)
        if sandbox is None or sandbox.state is State.FAILED:
            return box is None
        return box is not None and FOUND_AS.get(sandbox.state) is box.presence

    @rule(target=sandboxes, ttl=st.sampled_from(["30s", "4h"]), idle=st.sampled_from([None, "60s"]))
    def create(self, ttl: str, idle: str | None) -> str:
        request = CreateRequest(ttl=ttl, idle_timeout=idle)
        sandbox = self.wait(creation.create(self.platform.sandboxes, request, ALICE))
        assert sandbox.state is State.READY
        return sandbox.id

    @rule(
        error=st.sampled_from([NoCapacity(resource="memory", why="full"), ProvisionFailed(step="x", why="y")])
    )
    def fail_to_create(self, error: Exception) -> None:
        self.backend.fail_next("provision", error)
        try:
            self.wait(creation.create(self.platform.sandboxes, CreateRequest(), ALICE))
        except (NoCapacity, ProvisionFailed):
            return
        raise AssertionError("it was created on a full host")

    @rule(sandbox_id=sandboxes, act=st.sampled_from(sorted(ACTS)))
    def ask(self, sandbox_id: str, act: str) -> None:
        before = self.wait(self.platform.sandboxes.visible(sandbox_id, ALICE)).state
        allowed, target = ACTS[act]
        try:
            after = self.wait(BY_NAME[act](self.platform.sandboxes, sandbox_id, ALICE)).state
        except IllegalTransition:
            assert before not in allowed
            return
        assert before in allowed
        assert after is target or (target is State.READY and after is State.ACTIVE)

    @rule(sandbox_id=sandboxes, act=st.sampled_from([*sorted(ACTS), "visible", "usage"]))
    def ask_as_a_stranger(self, sandbox_id: str, act: str) -> None:
        try:
            self.wait(BY_NAME[act](self.platform.sandboxes, sandbox_id, BOB))
        except NotFound:
            return
        raise AssertionError("a stranger was let in")

    @rule(sandbox_id=sandboxes)
    def extend(self, sandbox_id: str) -> None:
        before = self.wait(self.platform.sandboxes.visible(sandbox_id, ALICE))
        try:
            after = self.wait(lifetime.change_ttl(self.platform.sandboxes, sandbox_id, "5h", ALICE))
        except InvalidRequest:
            assert before.ttl + timedelta(hours=5) > before.ttl_max
        except IllegalTransition:
            assert before.state not in LIVE | {State.STOPPED}
        else:
            assert after.ttl == before.ttl + timedelta(hours=5) <= after.ttl_max

    @rule(
        delay=st.sampled_from(
            [timedelta(seconds=1), timedelta(seconds=31), timedelta(hours=5), timedelta(days=8)]
        )
    )
    def time_passes(self, delay: timedelta) -> None:
        self.clock.advance(delay)
        self.wait(self.settle())

    @rule(sandbox_id=sandboxes, keeps_disk=st.booleans())
    def die(self, sandbox_id: str, keeps_disk: bool) -> None:
        box = self.backend.boxes.get(sandbox_id)
        if box is None or box.presence not in (Presence.RUNNING, Presence.FROZEN):
            return
        self.backend.die(sandbox_id, keeps_disk=keeps_disk)
        self.wait(self.settle())

    @rule(reboots=st.booleans())
    def restart(self, reboots: bool) -> None:
        self.wait(self.stack.aclose())
        if reboots:
            self.backend.reboot()
        self.platform = self.wait(self.open())
        self.wait(self.settle())

    @invariant()
    def records_backend_and_events_agree(self) -> None:
        self.wait(self.settle())
        self.wait(self._check())

    async def _check(self) -> None:
        histories = await everything_with_events(self.platform)
        now = self.clock.now()
        for sandbox, events in histories:
            assert self.agrees(sandbox.id), f"{sandbox} is found as {self.backend.boxes.get(sandbox.id)}"
            assert chain_complaints(sandbox, events) == []
            assert sandbox.state is State.DESTROYED or sandbox.expires_at is None or sandbox.expires_at > now
        assert set(self.backend.boxes) <= {sandbox.id for sandbox, _ in histories}
        assert await inspection.find_stale(self.platform.sandboxes, OWNER) == []

    def teardown(self) -> None:
        self.wait(self.stack.aclose())
        self.loop.close()
        self.folder.cleanup()


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    # A platform is opened for each example; its speed depends on the disk.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
