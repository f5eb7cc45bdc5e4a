"""Flow 8 of the paper, services: long-running processes with an address, redeployed without losing state.

Its tools are createService, getService, listServices, executeInService, freezeService, unfreezeService,
lockService, unlockService, redeployService, getServiceLogs, getServiceEnv, setServiceEnv, deleteServiceEnv,
createServiceSnapshot and deleteService. Over HTTP, through the reverse proxy, on real walls.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support.access import Proxied, proxied, real  # noqa: F401
from tests.support.flows import Charging
from tests.support.http.signed import Client

# Counts its visitors in a file; says who it is by its process id.
APP = """#!/usr/bin/python3
import http.server, os, pathlib
kept = pathlib.Path("/workspace/visits")
class Counter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os._exit(9)
        with kept.open("a") as file: file.write("x")
        words = f"{os.environ.get('GREETING', 'hello')} {os.getpid()} {kept.stat().st_size}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)
    def log_message(self, *words): print("asked", self.path, flush=True)
print("listening", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Counter).serve_forever()
"""
SMALL = {"disk_mb": 128, "memory_mb": 128}


async def test_an_agent_keeps_a_service_running(proxied: Proxied) -> None:
    served = proxied.served
    agent = await served.stranger("agent")
    credit = {"sats": 10**6, "id": "flow-8", "reason": "what flow 3 paid for"}
    assert (await served.client.post("/v1/accounts/agent/adjust", credit)).status_code < 300
    body = {
        "name": "counter",
        "bootstrap": APP,
        "public": True,
        "health": {"interval_s": 1},
        "restart": {"backoff_s": 0.1},
        "drain_s": 0.5,
        "resources": SMALL,
    }
    answer = await agent.post("/v1/services", body)
    assert answer.status_code == 201, answer.text
    service = answer.json()
    assert service["state"] == "running", service["reason"]
    assert service["rate_msats_per_s"] > 0
    host = service["host"]
    assert (await proxied.ask(host)).text.startswith("hello ")
    await _executes_inside(agent, service)
    await _redeploys(proxied, agent, host)
    await _holds_requests_over_a_crash(proxied, agent, host)
    await _sleeps_and_wakes(proxied, agent, host)
    await _has_a_vault(proxied, agent, host)
    await _is_copied(proxied, agent, service)
    texts = [
        line["text"] for line in (await agent.get("/v1/services/counter/logs?tail=1000")).json()["lines"]
    ]
    assert texts.count("listening") >= 3
    assert any(text.startswith("sleeping: no request") for text in texts)
    assert (await agent.delete("/v1/services/counter")).json()["state"] == "removed"
    assert (await proxied.ask(host)).status_code == 404


async def _executes_inside(agent: Client, service: dict[str, Any]) -> None:
    command = {"command": "wc -c < /workspace/visits"}
    done = (await agent.post(f"/v1/sandboxes/{service['sandbox_id']}/exec", command)).json()
    assert int(done["stdout"]) >= 1


async def _redeploys(proxied: Proxied, agent: Client, host: str) -> None:
    """Visitors come all the while; not one is turned away, and what was counted stays."""
    before = int((await proxied.ask(host)).text.split()[2])
    over = asyncio.Event()
    seen: list[tuple[int, str]] = []

    async def visit() -> None:
        while not over.is_set():
            came = await proxied.ask(host)
            seen.append((came.status_code, came.text))

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(visit())
        new = APP.replace("'hello'", "'bonjour'")
        answer = await agent.post("/v1/services/counter/redeploy", {"bootstrap": new})
        assert answer.status_code == 200, answer.text
        await asyncio.sleep(1.0)
        over.set()
    assert {status for status, _ in seen} == {200}
    assert {text.split()[0] for _, text in seen} == {"hello", "bonjour"}
    assert int(seen[-1][1].split()[2]) > before
    bad = await agent.post("/v1/services/counter/redeploy", {"command": "echo no such module; exit 1"})
    assert (bad.status_code, bad.json()["reason"]) == (409, "not_healthy")
    assert (await proxied.ask(host)).text.startswith("bonjour")


async def _holds_requests_over_a_crash(proxied: Proxied, agent: Client, host: str) -> None:
    run = (await agent.get("/v1/services/counter")).json()["run"]
    assert (await proxied.ask(host, "/crash")).status_code >= 500
    # It waits at the proxy while the next process starts.
    held = await proxied.ask(host)
    assert (held.status_code, held.text.split()[0]) == (200, "bonjour")
    assert (await _until(agent, "running"))["run"] > run


async def _sleeps_and_wakes(proxied: Proxied, agent: Client, host: str) -> None:
    before = (await proxied.ask(host)).text.split()
    running = (await agent.get("/v1/services/counter")).json()
    frozen = (await agent.post("/v1/services/counter/freeze")).json()
    assert frozen["state"] == "sleeping"
    assert frozen["rate_msats_per_s"] < running["rate_msats_per_s"]
    woken = await proxied.ask(host)
    assert (woken.status_code, woken.text.split()[1]) == (200, before[1])
    assert (await _until(agent, "running"))["run"] == running["run"]
    await agent.send("PATCH", "/v1/services/counter", body={"idle_s": 0.5})
    assert (await _until(agent, "sleeping"))["reason"] == "no request for 0.5 s"
    began = time.monotonic()
    assert (await proxied.ask(host)).text.split()[1] == before[1]
    assert time.monotonic() - began < 5
    await agent.send("PATCH", "/v1/services/counter", body={"idle_s": 0})


async def _has_a_vault(proxied: Proxied, agent: Client, host: str) -> None:
    await _until(agent, "running")
    path = "/v1/services/counter/env"
    put = await agent.send("PUT", path, body={"secrets": {"GREETING": "psst"}})
    assert (put.json()["names"], put.json()["in_use"]) == (["GREETING"], False)
    assert (await agent.post("/v1/services/counter/redeploy", {})).status_code == 200
    assert (await proxied.ask(host)).text.startswith("psst")
    assert (await agent.get(path)).json()["in_use"]
    assert (await agent.delete(path)).json()["names"] == []


async def _is_copied(proxied: Proxied, agent: Client, service: dict[str, Any]) -> None:
    """A snapshot of a service is the beginning of another, which counts on."""
    visits = int((await proxied.ask(service["host"])).text.split()[2])
    taken = await agent.post(f"/v1/sandboxes/{service['sandbox_id']}/snapshots", {})
    assert taken.status_code == 201, taken.text
    body = {
        "name": "copy",
        "bootstrap": APP,
        "public": True,
        "snapshot": taken.json()["id"],
        "resources": SMALL,
    }
    copy = await agent.post("/v1/services", body)
    assert (copy.status_code, copy.json()["state"]) == (201, "running"), copy.text
    assert int((await proxied.ask(copy.json()["host"])).text.split()[2]) > visits
    listed = [one["name"] for one in (await agent.get("/v1/services")).json()["services"]]
    assert listed == ["copy", "counter"]
    await agent.delete("/v1/services/copy")


async def _until(agent: Client, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while (found := (await agent.get("/v1/services/counter")).json())["state"] != state:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)
    return found  # type: ignore[no-any-return]


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(8)
