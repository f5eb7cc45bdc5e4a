"""Flow 11 of the paper, system introspection: an agent asks the platform what it can do before it spends.

Its tools are healthCheck, getLanguages, getShells and getClusterStatus, beside pools, stats and limits: over
HTTP, against the real backend, and each answer held against what the platform then does.
"""

from __future__ import annotations

from tests.support.flows import Charging
from tests.support.http.flows import flow
from tests.support.http.real import IMAGES, real  # noqa: F401
from tests.support.http.served import Served


@flow("health", "listLanguages", "listShells", "showCluster", "listPools", "showStats", "showLimits")
async def test_an_agent_learns_what_the_platform_can_do(real: Served) -> None:
    http = real.client.http
    assert (await http.get("/health")).status_code == 200
    languages = (await http.get("/v1/languages")).json()["languages"]
    shells = (await http.get("/v1/shells")).json()["shells"]
    names = {one["name"] for one in languages}
    assert len(names) >= 42
    assert {"python", "javascript", "ruby", "r", "fortran"} <= names
    assert {"bash", "sh", "zsh", "fish"} <= {one["name"] for one in shells}

    agent = await real.stranger("agent")
    credit = {"sats": 10**5, "id": "flow-11", "reason": "what flow 3 paid for"}
    assert (await real.client.post("/v1/accounts/agent/adjust", credit)).status_code < 300
    for path in ("/v1/cluster", "/v1/pools", "/v1/stats", "/v1/limits"):
        answer = await agent.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"

    # What it says is there, is there: a session of a language that the base image has.
    assert (IMAGES / "base").exists()
    wanted = {"language": "python", "resources": {"disk_mb": 128}}
    session = (await agent.post("/v1/sessions", wanted)).json()
    said = await agent.post(f"/v1/sessions/{session['id']}/cells", {"code": "6 * 7"})
    assert said.json()["results"] == [{"text/plain": "42"}]
    listed = (await agent.get("/v1/sessions")).json()["sessions"]
    assert [one["id"] for one in listed] == [session["id"]]
    refused = await agent.post("/v1/sessions", {"language": "pyhton"})
    assert (refused.status_code, "python" in refused.text) == (422, True)
    await agent.delete(f"/v1/sessions/{session['id']}")


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(11)
