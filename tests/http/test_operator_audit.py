"""The operator inside a tenant's sandbox leaves a row in the audit log, by whichever route it comes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import websockets
from websockets.asyncio.client import connect

from sandboxer.accounts import audit
from sandboxer.edges.http.app import all_bindings
from sandboxer.wire.operations.table import OPERATIONS
from tests.support.http.served import Served
from tests.support.http.signed import Client
from tests.support.sessions import over

ROOT = "/v1/sandboxes/{sandbox_id}"


def sandbox_routes() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for binding in all_bindings():
        if (path := binding.operation.path).startswith(ROOT):
            found.append((binding.operation.method, path))
            found += [("WEBSOCKET", path)] if binding.websocket is not None else []
    return found


def is_audited(method: str, path: str) -> bool:
    """A look at the record itself, which the operator's list shows as well, is none; a job's holds output."""
    is_record = re.fullmatch(r"/v1/[a-z]+/\{[^}]+\}", path) is not None
    return not (is_record and method in ("GET", "HEAD")) or path.startswith("/v1/jobs/")


async def box_of(tenant: Client) -> str:
    answer = await tenant.post("/v1/sandboxes", {})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def rows(served: Served, sandbox: str) -> list[audit.Entry]:
    return await served.platform.store.read(lambda conn: audit.page(conn, subject=sandbox, limit=500))


async def visit(served: Served, method: str, path: str) -> None:
    """Whatever it answers: most of these lack what they need."""
    if method != "WEBSOCKET":
        # Some answers are streams without an end.
        answer = await served.client.http.send(served.client.request(method, path, body={}), stream=True)
        await answer.aclose()
        return
    where = served.url.replace("http", "ws") + path
    head = served.client.credentials.head("GET", path)
    try:
        async with connect(where, additional_headers=head, proxy=None):
            pass
    except websockets.InvalidStatus:
        pass


async def test_every_route_into_a_tenant_s_sandbox_leaves_a_row(served: Served) -> None:
    tenant = await served.stranger("acme")
    routes = sandbox_routes()
    assert len(routes) > 25
    for method, template in routes:
        box = await box_of(tenant)
        path = re.sub(r"\{[^}]+\}", "7", template.replace("{sandbox_id}", box))
        await visit(served, method, path)
        seen = await rows(served, box)
        if not is_audited(method, template):
            assert seen == []
            continue
        assert [row.data["account"] for row in seen] == ["acme"], f"{method} {template}"
        assert seen[0].actor == f"key:{served.owner.public_key}"
        assert seen[0].action.startswith("sandbox.")
        await tenant.delete(f"/v1/sandboxes/{box}")
    assert (await served.platform.store.read(audit.verify)).is_whole


async def test_the_row_is_there_although_the_act_failed_and_says_what_was_asked(served: Served) -> None:
    box = await box_of(await served.stranger("acme"))
    path = f"/v1/sandboxes/{box}"
    missing = await served.client.get(f"{path}/files/content?path=/etc/shadow-of-nobody")
    assert missing.status_code == 404
    (row,) = await rows(served, box)
    assert (row.action, row.data["method"]) == ("sandbox.files.content", "GET")
    assert "shadow-of-nobody" in row.data["query"]


async def test_what_is_kept_or_run_without_naming_its_sandbox_is_written_down_too(served: Served) -> None:
    tenant = await served.stranger("acme")
    kept = (await tenant.post(f"/v1/sandboxes/{await box_of(tenant)}/snapshots", {})).json()["id"]
    job = (await tenant.post("/v1/execute/async", {"language": "sh", "code": "echo secret"})).json()["id"]
    for method, path in (
        ("GET", f"/v1/snapshots/{kept}"),
        ("POST", f"/v1/snapshots/{kept}/clone"),
        ("DELETE", f"/v1/snapshots/{kept}"),
        ("GET", f"/v1/jobs/{job}"),
    ):
        await visit(served, method, path)
    assert sorted(row.action for row in await rows(served, kept)) == ["snapshot.clone", "snapshot.destroy"]
    (row,) = await rows(served, job)
    assert (row.action, row.data["account"]) == ("job.get", "acme")


async def thing_of(served: Served, tenant: Client, noun: str) -> str:
    """One of the tenant's; most acts on it lack what they need, which is no matter here."""
    if noun == "sessions":
        session = replace(
            over(served.platform.sessions.repository, "acme"), expires_at=datetime.max.replace(tzinfo=UTC)
        )
        return (await served.platform.sessions.repository.create(session)).id
    box = await box_of(tenant)
    wanted: dict[str, tuple[str, dict[str, object]]] = {
        "services": ("/v1/services?wait=false", {"name": "hello", "command": "sleep 1000"}),
        "jobs": ("/v1/execute/async", {"language": "sh", "code": "echo secret"}),
        "snapshots": (f"/v1/sandboxes/{box}/snapshots", {}),
        "volumes": ("/v1/volumes", {"name": "mine", "size_mb": 64}),
    }
    made = await tenant.post(*wanted[noun])
    assert made.status_code in (201, 202), made.text
    return str(made.json()["id"])


@pytest.mark.parametrize("noun", ["sessions", "services", "jobs", "snapshots", "volumes"])
async def test_every_route_to_what_is_a_tenant_s_leaves_a_row(served: Served, noun: str) -> None:
    tenant = await served.stranger("acme")
    thing = await thing_of(served, tenant, noun)
    operations = [binding.operation for binding in all_bindings()]
    routes = [(one.method, one.path) for one in operations if one.path.startswith(f"/v1/{noun}/{{")]
    assert len(routes) > 1
    # What removes it comes last.
    for method, template in sorted(routes, key=lambda row: (row[0] == "DELETE", -len(row[1]))):
        before = len(await rows(served, thing))
        path = re.sub(r"\{[^}]+\}", "7", re.sub(r"\{[^}]+\}", thing, template, count=1))
        # A service on the fake never listens: nobody waits for it.
        await visit(served, method, f"{path}?wait=false" if noun == "services" else path)
        wanted = 1 if is_audited(method, template) else 0
        seen = await rows(served, thing)
        assert len(seen) == before + wanted, f"{method} {template}"
        assert {row.data["account"] for row in seen} <= {"acme"}


async def test_a_tenant_s_image_is_no_exception(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake publishes none, so the use cases is told of one."""

    async def get(use_cases: object, image_id: str, caller: object) -> object:
        return SimpleNamespace(id=image_id, account="acme")

    image = "img_" + "1" * 26
    monkeypatch.setattr("sandboxer.artifacts.images.published.use_cases.ImageUseCases.get", get)
    await visit(served, "GET", f"/v1/images/{image}/grants")
    assert [row.action for row in await rows(served, image)] == ["image.grants"]


async def test_what_a_body_names_is_written_down_too(served: Served) -> None:
    tenant = await served.stranger("acme")
    box = await box_of(tenant)
    kept = await thing_of(served, tenant, "snapshots")
    for path, body in (
        ("/v1/sessions", {"language": "python", "sandbox_id": box}),
        ("/v1/images", {"sandbox": box, "name": "taken"}),
        ("/v1/services?wait=false", {"name": "taken", "command": "true", "snapshot": kept}),
    ):
        await served.client.post(path, body)
    assert sorted(row.action for row in await rows(served, box)) == ["sandbox.publish", "sandbox.sessions"]
    assert [row.action for row in await rows(served, kept)] == ["snapshot.clone"]


async def test_a_line_break_in_a_path_hides_nothing(served: Served) -> None:
    box = await box_of(await served.stranger("acme"))
    await visit(served, "GET", f"/v1/sandboxes/{box}/processes/7%0A")
    assert [row.data["account"] for row in await rows(served, box)] == ["acme"]


async def test_neither_a_tenant_in_its_own_sandbox_nor_the_operator_in_his_writes_any(served: Served) -> None:
    tenant = await served.stranger("acme")
    box, own = await box_of(tenant), await served.sandbox()
    for client, path in ((tenant, f"/v1/sandboxes/{box}"), (served.client, own)):
        assert (await client.post(f"{path}/exec", {"command": "true"})).status_code == 200
        assert (await client.post(f"{path}/stop")).status_code == 200
        assert (await client.delete(path)).status_code == 200
        assert await rows(served, path.rpartition("/")[2]) == []


async def test_ending_what_is_past_its_time_is_written_down_before_it_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = await served.stranger("acme")
    box, own = await box_of(tenant), (await served.sandbox()).rpartition("/")[2]
    dependencies = served.platform.sandboxes
    monkeypatch.setattr("sandboxer.sandboxes.use_cases.lifetime.end_due", lambda sandbox, *, now: True)
    before: list[list[str]] = []

    async def end(_dependencies: object, sandbox: object, *, actor: str) -> object:
        before.append([row.action for row in await rows(served, box)])
        return sandbox

    monkeypatch.setattr("sandboxer.sandboxes.use_cases.lifetime.end", end)
    looked = await served.client.post("/v1/sandboxes/expire")
    assert looked.status_code == 200
    assert await rows(served, box) == []
    applied = await served.client.post("/v1/sandboxes/expire?apply=true")
    assert applied.json()["applied"]
    assert before == [["sandbox.expire"]] * len(list(dependencies.repository.living()))
    assert await rows(served, own) == []


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("destroySandbox", "sandbox.destroy"),
        ("stopSandbox", "sandbox.stop"),
        ("endTerminal", "sandbox.terminals"),
        ("writeFile", "sandbox.files.content"),
        ("relayPort", "sandbox.ports"),
    ],
)
def test_an_action_is_named_by_the_words_of_its_path(operation: str, action: str) -> None:
    (found,) = [one for one in OPERATIONS if one.id == operation]
    assert found.operator_audit is not None
    assert found.operator_audit.action == action
