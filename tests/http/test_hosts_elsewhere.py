"""A platform of which one host does not answer: what stands on the others is used as ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from sandboxer.backends.compose_ssh import ComposeSshSettings, StackHost, open_compose_ssh
from sandboxer.backends.contract import Backend
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.support.http.served import Served, serving
from tests.support.platforms import free_port
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR


@pytest.fixture
async def served(settings: Settings, tmp_path: Path) -> AsyncIterator[Served]:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "key")
    (tmp_path / "known_hosts").touch()
    there = StackHost(
        address="127.0.0.1",
        port=free_port(),
        key_file=tmp_path / "key",
        known_hosts_file=tmp_path / "known_hosts",
        remote_dir="/var/tmp/never",
    )
    own = ComposeSshSettings(host=there, images_dir=IMAGES_DIR, guest_dir=GUEST_DIR)
    async with open_compose_ssh(own) as stacks:
        backends: dict[str, Backend] = {
            "ext.namespaces": Scripted(name="ext.namespaces"),
            stacks.name: stacks,
        }
        async with serving(settings, backends) as running:
            yield running


async def test_a_host_that_does_not_answer_keeps_nobody_from_the_others(served: Served) -> None:
    assert await served.sandbox()
    refused = await served.client.post("/v1/sandboxes", {"profile": "profile.compose-e2e"})
    assert refused.status_code == 503, refused.text
    # Where it stands is no business of tenants; its operator is shown it.
    assert "127.0.0.1" not in refused.json()["detail"]
    assert "host 127.0.0.1: " in (await served.client.get("/v1/host")).text
    stale = await served.client.get("/v1/host/stale")
    assert stale.status_code == 200, stale.text
