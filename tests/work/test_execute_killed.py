"""A server killed with -9 in the middle of a run: who repeats it with its key neither runs nor pays twice."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.jobs import client, kill, small, until
from tests.support.platforms import (
    Up,
    end_everything,
    free_port,
    start_server,
    why_not_real,
)

CODE = "import time; time.sleep(600)"


def tenant(up: Up) -> tuple[str, str]:
    with client(up) as owner:
        key = owner.keys.create("k", "team")
        owner.operator.adjust("team", 10_000, id="first", reason="welcome")
    return key.public_key, key.secret_key


def run(up: Up, key: tuple[str, str]) -> None:
    with Sandboxer(url=up.url, public_key=key[0], secret_key=key[1]) as platform:
        platform.code.run(CODE, language="python", idempotency_key="once", **small(ttl_s=600))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_after_a_kill_a_repeated_run_is_told_so_and_is_neither_run_nor_paid_again(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    port, state_dir = free_port(), tmp_path / "state"
    up, server = start_server(state_dir, port, pool_mb=512)

    def first(key: tuple[str, str]) -> None:
        with suppress(SdkError):
            run(up, key)

    try:
        key = tenant(up)
        waiting = threading.Thread(target=first, args=(key,))
        with client(up) as owner:
            waiting.start()
            until(lambda: [one.state for one in owner.list()] == ["active"])
            sandbox_id = next(iter(owner.list())).id
        kill(server)
        up, server = start_server(state_dir, port, pool_mb=512)
        waiting.join(30)
        with client(up) as owner:
            until(lambda: not list(owner.list()))
            paid = owner.operator.account("team").money
            for _ in range(2):
                with pytest.raises(ApiError) as refused:
                    run(up, key)
                assert (refused.value.status, refused.value.reason) == (409, "cut_short")
                assert refused.value.problem["sandbox_id"] == sandbox_id
            assert [one.id for one in owner.list(state="destroyed")] == [sandbox_id]
            assert owner.operator.account("team").money == paid
            assert owner.operator.verify_ledger().is_whole
    finally:
        end_everything(up, server)
