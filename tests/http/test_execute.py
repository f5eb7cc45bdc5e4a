"""Code run once and jobs, over HTTP, on the scripted fake: what is answered, refused, queued, cleaned up."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.errors import NoCapacity, ProvisionFailed
from sandboxer.sdk.webhooks import verify
from sandboxer.settings import Settings
from sandboxer.work.retention import kept, remove_old
from tests.observe.webhooks.receivers import receiver
from tests.support.http.execute import look, printed, run, submit, until
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually, serving
from tests.support.http.signed import Client, Credentials

ENDED = {"finished", "failed", "cancelled", "timed_out", "lost"}
FOREVER: dict[str, object] = {"language": "bash", "code": "echo begun\nsleep 100000"}


def bash(code: str, **more: object) -> dict[str, object]:
    return {"language": "bash", "code": code, **more}


async def nothing_left(served: Served) -> None:
    await eventually(lambda: not served.backend.boxes)
    # The record follows the act.
    await eventually(lambda: not list(served.platform.sandboxes.repository.living()))
    assert (await served.client.get("/v1/sandboxes")).json()["sandboxes"] == []


@flow("executeCode")
async def test_a_program_is_run_and_its_sandbox_is_gone(served: Served) -> None:
    done = await run(
        served.client,
        bash(
            "echo out; echo err >&2; cat note.txt > copy.txt; exit 3",
            files=[{"name": "note.txt", "content": "aGV5", "encoding": "base64"}],
            artifacts=["*", "missing"],
        ),
    )
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (3, "out\n", "err\n")
    assert (done["language"], done["timed_out"], done["reason"], done["sats"]) == ("bash", False, None, 0)
    assert [(one["name"], one["content"]) for one in done["artifacts"]] == [("copy.txt", "aGV5")]
    assert done["left_out"] == [{"name": "missing", "why": "there is no such file", "size": None}]
    await nothing_left(served)


async def test_stdin_arguments_and_environment_reach_the_program(served: Served) -> None:
    done = await run(served.client, bash("cat; echo $WORD", stdin="hi\n", env={"WORD": "yes"}))
    assert done["stdout"] == "hi\nyes\n"


async def test_without_stdin_a_program_that_reads_meets_the_end_at_once(served: Served) -> None:
    assert (await run(served.client, bash("cat; echo over", ttl_s=5)))["stdout"] == "over\n"


async def test_a_stream_tells_it_as_it_happens(served: Served) -> None:
    events = [
        event async for event in served.client.events("POST", "/v1/execute", body=bash("echo a; exit 4"))
    ]
    assert [event.name for event in events] == ["placed", "began", "stdout", "done"]
    assert events[2].data["data"] == "a\n"
    assert (events[3].data["exit_code"], events[3].data["stdout"]) == (4, "a\n")
    await nothing_left(served)


async def test_who_hangs_up_takes_the_run_along(served: Served) -> None:
    request = served.client.request("POST", "/v1/execute", body=FOREVER)
    request.extensions["timeout"] = httpx.Timeout(0.5).as_dict()
    with pytest.raises(httpx.ReadTimeout):
        await served.client.http.send(request)
    await nothing_left(served)


async def test_a_warm_sandbox_is_taken_where_there_is_one(settings: Settings) -> None:
    stocked = settings.model_copy(update={"warm_pool": {"profile.agent-dev": 1}})
    async with serving(stocked, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        await eventually(lambda: served.platform.sandboxes.warm.count() == 1)
        done = await run(served.client, bash("echo hi"))
        events = (await served.client.get(f"/v1/sandboxes/{done['sandbox_id']}/events?follow=false")).text
        assert "claimed_warm" in events


async def test_the_same_key_gets_the_first_answer_again(served: Served) -> None:
    first = await served.client.post("/v1/execute", bash("echo $RANDOM"), headers={"idempotency-key": "k1"})
    again = await served.client.post("/v1/execute", bash("echo $RANDOM"), headers={"idempotency-key": "k1"})
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
    jobs = [
        (
            await served.client.post("/v1/execute/async", bash("true"), headers={"idempotency-key": "k2"})
        ).json()
        for _ in range(2)
    ]
    assert jobs[0]["id"] == jobs[1]["id"]


WRONG: list[tuple[dict[str, object], str]] = [
    ({"language": "pyhton", "code": ""}, "language"),
    ({"code": "print(1)"}, "language"),
    (bash("true", ttl_s=901), "ttl_s"),
    (bash("true", files=[{"name": "a/../b", "content": ""}]), "files.0.name"),
    (bash("true", files=[{"name": "b", "content": "?", "encoding": "base64"}]), "files.0.content"),
    (bash("true", memory_mb=10**9), "resources.memory_mb"),
    (bash("true", profile="profile.nothing"), "profile"),
]


async def test_what_is_wrong_is_named_before_anything_is_made(served: Served) -> None:
    for body, field in WRONG:
        for path in ("/v1/execute", "/v1/execute/async"):
            answer = await served.client.post(path, body)
            assert answer.status_code == 422, answer.text
            assert field in answer.text
    assert "provision" not in {method for method, _ in served.backend.calls}


async def test_an_image_that_is_not_here_is_named(served: Served) -> None:
    answer = await served.client.post("/v1/execute", {"language": "fortran", "code": "end"})
    assert answer.status_code == 422
    # The smallest image that has it.
    assert "compiled" in answer.json()["detail"]


async def test_an_unknown_image_is_refused_as_where_a_sandbox_is_made(served: Served) -> None:
    for name in ("nosuch", "img_" + "0" * 26):
        create = (await served.client.post("/v1/sandboxes", {"image": name})).json()
        for path in ("/v1/execute", "/v1/execute/async"):
            answer = await served.client.post(path, bash("true", image=name))
            assert answer.status_code == create["status"]
            for word in ("code", "detail", "next_step"):
                assert answer.json()[word] == create[word]
    assert "provision" not in {method for method, _ in served.backend.calls}


async def test_a_run_begins_from_the_image_that_it_names(served: Served) -> None:
    path = await served.sandbox()
    snapshot = (await served.client.post(f"{path}/snapshots", {})).json()["id"]
    image = (await served.client.post("/v1/images", {"snapshot": snapshot, "name": "mine"})).json()["id"]
    await served.client.delete(path)
    for named in ("mine", image, image[:20]):
        done = await run(served.client, bash("echo ran", image=named))
        record = await served.platform.sandboxes.repository.find(done["sandbox_id"])
        assert record is not None
        assert (done["stdout"], record.image, record.origin) == ("ran\n", image, image)
    job = await submit(served.client, bash("echo ran", image="mine"))
    ended = await look(served.client, job, wait_s=30)
    record = await served.platform.sandboxes.repository.find(ended["sandbox_id"])
    assert record is not None
    assert (printed(ended), record.origin) == ("ran\n", image)
    await nothing_left(served)


async def test_a_sandbox_that_goes_under_a_run_is_a_typed_error(served: Served) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(served.client.post("/v1/execute", FOREVER))
        await eventually(lambda: bool(served.backend.boxes))
        found = (await served.client.get("/v1/sandboxes")).json()["sandboxes"]
        await served.client.delete(f"/v1/sandboxes/{found[0]['id']}")
    problem = running.result().json()
    assert (running.result().status_code, problem["code"]) == (503, "backend_lost")
    assert problem["sandbox_id"] == found[0]["id"]
    assert problem["state"] in ("destroying", "destroyed")
    assert (await run(served.client, bash("echo on")))["stdout"] == "on\n"


@flow("executeLater", "getJob", "listJobs")
async def test_a_job_runs_by_itself_and_keeps_what_it_printed(served: Served) -> None:
    job_id = await submit(served.client, bash("echo hi; exit 2"))
    job = await look(served.client, job_id, wait_s=10)
    assert (job["state"], job["reason"], job["result"]["exit_code"]) == ("finished", "exited", 2)
    assert job["result"]["stdout"] == "hi\n"
    listed = (await served.client.get("/v1/jobs?state=finished&limit=1")).json()
    assert [one["id"] for one in listed["jobs"]] == [job_id]
    assert (await served.client.get("/v1/jobs?state=queued")).json()["jobs"] == []
    await nothing_left(served)


async def test_jobs_are_listed_page_by_page(served: Served) -> None:
    made = [await submit(served.client, bash("true")) for _ in range(3)]
    seen, cursor = [], ""
    while True:
        page = (await served.client.get(f"/v1/jobs?limit=2{cursor}")).json()
        seen += [one["id"] for one in page["jobs"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == made[::-1]
    assert (await served.client.get("/v1/jobs?cursor=nonsense")).status_code == 422


@flow("cancelJob")
async def test_a_running_job_shows_its_output_and_is_cancelled_with_it(served: Served) -> None:
    job_id = await submit(served.client, FOREVER)
    job = await until(served.client, job_id, lambda job: printed(job) == "begun\n")
    assert (job["state"], job["result"]["exit_code"]) == ("running", None)
    cancelled = (await served.client.delete(f"/v1/jobs/{job_id}")).json()
    assert (cancelled["state"], printed(cancelled)) == ("cancelled", "begun\n")
    assert (await served.client.delete(f"/v1/jobs/{job_id}")).json() == cancelled
    await nothing_left(served)


async def test_a_job_that_takes_too_long_is_timed_out(served: Served) -> None:
    job = await look(served.client, await submit(served.client, {**FOREVER, "ttl_s": 1}), wait_s=10)
    assert (job["state"], job["result"]["timed_out"], printed(job)) == ("timed_out", True, "begun\n")


async def test_nobody_sees_or_ends_anothers_job(served: Served) -> None:
    job_id = await submit(served.client, FOREVER)
    other = await served.stranger()
    for answer in (await other.get(f"/v1/jobs/{job_id}"), await other.delete(f"/v1/jobs/{job_id}")):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await other.get("/v1/jobs")).json()["jobs"] == []
    await served.client.delete(f"/v1/jobs/{job_id}")


async def test_the_end_is_told_to_the_url_the_caller_gave(settings: Settings) -> None:
    allowed = settings.model_copy(update={"webhook_allow_private": True})
    async with (
        receiver(lambda number: b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as there,
        serving(allowed, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served,
    ):
        secret = (await served.client.post("/v1/webhooks/once/rotate-secret", {})).json()["secret"]
        job_id = await submit(served.client, bash("exit 5", webhook_url=there.url))
        await eventually(lambda: bool(there.got))
        reported = verify(secret, there.got[0].headers, there.got[0].body)
    assert there.ids == [job_id]
    assert b'"job.finished"' in there.got[0].body
    assert b'"exit_code":5' in there.got[0].body.replace(b" ", b"")
    assert reported


async def test_a_url_no_webhook_may_go_to_is_refused_with_the_job(served: Served) -> None:
    answer = await served.client.post("/v1/execute/async", bash("true", webhook_url="http://127.0.0.1/x"))
    assert answer.status_code == 422
    assert (await served.client.get("/v1/jobs")).json()["jobs"] == []


async def cut_child(served: Served, scopes: list[str]) -> Client:
    wish = {"name": "child", "budget_sats": 0, "scopes": scopes, "depth": 0, "slots": 1}
    cut = await served.client.post("/v1/keys/delegated", wish)
    assert cut.status_code == 201, cut.text
    return served.as_(Credentials(cut.json()["public_key"], cut.json()["secret_key"]))


@pytest.fixture
def few(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs_running": 1, "jobs_queued": 2})


async def test_so_many_run_at_once_and_so_many_wait(few: Settings) -> None:
    async with serving(few, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        first = await submit(served.client, FOREVER)
        await until(served.client, first, lambda job: job["state"] == "running")
        waiting = [await submit(served.client, bash("echo later")) for _ in range(2)]
        full = await served.client.post("/v1/execute/async", bash("true"))
        assert (full.status_code, full.json()["code"], full.json()["of"]) == (429, "queue_full", "account")
        assert int(full.headers["retry-after"]) > 0
        other = await served.stranger()
        assert (await look(other, await submit(other, bash("true")), wait_s=10))["state"] == "finished"
        assert (await look(served.client, waiting[0]))["state"] == "queued"
        dropped = (await served.client.delete(f"/v1/jobs/{waiting[1]}")).json()
        assert (dropped["state"], dropped["result"]) == ("cancelled", None)
        await served.client.delete(f"/v1/jobs/{first}")
        assert printed(await look(served.client, waiting[0], wait_s=10)) == "later\n"


async def test_keys_cut_from_an_account_share_its_bounds_of_jobs(few: Settings) -> None:
    async with serving(few, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        children = [await cut_child(served, ["exec", "sandboxes:create"]) for _ in range(2)]
        first = await submit(children[0], FOREVER)
        await until(children[0], first, lambda job: job["state"] == "running")
        waiting = [await submit(child, bash("true")) for child in children]
        full = await served.client.post("/v1/execute/async", bash("true"))
        assert (full.status_code, full.json()["of"]) == (429, "account"), full.text
        other = await served.stranger()
        assert (await look(other, await submit(other, bash("true")), wait_s=10))["state"] == "finished"
        states = [
            (await look(child, job_id))["state"] for child, job_id in zip(children, waiting, strict=True)
        ]
        assert states == ["queued", "queued"]
        await children[0].delete(f"/v1/jobs/{first}")
        assert (await look(children[1], waiting[1], wait_s=10))["state"] == "finished"


async def test_what_waits_is_bounded_by_its_bytes_of_one_and_of_all(settings: Settings) -> None:
    bounds = {"jobs_running_total": 1, "jobs_queued_mb": 1, "jobs_queued_total_mb": 2}
    few = settings.model_copy(update=bounds)
    big = "true # " + "x" * 700_000
    async with serving(few, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        first = await submit(served.client, FOREVER)
        await until(served.client, first, lambda job: job["state"] == "running")
        never = await served.client.post("/v1/execute/async", bash("true", stdin="x" * 1_000_000))
        assert (never.status_code, never.json()["code"]) == (413, "too_large"), never.text
        waiting = await submit(served.client, bash(big))
        full = await served.client.post("/v1/execute/async", bash(big))
        answer = full.json()
        assert (full.status_code, answer["code"], answer["reason"], answer["of"]) == (
            429,
            "queue_full",
            "bytes",
            "account",
        )
        await submit(await served.stranger("one"), bash(big))
        crowded = await (await served.stranger("two")).post("/v1/execute/async", bash(big))
        assert (crowded.status_code, crowded.json()["of"]) == (429, "platform"), crowded.text
        await served.client.delete(f"/v1/jobs/{waiting}")
        assert await submit(served.client, bash(big))
        await served.client.delete(f"/v1/jobs/{first}")


async def test_a_full_host_puts_a_job_back_and_a_broken_one_fails_it(settings: Settings) -> None:
    full = NoCapacity(resource="disk", why="all promised")
    broken = ProvisionFailed(step="mount", why="no")
    backend = Scripted(name="ext.namespaces", fail_on={"provision": [full, None, broken]})
    async with serving(settings, {"ext.namespaces": backend}) as served:
        job_id = await submit(served.client, bash("echo hi"))
        await until(served.client, job_id, lambda job: job["reason"] == "no_capacity")
        assert printed(await look(served.client, job_id, wait_s=20)) == "hi\n"
        job = await look(served.client, await submit(served.client, bash("true")), wait_s=10)
        assert (job["state"], job["reason"]) == ("failed", "provision_failed")
        assert job["problem"]["code"] == "provision_failed"
        await eventually(lambda: not served.backend.boxes)


async def test_a_job_whose_sandbox_goes_is_lost_with_what_it_printed(served: Served) -> None:
    job_id = await submit(served.client, FOREVER)
    job = await until(served.client, job_id, lambda job: printed(job) == "begun\n")
    await served.client.delete(f"/v1/sandboxes/{job['sandbox_id']}")
    lost = await look(served.client, job_id, wait_s=10)
    assert (lost["state"], printed(lost)) == ("lost", "begun\n")
    assert lost["reason"] in ("sandbox_destroying", "sandbox_destroyed")
    assert lost["problem"]["code"] == "backend_lost"


async def test_jobs_outlive_their_server_and_are_found_again(settings: Settings) -> None:
    backend = Scripted(name="ext.namespaces")
    async with serving(settings, {"ext.namespaces": backend}) as served:
        going = await submit(served.client, bash("echo begun; sleep 2; echo done", artifacts=["x"]))
        await until(served.client, going, lambda job: printed(job) == "begun\n")
        gone = await submit(served.client, FOREVER)
        job = await until(served.client, gone, lambda job: printed(job) == "begun\n")
    await backend.teardown(job["sandbox_id"])
    async with serving(settings, {"ext.namespaces": backend}) as served:
        found = await look(served.client, going, wait_s=20)
        assert (found["state"], printed(found)) == ("finished", "begun\ndone\n")
        assert (await look(served.client, gone, wait_s=20))["state"] == "lost"
        await eventually(lambda: not served.backend.boxes)


async def test_a_run_whose_caller_went_away_is_not_run_again_for_its_key(served: Served) -> None:
    once, path = {"idempotency-key": "once"}, "/v1/execute"
    waiting = asyncio.create_task(served.client.post(path, FOREVER, headers=once))
    await eventually(lambda: bool(served.backend.boxes))
    busy = await served.client.post(path, FOREVER, headers=once)
    assert (busy.status_code, "still under way" in busy.text) == (409, True)
    waiting.cancel()
    await eventually(lambda: not served.backend.boxes)

    async def repeated() -> dict[str, Any]:
        return dict((await served.client.post(path, FOREVER, headers=once)).json())

    for _ in range(100):
        if (reported := await repeated()).get("reason") == "cut_short":
            break
        await asyncio.sleep(0.05)
    assert reported["reason"] == "cut_short", reported
    assert (await repeated())["sandbox_id"] == reported["sandbox_id"], "the second repeat hears the same"
    gone = (await served.client.get("/v1/sandboxes?state=destroyed")).json()["sandboxes"]
    assert [one["id"] for one in gone] == [reported["sandbox_id"]]


async def test_a_run_that_never_began_may_be_repeated_with_its_key(settings: Settings) -> None:
    broken = ProvisionFailed(step="mount", why="no")
    backend = Scripted(name="ext.namespaces", fail_on={"provision": [broken, None]})
    async with serving(settings, {"ext.namespaces": backend}) as served:
        once = {"idempotency-key": "once"}
        failed = await served.client.post("/v1/execute", bash("echo hi"), headers=once)
        assert failed.status_code == 503, failed.text
        done = await served.client.post("/v1/execute", bash("echo hi"), headers=once)
        assert (done.status_code, done.json()["stdout"]) == (200, "hi\n"), done.text
        again = await served.client.post("/v1/execute", bash("echo hi"), headers=once)
        assert (again.json(), again.headers["idempotent-replayed"]) == (done.json(), "true")


async def test_old_jobs_are_forgotten(served: Served) -> None:
    job_id = await submit(served.client, bash("true"))
    await look(served.client, job_id, wait_s=10)
    now = served.platform.clock.now()
    old, store = kept(jobs_for=timedelta(), records_for=timedelta(days=1)), served.platform.store
    assert await remove_old(store, now - timedelta(hours=1), old) == 0
    assert await remove_old(store, now + timedelta(hours=1), old) == 1
    assert (await served.client.get(f"/v1/jobs/{job_id}")).status_code == 404


async def test_who_has_no_credit_is_told_what_is_missing(tmp_path: Path) -> None:
    paid = Settings(state_dir=tmp_path / "state", port=0, limit_bucket_only=10_000, charging=True)
    async with serving(paid, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        poor = await served.stranger("poor")
        answer = await poor.post("/v1/execute", bash("true"))
        assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_credit")
        job = await look(poor, await submit(poor, bash("true")), wait_s=10)
        assert (job["state"], job["reason"]) == ("failed", "insufficient_credit")
        gift = {"sats": 10**6, "id": "first", "reason": "a gift"}
        given = await served.client.post("/v1/accounts/poor/adjust", gift)
        assert given.status_code < 300, given.text
        assert (await run(poor, bash("sleep 1")))["sats"] >= 1


async def test_a_delegated_key_needs_both_to_create_and_to_execute(served: Served) -> None:
    for scopes, status in ((["exec"], 403), (["sandboxes:create"], 403), (["exec", "sandboxes:create"], 200)):
        child = await cut_child(served, scopes)
        # Twice: the one slot is free again as soon as the first run was answered.
        for _ in range(2):
            assert (await child.post("/v1/execute", bash("true"))).status_code == status
