"""A service runs, is restarted, gives up, sleeps and wakes: on real walls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandboxer.sandboxes.use_cases import lifetime, pause
from sandboxer.work.services.lifecycle import Policy, Redeploy, Spec, State
from tests.support.services import ONCE, OWNER, QUICK, SERVE, ReopenablePlatform

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_service_runs_answers_and_logs(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create()
    assert made.state is State.RUNNING, made.reason
    assert (await reopenable.ask(made)).startswith("hello ")
    lines = reopenable.services.log(made.id, OWNER).tail(100)
    assert "listening on 8080" in [line.text for line in lines]


async def test_a_crash_is_followed_by_a_new_process(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create(replace(SERVE, restart=ONCE))
    await reopenable.ask(made, "/crash")
    again = await reopenable.until(made, lambda s: s.state is State.RUNNING and s.run == 2)
    assert again.process_id != made.process_id
    texts = [line.text for line in reopenable.services.log(made.id, OWNER).tail(100)]
    assert texts.index("crashing as asked") < texts.index("it exited with 3")
    assert texts.count("listening on 8080") == 2


async def test_a_crash_loop_is_given_up_and_says_what_was_printed_last(
    reopenable: ReopenablePlatform,
) -> None:
    made = await reopenable.create(
        Spec(command="echo no such database >&2; exit 4", restart=ONCE, health=QUICK)
    )
    assert made.state is State.CRASH_LOOPING
    assert made.run == 3
    assert "it exited with 4" in made.reason
    assert "no such database" in made.reason


async def test_a_service_that_never_listens_is_unhealthy_with_a_reason(
    reopenable: ReopenablePlatform,
) -> None:
    made = await reopenable.create(Spec(command="sleep 1000", health=replace(QUICK, start_timeout_s=0.5)))
    assert made.state is State.UNHEALTHY
    assert "nothing listens on port 8080" in made.reason
    assert "$PORT" in made.reason


async def test_garbage_is_no_health(reopenable: ReopenablePlatform) -> None:
    babble = "import os, socket\ns = socket.create_server(('', int(os.environ['PORT'])))\n"
    babble += "while True: c, _ = s.accept(); c.sendall(b'\\x00\\xff garbage'); c.close()"
    spec = Spec(
        bootstrap=f"#!/usr/bin/python3\n{babble}\n", health=replace(QUICK, path="/", start_timeout_s=0.5)
    )
    made = await reopenable.create(spec)
    assert made.state is State.UNHEALTHY
    assert "not HTTP" in made.reason


async def test_one_that_gets_sick_is_unhealthy_then_replaced(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create(replace(SERVE, restart=ONCE))
    await reopenable.sh(made, "touch /tmp/sick")
    await reopenable.until(made, lambda s: s.state is State.UNHEALTHY)
    await reopenable.until(made, lambda s: s.run == 2)
    await reopenable.sh(made, "rm /tmp/sick")
    await reopenable.until(made, lambda s: s.state is State.RUNNING)


async def test_an_exit_is_the_end_where_the_policy_says_so(reopenable: ReopenablePlatform) -> None:
    done = Spec(command="exit 0", restart=replace(ONCE, policy=Policy.ON_FAILURE), health=QUICK)
    made = await reopenable.create(done)
    assert (made.state, made.is_wanted) == (State.STOPPED, False)
    broken = Spec(command="echo why; exit 1", restart=replace(ONCE, policy=Policy.NEVER), health=QUICK)
    made = await reopenable.create(broken, name="broken")
    assert made.state is State.FAILED
    assert "why" in made.reason
    again = await reopenable.services.redeploy(made.id, OWNER, Redeploy(command=SERVE.command))
    assert again.state is State.RUNNING


async def test_it_sleeps_when_nobody_asks_and_wakes_as_it_was(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create(replace(SERVE, idle_s=0.5))
    before = await reopenable.ask(made)
    asleep = await reopenable.until(made, lambda s: s.state is State.SLEEPING)
    assert asleep.reason == "no request for 0.5 s"
    assert (await reopenable.platform.sandboxes.visible(made.sandbox_id, OWNER)).state == "frozen"
    target = await reopenable.platform.access.ports.targets.by_service(made.id)
    assert target is not None
    assert target.wakes
    await pause.thaw(reopenable.platform.sandboxes, made.sandbox_id, OWNER)
    await reopenable.platform.access.ports.targets.woken(target)
    assert reopenable.services.get(made.id, OWNER).state is State.RUNNING
    assert await reopenable.ask(made) == before


async def test_requests_keep_it_awake(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create(replace(SERVE, idle_s=0.6))
    for _ in range(12):
        reopenable.platform.access.ports.targets.touched(made.sandbox_id)
        await reopenable.sh(made, "sleep 0.1")
    assert reopenable.services.get(made.id, OWNER).state is State.RUNNING


async def test_stop_ends_it_and_start_begins_anew_on_the_same_disk(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create()
    await reopenable.sh(made, "echo kept > /workspace/state")
    stopped = await reopenable.services.stop(made.id, OWNER)
    assert stopped.state is State.STOPPED
    assert (await reopenable.platform.sandboxes.visible(made.sandbox_id, OWNER)).state == "stopped"
    started = await reopenable.services.start(made.id, OWNER)
    assert started.state is State.RUNNING
    assert await reopenable.sh(made, "cat /workspace/state") == "kept\n"


async def test_a_sandbox_that_stops_and_is_resumed_has_its_service_again(
    reopenable: ReopenablePlatform,
) -> None:
    made = await reopenable.create()
    await pause.stop(reopenable.platform.sandboxes, made.sandbox_id, OWNER)
    await reopenable.until(made, lambda s: s.state is State.STOPPED)
    await pause.resume(reopenable.platform.sandboxes, made.sandbox_id, OWNER)
    await reopenable.until(made, lambda s: s.state is State.RUNNING and s.run == 2)
    assert (await reopenable.ask(made)).startswith("hello")


async def test_a_destroyed_sandbox_is_the_end_and_says_so(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create()
    await lifetime.destroy(reopenable.platform.sandboxes, made.sandbox_id, OWNER)
    await reopenable.until(made, lambda s: s.state is State.FAILED and s.reason == "its sandbox is gone")


async def test_a_new_server_finds_it_running_and_starts_nothing_twice(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create()
    before = await reopenable.ask(made)
    await reopenable.close()
    await reopenable.open()
    found = await reopenable.until(made, lambda s: s.state is State.RUNNING)
    assert (found.process_id, found.run) == (made.process_id, 1)
    assert await reopenable.ask(made) == before
    assert await reopenable.sh(made, "pgrep -fc '^python3 /workspace/app.py'") == "1\n"
    await reopenable.ask(made, "/the-last")
    await reopenable.until(made, lambda _: "asked /the-last" in _texts(reopenable, made.id))
    texts = _texts(reopenable, made.id)
    # What was kept by the guest is not written a second time.
    assert texts.count("listening on 8080") == 1


def _texts(reopenable: ReopenablePlatform, service_id: str) -> list[str]:
    return [line.text for line in reopenable.services.log(service_id, OWNER).tail(1000)]
