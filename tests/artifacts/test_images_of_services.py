"""An image of a service's disk: published over HTTP, by the command line and by the SDK, and started from."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from sandboxer.sdk.aio.client import AsyncSandboxer
from tests.support.flows import real, sh_as
from tests.support.http.served import Served

__all__ = ["real"]
SERVE = "cd /workspace/site && exec python3 -m http.server --bind 127.0.0.1 $PORT"


async def command(served: Served, *words: str) -> Any:
    """The `sandboxer` command, as its owner runs it."""
    argv = [sys.executable, "-m", "sandboxer.edges.cli.main", *words, "--json", "--url", served.url]
    argv += ["--state-dir", str(served.state_dir)]
    done = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await done.communicate()
    assert done.returncode == 0, words
    return json.loads(out)


async def test_a_service_is_published_three_ways_and_started_again_from_what_it_was(real: Served) -> None:
    wanted = {
        "name": "site",
        "command": SERVE,
        "files": [{"path": "site/index.html", "content": "made by a service\n"}],
        "secrets": {"TOKEN": "t0p-secret-value-1234"},
        "resources": {"disk_mb": 64},
    }
    service = (await real.client.post("/v1/services", wanted)).json()
    assert service["state"] == "running", service
    by_http = await real.client.post("/v1/images", {"service": service["id"], "name": "by http"})
    assert (by_http.status_code, by_http.json()["source"]) == (201, service["id"]), by_http.text
    by_command = await command(real, "image", "publish", "site", "--name", "by command")
    async with AsyncSandboxer(owner_file=real.state_dir / "owner.json", url=real.url) as client:
        by_sdk = await client.images.publish("by sdk", service="site")
        listed = [one.name async for one in client.images.list(which="owned")]
        assert sorted(listed) == ["by command", "by http", "by sdk"]
        assert "base" in [one.name for one in await client.images.base()]
    assert (by_command["source"], by_sdk.source) == (service["id"], service["id"])
    stranger = await real.stranger("bob")
    refused = await stranger.post("/v1/images", {"service": service["id"], "name": "theirs"})
    assert refused.status_code == 404

    # It outlives the service, whose secret was never on its disk.
    assert (await real.client.delete("/v1/services/site")).status_code == 200
    spawned = (await real.client.post(f"/v1/images/{by_sdk.id}/spawn", {})).json()
    inside = await sh_as(
        real.client,
        spawned["sandboxes"][0]["id"],
        "cat /workspace/site/index.html; grep -r t0p-secret / --include=* -l --exclude-dir=proc"
        " --exclude-dir=sys --exclude-dir=usr 2>/dev/null",
    )
    assert inside == "made by a service\n"
    again = {"name": "again", "command": SERVE, "image": by_command["id"], "resources": {"disk_mb": 64}}
    served_again = (await real.client.post("/v1/services", again)).json()
    assert served_again["state"] == "running", served_again
    shown = await command(real, "image", "list")
    assert {one.get("id") for one in shown["items"]} >= {by_command["id"], by_sdk.id}
    assert "base" in [one["name"] for one in shown["items"]]
