"""A server that dies in the middle of something: audits what it finds, repeats what was not answered, then
begins the next thing with a lit fuse. Runs in a process of its own; tells its parent over a pipe.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sandboxer.settings import Settings
from tests.artifacts.fuse import Fuse
from tests.artifacts.kept_audit import audit_kept
from tests.support.archives import docker_archive, file, packed
from tests.support.http.accounts import funded
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client, Credentials
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR

FILE = "/root/data"
OLD, NEW = b"old" * 30_000, b"new" * 40_000
SMALL = {"resources": {"vcpus": 1, "memory_mb": 64, "disk_mb": 32, "pids": 32}}
ARCHIVE = docker_archive(packed(file("data", OLD), file("etc/word", b"x")))
OVER = ("failed", "dropped", "destroyed", "destroying", "expired")
# The host's own images are listed beside those that were published.
SHOWN_AS = {"images": "published"}
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Round:
    state_dir: Path
    number: int
    # None: clear up, and end by oneself.
    deed: str | None
    at: int
    # What the first process made for all.
    facts: Facts | None = None
    # Of the deed that the predecessor began.
    last: tuple[str, int, Facts] | None = None


@dataclass(frozen=True)
class Scene:
    client: Client
    facts: Facts
    state: Path
    # Of the deed alone: its Idempotency-Key, and the name of what it makes.
    key: str
    own: Facts = field(default_factory=dict)

    async def ask(self, method: str, path: str, body: object = None, *, once: bool = False) -> Any:
        words: dict[str, Any] = {"headers": {"idempotency-key": self.key}} if once else {}
        if isinstance(body, bytes):
            words["content"] = body
        elif body is not None:
            words["body"] = body
        answer = await self.client.send(method, path, **words)
        assert answer.status_code in (200, 201, 204), (path, answer.text)
        return answer.json() if answer.content else None

    def content(self, disk: str) -> bytes:
        """Of the file in a disk of the pool, whatever became of whoever had it."""
        place = self.state / "pool" / disk
        upper = place / "disk" / "upper" if (place / "disk").is_dir() else place / "upper"
        return (upper / FILE[1:]).read_bytes()

    async def named(self, noun: str) -> list[Any]:
        """What lives of what the deed made."""
        page = await self.ask("GET", f"/v1/{noun}?limit=500")
        found = [one for one in page[SHOWN_AS.get(noun, noun)] if str(one["name"]).startswith(self.key)]
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
    # What it needs of its own.
    before: Callable[[Scene], Awaitable[Facts]] | None = None


async def _nothing(scene: Scene) -> None:
    return None


def _makes(noun: str, act: Callable[[Scene], Awaitable[Any]], *, count: int = 1, reads: bool = True) -> Deed:
    async def check(scene: Scene) -> None:
        made = await scene.named(noun)
        assert len(made) == count, [(one["id"], one["state"]) for one in made]
        for one in made:
            assert not reads or scene.content(one["id"]) == OLD
        await scene.drop_named(noun)

    return Deed(act, check)


def _clones(count: int) -> Deed:
    async def act(scene: Scene) -> None:
        body = {"count": count, "name": scene.key, **SMALL}
        answer = await scene.ask("POST", f"/v1/snapshots/{scene.facts['snapshot']}/clone", body, once=True)
        assert (len(answer["sandboxes"]), answer["failed"]) == (count, [])

    return _makes("sandboxes", act, count=count)


def _drops(noun: str, make: Callable[[Scene], Awaitable[Any]]) -> Deed:
    async def before(scene: Scene) -> Facts:
        return {"id": (await make(scene))["id"]}

    async def act(scene: Scene) -> None:
        answer = await scene.ask("DELETE", f"/v1/{noun}/{scene.own['id']}")
        assert answer["state"] == "dropped"

    return Deed(act, _nothing, before)


async def _take(scene: Scene) -> Any:
    path = f"/v1/sandboxes/{scene.facts['source']}/snapshots"
    return await scene.ask("POST", path, {"name": scene.key}, once=True)


async def _publish(scene: Scene) -> Any:
    body = {"name": scene.key, "snapshot": scene.facts["snapshot"]}
    return await scene.ask("POST", "/v1/images", body, once=True)


async def _publish_sandbox(scene: Scene) -> Any:
    body = {"name": scene.key, "sandbox": scene.facts["source"]}
    return await scene.ask("POST", "/v1/images", body, once=True)


async def _import(scene: Scene) -> Any:
    return await scene.ask("POST", f"/v1/images/import?name={scene.key}", ARCHIVE, once=True)


async def _volume(scene: Scene) -> Any:
    return await scene.ask("POST", "/v1/volumes", {"name": scene.key, "size_mb": 16}, once=True)


async def _before_attach(scene: Scene) -> Facts:
    made = await scene.ask("POST", "/v1/volumes", {"name": f"{scene.key}-disk", "size_mb": 16})
    return {"volume": made["id"]}


async def _attach(scene: Scene) -> Any:
    body = {"name": scene.key, "volumes": [{"volume": scene.own["volume"], "path": "/data"}], **SMALL}
    return await scene.ask("POST", "/v1/sandboxes", body, once=True)


async def _check_attached(scene: Scene) -> None:
    (made,) = await scene.named("sandboxes")
    answer = await scene.ask("GET", f"/v1/volumes/{scene.own['volume']}")
    assert [one["sandbox_id"] for one in answer["attachments"]] == [made["id"]]
    await scene.drop_named("sandboxes")
    await scene.drop_named("volumes")


async def _before_restore(scene: Scene) -> Facts:
    path = f"/v1/sandboxes/{scene.facts['restored']}"
    if (await scene.ask("GET", path))["state"] == "stopped":
        await scene.ask("POST", f"{path}/resume")
    await scene.ask("PUT", f"{path}/files/content?path={FILE}", NEW)
    return {}


async def _restore(scene: Scene) -> Any:
    assert scene.content(scene.facts["restored"]) in (OLD, NEW)
    return await scene.ask("POST", f"/v1/snapshots/{scene.facts['restorable']}/restore")


async def _check_restored(scene: Scene) -> None:
    assert scene.content(scene.facts["restored"]) == OLD


DEEDS: Mapping[str, Deed] = {
    "take": _makes("snapshots", _take),
    "restore": Deed(_restore, _check_restored, _before_restore),
    "clone": _clones(1),
    "clone many": _clones(3),
    "publish": _makes("images", _publish),
    "publish a sandbox": _makes("images", _publish_sandbox),
    "import": _makes("images", _import, reads=False),
    "make a volume": _makes("volumes", _volume, reads=False),
    "attach": Deed(_attach, _check_attached, _before_attach),
    "drop a volume": _drops("volumes", _volume),
    "drop a snapshot": _drops("snapshots", _take),
    "drop an image": _drops("images", _publish),
}


def serve(plan: Round, pipe: Connection) -> None:
    fuse = Fuse()
    fuse.lay()
    asyncio.run(_serve(plan, pipe, fuse))


async def _serve(plan: Round, pipe: Connection, fuse: Fuse) -> None:
    settings = Settings(
        state_dir=plan.state_dir,
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES_DIR,  # type: ignore[call-arg]
        guest_dir=GUEST_DIR,
        pool_size_mb=700,
        limit_auth=1_000_000,
        limit_bucket_only=1_000_000,
        limit_address=1_000_000,
        pricing={"rates": {"stored_disk_gb_msats": 1_024_000}},
        storage_deposit="1s",
    )
    async with serving(settings, None) as served:
        complaints = await audit_kept(served.platform, plan.state_dir)
        facts = plan.facts or await _prepare(served)
        client = served.as_(Credentials(*facts["key"]))
        if plan.last is not None:
            name, number, own = plan.last
            scene = Scene(client, facts, plan.state_dir, f"deed-{number}", own)
            await DEEDS[name].act(scene)
            await DEEDS[name].check(scene)
        complaints += await _source(client, facts, plan.state_dir)
        pipe.send(("audited", complaints, facts))
        if plan.deed is None:
            await _clear(client)
            pipe.send(("cleared", await audit_kept(served.platform, plan.state_dir), {}))
            return
        deed, scene = DEEDS[plan.deed], Scene(client, facts, plan.state_dir, f"deed-{plan.number}")
        own = {} if deed.before is None else await deed.before(scene)
        pipe.send(("lit", [], own))
        fuse.light(plan.at)
        await deed.act(Scene(client, facts, plan.state_dir, scene.key, own))
        fuse.put_out()
        pipe.send(("done", [], {"steps": fuse.steps}))
        await asyncio.Event().wait()


async def _prepare(served: Served) -> Facts:
    """A sandbox that everything is made of and that must come to no harm, and one that is put back."""
    client = await funded(served, "team", 1_000_000_000)
    facts: dict[str, Any] = {"key": (client.credentials.public_key, client.credentials.secret_key)}
    scene = Scene(client, facts, served.state_dir, "first")
    for who, kept in (("source", "snapshot"), ("restored", "restorable")):
        facts[who] = (await scene.ask("POST", "/v1/sandboxes", SMALL))["id"]
        path = f"/v1/sandboxes/{facts[who]}"
        await scene.ask("PUT", f"{path}/files/content?path={FILE}", OLD)
        facts[kept] = (await scene.ask("POST", f"{path}/snapshots", {"name": who}))["id"]
    return facts


async def _source(client: Client, facts: Facts, state: Path) -> list[str]:
    """Nothing that was done with it did anything to it."""
    path = f"/v1/sandboxes/{facts['source']}"
    content = (await client.get(f"{path}/files/content?path={FILE}")).content
    found = [] if content == OLD else [f"the source holds {hashlib.sha256(content).hexdigest()}"]
    answer = (await client.get(path)).json()
    return found if answer["state"] in ("ready", "active") else [*found, f"the source is {answer['state']}"]


async def _clear(client: Client) -> None:
    for noun in ("sandboxes", "snapshots", "volumes", "images"):
        for one in (await client.get(f"/v1/{noun}?limit=500")).json()[SHOWN_AS.get(noun, noun)]:
            assert (await client.delete(f"/v1/{noun}/{one['id']}")).status_code == 200
