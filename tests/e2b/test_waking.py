"""Sandboxes of templates that begin anew: woken by many at once, and forked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from e2b import Sandbox
from sandboxer.wire.e2b import bearer_of
from tests.support.archives import docker_archive, file, packed
from tests.support.platforms import Up


@pytest.fixture
def ours(up: Up, api_key: str) -> Iterator[httpx.Client]:
    head = {"Authorization": f"Bearer {bearer_of(api_key)}"}
    with httpx.Client(base_url=f"{up.url}/v1", headers=head, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def made(ours: httpx.Client) -> str:
    """A sandbox of a template that starts something, made by our own API, which starts nothing."""
    archive = docker_archive(packed(file("made")), Labels={"sandboxer.start": "sleep 1000"})
    image = ours.post("/images/import?name=starts&profile=profile.e2b", content=archive).json()["id"]
    return str(ours.post("/sandboxes", json={"image": image, "profile": "profile.e2b"}).json()["id"])


def test_what_a_template_starts_is_started_once_for_however_many_requests(
    ours: httpx.Client, made: str
) -> None:
    sandbox = Sandbox.connect(made.replace("_", "-"))
    # The scripted machine has no such folder, and nothing of a template starts without.
    sandbox.files.make_dir("/home/user")
    sandbox.pause()
    with ThreadPoolExecutor(8) as crowd:
        assert len([*crowd.map(lambda _: Sandbox.connect(sandbox.sandbox_id), range(8))]) == 8
    started = ours.get(f"/sandboxes/{made}/processes").json()["processes"]
    assert ["sleep 1000" in one["argv"] for one in started] == [True]
    assert sandbox.kill()


def test_forks_that_do_not_begin_are_named_and_gone(up: Up, api_key: str, made: str) -> None:
    """Nobody was told of them, and they ran on, with the rules of egress that the original began with."""
    where = f"{up.url}/e2b/sandboxes/{made}/fork"
    head = {"X-API-Key": api_key}
    forked = httpx.post(where, headers=head, json={"count": 2}, trust_env=False, timeout=60)
    assert forked.status_code == 201, forked.text
    assert ["/home/user" in one["error"]["message"] for one in forked.json()] == [True, True]
    assert [one.sandbox_id for one in Sandbox.list().next_items()] == [made.replace("_", "-")]
    assert Sandbox.kill(made.replace("_", "-"))
