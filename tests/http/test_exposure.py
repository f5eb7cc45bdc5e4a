"""Before a port is opened to others, secrets that it might show are found and named; on real walls."""

from __future__ import annotations

import pytest

from sandboxer.sandboxes import exposure
from tests.support.http.flows import flow
from tests.support.http.real import free, sh  # noqa: F401
from tests.support.http.served import Served

# As in the incident that this is about: a folder of an agent's own, opened by one chmod, beside a site.
INCIDENT = """
mkdir -p /root/.claude /workspace/site && echo '{"token": 1}' > /root/.claude/.credentials.json
chmod 755 /root /root/.claude && chmod 644 /root/.claude/.credentials.json
git init -q /workspace/site && echo SECRET=1 > /workspace/site/.env
openssl genpkey -algorithm ed25519 2>/dev/null > /workspace/site/server.pem ||
    printf -- '-----BEGIN PRIVATE KEY-----\\n' > /workspace/site/server.pem
printf -- '-----BEGIN CERTIFICATE-----\\n' > /workspace/site/chain.pem && chmod 644 /workspace/site/*.pem
"""
SHOWN = [
    ("/root/.claude/.credentials.json", "secret"),
    ("/workspace/site/.env", "secret"),
    ("/workspace/site/.git", "git"),
    ("/workspace/site/server.pem", "secret"),
]


async def careless(served: Served) -> str:
    path = await served.sandbox()
    ran = await sh(served, path, INCIDENT)
    assert ran["exit_code"] == 0, ran
    return path


def named(exposed: dict[str, object]) -> list[tuple[str, str]]:
    return [(one["path"], one["kind"]) for one in exposed["findings"]]  # type: ignore[attr-defined]


@flow("getExposure")
async def test_secrets_and_git_folders_are_named_before_a_port_is_open(free: Served) -> None:
    path = await careless(free)
    looked = (await free.client.get(f"{path}/exposure")).json()
    assert named(looked) == SHOWN
    assert looked["complete"] is True
    refused = await free.client.post(f"{path}/previews", {"port": 8000, "public": True, "inspect": "refuse"})
    assert refused.status_code == 409
    assert refused.json()["reason"] == "exposed"
    assert named(refused.json()) == SHOWN
    assert "/root/.claude/.credentials.json" in refused.json()["detail"]
    assert (await free.client.get(f"{path}/previews")).json()["previews"] == []
    warned = (await free.client.post(f"{path}/previews", {"port": 8000, "public": True})).json()
    assert named(warned["exposure"]) == SHOWN
    assert (await free.client.post(f"{path}/previews", {"port": 8000})).json()["exposure"] is None
    asked = {"port": 8001, "public": True, "inspect": "no"}
    assert (await free.client.post(f"{path}/previews", asked)).json()["exposure"] is None


async def test_to_take_the_right_from_others_is_the_way_out(free: Served) -> None:
    path = await careless(free)
    await sh(free, path, "chmod -R o-rwx /root /workspace/site")
    looked = (await free.client.get(f"{path}/exposure")).json()
    assert (looked["findings"], looked["complete"]) == ([], True)
    opened = await free.client.post(f"{path}/previews", {"port": 8000, "public": True, "inspect": "refuse"})
    assert opened.status_code == 201


async def test_where_a_program_serves_from_is_looked_at_too(free: Served) -> None:
    path = await free.sandbox()
    await sh(free, path, "mkdir -p /srv/a /opt/b && echo 1 > /srv/a/.env && echo 1 > /opt/b/.netrc")
    assert (await free.client.get(f"{path}/exposure")).json()["findings"] == []
    for words in (["sleep", "60"], ["sh", "-c", "sleep 60; true", "/opt/b"]):
        started = await free.client.post(f"{path}/processes", {"argv": words, "cwd": "/srv/a"})
        assert started.status_code == 201, started.text
    assert named((await free.client.get(f"{path}/exposure")).json()) == [
        ("/opt/b/.netrc", "secret"),
        ("/srv/a/.env", "secret"),
    ]


async def test_a_hostile_disk_costs_a_bounded_look_which_says_so(
    free: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await free.sandbox()
    make = (
        "mkdir -p /workspace/many && cd /workspace/many && seq 3000 | xargs touch && ln -s / root && mkfifo f"
    )
    assert (await sh(free, path, f"{make}; echo 1 > /workspace/.env"))["exit_code"] == 0
    monkeypatch.setattr(exposure, "MAX_ENTRIES", 1000)
    looked = (await free.client.get(f"{path}/exposure")).json()
    assert named(looked) == [("/workspace/.env", "secret")]
    assert (looked["looked_at"], looked["complete"]) == (1000, False)
    assert "1000 files" in looked["why"]
    monkeypatch.setattr(exposure, "MAX_SECONDS", 0.0)
    assert "seconds" in (await free.client.get(f"{path}/exposure")).json()["why"]


async def test_one_that_does_not_run_is_not_looked_at_and_strangers_learn_nothing(free: Served) -> None:
    path = await careless(free)
    await free.client.post(f"{path}/freeze")
    assert named((await free.client.get(f"{path}/exposure")).json()) == SHOWN
    await free.client.post(f"{path}/thaw")
    await free.client.post(f"{path}/stop")
    looked = (await free.client.get(f"{path}/exposure")).json()
    assert (looked["findings"], looked["complete"]) == ([], False)
    assert "stopped" in looked["why"]
    stranger = await free.stranger()
    assert (await stranger.get(f"{path}/exposure")).status_code == 404


SERVICE = {
    "name": "site",
    "command": "exec python3 -m http.server $PORT",
    "files": [{"path": ".env", "content": "SECRET=1"}],
    "resources": {"disk_mb": 128},
}


async def test_a_public_service_that_would_show_secrets_is_not_made_or_says_so(free: Served) -> None:
    strict = await free.client.post("/v1/services", {**SERVICE, "public": True, "inspect": "refuse"})
    assert (strict.status_code, strict.json()["reason"]) == (409, "exposed")
    assert (await free.client.get("/v1/services")).json()["services"] == []
    made = (await free.client.post("/v1/services", {**SERVICE, "public": True})).json()
    assert named(made["exposure"]) == [("/workspace/.env", "secret")]
    logged = (await free.client.get("/v1/services/site/logs")).json()["lines"]
    assert any("may be shown /workspace/.env" in line["text"] for line in logged)


async def test_a_service_is_looked_at_when_it_is_opened_to_all_later(free: Served) -> None:
    made = (await free.client.post("/v1/services", SERVICE)).json()
    assert made["exposure"] is None
    strict = await free.client.send("PATCH", "/v1/services/site", body={"public": True, "inspect": "refuse"})
    assert strict.status_code == 409
    assert (await free.client.get("/v1/services/site")).json()["public"] is False
    opened = (await free.client.send("PATCH", "/v1/services/site", body={"public": True})).json()
    assert opened["public"] is True
    assert named(opened["exposure"]) == [("/workspace/.env", "secret")]
