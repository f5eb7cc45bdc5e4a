"""A redeploy loses no request and no state; one that fails leaves what runs alone. On real walls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sandboxer.kernel.errors import Conflict
from sandboxer.work.services.lifecycle import State
from sandboxer.work.services.specs import NewFile, Redeploy
from tests.support.services import APP, OWNER, QUICK, SERVE, Ground

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_redeploy_drops_no_request_and_keeps_the_disk(ground: Ground) -> None:
    made = await ground.create(replace(SERVE, drain_s=0.3))
    await ground.sh(made, "echo kept > /workspace/state")
    answers: list[str] = []
    over = asyncio.Event()

    async def visit() -> None:
        while not over.is_set():
            answers.append((await ground.ask(made)).split()[0])

    async with asyncio.TaskGroup() as group:
        visitors = [group.create_task(visit()) for _ in range(3)]
        new = await ground.services.redeploy(made.id, OWNER, Redeploy(env={"GREETING": "bonjour"}))
        assert len(visitors) == 3
        await ground.until(made, lambda _: answers[-1] == "bonjour")
        over.set()
    assert (new.state, new.port, new.run) == (State.RUNNING, 8081, 2)
    assert set(answers) == {"hello", "bonjour"}
    assert await ground.sh(made, "cat /workspace/state") == "kept\n"
    await ground.sh(made, "while [ $(pgrep -fc '^python3 /workspace/app.py') != 1 ]; do sleep 0.05; done")
    assert ground.services.get(made.id, OWNER).state is State.RUNNING


async def test_a_new_process_that_never_gets_well_leaves_the_old_one_alone(ground: Ground) -> None:
    made = await ground.create(replace(SERVE, health=replace(QUICK, path="/", start_timeout_s=3)))
    before = await ground.ask(made)
    with pytest.raises(Conflict, match="it exited with 7") as refused:
        await ground.services.redeploy(made.id, OWNER, Redeploy(command="echo oh no; exit 7"))
    assert "oh no" in str(refused.value.facts["log"])
    assert await ground.ask(made) == before
    kept = ground.services.get(made.id, OWNER)
    assert (kept.state, kept.process_id, kept.spec.command) == (State.RUNNING, made.process_id, SERVE.command)


async def test_a_program_with_a_port_of_its_own_is_exchanged_or_comes_back(ground: Ground) -> None:
    fixed = replace(SERVE, port=9000, command="PORT=9000 exec python3 /workspace/app.py")
    made = await ground.create(fixed)
    assert made.port == 9000
    files = (NewFile(path="app.py", content=APP.replace("hello", "salut").encode()),)
    new = await ground.services.redeploy(made.id, OWNER, Redeploy(files=files))
    assert (new.state, new.port, new.run) == (State.RUNNING, 9000, 2)
    assert (await ground.ask(made)).startswith("salut")
    with pytest.raises(Conflict, match="the old one was started again"):
        await ground.services.redeploy(made.id, OWNER, Redeploy(command="exit 1"))
    await ground.until(made, lambda s: s.state is State.RUNNING)
    assert (await ground.ask(made)).startswith("salut")


async def test_a_sleeping_service_is_woken_for_a_redeploy(ground: Ground) -> None:
    made = await ground.create()
    asleep = await ground.services.freeze(made.id, OWNER)
    assert asleep.state is State.SLEEPING
    new = await ground.services.redeploy(made.id, OWNER, Redeploy(env={"GREETING": "moin"}))
    assert new.state is State.RUNNING
    assert (await ground.ask(made)).startswith("moin")


async def test_secrets_reach_the_process_and_only_their_names_are_told(ground: Ground) -> None:
    made = await ground.create(secrets={"GREETING": "psst"})
    assert (await ground.ask(made)).startswith("psst")
    assert made.vault_names == ("GREETING",)
    assert b"psst" not in (made.vault or b"")
    changed = await ground.services.change_vault(made.id, OWNER, {"MORE": "x"}, replacing=False)
    assert changed.vault_names == ("GREETING", "MORE")
    emptied = await ground.services.change_vault(made.id, OWNER, {}, replacing=True)
    assert (emptied.vault, emptied.vault_names) == (None, ())
    await ground.services.redeploy(made.id, OWNER, Redeploy())
    assert (await ground.ask(made)).startswith("hello")


async def test_nothing_is_left_of_one_that_was_removed(ground: Ground) -> None:
    made = await ground.create()
    await ground.services.remove(made.id, OWNER)
    assert not (ground.settings.state_dir / "services" / made.id).exists()
    assert (await ground.platform.sandboxes.get(made.sandbox_id, OWNER)).state == "destroyed"
    again = await ground.create()
    assert again.id != made.id
    with pytest.raises(Conflict, match="there is a service called hello already"):
        await ground.create()
