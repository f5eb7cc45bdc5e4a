"""A server that dies while what runs is kept, goes on or is dropped: audits what it finds, repeats what was
not answered, then begins the next thing with a lit fuse. Runs in a process of its own, and tells its parent
over a pipe.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sandboxer.backends.oci.starter import OciStarter
from sandboxer.settings import Settings
from tests.artifacts.fuse import Fuse
from tests.artifacts.kept_audit import audit_kept
from tests.artifacts.victim import Facts, Round
from tests.support.http.accounts import funded
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client, Credentials
from tests.support.oci import platform_facts
from tests.support.running import begin_session, said, told

PROFILE = "profile.strong"
NAME = "ext.oci"
SMALL = {"profile": PROFILE, "resources": {"vcpus": 1, "memory_mb": 128, "disk_mb": 32}}
OVER = ("failed", "dropped", "destroyed", "destroying", "expired")


@dataclass(frozen=True)
class Scene:
    client: Client
    facts: Facts
    # Of the deed alone: its Idempotency-Key, and the name of what it makes.
    key: str
    own: Facts = field(default_factory=dict)

    @property
    def source(self) -> str:
        return f"/v1/sandboxes/{self.facts['source']}"

    async def ask(self, method: str, path: str, body: object = None, *, once: bool = False) -> Any:
        words: dict[str, Any] = {"headers": {"idempotency-key": self.key}} if once else {}
        answer = await self.client.send(method, path, **words, **({} if body is None else {"body": body}))
        assert answer.status_code in (200, 201), (path, answer.text)
        return answer.json()

    async def named(self, noun: str) -> list[Any]:
        page = await self.ask("GET", f"/v1/{noun}?limit=500")
        found = [one for one in page[noun] if str(one["name"]).startswith(self.key)]
        return [one for one in found if one["state"] not in OVER]

    async def drop_named(self, noun: str) -> None:
        for one in await self.named(noun):
            await self.ask("DELETE", f"/v1/{noun}/{one['id']}")


@dataclass(frozen=True)
class Deed:
    # Begun with the fuse lit, and asked for again by the successor.
    act: Callable[[Scene], Awaitable[Any]]
    # What must be so after it was repeated; clears up.
    check: Callable[[Scene], Awaitable[None]]
    before: Callable[[Scene], Awaitable[Facts]] | None = None


async def _take(scene: Scene) -> Any:
    return await scene.ask(
        "POST", f"{scene.source}/snapshots", {"name": scene.key, "memory": True}, once=True
    )


async def _check_taken(scene: Scene) -> None:
    (kept,) = await scene.named("snapshots")
    assert (kept["state"], kept["content"]) == ("kept", "files_and_memory")
    assert (await told(scene.client, scene.source, "taken")).startswith("42 ")
    await scene.drop_named("snapshots")


async def _clone(scene: Scene) -> Any:
    path = f"/v1/snapshots/{scene.facts['snapshot']}/clone"
    answer = await scene.ask("POST", path, {"count": 2, "name": scene.key}, once=True)
    assert (len(answer["sandboxes"]), answer["failed"]) == (2, [])


async def _check_cloned(scene: Scene) -> None:
    made = await scene.named("sandboxes")
    assert len(made) == 2, made
    for one in made:
        assert (await told(scene.client, f"/v1/sandboxes/{one['id']}", "copy")) == "42 begun copy"
    await scene.drop_named("sandboxes")


async def _stop(scene: Scene) -> Any:
    return await scene.ask("POST", f"{scene.source}/stop?memory=true")


async def _check_stopped(scene: Scene) -> None:
    """What ran goes on, or had ended when the server died and begins anew: nothing in between."""
    kept = (await scene.ask("GET", scene.source))["kept_memory_mb"]
    await scene.ask("POST", f"{scene.source}/resume")
    if not kept:
        assert (
            await said(scene.client, scene.source, "sh", "-c", "pgrep -f '[s]ession.py' || echo no") == "no"
        )
        await begin_session(scene.client, scene.source)
    assert (await told(scene.client, scene.source, "stopped")).startswith("42 ")


async def _before_resume(scene: Scene) -> Facts:
    await _stop(scene)
    return {}


async def _resume(scene: Scene) -> Any:
    return await scene.ask("POST", f"{scene.source}/resume")


async def _check_goes_on(scene: Scene) -> None:
    assert (await told(scene.client, scene.source, "on")).startswith("42 ")


async def _restore(scene: Scene) -> Any:
    sandbox = await scene.ask("GET", scene.source)
    if sandbox["state"] == "stopped":
        # It died between the end of the old processes and the beginning of the kept ones.
        await scene.ask("POST", f"{scene.source}/resume")
    return await scene.ask("POST", f"/v1/snapshots/{scene.facts['snapshot']}/restore")


async def _check_restored(scene: Scene) -> None:
    assert await told(scene.client, scene.source, "restored") == "42 begun restored"


async def _before_drop(scene: Scene) -> Facts:
    return {"id": (await _take(scene))["id"]}


async def _drop(scene: Scene) -> Any:
    assert (await scene.ask("DELETE", f"/v1/snapshots/{scene.own['id']}"))["state"] == "dropped"


async def _nothing(scene: Scene) -> None:
    return None


DEEDS: Mapping[str, Deed] = {
    "take": Deed(_take, _check_taken),
    "clone": Deed(_clone, _check_cloned),
    "stop": Deed(_stop, _check_stopped),
    "resume": Deed(_resume, _check_goes_on, _before_resume),
    "restore": Deed(_restore, _check_restored),
    "drop": Deed(_drop, _nothing, _before_drop),
}


def serve(plan: Round, pipe: Connection) -> None:
    fuse = Fuse()
    # The runtime's commands, and the moments in which one is under way.
    fuse.lay((os, ("link",)), (subprocess.Popen, ("communicate",)), (OciStarter, ("launch",)))
    asyncio.run(_serve(plan, pipe, fuse))


async def _serve(plan: Round, pipe: Connection, fuse: Fuse) -> None:
    facts = platform_facts(plan.state_dir, PROFILE, of="agent-dev")
    rates = {"rates": {"stored_disk_gb_msats": 1_024_000}}
    settings = Settings(**{**facts, "charging": True, "pricing": rates, "storage_deposit": "1s"})
    async with serving(settings, None) as served:
        complaints = await audit_memory(served, plan.state_dir)
        known = plan.facts or await _prepare(served)
        client = served.as_(Credentials(*known["key"]))
        if plan.last is not None:
            name, number, own = plan.last
            scene = Scene(client, known, f"deed-{number}", own)
            await DEEDS[name].act(scene)
            await DEEDS[name].check(scene)
        pipe.send(("audited", complaints, known))
        if plan.deed is None:
            for noun in ("sandboxes", "snapshots"):
                for one in (await client.get(f"/v1/{noun}?limit=500")).json()[noun]:
                    assert (await client.delete(f"/v1/{noun}/{one['id']}")).status_code == 200
            pipe.send(("cleared", await audit_memory(served, plan.state_dir), {}))
            return
        deed, scene = DEEDS[plan.deed], Scene(client, known, f"deed-{plan.number}")
        own = {} if deed.before is None else await deed.before(scene)
        pipe.send(("lit", [], own))
        fuse.light(plan.at)
        await deed.act(Scene(client, known, scene.key, own))
        fuse.put_out()
        pipe.send(("done", [], {"steps": fuse.steps}))
        await asyncio.Event().wait()


async def _prepare(served: Served) -> Facts:
    """A sandbox in which something runs, and what was kept of it."""
    client = await funded(served, "team", 1_000_000_000)
    scene = Scene(client, {}, "first")
    source = (await scene.ask("POST", "/v1/sandboxes", SMALL))["id"]
    await begin_session(client, f"/v1/sandboxes/{source}")
    body = {"name": "first", "memory": True}
    snapshot = (await scene.ask("POST", f"/v1/sandboxes/{source}/snapshots", body))["id"]
    key = (client.credentials.public_key, client.credentials.secret_key)
    return {"key": key, "source": source, "snapshot": snapshot}


async def audit_memory(served: Served, state: Path) -> list[str]:
    """Complaints; none if every state is of something that is recorded as having one, and the reverse."""
    complaints = await audit_kept(served.platform, state / "oci", NAME)
    kept = (await served.client.get("/v1/snapshots?limit=500")).json()["snapshots"]
    sandboxes = (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]
    wanted = {one["id"] for one in kept if one["content"] == "files_and_memory"}
    wanted |= {one["id"] for one in sandboxes if one["kept_memory_mb"]}
    there = set(os.listdir(state / "oci" / "memory"))
    complaints += [f"a state of {name} without a record" for name in sorted(there - wanted)]
    complaints += [f"no state of {name}" for name in sorted(wanted - there)]
    return complaints + [f"{one['id']} is frozen" for one in sandboxes if one["state"] == "frozen"]
