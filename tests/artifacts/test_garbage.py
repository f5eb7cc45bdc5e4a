"""Garbage goes after its grace, and nothing that anything needs ever does."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxer.artifacts.garbage import GONE, HIDDEN, NOTE, Collector, Trees
from sandboxer.artifacts.images.build import hold_images
from sandboxer.artifacts.images.published import records as image_records
from sandboxer.backends.contract import KeptDisk
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.support.archives import IMAGE
from tests.support.http.served import eventually, serving
from tests.support.real_backend import IMAGES_DIR, require_walls, state_folder

BUILT = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = timedelta(days=1)


def tree(images_dir: Path, name: str, *, means: bool = False) -> None:
    """As `image build` leaves one."""
    folder = images_dir / name
    (folder / "rootfs" / "etc").mkdir(parents=True)
    facts = {
        "name": name.partition("@")[0],
        "digest": f"sha256:{name}",
        "recipe_digest": "sha256:0",
        "built_at": BUILT.isoformat(),
        "build_seconds": 1.0,
        "size_bytes": 1000,
        "distribution": "debian",
        "suite": "bookworm",
        "architecture": "x86_64",
        "packages": {},
    }
    (folder / "image.json").write_text(json.dumps(facts))
    if means:
        link = images_dir / name.partition("@")[0]
        link.unlink(missing_ok=True)
        link.symlink_to(name)


def standing(images_dir: Path) -> set[str]:
    return {one.name for one in images_dir.iterdir() if one.is_dir() and not one.is_symlink()}


class Host(Scripted):
    """The fake, with disks over trees."""

    def __init__(self) -> None:
        super().__init__(name="ext.namespaces")
        self.over: dict[str, str] = {}

    async def lies_over(self) -> dict[str, str]:
        return dict(self.over)


def settings_in(folder: Path, **more: Any) -> Settings:
    return Settings(
        state_dir=folder,
        host="127.0.0.1",
        port=0,
        limit_auth=10_000,
        charging=False,
        garbage_grace="1d",
        **more,
    )


async def test_an_older_build_goes_after_its_grace_and_what_is_needed_stays(tmp_path: Path) -> None:
    config, host = settings_in(tmp_path), Host()
    images = config.images_dir
    images.mkdir(parents=True)
    for name in ("base@1", "base@2", "base@3"):
        tree(images, name, means=True)
    tree(images, "by-hand")
    host.over = {"sbx_1": "base@2"}
    async with serving(config, {"ext.namespaces": host}) as served:
        found = (await served.client.get("/v1/host/garbage")).json()
        assert [(one["id"], one["tier"], one["size_bytes"]) for one in found["garbage"]] == [
            ("base@1", "base", 1000)
        ]
        assert found["grace"] == "1d"
        # Seen by nobody's need, and still in its time.
        assert (await served.client.post("/v1/host/collect-garbage")).json() == {"removed": []}
        assert standing(images) == {"base@1", "base@2", "base@3", "by-hand"}
        # Somebody begins to need it: its time begins anew.
        host.over["snp_1"] = "base@1"
        assert (await served.client.get("/v1/host/garbage")).json()["garbage"] == []
        assert not (images / "base@1" / NOTE).exists()
        host.over.clear()
        removed = (await served.client.post("/v1/host/collect-garbage?now=true")).json()["removed"]
        assert [one["id"] for one in removed] == ["base@1", "base@2"]
        assert standing(images) == {"base@3", "by-hand"}


async def test_the_loop_removes_it_by_itself_and_a_restart_forgets_no_grace(tmp_path: Path) -> None:
    config, host = settings_in(tmp_path), Host()
    images = config.images_dir
    images.mkdir(parents=True)
    for name in ("base@1", "base@2"):
        tree(images, name, means=True)
    long_ago = datetime.now(UTC) - timedelta(days=2)
    Trees(images, is_ours=True).note("base@1", long_ago)
    async with serving(config, {"ext.namespaces": host}):
        await eventually(lambda: standing(images) == {"base@2"}, 30)


async def test_trees_that_other_servers_may_use_are_shown_and_never_removed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("base@1", "base@2"):
        tree(shared, name, means=True)
    config = settings_in(tmp_path / "state", images_dir=shared)
    async with serving(config, {"ext.namespaces": Host()}) as served:
        (found,) = (await served.client.get("/v1/host/garbage")).json()["garbage"]
        assert (found["id"], found["goes_at"]) == ("base@1", None)
        assert (await served.client.post("/v1/host/collect-garbage?now=true")).json() == {"removed": []}
    assert standing(shared) == {"base@1", "base@2"}
    assert not (shared / "base@1" / NOTE).exists()


async def test_what_is_just_being_published_is_no_garbage(tmp_path: Path) -> None:
    class Busy(Host):
        removed: Any = None

        async def copy_kept(
            self, disk_id: str, new_id: str, change: Callable[[int], None] | None
        ) -> KeptDisk:
            self.removed = (await served.client.post("/v1/host/collect-garbage?now=true")).json()
            return await super().copy_kept(disk_id, new_id, change)

    host = Busy()
    async with serving(settings_in(tmp_path), {"ext.namespaces": host}) as served:
        sandbox_id = (await served.sandbox()).rpartition("/")[2]
        made = await served.client.post("/v1/images", {"sandbox": sandbox_id, "name": "tool"})
        assert (made.status_code, host.removed) == (201, {"removed": []}), made.text
        assert (await served.client.get("/v1/host/garbage")).json()["garbage"] == []


def test_a_server_killed_while_removing_finishes_what_was_decided_only(tmp_path: Path) -> None:
    for name in ("base@1", "base@2", "base@3"):
        tree(tmp_path, name, means=name == "base@3")
    trees = Trees(tmp_path, is_ours=True)
    os.rename(tmp_path / "base@1", tmp_path / f"{HIDDEN}base@1")
    os.rename(tmp_path / "base@2", tmp_path / f"{GONE}base@2")
    trees.sweep()
    assert standing(tmp_path) == {"base@1", "base@3"}
    with hold_images(tmp_path):
        assert not trees.remove("base@1", lambda: False), "a build is under way"
    assert not trees.remove("base@1", lambda: True), "somebody came to need it"
    assert not trees.remove("base@3", lambda: False), "a name means it"

    def nobody_answers() -> bool:
        raise RuntimeError("the database is away")

    with pytest.raises(RuntimeError):
        trees.remove("base@1", nobody_answers)
    assert standing(tmp_path) == {"base@1", "base@3"}, "who could not be asked may need it"
    assert trees.remove("base@1", lambda: False)
    assert standing(tmp_path) == {"base@3"}


async def test_real_disks_say_what_they_lie_over() -> None:
    """The very tree, also after its name means another."""
    require_walls()
    with state_folder() as state:
        meant = os.path.basename(os.path.realpath(IMAGES_DIR / "base"))
        images = state / "images"
        images.mkdir()
        (images / "base@1").symlink_to(IMAGES_DIR / meant)
        (images / "base").symlink_to("base@1")
        config = Settings(state_dir=state, port=0, host="127.0.0.1", pool_size_mb=600)
        try:
            async with serving(config, None) as served:
                backend: Any = served.platform.backends["ext.namespaces"]
                path = await served.sandbox(resources={"disk_mb": 64})
                snapshot = (await served.client.post(f"{path}/snapshots", {})).json()["id"]
                sandbox = path.rsplit("/", 1)[1]
                assert await backend.lies_over() == {sandbox: "base@1", snapshot: "base@1"}
                await served.client.delete(path)
                assert await backend.lies_over() == {snapshot: "base@1"}
                await served.client.delete(f"/v1/snapshots/{snapshot}")
                assert await backend.lies_over() == {}
        finally:
            if os.path.ismount(state / "pool"):
                await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


NAMES = [f"{name}@{number}" for name in ("base", "web") for number in range(3)]
STEPS = st.one_of(
    st.tuples(st.just("build"), st.sampled_from(NAMES)),
    st.tuples(st.just("sandbox"), st.sampled_from(NAMES)),
    st.tuples(st.just("snapshot"), st.sampled_from(NAMES)),
    st.tuples(st.just("clone"), st.integers(0, 30)),
    st.tuples(st.just("publish"), st.integers(0, 30)),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("unpublish"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
)


class Clock:
    def __init__(self) -> None:
        self.at = BUILT

    def now(self) -> datetime:
        return self.at

    async def sleep(self, delay: timedelta) -> None:
        raise AssertionError("nobody waits here")


class Store:
    """What of the store the collector asks: which images there are."""

    def __init__(self) -> None:
        self.images: dict[str, str] = {}

    async def read(self, fn: Any) -> Any:
        if fn == image_records.rows.living:
            return [
                image_records.PublishedImage(**{**_fields(IMAGE), "id": id_, "base": base})
                for id_, base in self.images.items()
            ]
        return {} if fn.__name__ == "_named" else frozenset(self.images)


def _fields(image: image_records.PublishedImage) -> dict[str, Any]:
    return {name: getattr(image, name) for name in image_records.PublishedImage.__dataclass_fields__}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=40))
async def test_over_any_history_only_what_nobody_needs_goes_and_all_of_it_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    """Builds, sandboxes, snapshots, clones and images come and go; the collector looks between any two."""
    path = tmp_path_factory.mktemp("images")
    host, store, clock = Host(), Store(), Clock()
    meant: dict[str, str] = {}
    unneeded: dict[str, datetime] = {}
    dependencies: Any = type("Dependencies", (), {"backends": {"ext.namespaces": host}})
    collector = Collector(
        dependencies=dependencies,
        store=store,  # type: ignore[arg-type]
        clock=clock,
        trees=Trees(path, is_ours=True),
        grace=GRACE,
    )

    def needed() -> set[str]:
        return {*host.over.values(), *store.images.values(), *meant.values()}

    for number, (what, which) in enumerate(steps):
        there = standing(path)
        if what == "build" and which not in there:
            tree(path, which, means=True)
            meant[which.partition("@")[0]] = which
        elif what in ("sandbox", "snapshot") and which in there:
            host.over[f"{what}-{number}"] = which
        elif what == "clone" and host.over:
            host.over[f"clone-{number}"] = sorted(host.over.items())[which % len(host.over)][1]
        elif what == "publish" and host.over:
            store.images[f"img_{number}"] = sorted(host.over.items())[which % len(host.over)][1]
        elif what == "delete" and host.over:
            del host.over[sorted(host.over)[which % len(host.over)]]
        elif what == "unpublish" and store.images:
            del store.images[sorted(store.images)[which % len(store.images)]]
        elif what == "wait":
            clock.at += timedelta(hours=which)
        before = standing(path)
        await collector.remove_due()
        removed = before - standing(path)
        assert not removed & needed()
        for name in removed:
            assert clock.at - unneeded[name] >= GRACE, f"{name} went too early"
        for name in before:
            if name in needed():
                unneeded.pop(name, None)
            else:
                unneeded.setdefault(name, clock.at)
    await collector.remove_due()
    clock.at += GRACE
    await collector.remove_due()
    assert standing(path) == needed()
