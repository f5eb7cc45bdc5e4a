"""A whole platform whose database is paused, killed or taken over."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest

from sandboxer.sdk.errors import ApiError, Unreachable
from sandboxer.sdk.sync.client import Sandboxer
from tests.faults.clusters import Cluster
from tests.faults.platforms import served

pytestmark = pytest.mark.slow


def test_a_platform_whose_database_is_paused_says_so_and_obeys(cluster: Cluster, tmp_path: Path) -> None:
    more = {"SANDBOXER_DATABASE": cluster.url}
    with served(tmp_path / "state", log=tmp_path / "log", more=more) as platform:
        client = Sandboxer(owner_file=platform.up.owner_file, url=platform.up.url, timeout_s=60)
        client.create(idempotency_key="before")
        cluster.pause()
        began = time.monotonic()
        assert platform.health(timeout=10).status_code == 503
        assert time.monotonic() - began < 8
        with pytest.raises(ApiError) as refused:
            client.create()
        assert refused.value.status == 503
        assert time.monotonic() - began < 40
        # By now it knows: nobody waits any more.
        began = time.monotonic()
        answer = platform.health(timeout=10)
        assert (answer.status_code, answer.json()["checks"]["store"]) == (503, "failing")
        with pytest.raises(ApiError):
            client.create()
        assert time.monotonic() - began < 6
        assert platform.stop(within_s=15) < 10
        cluster.go_on()


def test_a_platform_serves_on_after_its_database_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    more = {"SANDBOXER_DATABASE": cluster.url}
    with served(tmp_path / "state", log=tmp_path / "log", more=more) as platform:
        client = Sandboxer(owner_file=platform.up.owner_file, url=platform.up.url)
        first = client.create(idempotency_key="one")
        cluster.kill()
        platform.wait_for(503)
        cluster.start()
        platform.wait_for(200)
        assert client.create(idempotency_key="one").id == first.id
        assert platform.stop(within_s=30) < 10
        assert platform.process.returncode == 0


def test_a_create_whose_commit_was_never_answered_is_not_made_twice(cluster: Cluster, tmp_path: Path) -> None:
    """The database stops at some moment of a create, and goes on when the platform has given up on it."""
    more = {"SANDBOXER_DATABASE": cluster.url}
    with served(tmp_path / "state", log=tmp_path / "log", more=more) as platform:
        client = Sandboxer(owner_file=platform.up.owner_file, url=platform.up.url, timeout_s=60)
        client.create(idempotency_key="warm-up")
        keys = [f"key-{number}" for number in range(12)]
        outcomes: dict[str, str] = {}
        refusals: list[int] = []

        def ask(key: str) -> None:
            try:
                outcomes[key] = client.create(idempotency_key=key).id
            except ApiError as error:
                refusals.append(error.status)

        asking = [threading.Thread(target=ask, args=(key,)) for key in keys]
        for thread in asking:
            thread.start()
            time.sleep(0.004)
        cluster.pause()
        platform.wait_for(503)
        for thread in asking:
            thread.join(60)
        cluster.go_on()
        platform.wait_for(200)
        made = {key: client.create(idempotency_key=key).id for key in keys}
        assert set(refusals) <= {503}
        assert all(made[key] == id_ for key, id_ in outcomes.items())
        assert len(set(made.values())) == len(keys)
        assert len(list(client.list(limit=100))) == len(keys) + 1
        platform.stop(within_s=30)


def test_a_platform_that_was_passed_over_says_so_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    more = {"SANDBOXER_DATABASE": cluster.url}
    with served(tmp_path / "first", log=tmp_path / "log.1", more=more) as first:
        owner = Sandboxer(owner_file=first.up.owner_file, url=first.up.url)
        owner.create()
        # As if it had slept through a restart of its database.
        take_over(cluster.url)
        with pytest.raises((ApiError, Unreachable)):
            owner.create()
        first.process.wait(20)
        assert first.process.returncode != 0
        assert "taken over" in (tmp_path / "log.1").read_text()


def take_over(url: str) -> None:
    with psycopg.connect(url) as conn:
        conn.execute("UPDATE server_claim SET epoch = epoch + 1, holder = 'another'")
