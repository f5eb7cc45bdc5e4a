"""What was promised of a sandbox holds on real walls: who may write to its workspace, what ran before it was
ready, where its secrets are.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.egress_inside import names, run, served, world  # noqa: F401
from tests.support.git_server import git_server
from tests.support.http.served import Served

URL = "http://example.com/tool.git"
OUT = {"network": "allow:example.com"}
# Everything that root could try on a folder, each followed by what came of it.
TRIES = """
try() { "$@" >/dev/null 2>&1 && echo "DID $*"; }
try touch /workspace/made
try sh -c 'echo x >> /workspace/README'
try rm /workspace/README
try chmod 777 /workspace/README
try mv /workspace /moved
try ln /workspace/README /root/linked
try ln /root/mine /workspace/linked
try mount -o remount,rw,bind /workspace
try umount -l /workspace
try mount --bind /root /workspace
try unshare -m true
try mkdir /workspace/folder
echo tried
"""


@pytest.fixture
def repository(world: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """`tool.git`, at example.com; the commits by name."""
    work, bare = tmp_path / "work", tmp_path / "srv" / "tool.git"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(work)]
    work.mkdir()
    commits = {}
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for name in ("first", "second"):
        (work / "README").write_text(f"{name}\n")
        (work / "setup.sh").write_text('echo "$TOKEN" > /root/token; echo ran > /workspace/ran\n')
        (work / "broken.sh").write_text('echo "no compiler, and $TOKEN"; exit 7\n')
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", name], check=True)
        said = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        commits[name] = said.stdout.strip()
    subprocess.run([*git, "tag", "v1", commits["first"]], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(bare)], check=True)
    with git_server(tmp_path / "srv"):
        yield commits


async def test_root_inside_cannot_write_to_a_read_only_workspace(
    served: Served,
    repository: dict[str, str],
) -> None:
    path = await served.sandbox(
        **OUT,
        inputs={"repo": URL},
        workspace={"mode": "mirror", "access": "ro"},
        setup={"instructions": "echo mine > /root/mine; echo built > built; ln README /root/early || true"},
    )
    assert await run(served, path, "sh", "-c", TRIES) == "tried\n"
    assert await run(served, path, "cat", "/workspace/README", "/workspace/built") == "second\nbuilt\n"
    # Nothing of it was linked elsewhere before it was closed, where it could be written to.
    assert await run(served, path, "sh", "-c", "ls /root") == "mine\n"
    put = await served.client.send("PUT", f"{path}/files?path=/workspace/made", content=b"x")
    assert put.status_code >= 400, put.text
    # Nor after it was started again, nor on a new disk.
    for verbs in (("stop", "resume"), ("recreate",)):
        for verb in verbs:
            answer = await served.client.post(f"{path}/{verb}")
            assert answer.status_code == 200, answer.text
        assert await run(served, path, "sh", "-c", TRIES) == "tried\n"
        assert await run(served, path, "cat", "/workspace/README") == "second\n"


async def test_a_workspace_for_nobody_is_empty_and_stays_so(served: Served) -> None:
    path = await served.sandbox(workspace={"access": "none"})
    assert await run(served, path, "sh", "-c", TRIES + "ls -A /workspace") == "tried\n"
    # The rest of its disk is its own.
    assert await run(served, path, "sh", "-c", "echo x > /root/x && cat /root/x") == "x\n"


@pytest.mark.parametrize(
    ("inputs", "commit"),
    [
        ({"repo": URL}, "second"),
        ({"repo": URL, "repo_ref": "v1"}, "first"),
        ({"repo_ref": f"{URL}#main"}, "second"),
    ],
)
async def test_a_repository_is_in_the_workspace_when_it_is_ready(
    served: Served,
    repository: dict[str, str],
    inputs: dict[str, str],
    commit: str,
) -> None:
    path = await served.sandbox(**OUT, inputs=inputs)
    assert await run(served, path, "git", "rev-parse", "HEAD") == f"{repository[commit]}\n"
    # It is like any other file there.
    assert await run(served, path, "sh", "-c", "echo more >> README && tail -1 README") == "more\n"


async def test_a_commit_by_its_id_is_found_too(served: Served, repository: dict[str, str]) -> None:
    path = await served.sandbox(**OUT, inputs={"repo": URL, "repo_ref": repository["first"][:10]})
    assert await run(served, path, "cat", "README") == "first\n"


async def test_a_repository_that_is_not_there_fails_the_create_with_gits_words(
    served: Served,
    repository: dict[str, str],
) -> None:
    missing = {**served.defaults, **OUT, "inputs": {"repo": "http://example.com/none.git"}}
    answer = await served.client.post("/v1/sandboxes", missing)
    assert answer.status_code == 503, answer.text
    assert answer.json()["promise"] == "inputs.repo"
    assert "none.git" in answer.json()["detail"]
    elsewhere = {**missing, "inputs": {"repo": "http://elsewhere.example.com/tool.git"}}
    answer = await served.client.post("/v1/sandboxes", elsewhere)
    assert "403" in answer.json()["detail"]


async def test_instructions_of_the_repository_run_with_the_secrets_before_it_is_ready(
    served: Served,
    repository: dict[str, str],
) -> None:
    await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": "hunter2"})
    wanted = {**OUT, "inputs": {"repo": URL}}
    path = await served.sandbox(
        **wanted, setup_metadata={"instructions_ref": "setup.sh", "secret_refs": ["TOKEN"]}
    )
    assert await run(served, path, "cat", "/workspace/ran", "/root/token") == "ran\nhunter2\n"
    # To every process, and as a file in memory.
    assert await run(served, path, "sh", "-c", "echo $TOKEN; cat /run/secrets/TOKEN") == "hunter2\nhunter2"
    broken = {**served.defaults, **wanted, "setup_metadata": {"instructions_ref": "broken.sh"}}
    broken["setup_metadata"] = {"instructions_ref": "broken.sh", "secret_refs": ["TOKEN"]}
    answer = await served.client.post("/v1/sandboxes", broken)
    assert answer.status_code == 503, answer.text
    assert "exited with 7: no compiler, and ***" in answer.json()["detail"]
    failed = await served.client.get(f"/v1/sandboxes/{answer.json()['sandbox_id']}")
    assert failed.json()["state"] == "failed"
    events = await served.client.get(f"/v1/sandboxes/{answer.json()['sandbox_id']}/events?follow=false")
    assert "no compiler" in events.text
    for one in (answer, failed, events):
        assert "hunter2" not in one.text
    missing = {**broken, "setup_metadata": {"instructions_ref": "absent.sh"}}
    answer = await served.client.post("/v1/sandboxes", missing)
    assert "there is no file absent.sh" in answer.json()["detail"]


async def test_instructions_may_name_their_own_interpreter(served: Served) -> None:
    script = "#!/usr/bin/env python3\nimport os\nopen('made', 'w').write(os.getcwd())\n"
    path = await served.sandbox(setup={"instructions": script})
    assert await run(served, path, "cat", "/workspace/made") == "/workspace"


async def test_a_build_gets_its_secrets_and_hears_of_instructions_that_are_elsewhere(
    served: Served,
) -> None:
    await served.client.send("PUT", "/v1/secrets/REGISTRY_TOKEN", body={"value": "hunter2"})
    body = {
        **served.defaults,
        "profile": "profile.build",
        "setup_metadata": {"instructions_ref": "setup/instructions.md", "secret_refs": ["REGISTRY_TOKEN"]},
        "consumer": {"actor": "agt", "harness": "snuggle-inventor", "job_id": "j-9"},
    }
    made = await served.client.post("/v1/sandboxes", body)
    assert made.status_code == 201, made.text
    said = made.json()
    assert said["secret_refs"] == ["REGISTRY_TOKEN"]
    assert [(one["wish"], one["honoured"]) for one in said["answered"]] == [
        ("setup_metadata.instructions_ref", False)
    ]
    path = f"/v1/sandboxes/{said['id']}"
    seen = await run(served, path, "env")
    assert "REGISTRY_TOKEN=hunter2\n" in seen
    assert "SANDBOXER_SETUP_INSTRUCTIONS_REF=setup/instructions.md\n" in seen
    for answer in (
        made,
        await served.client.get(path),
        await served.client.get(f"{path}/events?follow=false"),
    ):
        assert "hunter2" not in answer.text
