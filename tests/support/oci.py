"""Finds OCI runtimes for tests, which are skipped with the reason where one cannot run."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxer.kernel.program import PROFILES
from sandboxer.settings import Settings
from tests.support.crash import remove_leftovers
from tests.support.http.served import Served, serving
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR, require_walls

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sandboxer-runsc"


def require_runtime(name: str) -> str:
    require_walls()
    built = sorted(CACHE.glob("*/runsc"), key=lambda path: path.stat().st_mtime)
    found = str(built[-1]) if name == "runsc" and built else shutil.which(name)
    if found is None:
        remedy = "run scripts/build-runsc" if name == "runsc" else f"install {name}"
        pytest.skip(f"there is no {name}: {remedy}")
    return found


def behind_gvisor(state: Path, profile: str, *, of: str) -> Mapping[str, object]:
    """Settings of a platform with a profile, made of the shipped one `of`, whose sandboxes gVisor starts."""
    runtime = require_runtime("runsc")
    profiles = state / "profiles"
    shutil.copytree(PROFILES, profiles, dirs_exist_ok=True)
    text = (PROFILES / f"{of}.yaml").read_text()
    for old, new in (
        (f"id: profile.{of}", f"id: {profile}"),
        ("backend: ext.namespaces", "backend: ext.oci"),
        ("uid_range, ", ""),
        (", pids]", "]"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    (profiles / f"{profile.removeprefix('profile.')}.yaml").write_text(text)
    return {"profiles_dir": profiles, "oci_runtime": runtime, "backends": ("ext.namespaces", "ext.oci")}


def platform_facts(state: Path, profile: str, *, of: str) -> dict[str, Any]:
    """The same, with all that a platform in this process needs besides."""
    facts = {"state_dir": state, "host": "127.0.0.1", "port": 0, "images_dir": IMAGES_DIR}
    # The limits are for platforms with many tenants.
    facts |= {"pool_size_mb": 800, "charging": False, "limit_auth": 100_000, "limit_bucket_only": 100_000}
    return {**facts, "guest_dir": GUEST_DIR, "limit_address": 100_000, **behind_gvisor(state, profile, of=of)}


def remove_leftovers_of(state: Path) -> None:
    """Removes what outlives both backends by design."""
    for folder in (state, state / "oci"):
        remove_leftovers(folder)


@asynccontextmanager
async def serving_behind_gvisor(
    state: Path, profile: str, *, of: str, **more: object
) -> AsyncIterator[Served]:
    """Serves a platform with a profile whose sandboxes gVisor starts. Afterwards nothing is left of it."""
    settings = Settings(**{**platform_facts(state, profile, of=of), **more})
    try:
        async with serving(settings, None) as served:
            served.defaults = {"profile": profile, "resources": {"memory_mb": 256, "disk_mb": 64}}
            try:
                yield served
            finally:
                for noun in ("sandboxes", "snapshots"):
                    for one in (await served.client.get(f"/v1/{noun}?limit=500")).json()[noun]:
                        await served.client.delete(f"/v1/{noun}/{one['id']}")
    finally:
        remove_leftovers_of(state)


def settings_behind_gvisor(settings: Settings, folder: Path) -> Settings:
    """Changes a platform's settings so that sandboxes of no other profile are behind gVisor. `folder`: of its
    own.
    """
    folder.mkdir()
    text = (PROFILES / "agent-dev.yaml").read_text().replace("ext.namespaces", "ext.oci")
    # The one wall that it has no need of.
    (folder / "agent-dev.yaml").write_text(text.replace(" uid_range,", ""))
    changed = {
        "backends": ("ext.oci",),
        "oci_runtime": require_runtime("runsc"),
        "profiles_dir": folder,
    }
    return settings.model_copy(update=changed)


# Kinds of wall of a platform, for tests of what is the same behind each. `make test-slow` builds runsc first.
EACH_WALL = ["namespaces", pytest.param("gvisor", marks=pytest.mark.slow)]


def settings_on(wall: str, settings: Settings) -> Settings:
    """Changes a platform's settings to those of a kind of wall."""
    if wall == "namespaces":
        return settings
    return settings_behind_gvisor(settings, settings.state_dir.parent / "profiles")
