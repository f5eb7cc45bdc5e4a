"""Routing over real walls: namespaces beside gVisor in one platform."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxer.backends.checks.suite import Box
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.hosts.routes.records import IsolationLevel
from sandboxer.money.metering import open_holds
from sandboxer.money.statements import actuals
from sandboxer.money.verification import verify
from sandboxer.sandboxes.promises import Wishes
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.support.charging import fund
from tests.support.oci import require_runtime
from tests.support.real_backend import remove_leftovers, settings_for, state_folder
from tests.support.sandboxes import ALICE, OWNER

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
STRONG = """
id: profile.strong
version: "1"
backend: ext.oci
isolation:
  level: container
network:
  default: deny
ttl: {default: 1h, max: 1h}
resources:
  default: {vcpus: 1, memory_mb: 256, disk_mb: 128, pids: 128}
  max: {vcpus: 1, memory_mb: 256, disk_mb: 128, pids: 128}
route:
  fallback: [ext.namespaces]
"""


@asynccontextmanager
async def platform_on(state: Path, runtime: Path, **more: object) -> AsyncIterator[Platform]:
    profiles = state / "profiles"
    profiles.mkdir()
    shutil.copy(ROOT / "profiles" / "agent-dev.yaml", profiles)
    (profiles / "strong.yaml").write_text(STRONG)
    walls = settings_for(state)
    settings = Settings.model_validate(
        {
            "state_dir": state,
            "images_dir": walls.images_dir,
            "guest_dir": walls.guest_dir,
            "profiles_dir": profiles,
            "pool_size_mb": walls.pool_size_mb,
            "uid_base": walls.uid_base,
            "oci_runtime": str(runtime),
            **more,
        }
    )
    async with open_platform(settings) as platform:
        try:
            yield platform
        finally:
            for sandbox in platform.sandboxes.repository.living():
                await lifetime.destroy(platform.sandboxes, sandbox.id, OWNER, despite_lock=True)
    for backend in platform.backends.values():
        assert isinstance(backend, NamespacesBackend)
        remove_leftovers(backend)


async def kernel_of(platform: Platform, sandbox: Sandbox) -> bytes:
    backend = platform.sandboxes.backend_of(sandbox)
    assert sandbox.handle is not None
    return await Box(backend, sandbox.order(), sandbox.handle).text("dmesg 2>/dev/null | head -1")


async def test_strangers_and_who_asks_for_it_get_a_kernel_of_their_own_and_the_rest_does_not() -> None:
    runtime = require_runtime("runsc")
    with state_folder() as state:
        # Nobody names ext.oci: it is opened because strangers may come, and runsc is there.
        async with platform_on(state, Path(runtime), charging=False) as platform:
            assert set(platform.backends) == {"ext.namespaces", "ext.oci"}
            plain, wanted = CreateRequest(), CreateRequest(wishes=Wishes(isolation=IsolationLevel.STRONG))

            own = await creation.create(platform.sandboxes, plain, OWNER)
            strong = await creation.create(platform.sandboxes, wanted, OWNER)
            stranger_s = await creation.create(platform.sandboxes, plain, ALICE)

            assert [own.backend, strong.backend, stranger_s.backend] == [
                "ext.namespaces",
                "ext.oci",
                "ext.oci",
            ]
            for sandbox in (strong, stranger_s):
                assert b"gVisor" in await kernel_of(platform, sandbox)
            assert b"gVisor" not in await kernel_of(platform, own)
            why = {one.backend: one.reason for one in stranger_s.route.considered}
            assert "not opened by the operator" in why["ext.oci"]


async def test_a_runtime_that_is_broken_costs_one_hold_and_the_next_backend_makes_it() -> None:
    original = Path(require_runtime("runsc"))
    with state_folder() as state:
        runtime = state / "runsc"
        shutil.copy(original, runtime)
        more = {"charging": True, "backends": ("ext.namespaces", "ext.oci"), "strangers_wall": "profile"}
        async with platform_on(state, runtime, **more) as platform:
            await fund(platform, 100_000, id="first")
            request = CreateRequest(profile="profile.strong")
            whole = await creation.create(platform.sandboxes, request, ALICE)
            assert whole.backend == "ext.oci"

            # Replaced and not written to, since the other sandbox runs it.
            broken = state / "broken"
            broken.write_text("#!/bin/sh\nexit 1\n")
            broken.chmod(0o755)
            broken.rename(runtime)
            made = await creation.create(platform.sandboxes, request, ALICE)

            assert made.backend == "ext.namespaces"
            assert [one.is_made for one in made.route.attempts] == [False, True]
            assert made.id not in await platform.backends["ext.oci"].inventory()
            assert await platform.store.read(lambda conn: open_holds(conn, ALICE.account)) == []
            ended = await lifetime.destroy(platform.sandboxes, made.id, ALICE)
            assert ended.route.attempts == made.route.attempts
            now = platform.clock.now()
            used = await platform.store.read(lambda conn: actuals(conn, ALICE.account, made.id, now=now))
            assert len(used) == 1
            assert (await platform.store.read(verify)).is_whole
