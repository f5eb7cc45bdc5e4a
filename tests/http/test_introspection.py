"""What callers may see of the platform: capacity is for all, counts are one's own, facts the owner's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.settings import Settings
from tests.support.http.flows import flow
from tests.support.http.served import Served


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        charging=False,
        limit_bucket_only=50,
        warm_pool={"profile.agent-dev": 2},
    )


@flow("showCluster")
async def test_a_tenant_sees_how_much_is_free_and_the_owner_what_the_host_is(served: Served) -> None:
    tenant = await served.stranger()
    await served.sandbox(profile="profile.build")
    seen = (await tenant.get("/v1/cluster")).json()
    (host,) = seen["hosts"]
    assert host["backend"]["healthy"]
    assert "stop" in host["backend"]["capabilities"]
    assert host["free"]["memory_mb"] <= host["total"]["memory_mb"] - 2048
    assert (host["facts"], host["backend"]["lacks"]) == ({}, [])
    assert (seen["mode"], seen["pool_size"], seen["allocated"]) == ("pooled", 2, 0)
    owners = (await served.client.get("/v1/cluster")).json()
    assert owners["allocated"] == 1
    assert owners["hosts"][0]["facts"]["kind"] == "scripted"
    assert owners["hosts"][0]["backend"]["lacks"]


@flow("listPools")
async def test_pools_say_what_stands_ready_and_what_the_disks_hold(served: Served) -> None:
    tenant = await served.stranger()
    seen = (await tenant.get("/v1/pools")).json()
    (warm,) = seen["warm"]
    assert (warm["image"], warm["wanted"]) == ("base", 2)
    assert 0 <= warm["ready"] <= 2
    before = seen["storage"][0]
    assert before["free_mb"] == before["size_mb"] - before["promised_mb"]
    await served.sandbox(profile="profile.build")
    after = (await tenant.get("/v1/pools")).json()["storage"][0]
    assert after["promised_mb"] >= before["promised_mb"] + 8192


@flow("showStats")
async def test_stats_count_ones_own_and_everything_for_the_owner(served: Served) -> None:
    tenant = await served.stranger()
    await served.sandbox()
    mine = (await tenant.get("/v1/stats")).json()
    assert (mine["of"], sum(mine["sandboxes"].values()), mine["requests"]) == ("account", 0, None)
    assert mine["work"].keys() == {"jobs", "sessions", "services"}
    assert (await served.client.post("/v1/execute/async", {"language": "sh", "code": "true"})).is_success
    everyones = (await served.client.get("/v1/stats")).json()
    assert sum(everyones["work"]["jobs"].values()) == 1
    assert sum((await tenant.get("/v1/stats")).json()["work"]["jobs"].values()) == 0
    assert (everyones["of"], everyones["sandboxes"]["ready"] > 0) == ("platform", True)
    assert everyones["requests"]["answered"] >= 3
    assert everyones["requests"]["by_status"]["2xx"] >= 3


@flow("showLimits")
async def test_limits_are_the_callers_own_and_count_down(served: Served) -> None:
    tenant = await served.stranger()
    first = (await tenant.get("/v1/limits")).json()
    second = (await tenant.get("/v1/limits")).json()
    left = {one["what"]: one["left"] for one in second["requests"]}
    assert left["key"] == 48
    assert left["account"] == {one["what"]: one["left"] for one in first["requests"]}["account"] - 1
    assert second["profiles"][0]["ttl_max"] == "1d"
    assert second["maxima"]["execute_ttl_s"] == 900
    assert second["maxima"]["session_ttl_s"] == 86_400
    assert (await served.client.get("/v1/limits")).json()["requests"] == []


async def test_nobody_unsigned_sees_any_of_it(served: Served) -> None:
    for path in ("/v1/cluster", "/v1/pools", "/v1/stats", "/v1/limits"):
        assert (await served.client.http.get(path)).status_code == 401
