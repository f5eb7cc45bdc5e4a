"""Sandboxes over HTTP: their life, as a client sees it."""

from __future__ import annotations

from tests.http.conftest import Served


async def test_a_sandbox_is_made_looked_at_listed_and_removed(served: Served) -> None:
    answer = await served.client.post("/v1/sandboxes", {"name": "first", "labels": {"team": "a"}})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["id"].startswith("sbx_")
    assert made["state"] == "ready"
    assert made["backend"] == "ext.namespaces"
    assert made["trust"] == "zero"
    assert made["ready_at"] is not None
    assert made["expires_at"] is not None
    assert made["timings_ms"]
    assert answer.headers["location"] == f"/v1/sandboxes/{made['id']}"
    path = answer.headers["location"]
    assert (await served.client.get(path)).json()["name"] == "first"
    listed = (await served.client.get("/v1/sandboxes?label=team%3Da")).json()
    assert [s["id"] for s in listed["sandboxes"]] == [made["id"]]
    gone = await served.client.delete(path)
    assert gone.status_code == 200
    assert gone.json()["state"] == "destroyed"
    assert (await served.client.delete(path)).status_code == 200


async def test_a_command_runs_and_its_output_comes_back(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", {"command": "echo hi"})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["stdout"] == "hi\n"
    assert result["exit_code"] == 0
    assert not result["timed_out"]
    assert not result["truncated"]
