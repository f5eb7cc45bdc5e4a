"""Records of what is over go when their time has passed, in steps, and nothing else goes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, func, select

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from sandboxer.work import retention
from sandboxer.work.jobs.records import jobs
from sandboxer.work.services.records import services
from sandboxer.work.sessions.records import sessions
from tests.support.http.execute import HELLO
from tests.support.http.served import Served, serving


async def _counts(served: Served) -> list[int]:
    def count(conn: Any, table: Table) -> int:
        return int(conn.execute(select(func.count()).select_from(table)).scalar_one())

    return [
        await served.platform.store.read(lambda conn, table=table: count(conn, table))  # type: ignore[misc]
        for table in (jobs, sessions, services)
    ]


async def _two_of_each(served: Served) -> None:
    """Of jobs and services one is over and one is not, or could be seen not to be."""
    client = served.client
    for _ in range(3):
        job = (await client.post("/v1/execute/async", {"language": "bash", "code": "true"})).json()["id"]
        assert (await client.get(f"/v1/jobs/{job}?wait_s=20")).json()["state"] == "finished"
    for name in ("a", "b", "c", "stays"):
        made = await client.post("/v1/services", {**HELLO, "name": name})
        assert made.status_code == 201, made.text
        if name != "stays":
            assert (await client.delete(f"/v1/services/{name}")).status_code == 200


async def test_records_of_what_is_over_go_after_their_time_a_few_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    settings = Settings(
        state_dir=tmp_path / "state", host="127.0.0.1", port=0, charging=False, limit_bucket_only=10_000
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        await _two_of_each(served)
        assert await _counts(served) == [3, 0, 4]
        old = retention.kept(jobs_for=settings.job_policy.retention, records_for=settings.records_kept_for)
        now, store = served.platform.clock.now(), served.platform.store
        assert await retention.remove_old(store, now, old) == 0
        assert await retention.remove_old(store, now + timedelta(days=8), old) == 3
        assert await _counts(served) == [0, 0, 4]
        assert await retention.remove_old(store, now + timedelta(days=31), old) == 3
        assert await _counts(served) == [0, 0, 1]
        listed = (await served.client.get("/v1/services")).json()["services"]
        assert [one["name"] for one in listed] == ["stays"]
