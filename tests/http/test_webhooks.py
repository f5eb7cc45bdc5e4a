"""Webhooks over the API: made, signed, delivered, tested, rotated, seen; and never another's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.sdk.webhooks import WebhookRejected, verify
from sandboxer.settings import Settings
from tests.observe.webhooks.receivers import Receiver, receiver, status
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually, serving


@pytest.fixture
async def hooks(settings: Settings) -> AsyncIterator[Served]:
    """A platform whose webhooks may reach this machine."""
    private = settings.model_copy(update={"webhook_allow_private": True})
    async with serving(private, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


async def webhook(hooks: Served, there: Receiver, **wanted: object) -> dict[str, str]:
    answer = await hooks.client.post("/v1/webhooks", {"url": there.url, **wanted})
    assert answer.status_code == 201, answer.text
    return answer.json()


def kinds(there: Receiver) -> list[str]:
    return [json.loads(one.body)["type"] for one in there.got]


@flow("createWebhook", "listWebhooks", "getWebhook", "listWebhookDeliveries")
async def test_what_happens_to_a_sandbox_is_told_in_order_and_signed(hooks: Served) -> None:
    async with receiver() as there:
        made = await webhook(hooks, there, kinds=["sandbox.*"])
        path = await hooks.sandbox()
        await hooks.client.delete(path)
        await eventually(lambda: "sandbox.destroyed" in kinds(there))
        assert kinds(there)[:3] == ["sandbox.requested", "sandbox.provisioning", "sandbox.ready"]
        for one in there.got:
            message = verify(made["secret"], one.headers, one.body)
            assert message["id"] == one.headers["webhook-id"]
            assert message["data"]["subject"] in path
            with pytest.raises(WebhookRejected):
                verify(made["secret"], one.headers, one.body + b" ")
        listed = (await hooks.client.get("/v1/webhooks")).json()["webhooks"]
        assert [(one["id"], one["url"]) for one in listed] == [(made["id"], there.url)]
        assert "secret" not in (await hooks.client.get(f"/v1/webhooks/{made['id']}")).json()

        async def page() -> list[dict[str, object]]:
            answer = await hooks.client.get(f"/v1/webhooks/{made['id']}/deliveries?limit=2")
            return answer.json()["deliveries"]

        newest = await page()
        assert newest[0]["attempts"][0]["status"] == 200


@flow("testWebhook", "changeWebhook", "redeliverWebhook", "removeWebhook")
async def test_a_test_says_what_went_wrong_and_a_redelivery_mends_it(hooks: Served) -> None:
    async with receiver(lambda number: status(503) if number == 0 else status(204)) as there:
        made = await webhook(hooks, there, kinds=["usage.*"])
        path = f"/v1/webhooks/{made['id']}"
        tried = (await hooks.client.post(f"{path}/test")).json()
        assert (tried["state"], tried["reason"]) == ("retrying", "answered 503")
        assert tried["next_try_at"] > tried["created_at"]
        again = (await hooks.client.post(f"{path}/deliveries/{tried['id']}/redeliver")).json()
        assert again["state"] == "delivered"
        assert [one["outcome"] for one in again["attempts"]] == ["status", "accepted"]
        assert len(set(there.ids)) == 1
        off = await hooks.client.send("PATCH", path, body={"enabled": False})
        assert (off.json()["enabled"], off.json()["disabled_reason"]) == (False, "asked")
        assert (await hooks.client.delete(path)).status_code == 204
        assert (await hooks.client.get(path)).status_code == 404


@flow("rotateWebhookSecret")
async def test_after_a_rotation_both_secrets_sign(hooks: Served) -> None:
    async with receiver() as there:
        made = await webhook(hooks, there)
        path = f"/v1/webhooks/{made['id']}"
        new = (await hooks.client.post(f"{path}/rotate-secret", {"overlap": "1h"})).json()["secret"]
        await hooks.client.post(f"{path}/test")
        last = next(one for one in reversed(there.got) if one.headers["webhook-id"].startswith("tst_"))
        for secret in (made["secret"], new):
            assert verify(secret, last.headers, last.body)["type"] == "webhook.test"
        newest = (await hooks.client.post(f"{path}/rotate-secret", {"overlap": "0s"})).json()["secret"]
        await hooks.client.post(f"{path}/test")
        last = next(one for one in reversed(there.got) if one.headers["webhook-id"].startswith("tst_"))
        verify(newest, last.headers, last.body)
        with pytest.raises(WebhookRejected):
            verify(new, last.headers, last.body)


async def test_an_account_hears_of_its_own_and_the_operator_of_all_if_asked(hooks: Served) -> None:
    async with receiver() as mine, receiver() as everyones, receiver() as theirs:
        await webhook(hooks, mine, kinds=["sandbox.ready"])
        await webhook(hooks, everyones, kinds=["sandbox.ready"], all_accounts=True)
        stranger = await hooks.stranger()
        forbidden = await stranger.post("/v1/webhooks", {"url": theirs.url, "all_accounts": True})
        assert forbidden.status_code == 403
        assert (await stranger.post("/v1/webhooks", {"url": theirs.url})).status_code == 201
        await hooks.sandbox()
        await eventually(lambda: bool(mine.got and everyones.got))
        await hooks.client.post("/v1/accounts/stranger/adjust", {"sats": 10_000, "id": "a", "reason": "r"})
        made = await stranger.post("/v1/sandboxes", {})
        assert made.status_code == 201, made.text
        await eventually(lambda: "sandbox.ready" in kinds(theirs))
        await eventually(lambda: len(everyones.got) == 2)
        assert len(mine.got) == 1
        assert {json.loads(one.body)["account"] for one in theirs.got} == {"stranger"}


async def test_webhooks_of_others_are_not_there(hooks: Served) -> None:
    async with receiver() as there:
        made = await webhook(hooks, there)
        sent = (await hooks.client.post(f"/v1/webhooks/{made['id']}/test")).json()
        stranger = await hooks.stranger()
        path = f"/v1/webhooks/{made['id']}"
        refusals = [
            await stranger.get(path),
            await stranger.send("PATCH", path, body={"enabled": False}),
            await stranger.delete(path),
            await stranger.post(f"{path}/test"),
            await stranger.post(f"{path}/rotate-secret", {}),
            await stranger.get(f"{path}/deliveries"),
            await stranger.post(f"{path}/deliveries/{sent['id']}/redeliver"),
            await stranger.post(f"/v1/webhooks/once/deliveries/{sent['id']}/redeliver"),
        ]
        assert [one.status_code for one in refusals] == [404] * len(refusals)
        assert (await stranger.get("/v1/webhooks")).json() == {"webhooks": []}


async def test_without_leave_no_private_address_and_no_http_is_taken(served: Served) -> None:
    for url in ("http://example.com/", "https://127.0.0.1/", "https://[::1]/", "https://u@example.com/"):
        answer = await served.client.post("/v1/webhooks", {"url": url})
        assert answer.status_code == 422, url
    # A name that points inside is found out when it is dialled.
    made = await served.client.post("/v1/webhooks", {"url": "https://localhost/"})
    tried = (await served.client.post(f"/v1/webhooks/{made.json()['id']}/test")).json()
    assert tried["attempts"][0]["outcome"] == "forbidden_address"


async def test_an_account_has_so_many_webhooks_and_no_more(hooks: Served) -> None:
    for number in range(17):
        answer = await hooks.client.post("/v1/webhooks", {"url": f"http://127.0.0.1:9/{number}"})
        assert answer.status_code == (201 if number < 16 else 409)


async def test_a_message_with_its_own_url_goes_once_signed_with_its_secret(hooks: Served) -> None:
    secret = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
    platform = hooks.platform
    async with receiver() as there:

        def end_of_job(conn):
            return platform.webhooks.enqueue(
                conn,
                account="owner",
                kind="job.ended",
                url=there.url,
                payload={"job": "job_1"},
                id="job_1.ended",
                now=platform.clock.now(),
                secret=secret,
            )

        first = await platform.store.write(end_of_job)
        assert await platform.store.write(end_of_job) == first
        await eventually(lambda: bool(there.got))
        message = verify(secret, there.got[0].headers, there.got[0].body)
        assert (message["type"], message["data"]) == ("job.ended", {"job": "job_1"})
        await eventually(lambda: len(there.got) == 1)
        shown = (await hooks.client.get("/v1/webhooks/once/deliveries")).json()["deliveries"]
        assert [(one["message_id"], one["id"]) for one in shown] == [("job_1.ended", first)]


async def test_without_its_own_secret_it_is_signed_with_the_accounts_for_one_shots(
    hooks: Served,
) -> None:
    platform = hooks.platform
    secret = (await hooks.client.post("/v1/webhooks/once/rotate-secret", {})).json()["secret"]
    async with receiver() as there:
        wanted = {"account": "owner", "kind": "job.ended", "url": there.url, "payload": {}, "id": "x"}
        now = platform.clock.now()
        await platform.store.write(lambda conn: platform.webhooks.enqueue(conn, **wanted, now=now))
        await eventually(lambda: bool(there.got))
        assert verify(secret, there.got[0].headers, there.got[0].body)["type"] == "job.ended"
    assert (await hooks.client.get("/v1/webhooks")).json() == {"webhooks": []}


@flow("listUsageSegments")
async def test_usage_is_told_by_webhook_and_pulled_by_cursor(tmp_path: Path, settings: Settings) -> None:
    changes = {"webhook_allow_private": True, "charging": True}
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with receiver() as there, serving(settings.model_copy(update=changes), backends) as served:
        await webhook(served, there, kinds=["usage.segment"], all_accounts=True)
        stranger = await served.stranger()
        await served.client.post("/v1/accounts/stranger/adjust", {"sats": 10_000, "id": "a", "reason": "r"})
        made = (await stranger.post("/v1/sandboxes", {})).json()
        await asyncio.sleep(0.05)
        await stranger.delete(f"/v1/sandboxes/{made['id']}")
        await eventually(lambda: bool(there.got))
        data = json.loads(there.got[0].body)["data"]
        assert (data["account"], data["subject"], data["use"]) == ("stranger", made["id"], "running")
        page = (await served.client.get("/v1/usage/segments?all_accounts=true")).json()
        assert page["segments"][0]["id"] == data["id"]
        rest = await served.client.get(f"/v1/usage/segments?all_accounts=true&after={page['next_after']}")
        assert rest.json() == {"segments": [], "next_after": page["next_after"]}
        table = await stranger.get("/v1/usage/segments?format=csv")
        assert (table.text.splitlines()[1].split(",")[2], table.headers["x-next-after"]) == ("stranger", "1")
        assert (await stranger.get("/v1/usage/segments?all_accounts=true")).status_code == 403
