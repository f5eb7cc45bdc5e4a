"""Secrets on real walls: in memory only, given again where promised, gone when wiped, nowhere else."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from sandboxer.settings import Settings
from tests.support.http.real import sh
from tests.support.secrets import (
    here,
    inject,
    opened,
    out,
    state,  # noqa: F401
)

VALUE = "correct-horse-battery-staple-4711"
REFS = """  commands: ['test "$(cat /run/secrets/DEPLOY_KEY)" = "$DEPLOY_KEY"']
  instructions: ""
  secret_refs: [DEPLOY_KEY]
"""


def found_on_disk(folder: Path, text: str = VALUE) -> list[str]:
    """Files below that hold it; the loop file of the pool itself included."""
    grep = subprocess.run(["grep", "-rlaF", text, str(folder)], capture_output=True, text=True, check=False)
    return grep.stdout.split()


async def test_they_live_in_memory_only_and_come_back_where_promised(state: Path) -> None:
    async with opened(here(state)) as served:
        path = await served.sandbox()
        long = {"argv": ["sleep", "1000"]}
        started = (await served.client.post(f"{path}/processes", long)).json()
        assert (await served.client.send("PUT", "/v1/secrets/KEPT", body={"value": VALUE})).status_code == 200
        given = await inject(served, path, names=["KEPT"], files=True)
        assert given[0]["file"] == "/run/secrets/KEPT"
        await inject(served, path, values={"ONLY_FILE": VALUE}, env=False, files=True)
        # Nothing was restarted.
        running = (await served.client.get(f"{path}/processes")).json()["processes"]
        assert [p["process_id"] for p in running if p["running"]] == [started["process_id"]]
        look = "cat /run/secrets/KEPT; echo; echo $KEPT $ONLY_FILE; stat -Lc %a /run/secrets/KEPT"
        assert await out(served, path, look) == f"{VALUE}\n{VALUE}\n400\n"
        assert "tmpfs" in await out(served, path, "stat -f -Lc %T /run/secrets/KEPT")
        nobody = await sh(served, path, "cat /run/secrets/KEPT", user="nobody", cwd="/")
        assert nobody["exit_code"] != 0

        await out(served, path, "echo a-word-that-is-on-the-disk > /root/word")
        kept = await served.client.post(f"{path}/snapshots", {"name": "with"})
        assert kept.status_code == 201, kept.text
        await asyncio.to_thread(os.sync)
        assert len(await asyncio.to_thread(found_on_disk, state, "a-word-that-is-on-the-disk")) >= 2
        assert await asyncio.to_thread(found_on_disk, state) == []
        cloned = await served.client.post(f"/v1/snapshots/{kept.json()['id']}/clone", {"count": 1})
        clone = f"/v1/sandboxes/{cloned.json()['sandboxes'][0]['id']}"
        everything = await out(served, clone, "cat /run/secrets/*; env; grep -ra horse /run /dev/shm /root")
        assert VALUE not in everything
        assert (await served.client.get(f"{clone}/secrets")).json() == {"secrets": []}

        assert (await served.client.post(f"{path}/stop")).status_code == 200
        assert (await served.client.post(f"{path}/resume")).status_code == 200
        assert await out(served, path, look) == f"{VALUE}\n{VALUE}\n400\n"
        back = await served.client.post(f"/v1/snapshots/{kept.json()['id']}/restore")
        assert back.status_code == 200, back.text
        assert await out(served, path, look) == f"{VALUE}\n{VALUE}\n400\n"

    async with opened(here(state)) as served:
        assert await out(served, path, look) == f"{VALUE}\n{VALUE}\n400\n"
        holder = (await served.client.post(f"{path}/processes", long)).json()
        gone = (await served.client.delete(f"{path}/secrets/KEPT")).json()
        assert gone == {"wiped": ["KEPT"], "may_still_hold": [holder["process_id"]]}
        assert await out(served, path, "echo $KEPT; ls /run/secrets") == "\nONLY_FILE\n"
        await served.client.post(f"{path}/freeze")
        refused = await served.client.send(
            "PUT", f"{path}/secrets", body={"values": {"A": "b"}, "files": True}
        )
        assert refused.status_code == 409
        assert (await served.client.delete(f"{path}/secrets")).json()["wiped"] == ["ONLY_FILE"]
        await served.client.post(f"{path}/thaw")
        assert await out(served, path, "ls /run/secrets") == ""
        await inject(served, path, values={"LAST": VALUE})
        await served.client.delete(path)
        await asyncio.to_thread(os.sync)
    # Sealed in the database, in no log and no journal.
    assert await asyncio.to_thread(found_on_disk, state) == []


async def test_a_profile_names_secrets_that_are_there_before_its_setup(state: Path) -> None:
    profiles = state / "profiles"
    profiles.mkdir()
    for known in Settings().profiles_dir.glob("*.yaml"):
        (profiles / known.name).write_bytes(known.read_bytes())
    text = (profiles / "agent-dev.yaml").read_text().replace("profile.agent-dev", "profile.with-refs")
    without = '  commands: []\n  instructions: ""\n  secret_refs: []\n'
    assert without in text
    (profiles / "with-refs.yaml").write_text(text.replace(without, REFS))
    async with opened(here(state, profiles_dir=profiles)) as served:
        wanted = {"profile": "profile.with-refs", "resources": {"disk_mb": 64}}
        refused = await served.client.post("/v1/sandboxes", wanted)
        assert refused.status_code == 404
        assert "DEPLOY_KEY" in refused.json()["detail"]
        await served.client.send("PUT", "/v1/secrets/DEPLOY_KEY", body={"value": VALUE})
        made = await served.client.post("/v1/sandboxes", wanted)
        assert made.status_code == 201, made.text
        path = f"/v1/sandboxes/{made.json()['id']}"
        assert await out(served, path, "echo $DEPLOY_KEY") == f"{VALUE}\n"
        assert VALUE not in (await served.client.get(path)).text
        await served.client.delete(path)


async def test_a_folder_that_is_somebodys_is_left_alone(state: Path) -> None:
    async with opened(here(state)) as served:
        path = await served.sandbox()
        await out(served, path, "mkdir -p /run/secrets && touch /run/secrets/mine")
        answer = await served.client.send(
            "PUT", f"{path}/secrets", body={"values": {"A": "b"}, "files": True}
        )
        assert answer.status_code == 409, answer.text
        assert (await served.client.get(f"{path}/secrets")).json() == {"secrets": []}
        assert await out(served, path, "ls /run/secrets; echo $A") == "mine\n\n"
