"""Services over HTTP, on the scripted fake: every verb, every refusal, and who may see what."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxer.kernel.errors import Conflict, NotFound, SandboxerError
from sandboxer.settings import Settings
from sandboxer.work.services.domains import ELSEWHERE, DomainPolicy, Rechecking
from sandboxer.work.services.records import Domain, domain_holder
from tests.support.http.accounts import cut, funded, with_both
from tests.support.http.execute import HELLO, LISTENS
from tests.support.http.flows import flow
from tests.support.http.served import Served
from tests.support.http.signed import Client
from tests.support.http.wallets import proof
from tests.support.identity import StillClock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        limit_auth=10_000,
        limit_bucket_only=10_000,
        charging=False,
        webhook_allow_private=True,
        domain_proof_port=port,
    )


async def made(client: Client, **more: object) -> dict[str, Any]:
    answer = await client.post("/v1/services", {**HELLO, **more})
    assert answer.status_code == 201, answer.text
    service: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/services/{service['id']}"
    return service


@flow("createService", "listServices", "getService", "removeService")
async def test_a_service_is_made_listed_found_by_name_and_removed(served: Served) -> None:
    service = await made(served.client)
    assert (service["state"], service["port"], service["run"]) == ("running", 9000, 1)
    assert service["host"].startswith("hello-")
    assert service["host"].endswith(f".{served.platform.settings.proxy_domain}")
    listed = (await served.client.get("/v1/services?state=running")).json()["services"]
    assert [one["id"] for one in listed] == [service["id"]]
    by_name = (await served.client.get("/v1/services/hello")).json()
    assert by_name["sandbox_id"] == service["sandbox_id"]
    gone = await served.client.delete("/v1/services/hello")
    assert gone.json()["state"] == "removed"
    assert (await served.client.get("/v1/services/hello")).status_code == 404
    box = (await served.client.get(f"/v1/sandboxes/{service['sandbox_id']}")).json()
    assert box["state"] == "destroyed"


async def test_services_are_listed_by_pages_with_as_many_reads_for_one_as_for_many(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await made(served.client, name=name)
    read, reads = served.platform.store.read, 0

    async def counted(*given: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(*given, **more)

    seen: list[str] = []
    spent: list[int] = []
    monkeypatch.setattr(served.platform.store, "read", counted)
    cursor = ""
    for wanted in (1, 3, 3):
        before = reads
        page = (await served.client.get(f"/v1/services?limit={wanted}{cursor}")).json()
        spent.append(reads - before)
        seen += [one["name"] for one in page["services"]]
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == names[::-1]
    assert page["next_cursor"] is None
    assert len(set(spent)) == 1, spent
    assert (await served.client.get("/v1/services?cursor=nonsense")).status_code == 422
    assert (await served.client.get("/v1/services?limit=0")).status_code == 422


async def test_a_name_is_taken_once_in_an_account_and_free_in_another(served: Served) -> None:
    await made(served.client)
    again = await served.client.post("/v1/services", HELLO)
    assert (again.status_code, again.json()["reason"]) == (409, "name_taken")
    boxes = (await served.client.get("/v1/sandboxes")).json()["sandboxes"]
    assert len(boxes) == 1, "a refused name must leave no sandbox"
    # A sandbox is another noun: one of this name is free to be made.
    assert (await served.client.post("/v1/sandboxes", {"name": "hello"})).status_code == 201
    other = await served.stranger()
    assert (await made(other))["name"] == "hello"
    assert [s["name"] for s in (await other.get("/v1/services")).json()["services"]] == ["hello"]


async def test_the_same_idempotency_key_makes_one_service(served: Served) -> None:
    headers = {"idempotency-key": "once"}
    first = await served.client.post("/v1/services", HELLO, headers=headers)
    again = await served.client.post("/v1/services", HELLO, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]


async def test_strangers_see_nothing(served: Served) -> None:
    service = await made(served.client)
    other = await served.stranger()
    path = f"/v1/services/{service['id']}"
    for method, target in (
        ("GET", path),
        ("DELETE", path),
        ("GET", f"{path}/logs"),
        ("GET", f"{path}/env"),
        ("POST", f"{path}/stop"),
        ("GET", "/v1/services/hello"),
    ):
        assert (await other.send(method, target)).status_code == 404, target
    assert (await other.get("/v1/services")).json()["services"] == []


@flow("changeService", "redeployService")
async def test_it_is_changed_and_redeployed(served: Served) -> None:
    await made(served.client)
    body = {"idle_s": 60, "public": True, "restart": {"policy": "never"}, "health": {"threshold": 9}}
    changed = (await served.client.send("PATCH", "/v1/services/hello", body=body)).json()
    assert (changed["idle_s"], changed["public"], changed["run"]) == (60, True, 1)
    assert (changed["restart"]["policy"], changed["health"]["threshold"]) == ("never", 9)
    answer = await served.client.send("PATCH", "/v1/services/hello", body={"env": {"A": "b"}})
    assert (answer.json()["env"], answer.json()["run"]) == ({"A": "b"}, 2)
    again = await served.client.post("/v1/services/hello/redeploy", {"command": f"echo anew; {LISTENS}"})
    assert (again.status_code, again.json()["run"]) == (200, 3)
    broken = await served.client.post("/v1/services/hello/redeploy", {"command": "echo oh no; false"})
    assert (broken.status_code, broken.json()["reason"]) == (409, "not_healthy")
    assert "oh no" in str(broken.json())
    kept = (await served.client.get("/v1/services/hello")).json()
    assert kept["command"] == f"echo anew; {LISTENS}"
    both = await served.client.post("/v1/services/hello/redeploy", {"command": "a", "bootstrap": "b"})
    assert both.status_code == 422


@flow("freezeService", "thawService", "stopService", "startService")
async def test_it_sleeps_wakes_stops_and_starts(served: Served) -> None:
    service = await made(served.client)
    path = f"/v1/services/{service['id']}"
    box = f"/v1/sandboxes/{service['sandbox_id']}"
    for verb, state, sandbox in (
        ("freeze", "sleeping", "frozen"),
        ("freeze", "sleeping", "frozen"),
        ("thaw", "running", "ready"),
        ("stop", "stopped", "stopped"),
        ("stop", "stopped", "stopped"),
        ("start", "running", "ready"),
        ("start", "running", "ready"),
    ):
        answer = await served.client.post(f"{path}/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state), (verb, answer.text)
        assert (await served.client.get(box)).json()["state"] in (sandbox, "active")
    stopped = await served.client.post(f"{path}/stop")
    assert stopped.json()["state"] == "stopped"
    assert (await served.client.post(f"{path}/freeze")).status_code == 409


@flow("lockService", "unlockService", "removeService")
async def test_a_locked_service_is_removed_only_with_the_other_factor(served: Served) -> None:
    client, session = await with_both(served)
    service = await made(client)
    locked = await client.post("/v1/services/hello/lock")
    assert locked.json()["locked_at"] is not None
    for method, target in (("DELETE", "/v1/services/hello"), ("POST", "/v1/services/hello/unlock")):
        assert (await client.send(method, target)).status_code == 428
    # Neither does the way around it, by its sandbox.
    assert (await client.delete(f"/v1/sandboxes/{service['sandbox_id']}")).status_code == 428
    asked = (await client.post("/v1/services/hello/unlock")).json()
    unlocked = await client.post("/v1/services/hello/unlock", headers=proof(asked, session.signer))
    assert unlocked.json()["locked_at"] is None
    assert (await client.delete("/v1/services/hello")).json()["state"] == "removed"


@flow("readServiceLogs")
async def test_logs_are_read_and_followed_over_a_restart(served: Served) -> None:
    await made(served.client)
    page = (await served.client.get("/v1/services/hello/logs?tail=50")).json()["lines"]
    assert ("stdout", "up") in [(line["stream"], line["text"]) for line in page]
    assert (await served.client.get("/v1/services/hello/logs?tail=1")).json()["lines"] == page[-1:]
    seen: list[str] = []
    async with (
        asyncio.timeout(20),
        aclosing(
            served.client.events("GET", f"/v1/services/hello/logs?follow=true&after={page[-1]['number']}")
        ) as events,
    ):
        restarted = asyncio.create_task(served.client.post("/v1/services/hello/redeploy", {}))
        async for event in events:
            seen.append(event.data["text"])
            if event.data["text"] == "up":
                break
        assert (await restarted).status_code == 200
    assert "up" in seen
    assert any("starting process 2" in text for text in seen)


@flow("getServiceVault", "setServiceVault", "changeServiceVault", "wipeServiceVault")
async def test_values_go_into_the_vault_and_never_come_out(served: Served) -> None:
    await made(served.client, secrets={"TOKEN": "s3cret-value"})
    path = "/v1/services/hello/env"
    first = await served.client.get(path)
    assert (first.json()["names"], first.json()["in_use"]) == (["TOKEN"], True)
    more = await served.client.send("PATCH", path, body={"secrets": {"MORE": "s3cret-more"}})
    assert (more.json()["names"], more.json()["in_use"]) == (["MORE", "TOKEN"], False)
    less = await served.client.send("PATCH", path, body={"secrets": {"TOKEN": None}})
    assert less.json()["names"] == ["MORE"]
    put = await served.client.send("PUT", path, body={"secrets": {"ONLY": "s3cret-only"}})
    assert put.json()["names"] == ["ONLY"]
    assert (await served.client.get("/v1/services/hello")).json()["secrets"] == ["ONLY"]
    everything = "".join(
        [
            (await served.client.get(target)).text
            for target in ("/v1/services", path, "/v1/services/hello/logs")
        ]
    )
    kept = b"".join(file.read_bytes() for file in served.state_dir.rglob("*") if file.is_file())
    assert "s3cret" not in everything
    assert b"s3cret" not in kept
    wiped = await served.client.delete(path)
    assert wiped.json()["names"] == []


@flow("claimServiceDomain", "verifyServiceDomain", "listServiceDomains", "removeServiceDomain")
async def test_a_domain_is_had_by_who_proves_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(served.client)
    path = "/v1/services/hello/domains"
    for wrong in ("nodots", "has space.example", "-a.example.com"):
        assert (await served.client.post(path, {"domain": wrong})).status_code == 422, wrong
    claim = (await served.client.post(path, {"domain": "App.Example.com"})).json()
    assert (claim["domain"], claim["verified"]) == ("app.example.com", False)
    other = await served.stranger()
    await made(other)
    theirs = (await other.post(path, {"domain": "app.example.com"})).json()
    assert theirs["token"] != claim["token"]
    _points_here(monkeypatch)
    nobody = await served.client.post(f"{path}/app.example.com/verify")
    assert (nobody.status_code, nobody.json()["reason"]) == (409, "not_proven")
    async with _serving(served.platform.settings.domain_proof_port, claim["token"]):
        refused = await other.post(f"{path}/app.example.com/verify")
        assert (refused.status_code, refused.json()["reason"]) == (409, "not_proven")
        proven = await served.client.post(f"{path}/app.example.com/verify")
        assert (proven.status_code, proven.json()["verified"]) == (200, True)
    async with _serving(served.platform.settings.domain_proof_port, theirs["token"]):
        late = await other.post(f"{path}/app.example.com/verify")
        assert (late.status_code, late.json()["reason"]) == (409, "domain_taken")
    assert (await served.client.get("/v1/services/hello")).json()["domains"] == ["app.example.com"]
    target = await served.platform.access.ports.targets.by_domain("APP.example.com.")
    assert target is not None
    assert target.port == 9000
    assert len((await served.client.get(path)).json()["domains"]) == 1
    assert (await served.client.delete(f"{path}/app.example.com")).status_code == 204
    assert await served.platform.access.ports.targets.by_domain("app.example.com") is None


async def test_a_domain_that_is_somebody_else_s_now_leads_here_no_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await made(served.client, public=True)
    path, name = "/v1/services/hello/domains", "app.example.com"
    token = (await served.client.post(path, {"domain": name})).json()["token"]
    _points_here(monkeypatch)
    async with _serving(served.platform.settings.domain_proof_port, token):
        assert (await served.client.post(f"{path}/{name}/verify")).status_code == 200
    where, ports = served.platform.access.ports.where, served.platform.access.ports
    assert where is not None
    async with httpx.AsyncClient() as http:
        proof = await http.get(
            f"http://127.0.0.1:{where.port}/.well-known/sandboxer-domain", headers={"host": name}
        )
    assert (proof.status_code, proof.text) == (200, token), "the edge serves the proof of who has the domain"
    said: list[bytes | SandboxerError] = []

    async def ask(domain: str, owner: str) -> bytes:
        assert domain == name
        answer = said.pop(0)
        if isinstance(answer, SandboxerError):
            raise answer
        return answer

    clock = StillClock(served.platform.clock.now())
    policy = DomainPolicy(every=timedelta(hours=1), grace=timedelta(hours=2))
    rechecking = Rechecking(served.platform.services.dependencies.repository, clock, ask, policy)
    away = Conflict(why="connection refused")
    moved = Conflict(why="no such name", found=ELSEWHERE)

    async def look(answer: bytes | SandboxerError) -> tuple[bool, bool]:
        said.append(answer)
        await rechecking.look()
        claim = (await served.client.get(path)).json()["domains"][0]
        leads_here = await ports.targets.by_domain(name) is not None
        assert leads_here == claim["verified"]
        clock.moment += timedelta(hours=1)
        return claim["verified"], claim["failing_since"] is not None

    assert await look(token.encode()) == (True, False)
    assert await look(away) == (True, False), "a bad day of the network is no news of the name"
    assert await look(moved) == (True, True)
    assert await look(away) == (True, True)
    assert await look(token.encode()) == (True, False), "it came back"
    assert await look(b"something else") == (True, True)
    assert await look(moved) == (True, True)
    assert await look(moved) == (False, False)
    said.append(b"never asked")
    await rechecking.look()
    assert said == [b"never asked"]
    text = (await served.client.get(f"/v1/sandboxes/{service['sandbox_id']}/events?follow=false")).text
    for kind in ("claimed", "verified", "failing", "lost"):
        assert f"service.domain_{kind}" in text
    other = await served.stranger()
    await made(other)
    theirs = (await other.post(path, {"domain": name})).json()["token"]
    async with _serving(served.platform.settings.domain_proof_port, theirs):
        assert (await other.post(f"{path}/{name}/verify")).status_code == 200, "free for who has it now"


async def test_a_delegated_key_needs_the_scopes_of_what_it_does(served: Served) -> None:
    parent = await funded(served, "team")
    reader = await cut(served, parent, scopes=["sandboxes:read", "sandboxes:create"])
    refused = await reader.post("/v1/services", HELLO)
    assert (refused.status_code, refused.json()["reason"]) == (403, "missing_scope")
    assert (await reader.get("/v1/services")).status_code == 200


async def test_no_verb_of_a_service_lets_a_key_spend_without_the_scope_for_it(served: Served) -> None:
    parent = await funded(served, "team")
    runs = ["sandboxes:read", "sandboxes:create", "sandboxes:destroy", "exec"]
    runner = await cut(served, parent, scopes=runs)
    service = await made(runner)
    path = f"/v1/services/{service['id']}"
    for body in ({"vcpus": 2}, {"wake": True}, {"env": {"A": "b"}}):
        refused = await runner.send("PATCH", path, body=body)
        assert (refused.status_code, refused.json()["scope"]) == (403, "sandboxes:manage"), refused.text
    assert (await runner.post(f"{path}/redeploy", {"env": {"A": "c"}})).status_code == 200
    await served.client.post(f"{path}/freeze")
    for redeployed in ({"env": {"A": "d"}}, {"files": [{"path": "a", "content": "b"}]}):
        refused = await runner.post(f"{path}/redeploy", redeployed)
        assert (refused.status_code, refused.json()["scope"]) == (403, "sandboxes:manage"), refused.text
    assert (await runner.get(path)).json()["state"] == "sleeping"
    assert (await runner.delete(path)).status_code == 200


def _points_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        return here("127.0.0.1" if host == "app.example.com" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def _serving(port: int, token: str) -> Any:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        good = head.startswith(b"GET /.well-known/sandboxer-domain ") and b"Host: app.example.com" in head
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + token.encode() if good else b"HTTP/1.0 404 No\r\n\r\n")
        writer.close()

    class Server:
        async def __aenter__(self) -> None:
            self._server = await asyncio.start_server(answer, "127.0.0.1", port)

        async def __aexit__(self, *_: object) -> None:
            self._server.close()
            await self._server.wait_closed()

    return Server()


async def test_a_domain_proven_for_a_service_that_is_gone_by_then_is_nobody_s(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(served.client)
    repository = served.platform.services.dependencies.repository
    (service,) = repository.living()
    claim = (await served.client.post("/v1/services/hello/domains", {"domain": "app.example.com"})).json()

    async def ask(domain: str, owner: str) -> bytes:
        """It takes its time, and meanwhile the service goes."""
        assert (await served.client.delete("/v1/services/hello")).status_code == 200
        return str(claim["token"]).encode()

    monkeypatch.setattr(served.platform.services.domains, "_ask", ask)
    late = await served.client.post("/v1/services/hello/domains/app.example.com/verify")
    assert (late.status_code, late.json()["code"]) == (404, "not_found")
    # As if its removal had come while the proof was being written.
    repository._memory[service.id] = service
    domain = Domain(
        domain="app.example.com",
        service_id=service.id,
        token="t",
        verified_at=service.created_at,
        created_at=service.created_at,
    )
    with pytest.raises(NotFound):
        await repository.put_domain(domain, actor="test", kind="domain_verified")
    del repository._memory[service.id]
    holder = await served.platform.store.read(lambda conn: domain_holder(conn, "app.example.com"))
    assert holder is None
