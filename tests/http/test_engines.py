"""A platform whose sandboxes are containers of a real engine: everything above a backend works on them, and a
server that begins again finds them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from sandboxer.settings import Settings
from tests.access.egress.world import Names, site
from tests.support.egress_inside import allow, fetch, names, run, world  # noqa: F401
from tests.support.engines import docker_socket, podman_socket, require_engine
from tests.support.http.served import Served, serving
from tests.support.real_backend import IMAGES_DIR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PROFILES = Path(__file__).resolve().parents[2] / "profiles"
ENGINES: dict[str, Callable[[], AbstractAsyncContextManager[str]]] = {
    "docker": docker_socket,
    "podman": podman_socket,
}
SERVE = "echo by port > index.html; (setsid python3 -m http.server 3000 >/dev/null 2>&1 &)"
LISTENS = "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3000))'; do :; done"


def settings_of(host: str, folder: Path) -> Settings:
    """Everything is a container, sessions and one-shot runs too."""
    profiles = folder / "profiles"
    if not profiles.exists():
        profiles.mkdir()
        for file in PROFILES.glob("*.yaml"):
            text = file.read_text().replace("backend: ext.namespaces", "backend: ext.docker")
            (profiles / file.name).write_text(text.replace("uid_range, ", ""))
    return Settings(
        state_dir=folder / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES_DIR,
        profiles_dir=profiles,
        backends=("ext.docker",),
        docker_host=host,
        charging=False,
    )


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, world: None) -> AsyncIterator[str]:
    require_engine(request.param)
    async with ENGINES[request.param]() as host:
        yield host


@asynccontextmanager
async def platform_on(host: str, folder: Path, *, clears: bool = True) -> AsyncIterator[Served]:
    async with serving(settings_of(host, folder), None) as served:
        try:
            yield served
        finally:
            if clears:
                for one in (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await served.client.delete(f"/v1/sandboxes/{one['id']}")


async def test_what_stands_above_a_backend_works_on_containers(
    engine: str,
    names: Names,
    tmp_path: Path,
) -> None:
    async with platform_on(engine, tmp_path, clears=False) as served:
        path = await served.sandbox(trust="semi", env={"TOLD": "yes"})
        assert await run(served, path, "sh", "-c", "echo $TOLD; id -u") == "yes\n0\n"
        await _reaches_what_is_allowed(served, path)
        await _shows_a_port(served, path)
        await _keeps_a_session(served)
        for verb in ("freeze", "thaw", "stop", "resume"):
            answer = await served.client.post(f"{path}/{verb}", {})
            assert answer.status_code == 200, answer.text
        assert await run(served, path, "cat", "/workspace/index.html") == "by port\n"
    # The server ends, and another begins: what ran goes on.
    async with platform_on(engine, tmp_path) as again:
        assert (await again.client.get(path)).json()["state"] in ("ready", "active")
        assert await run(again, path, "cat", "/workspace/index.html") == "by port\n"
        removed = (await again.client.delete(path)).json()
        assert removed["cleanup"] == {"removed": ["container", "disk"], "left": []}


async def _reaches_what_is_allowed(served: Served, path: str) -> None:
    assert (await fetch(served, path, "http://example.com/")).startswith("403 ")
    await allow(served, path, "example.com")
    async with site():
        assert await fetch(served, path, "http://example.com/a") == "hello\n"


async def _shows_a_port(served: Served, path: str) -> None:
    await run(served, path, "sh", "-c", f"cd /workspace; {SERVE}; {LISTENS}")
    shown = await served.client.get(f"{path}/ports/3000/index.html")
    assert shown.text == "by port\n"


async def _keeps_a_session(served: Served) -> None:
    made = await served.client.post("/v1/sessions", {"language": "python"})
    assert made.status_code == 201, made.text
    path = f"/v1/sessions/{made.json()['id']}"
    said = [await served.client.post(f"{path}/cells", {"code": code}) for code in ("x = 41", "print(x + 1)")]
    assert said[-1].json()["stdout"] == "42\n", said[-1].text
    assert (await served.client.delete(path)).status_code == 200
