"""The validator's request against a platform whose `ext.compose-ssh` has a real sshd and a real engine: what
it brings is there, its stack is waited for, and what was removed is told.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandboxer.backends.compose_ssh import open_compose_ssh
from sandboxer.backends.contract import Backend
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.support.cli import Cli, Said
from tests.support.egress_inside import names, world  # noqa: F401
from tests.support.git_server import git_server
from tests.support.http.served import Served, serving
from tests.support.remote_host import SMALL, RemoteMachine, remote_machine

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
# What wise-validator sends, and what its inputs lack until somebody brings the files.
VALIDATOR: dict[str, Any] = {
    "profile": "profile.compose-e2e",
    "inputs": {"repo_ref": "main", "compose_bundle_ref": "e2e/compose.yml"},
    "ttl": "2h",
    "consumer": {"actor": "atm", "harness": "wise-validator", "run_id": "r-4"},
}
STACK = f"""
services:
  web:
    image: {SMALL}
    command: ["sh", "-c", "mkdir -p /www; echo it is $$WHAT > /www/index.html; httpd -f -p 8000 -h /www"]
    environment: {{WHAT: "${{SANDBOXER_INPUT_WHAT:-up}}"}}
    healthcheck: {{test: ["CMD", "wget", "-qO-", "http://127.0.0.1:8000/"], interval: 1s, retries: 30}}
"""
WRITE = f"mkdir -p e2e && cat > e2e/compose.yml <<'END'\n{STACK}END\n"
LOOK = ("wget", "-qO-", "http://web:8000/")


@asynccontextmanager
async def platform_on(machine: RemoteMachine, state: Path, image: str | None) -> AsyncIterator[Served]:
    settings = Settings(state_dir=state, host="127.0.0.1", port=0, charging=False)
    own = machine.settings(image=image, ready_within_s=20, accounts=["wise-validator"])
    async with open_compose_ssh(own) as stacks:
        backends: dict[str, Backend] = {
            "ext.namespaces": Scripted(name="ext.namespaces"),
            "ext.compose-ssh": stacks,
        }
        async with serving(settings, backends) as running:
            try:
                yield running
            finally:
                for sandbox_id in await stacks.inventory():
                    await stacks.teardown(sandbox_id)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine() -> AsyncIterator[RemoteMachine]:
    async with remote_machine() as found:
        await found.make_small_image()
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def served(machine: RemoteMachine, tmp_path: Path) -> AsyncIterator[Served]:
    async with platform_on(machine, tmp_path / "state", SMALL) as running:
        yield running


async def create(served: Served, **more: object) -> dict[str, Any]:
    answer = await served.client.post("/v1/sandboxes", {**VALIDATOR, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def say(served: Served, sandbox_id: str, *argv: str) -> str:
    answer = await served.client.post(f"/v1/sandboxes/{sandbox_id}/exec", {"argv": list(argv)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"]) + str(answer.json()["stderr"])


async def test_the_validators_request_word_for_word_and_its_stack_once_the_files_are_there(
    served: Served, machine: RemoteMachine
) -> None:
    made = await create(served)
    assert (made["backend"], made["state"]) == ("ext.compose-ssh", "ready")
    answered = {one["wish"]: one["honoured"] for one in made["answered"]}
    assert answered == {
        "inputs.repo_ref": False,
        "inputs.compose_bundle_ref": False,
        "placement.prefer": False,
        "placement.fallback": False,
    }
    await say(served, made["id"], "sh", "-c", f"cd /workspace; {WRITE}")
    path = f"/v1/sandboxes/{made['id']}"
    away = next(one for one in made["answered"] if one["wish"] == "placement.prefer")
    assert away["reason"] == f"there is no host sandboxer01 here; it stands on {machine.address}"
    there = await create(served, placement={"prefer": [machine.address]})
    assert {"wish": "placement.prefer", "honoured": True, "reason": "it stands there"} in there["answered"]
    await served.client.delete(f"/v1/sandboxes/{there['id']}")
    for verb in ("stop", "resume"):
        assert (await served.client.post(f"{path}/{verb}", {})).status_code == 200
    assert await say(served, made["id"], *LOOK) == "it is up\n"
    removed = await served.client.delete(path)
    assert set(removed.json()["cleanup"]["removed"]) == {"2 containers", "network", "folder"}
    assert removed.json()["cleanup"]["left"] == []
    assert await machine.is_clean()


async def test_the_validators_request_whose_members_have_no_value_is_taken(served: Served) -> None:
    consumer = {**VALIDATOR["consumer"], "run_id": None}
    inputs = {"repo_ref": None, "compose_bundle_ref": None}
    made = await create(served, inputs=inputs, consumer=consumer)
    assert {one["wish"] for one in made["answered"]} == {"placement.prefer", "placement.fallback"}


async def test_a_stack_that_setup_writes_is_up_when_the_sandbox_is_ready(served: Served) -> None:
    inputs = {**VALIDATOR["inputs"], "what": "as asked"}
    made = await create(served, inputs=inputs, setup={"instructions": WRITE})
    assert await say(served, made["id"], *LOOK) == "it is as asked\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", "there is no file e2e/compose.yml in the workspace"),
        (WRITE.replace("httpd -f -p 8000 -h /www", "echo no table; exit 3"), "web exited with 3"),
    ],
    ids=["no file", "no stack"],
)
async def test_a_stack_that_does_not_come_up_fails_the_create_and_leaves_nothing(
    served: Served, machine: RemoteMachine, script: str, words: str
) -> None:
    answer = await served.client.post("/v1/sandboxes", {**VALIDATOR, "setup": {"instructions": script}})
    assert answer.status_code >= 400, answer.text
    assert answer.json()["promise"] == "inputs.compose_bundle_ref"
    assert words in answer.json()["detail"]
    assert await machine.is_clean()


async def test_only_accounts_that_the_operator_named_have_the_host(
    machine: RemoteMachine, tmp_path: Path
) -> None:
    async with platform_on(machine, tmp_path / "state", SMALL) as served:
        refused = await (await served.stranger()).post("/v1/sandboxes", VALIDATOR)
        assert refused.status_code == 403, refused.text
        assert refused.json()["reason"] == "backend_accounts"
        made = await (await served.stranger("wise-validator")).post("/v1/sandboxes", VALIDATOR)
        assert made.status_code == 201, made.text


async def test_a_folder_of_the_callers_machine_is_brought_with_its_stack(
    served: Served, machine: RemoteMachine, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    (folder / "e2e").mkdir(parents=True)
    (folder / "e2e/compose.yml").write_text(STACK)
    made = await create_by_command(served, folder)
    assert made.code == 0, made.err
    assert await say(served, made.json["id"], *LOOK) == "it is up\n"
    # One that cannot come up is of no use to whoever asked for it.
    (folder / "e2e/compose.yml").write_text("services: {web: {image: no-such-image}}")
    failed = await create_by_command(served, folder)
    assert failed.code != 0
    assert "no-such-image" in failed.err
    listed = (await served.client.get("/v1/sandboxes")).json()["sandboxes"]
    assert [one["id"] for one in listed if one["state"] != "destroyed"] == [made.json["id"]]


async def create_by_command(served: Served, folder: Path) -> Said:
    cli = Cli({"SANDBOXER_URL": served.url, "SANDBOXER_CREDENTIALS": str(served.state_dir / "owner.json")})
    words = ["create", "--profile", "profile.compose-e2e", "--input", f"repo={folder}"]
    words += ["--input", "compose_bundle_ref=e2e/compose.yml", "--actor", "atm", "--json"]
    return await asyncio.to_thread(cli, *words)


def publish(folder: Path, name: str, text: str) -> None:
    """Makes `srv/tool.git` with one commit of one file."""
    work = folder / "work"
    (work / name).parent.mkdir(parents=True)
    (work / name).write_text(text)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(work)]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(folder / "srv/tool.git")], check=True)


async def test_a_repository_is_cloned_with_its_stack_through_egress(
    world: None,
    names: object,
    tmp_path: Path,
) -> None:
    publish(tmp_path, "e2e/compose.yml", STACK)
    # Git is in the base image, which takes a while to get there.
    async with remote_machine() as machine:
        await machine.make_small_image()
        with git_server(tmp_path / "srv"):
            async with platform_on(machine, tmp_path / "state", None) as served:
                inputs = {"repo_ref": "http://example.com/tool.git#main", "compose_bundle_ref": "e2e"}
                made = await create(served, inputs=inputs, network="allow:example.com")
                assert "inputs.repo_ref" not in {one["wish"] for one in made["answered"]}
                seen = await say(served, made["id"], "git", "-C", "/workspace", "log", "--format=%s")
                assert seen == "first\n"
                # What leads to the internet must not lead to its services.
                direct = "build_opener(ProxyHandler({})).open('http://web:8000').read().decode()"
                fetch = f"from urllib.request import *; print({direct})"
                assert "it is up" in await say(served, made["id"], "python3", "-c", fetch)
