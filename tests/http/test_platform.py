"""The platform itself over HTTP: probes, keys, images, profiles, the host."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.http.app import create_app
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from tests.support.http.flows import claimed, declared, flow
from tests.support.http.served import Served

# Why no test claims it.
NOT_SHOWN = {
    "relayPort": "the proxy of ports answers it beside the API, with a status that is the program's own"
    " (tests/access/test_previews.py)",
}


async def test_a_platform_that_was_closed_is_let_go_with_its_app(settings: Settings) -> None:
    """Whoever opens many in one process, as these tests do, kept every one of them in memory."""
    async with open_platform(
        settings, backends={"ext.namespaces": Scripted(name="ext.namespaces")}
    ) as opened:
        app = weakref.ref(create_app(opened))
    del opened
    gc.collect()
    assert app() is None


def test_every_operation_is_shown_answering_as_it_is_declared() -> None:
    """Whoever declares an operation marks a test of the gate with @flow, which is held to it."""
    claims = claimed()
    missing = set(declared()) - claims
    assert missing == set(NOT_SHOWN), f"operations without a test: {sorted(missing)}"
    assert set(declared()) >= claims, "claims about operations that do not exist"


@flow("health", "ready", "metrics", "getOpenapi", "getCapabilities")
async def test_probes_answer_anyone(served: Served) -> None:
    http = served.client.http
    assert (await http.get("/health")).json() == {
        "status": "ok",
        "checks": {"store": "ok", "nonces": "ok", "state": "ok", "ext.namespaces": "ok", "clock": "ok"},
    }
    assert (await http.get("/readyz")).json() == {"status": "ready"}
    assert "sandboxer_requests_total" in (await http.get("/metrics")).text
    assert await served.client.post(f"{await served.sandbox()}/exec", {"command": "true"})
    metrics = (await http.get("/metrics")).text.splitlines()
    assert "sandboxer_warm_pool 0.0" in metrics
    assert 'sandboxer_exec_seconds_count{outcome="ok"} 1.0' in metrics
    assert "sandboxer_nonces 2.0" in metrics
    assert (await http.get("/openapi.json")).json()["openapi"].startswith("3.1")
    known = (await http.get("/v1/capabilities")).json()
    assert [backend["name"] for backend in known["backends"]] == ["ext.namespaces"]
    assert known["trust_levels"] == ["zero", "semi"]
    assert [signature["name"] for signature in known["signatures"]] == ["v2", "v1"]


async def test_health_is_degraded_when_a_backend_cannot_make_sandboxes(served: Served) -> None:
    known = served.platform.sandboxes.known_fingerprints
    seen = await served.backend.fingerprint()
    known["ext.namespaces"] = replace(seen, healthy=False)
    answer = await served.client.http.get("/health")
    assert answer.status_code == 503
    assert answer.json()["status"] == "degraded"
    assert [name for name, check in answer.json()["checks"].items() if check != "ok"] == ["ext.namespaces"]


async def test_readiness_ends_before_the_server_does(served: Served) -> None:
    served.app.state.readiness = "stopping"
    answer = await served.client.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "stopping"}


@flow("createKey", "listKeys", "revokeKey")
async def test_the_owner_makes_lists_and_revokes_keys_and_nobody_else_does(served: Served) -> None:
    stranger = await served.stranger("team")
    assert (await stranger.get("/v1/sandboxes")).status_code == 200
    for refused in (
        await stranger.post("/v1/keys", {"name": "x", "account": "y"}),
        await stranger.get("/v1/host"),
        await stranger.get("/v1/host/stale"),
        await stranger.post("/v1/host/reap-stale"),
        await stranger.get("/v1/host/garbage"),
        await stranger.post("/v1/host/collect-garbage"),
    ):
        assert refused.status_code == 403, refused.text
        assert refused.json()["code"] == "forbidden"
    assert (await stranger.delete(f"/v1/keys/{served.owner.public_key}")).status_code == 404
    own_ones = (await stranger.get("/v1/keys")).json()["keys"]
    assert [key["public_key"] for key in own_ones] == [stranger.credentials.public_key]
    listed = (await served.client.get("/v1/keys")).json()["keys"]
    assert [key["is_owner"] for key in listed] == [True, False]
    assert all("secret" not in name for key in listed for name in key)
    where = f"/v1/keys/{stranger.credentials.public_key}"
    assert (await served.client.delete(where)).status_code == 204
    assert (await served.client.delete(where)).status_code == 204
    assert (await stranger.get("/v1/sandboxes")).json()["reason"] == "unknown_key"
    own = await served.client.delete(f"/v1/keys/{served.owner.public_key}")
    assert own.status_code == 409
    nobody = await served.client.delete("/v1/keys/sbx-pk-" + "0" * 26)
    assert nobody.status_code == 404
    taken = await served.client.post("/v1/keys", {"name": "x", "account": "owner"})
    assert taken.status_code == 422


@flow("listImages", "listProfiles")
async def test_images_and_profiles_are_listed(served: Served) -> None:
    folder = served.state_dir / "images" / "tiny"
    folder.mkdir(parents=True)
    record = {
        "name": "tiny",
        "digest": "d",
        "recipe_digest": "r",
        "built_at": "2026-01-01T00:00:00+00:00",
        "build_seconds": 1.0,
        "size_bytes": 5,
        "distribution": "debian",
        "suite": "bookworm",
        "architecture": "amd64",
        "packages": {},
    }
    (folder / "image.json").write_text(json.dumps(record))
    assert [i["name"] for i in (await served.client.get("/v1/images")).json()["images"]] == ["tiny"]
    profiles = {p["id"]: p for p in (await served.client.get("/v1/profiles")).json()["profiles"]}
    assert "profile.agent-dev" in profiles
    assert profiles["profile.agent-dev"]["ttl_max"]


@flow("inspectHost", "listStale", "reapStale")
async def test_the_owner_sees_the_host_and_removes_what_no_record_accounts_for(served: Served) -> None:
    path = await served.sandbox()
    host = (await served.client.get("/v1/host")).json()
    assert host["sandboxes"]["ready"] == 1
    assert host["backends"][0]["healthy"]
    box = served.backend.boxes[path.rsplit("/", 1)[1]]
    stray = "sbx_" + "9" * 26
    served.backend.boxes[stray] = box
    assert [s["sandbox_id"] for s in (await served.client.get("/v1/host/stale")).json()["stale"]] == [stray]
    removed = (await served.client.post("/v1/host/reap-stale")).json()["removed"]
    assert [s["sandbox_id"] for s in removed] == [stray]
    assert stray not in served.backend.boxes


@flow("listGarbage", "collectGarbage")
async def test_the_owner_sees_and_removes_what_nobody_needs(served: Served) -> None:
    path = await served.sandbox()
    snapshot = (await served.client.post(f"{path}/snapshots", {})).json()["id"]
    left = "img_" + "0" * 26
    served.backend.kept_disks[left] = served.backend.kept_disks[snapshot]
    # A disk without a record is no garbage: whose it is, nobody here can know.
    assert (await served.client.get("/v1/host/garbage")).json()["garbage"] == []
    assert (await served.client.post("/v1/host/collect-garbage?now=true")).json() == {"removed": []}
    (held,) = (await served.client.get("/v1/host/stale")).json()["stale"]
    assert (held["id"], held["kind"]) == (left, "image")
    assert held["first_seen"] < held["goes_at"]
    removed = (await served.client.post("/v1/host/reap-stale")).json()["removed"]
    assert [one["id"] for one in removed] == [left]
    assert set(served.backend.kept_disks) == {snapshot}
