"""Sandboxes of templates that are woken: what a template starts is started once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from e2b import Sandbox
from sandboxer.wire.e2b import bearer_of
from tests.support.archives import docker_archive, file, packed
from tests.support.platforms import Up


def test_what_a_template_starts_is_started_once_for_however_many_requests(up: Up, api_key: str) -> None:
    archive = docker_archive(packed(file("made")), Labels={"sandboxer.start": "sleep 1000"})
    head = {"Authorization": f"Bearer {bearer_of(api_key)}"}
    with httpx.Client(base_url=f"{up.url}/v1", headers=head, trust_env=False, timeout=60) as ours:
        image = ours.post("/images/import?name=starts&profile=profile.e2b", content=archive).json()["id"]
        made = ours.post("/sandboxes", json={"image": image, "profile": "profile.e2b"}).json()["id"]
        sandbox = Sandbox.connect(made.replace("_", "-"))
        # The scripted machine has no such folder, and nothing of a template starts without.
        sandbox.files.make_dir("/home/user")
        sandbox.pause()
        with ThreadPoolExecutor(8) as crowd:
            assert len([*crowd.map(lambda _: Sandbox.connect(sandbox.sandbox_id), range(8))]) == 8
        started = ours.get(f"/sandboxes/{made}/processes").json()["processes"]
        assert ["sleep 1000" in one["argv"] for one in started] == [True]
        assert sandbox.kill()
