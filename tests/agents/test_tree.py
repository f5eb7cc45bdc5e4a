"""The tree of sandboxes: who made which, how deep, in what state, and what it spent."""

from __future__ import annotations

import json

from tests.support.http.real import sh
from tests.support.http.served import Served

SMALL = {"resources": {"disk_mb": 64, "memory_mb": 64}, "ttl": "5m"}


async def test_generations_stand_below_each_other_and_an_adopted_one_below_who_made_it(free: Served) -> None:
    top = await free.sandbox(**SMALL, inception={"slots": 3, "depth": 1, "on_parent_end": "adopt"})
    body = json.dumps({**SMALL, "name": "middle", "inception": {"slots": 1}})
    ran = await sh(free, top, "sandboxer api POST /v1/sandboxes -", stdin=body)
    middle = json.loads(str(ran["stdout"]))["id"]
    below = json.dumps({"command": f"sandboxer api POST /v1/sandboxes '{json.dumps(SMALL)}'"})
    ran = await sh(free, top, f"sandboxer api POST /v1/sandboxes/{middle}/exec -", stdin=below)
    leaf = json.loads(json.loads(str(ran["stdout"]))["stdout"])["id"]
    top_id = top.rpartition("/")[2]

    async def seen() -> list[tuple[str, int, str | None, str]]:
        found = (await free.client.get("/v1/tree")).json()["sandboxes"]
        return [(one["id"], one["depth"], one["parent"], one["state"]) for one in found]

    first = await seen()
    assert [one[:3] for one in first] == [(top_id, 0, None), (middle, 1, top_id), (leaf, 2, middle)]
    inside = await sh(free, top, "sandboxer api GET /v1/tree")
    assert [one["id"] for one in json.loads(str(inside["stdout"]))["sandboxes"]] == [middle, leaf]
    assert (await free.client.delete(top)).status_code == 200
    after = await seen()
    assert [one[:3] for one in after] == [one[:3] for one in first]
    assert after[0][3] == "destroyed"
