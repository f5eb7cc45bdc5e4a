"""What holds up an agent's run, staged against a real platform: each comes with its name, and the run goes
on, or ends, as the table says. Those of payments are in `tests/flows/test_flow_13_inception.py`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.backends.contract import Handle
from sandboxer.backends.contract import Order as BackendOrder
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.sdk.agent import acts, loop, outside
from sandboxer.sdk.agent.acts import ARCHIVE, STATE
from sandboxer.sdk.agent.line import Reply
from sandboxer.sdk.agent.progress import End, Order, Progress, Step, begin, to_json
from sandboxer.sdk.agent.steps import Blocked, Blocker, Kept
from sandboxer.sdk.credentials import Credentials
from sandboxer.settings import Settings
from tests.support.agent_runs import Run, looks, lying, order_for, owner_of, run_of, said
from tests.support.http.accounts import funded
from tests.support.http.real import IMAGES, on_real_walls, why_not
from tests.support.http.served import Served, serving


class Slow(Scripted):
    """Makes nothing until it is told to."""

    def __init__(self, *, is_slow: bool = True) -> None:
        super().__init__(name="ext.namespaces")
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        if not is_slow:
            self.go_on.set()

    async def provision(self, order: BackendOrder) -> Handle:
        self.begun.set()
        await self.go_on.wait()
        return await super().provision(order)


def living(served: Served) -> set[str]:
    return {one.id for one in served.platform.sandboxes.repository.living()}


async def all_made(served: Served) -> int:
    gone = (await served.client.get("/v1/sandboxes?state=destroyed&limit=100")).json()["sandboxes"]
    return len(gone) + len(living(served))


@pytest.mark.parametrize("hours", [-2, 3])
async def test_a_wrong_clock_is_named_and_put_right(free: Served, tmp_path: Path, hours: int) -> None:
    around = outside.surroundings(owner_of(free), now=lambda: time.time() + hours * 3600)
    run = Run(tmp_path / "run.json", order_for(free), around)
    ended = await run.go()
    assert (ended.end, run.troubles) == (End.DONE, ["clock_skew"])
    assert abs(ended.clock_offset_s + hours * 3600) < 60


async def test_every_answer_may_be_lost_and_nothing_is_done_twice(free: Served, tmp_path: Path) -> None:
    """The platform did it, and the agent does not hear of it: of each request once."""
    lost: set[str] = set()

    def bend(method: str, target: str, send: Callable[[], Reply]) -> Reply:
        reply = send()
        if (what := f"{method} {target}") not in lost:
            lost.add(what)
            raise acts.HeldUp(Blocked(Blocker.UNAVAILABLE, f"lost: {what}"))
        return reply

    run = Run(
        tmp_path / "run.json",
        order_for(free, task="date +%s%N"),
        lying(outside.surroundings(owner_of(free)), owner_of(free), bend),
    )
    ended = await run.go()
    assert (ended.end, set(run.troubles)) == (End.DONE, {"unavailable"}), said(ended)
    assert len(lost) >= 10
    assert await all_made(free) == 1


async def test_a_stale_answer_about_the_child_is_not_believed_for_ever(free: Served, tmp_path: Path) -> None:
    """For a while it is said that the child is there no more, which is asked about and turns out wrong."""
    lies = 3

    def bend(method: str, target: str, send: Callable[[], Reply]) -> Reply:
        nonlocal lies
        if "/wait" in target and lies:
            lies -= 1
            return Reply(502, {}, b'{"code": "backend_lost", "detail": "it does not answer"}')
        return send()

    run = Run(
        tmp_path / "run.json",
        order_for(free),
        lying(outside.surroundings(owner_of(free)), owner_of(free), bend),
    )
    ended = await run.go()
    assert (ended.end, run.troubles) == (End.DONE, ["unavailable"] * 3)
    assert await all_made(free) == 1


async def test_answers_that_are_not_understood_are_asked_for_again(free: Served, tmp_path: Path) -> None:
    seen: set[str] = set()

    def bend(method: str, target: str, send: Callable[[], Reply]) -> Reply:
        reply = send()
        if reply.headers.get("content-type", "").startswith("application/json") and target not in seen:
            seen.add(target)
            return replace(reply, content=b"[]" if len(seen) % 2 else b"<html>")
        return reply

    around = lying(outside.surroundings(owner_of(free)), owner_of(free), bend)
    run = Run(tmp_path / "run.json", order_for(free), around)
    ended = await run.go()
    assert (ended.end, set(run.troubles)) == (End.DONE, {"unavailable"}), said(ended)
    assert await all_made(free) == 1


async def test_what_a_child_says_of_itself_is_only_believed_in_form(free: Served, tmp_path: Path) -> None:
    """Whatever runs in a layer may write its report."""
    run = run_of(free, tmp_path, depth=2, task="sleep 600")
    going = asyncio.ensure_future(run.go())
    async for _ in looks():
        if len(living(free)) == 2 and run.seen[-1].child is not None and run.seen[-1].child.process:
            break
    child = run.seen[-1].child
    assert child is not None
    text = {"state": "gave_up", "exit_code": 0, "output": "", "errors": "", "spent_sats": 1, "blocked": 7}
    ends = "for p in /proc/[0-9]*; do grep -qs [l]oop.pyz $p/cmdline && kill -9 ${p#/proc/}; done; true"
    words = f"echo '{json.dumps(text)}' > {STATE}.report; {ends}"
    await free.client.post(f"/v1/sandboxes/{child.id}/exec", {"command": words})
    ended = await going
    assert (ended.end, run.troubles) == (End.GAVE_UP, ["cascading_failure"])
    async for _ in looks():
        if not living(free):
            break


@pytest.mark.slow
async def test_too_many_requests_are_waited_out(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    settings = Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        pool_size_mb=800,
        charging=True,
        limit_bucket_only=240,
    )
    async with on_real_walls(settings) as served:
        client = await funded(served, "hasty", 5_000)
        while (await client.get("/v1/accounts/me")).status_code != 429:
            pass
        key = Credentials(client.credentials.public_key, client.credentials.secret_key, served.url)
        run = run_of(served, tmp_path, key, budget_sats=1_000, ttl_s=60)
        # As long as it is told to.
        run.longest_pause_s = 60.0
        ended = await run.go()
        assert ended.end is End.DONE, said(ended)
        assert set(run.troubles) == {"rate_limit"}
        waited = [one.trouble.not_before - one.trouble.at for one in run.seen if one.trouble is not None]
        assert min(waited) >= 1.0
        assert await all_made(served) == 1


async def test_a_child_whose_time_ends_is_given_more(free: Served, tmp_path: Path) -> None:
    run = run_of(free, tmp_path, ttl_s=3, task="sleep 4.5; echo late")
    ended = await run.go()
    assert (ended.end, run.troubles) == (End.DONE, []), said(ended)
    assert ended.child is not None
    assert ended.child.extensions >= 1
    assert await all_made(free) == 1


async def test_a_child_whose_time_ended_while_nobody_looked_is_made_once_more(
    free: Served, tmp_path: Path
) -> None:
    run = run_of(free, tmp_path, ttl_s=1, task="sleep 0.1; echo here")

    def leave(known: Progress) -> None:
        if known.child is not None and known.child.is_installed:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run.go(leave)
    async for _ in looks():
        if not living(free):
            break
    ended = await run.go()
    assert (ended.end, run.troubles) == (End.DONE, ["ttl"]), said(ended)
    assert await all_made(free) == 2


async def test_a_request_that_is_still_under_way_is_waited_for(settings: Settings, tmp_path: Path) -> None:
    """The one of before a crash makes the child; the one after it gets the same child."""
    backend = Slow()
    async with serving(settings, {"ext.namespaces": backend}) as served:
        run = run_of(served, tmp_path)
        file = loop.StateFile(run.path)

        def at_the_child(known: Progress) -> None:
            if known.step is Step.CREATE_CHILD:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await run.go(at_the_child)
        known = file.read()
        assert known is not None
        first = asyncio.create_task(asyncio.to_thread(acts.act, run.around, known))
        await backend.begun.wait()
        second = await asyncio.to_thread(acts.act, run.around, known)
        assert isinstance(second, Blocked)
        assert second.blocker is Blocker.RACE
        backend.go_on.set()
        made = await first
        again = await asyncio.to_thread(acts.act, run.around, known)
        assert isinstance(made, Kept)
        assert isinstance(again, Kept)
        assert made.changes["child"] == again.changes["child"]
        assert len(backend.boxes) == 1


async def test_whoever_lost_its_authority_stops_at_once(free: Served, tmp_path: Path) -> None:
    """The loop runs inside; what its sandbox was granted is taken back."""
    path = await free.sandbox(inception={"slots": 2}, ttl="5m")
    order = Order(depth=1, task="sleep 1000")
    for name, content in (
        (ARCHIVE, loop.packed()),
        (STATE, json.dumps(to_json(begin(order, now=0))).encode()),
    ):
        written = await free.client.put(f"{path}/files/content?path={name}", content)
        assert written.status_code == 200, written.text
    started = await free.client.post(f"{path}/processes", {"argv": ["python3", ARCHIVE, STATE]})
    async for _ in looks():
        if len(living(free)) == 2:
            break
    tree = (await free.client.get("/v1/keys/tree")).json()
    keys = [one["key"]["public_key"] for one in tree["children"]]
    assert (await free.client.delete(f"/v1/keys/{keys[0]}")).status_code in (200, 204)
    process = f"{path}/processes/{started.json()['process_id']}"
    ended = (await free.client.get(f"{process}/wait?timeout_s=40")).json()
    assert (ended["running"], ended["exit_code"]) == (False, 1)
    told = json.loads((await free.client.get(f"{path}/files/content?path={STATE}.report")).text)
    assert (told["state"], told["blocked"]["blocker"]) == ("gave_up", "orphan")
    async for _ in looks():
        if len(living(free)) == 1:
            break


async def test_a_platform_that_is_gone_for_a_while_is_waited_for(free: Served, tmp_path: Path) -> None:
    gone = Credentials("sbx-pk-x", "x", "http://127.0.0.1:9")
    run = Run(tmp_path / "run.json", order_for(free), outside.surroundings(gone))
    stopped = await run.go()
    assert (stopped.end, set(run.troubles)) == (None, {"unavailable"})
    run.around = outside.surroundings(owner_of(free))
    assert (await run.go()).end is End.DONE


async def test_a_key_that_is_not_accepted_is_named(free: Served, tmp_path: Path) -> None:
    wrong = Credentials("sbx-pk-" + "x" * 24, "sbx-sk-wrong", free.url)
    run = Run(tmp_path / "run.json", order_for(free), outside.surroundings(wrong))
    ended = await run.go()
    assert set(run.troubles) == {"lost_key"}
    assert ended.end is None
