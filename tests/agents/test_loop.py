"""The loop on real walls: every layer is made from inside the one above, by the same modules."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxer.sdk.agent.progress import End, Step, spent
from sandboxer.sdk.credentials import Credentials
from tests.support.agent_runs import Run, looks, order_for, owner_of, run_of, said
from tests.support.http.accounts import funded
from tests.support.http.served import Served, eventually


def layers(told: dict[str, Any]) -> list[dict[str, Any]]:
    """What each layer reports, the outermost first."""
    return [told, *layers(told["below"])] if told["below"] else [told]


def living(served: Served) -> set[str]:
    return {one.id for one in served.platform.sandboxes.repository.living()}


async def test_three_layers_make_each_other_and_the_last_runs_the_command(
    free: Served, tmp_path: Path
) -> None:
    run = run_of(free, tmp_path, depth=3, task="sandboxer discover --json; echo also >&2; exit 7")
    ended = await run.go()
    told = layers(dict(said(ended)))
    assert (ended.end, told[0]["exit_code"], told[0]["errors"]) == (End.DONE, 7, "also\n")
    last = json.loads(str(told[0]["output"]))
    # Who asks in a layer is the child of the layer above.
    assert [one["sandbox"] for one in told[1:]] == [one["child"] for one in told[:-1]]
    assert (last["id"], last["depth"], last["api"]) == (told[-1]["child"], 2, None)
    assert living(free) == set()


async def test_a_customer_pays_for_all_layers_out_of_one_budget(real: Served, tmp_path: Path) -> None:
    client = await funded(real, "agent", 5_000)
    key = Credentials(client.credentials.public_key, client.credentials.secret_key, real.url)
    ended = await run_of(real, tmp_path, key, depth=2, budget_sats=1_000, ttl_s=60, task="sleep 1.2").go()
    assert ended.end is End.DONE, ended.trouble
    assert 0 < spent(ended) <= 1_000
    # Nothing stayed below.
    async for _ in looks():
        money = (await client.get("/v1/accounts/me")).json()["money"]
        if money["balance"] >= 5_000 - spent(ended):
            break
    assert (money["held"], money["reserved"]) == (0, 0)
    assert (await real.client.get("/v1/ledger/verify")).json()["is_whole"]


async def test_too_small_a_budget_is_found_before_anything_is_made(real: Served, tmp_path: Path) -> None:
    client = await funded(real, "poor", 5_000)
    key = Credentials(client.credentials.public_key, client.credentials.secret_key, real.url)
    run = run_of(real, tmp_path, key, depth=4, budget_sats=3)
    ended = await run.go()
    assert (ended.step, run.troubles) == (Step.FETCH_PRICING, ["no_money"])
    assert living(real) == set()


async def test_a_child_that_runs_out_of_memory_gets_twice_as_much(free: Served, tmp_path: Path) -> None:
    task = "python3 -c 'x = bytearray(60 << 20); print(len(x))'"
    run = run_of(free, tmp_path, memory_mb=40, task=task)
    ended = await run.go()
    assert ended.result is not None, said(ended)
    assert (ended.end, ended.result.output.strip(), run.troubles) == (End.DONE, str(60 << 20), ["memory"])
    assert living(free) == set()
    hungry = Run(
        tmp_path / "other.json", order_for(free, memory_mb=24, task=task.replace("60", "900")), run.around
    )
    ended = await hungry.go()
    assert (ended.end, hungry.troubles) == (End.GAVE_UP, ["memory"] * 3)
    assert living(free) == set()


async def test_the_deepest_cause_of_a_failure_comes_up(free: Served, tmp_path: Path) -> None:
    run = run_of(free, tmp_path, depth=3, memory_mb=48, task="python3 -c 'x = bytearray(400 << 20)'")
    ended = await run.go()
    assert (ended.end, run.troubles) == (End.GAVE_UP, ["cascading_failure"])
    assert ended.trouble is not None
    assert ended.trouble.cause is not None
    assert (ended.trouble.cause["blocker"], ended.trouble.cause["depth"]) == ("memory", 1)
    assert living(free) == set()


async def test_an_image_without_python_has_a_name_and_the_last_layer_needs_none(
    free: Served, tmp_path: Path
) -> None:
    run = run_of(free, tmp_path, depth=2)

    async def without(child: str) -> None:
        answer = await free.client.post(
            f"/v1/sandboxes/{child}/exec", {"command": "rm -f $(which -a python3)"}
        )
        assert answer.json()["exit_code"] == 0, answer.text

    loop = asyncio.get_running_loop()

    def watch(known: Any) -> None:
        if known.child is not None and known.step is Step.CREATE_CHILD and known.end is None:
            asyncio.run_coroutine_threadsafe(without(known.child.id), loop).result()

    ended = await run.go(watch)
    assert (ended.end, run.troubles) == (End.GAVE_UP, ["no_python"])
    assert living(free) == set()


async def test_when_the_parent_ends_nothing_that_it_made_goes_on(free: Served, tmp_path: Path) -> None:
    run = run_of(free, tmp_path, depth=3, task="sleep 1000")
    going = asyncio.ensure_future(run.go())
    await eventually(lambda: len(living(free)) == 3)
    top = next(one.child.id for one in reversed(run.seen) if one.child is not None)
    assert (await free.client.delete(f"/v1/sandboxes/{top}")).status_code == 200
    # It makes one more tree, which ends in the same way.
    await eventually(lambda: len(living(free)) == 3 and top not in living(free))
    again = next(one.child.id for one in reversed(run.seen) if one.child is not None)
    assert (await free.client.delete(f"/v1/sandboxes/{again}")).status_code == 200
    ended = await going
    met = [one for one in run.troubles if one != "unavailable"]
    assert (ended.end, met) == (End.GAVE_UP, ["child_lost"] * 2)
    await eventually(lambda: living(free) == set())


async def test_a_loop_that_is_killed_inside_goes_on_where_it_was(free: Served, tmp_path: Path) -> None:
    run = run_of(free, tmp_path, depth=3, task="sleep 1; echo once >&2; hostname")
    going = asyncio.ensure_future(run.go())
    is_up = free.platform.sandboxes.repository.living
    await eventually(lambda: [one.state.value in ("ready", "active") for one in is_up()] == [True] * 3)
    before = living(free)
    for sandbox in before:
        # The last one has no loop in it.
        words = "for p in /proc/[0-9]*; do grep -qs [l]oop.pyz $p/cmdline && kill -9 ${p#/proc/}; done; true"
        ran = await free.client.post(f"/v1/sandboxes/{sandbox}/exec", {"command": words})
        assert ran.status_code == 200, ran.text
    ended = await going
    told = layers(dict(said(ended)))
    assert (ended.end, run.troubles, told[0]["errors"]) == (End.DONE, [], "once\n")
    assert {one["child"] for one in told} == before
    assert ended.child is not None
    assert ended.child.restarts == 1


PROGRAM = """
import sys, time
from pathlib import Path
from sandboxer.sdk.agent import loop, outside
from sandboxer.sdk.agent.progress import Order, begin
from sandboxer.sdk.credentials import Credentials
url, public, secret, path, depth, task = sys.argv[1:]
file = loop.StateFile(Path(path))
def told(known):
    print(known.step.value, flush=True)
with file.alone():
    known = file.read() or begin(Order(depth=int(depth), task=task, url=url), now=time.time())
    loop.run(file, known, outside.surroundings(Credentials(public, secret, url)), watch=told)
"""


def agent_process(served: Served, path: Path, depth: int, task: str) -> subprocess.Popen[str]:
    key = owner_of(served)
    words = [
        sys.executable,
        "-c",
        PROGRAM,
        served.url,
        key.public_key,
        key.secret_key,
        str(path),
        str(depth),
        task,
    ]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.timeout(110)
async def test_killed_after_every_act_it_makes_one_child_in_each_layer(free: Served, tmp_path: Path) -> None:
    path, task = tmp_path / "run.json", "hostname; date +%N"
    kills = 0
    while True:
        process = agent_process(free, path, 2, task)
        assert process.stdout is not None
        # It says where it is before it acts: the first line is of what the last one left.
        for _ in range(2):
            if not await asyncio.to_thread(process.stdout.readline):
                break
        else:
            process.send_signal(signal.SIGKILL)
            kills += 1
        code = await asyncio.to_thread(process.wait)
        process.stdout.close()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert kills < 40
    told = said(await run_of(free, tmp_path).go())
    assert (told["state"], told["exit_code"]) == ("done", 0)
    made = (await free.client.get("/v1/sandboxes?state=destroyed&limit=100")).json()["sandboxes"]
    # One in each layer.
    assert len(made) == 2
    assert kills >= 8
    assert living(free) == set()
