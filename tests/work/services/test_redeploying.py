"""A redeploy loses no request and no state; one that fails leaves what runs alone. On real walls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sandboxer.kernel.errors import Conflict
from sandboxer.work.services.lifecycle import NewFile, Redeploy, State
from tests.support.services import APP, OWNER, QUICK, SERVE, ReopenablePlatform

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_redeploy_drops_no_request_and_keeps_the_disk(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create(replace(SERVE, drain_s=0.3))
    await reopenable.sh(made, "echo kept > /workspace/state")
    answers: list[str] = []
    over = asyncio.Event()

    async def visit() -> None:
        while not over.is_set():
            answers.append((await reopenable.ask(made)).split()[0])

    async with asyncio.TaskGroup() as group:
        visitors = [group.create_task(visit()) for _ in range(3)]
        new = await reopenable.services.redeploy(made.id, OWNER, Redeploy(env={"GREETING": "bonjour"}))
        assert len(visitors) == 3
        await reopenable.until(made, lambda _: answers[-1] == "bonjour")
        over.set()
    assert (new.state, new.port, new.run) == (State.RUNNING, 8081, 2)
    assert set(answers) == {"hello", "bonjour"}
    assert await reopenable.sh(made, "cat /workspace/state") == "kept\n"
    await reopenable.sh(made, "while [ $(pgrep -fc '^python3 /workspace/app.py') != 1 ]; do sleep 0.05; done")
    assert reopenable.services.get(made.id, OWNER).state is State.RUNNING


async def test_a_new_process_that_never_gets_well_leaves_the_old_one_alone(
    reopenable: ReopenablePlatform,
) -> None:
    made = await reopenable.create(replace(SERVE, health=replace(QUICK, path="/", start_timeout_s=3)))
    before = await reopenable.ask(made)
    with pytest.raises(Conflict, match="it exited with 7") as refused:
        await reopenable.services.redeploy(made.id, OWNER, Redeploy(command="echo oh no; exit 7"))
    assert "oh no" in str(refused.value.facts["log"])
    assert await reopenable.ask(made) == before
    kept = reopenable.services.get(made.id, OWNER)
    assert (kept.state, kept.process_id, kept.spec.command) == (State.RUNNING, made.process_id, SERVE.command)


async def test_a_program_with_a_port_of_its_own_is_exchanged_or_comes_back(
    reopenable: ReopenablePlatform,
) -> None:
    fixed = replace(SERVE, port=9000, command="PORT=9000 exec python3 /workspace/app.py")
    made = await reopenable.create(fixed)
    assert made.port == 9000
    files = (NewFile(path="app.py", content=APP.replace("hello", "salut").encode()),)
    new = await reopenable.services.redeploy(made.id, OWNER, Redeploy(files=files))
    assert (new.state, new.port, new.run) == (State.RUNNING, 9000, 2)
    assert (await reopenable.ask(made)).startswith("salut")
    with pytest.raises(Conflict, match="the old one was started again"):
        await reopenable.services.redeploy(made.id, OWNER, Redeploy(command="exit 1"))
    await reopenable.until(made, lambda s: s.state is State.RUNNING)
    assert (await reopenable.ask(made)).startswith("salut")


async def test_a_sleeping_service_is_woken_for_a_redeploy(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create()
    asleep = await reopenable.services.freeze(made.id, OWNER)
    assert asleep.state is State.SLEEPING
    new = await reopenable.services.redeploy(made.id, OWNER, Redeploy(env={"GREETING": "moin"}))
    assert new.state is State.RUNNING
    assert (await reopenable.ask(made)).startswith("moin")


async def test_secrets_reach_the_process_and_only_their_names_are_told(
    reopenable: ReopenablePlatform,
) -> None:
    made = await reopenable.create(secrets={"GREETING": "psst"})
    assert (await reopenable.ask(made)).startswith("psst")
    assert made.vault_names == ("GREETING",)
    assert b"psst" not in (made.vault or b"")
    changed = await reopenable.services.change_vault(made.id, OWNER, {"MORE": "x"}, replacing=False)
    assert changed.vault_names == ("GREETING", "MORE")
    emptied = await reopenable.services.change_vault(made.id, OWNER, {}, replacing=True)
    assert (emptied.vault, emptied.vault_names) == (None, ())
    await reopenable.services.redeploy(made.id, OWNER, Redeploy())
    assert (await reopenable.ask(made)).startswith("hello")


async def test_nothing_is_left_of_one_that_was_removed(reopenable: ReopenablePlatform) -> None:
    made = await reopenable.create()
    await reopenable.services.remove(made.id, OWNER)
    assert not (reopenable.settings.state_dir / "services" / made.id).exists()
    assert (await reopenable.platform.sandboxes.visible(made.sandbox_id, OWNER)).state == "destroyed"
    again = await reopenable.create()
    assert again.id != made.id
    with pytest.raises(Conflict, match="there is a service called hello already"):
        await reopenable.create()
