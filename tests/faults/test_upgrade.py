"""What lives on a platform survives the upgrade of its server: made before, used after.

The database of then is older than the first step of the migrations: it passes through a version between.

The older platform is a checkout of its commit with its own guest programs, so its sandboxes are real ones
with the supervisor and the walls of that day.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from bench.against import CHECKOUT, other_tree
from sandboxer.sdk.sync.client import Sandboxer
from tests.faults.living import (
    CHILD_SATS,
    SAID,
    SATS,
    SERVED,
    Made,
    as_key,
    as_owner,
    ask_service,
    checksum,
    make,
    output_so_far,
    segments_of,
    within,
    words_in_files,
    words_in_tables,
)
from tests.faults.platforms import Served, served
from tests.support.crash import kill_everything
from tests.support.platforms import IMAGES, ROOT, free_port, why_not_real
from tests.support.real_backend import state_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# The last one before sandboxes had their own /dev, stdin was acknowledged and environments were sealed.
BEFORE = "035c236"
# Brings its database to the baseline of today.
BETWEEN = "b8d7faf"
DOWN_AT_MOST_S = 90.0
SETTINGS = {
    "SANDBOXER_POOL_SIZE_MB": "2000",
    # So that a second costs a sat and more.
    "SANDBOXER_PRICING": json.dumps({"rates": {"running_msats": 2000}}),
}


@pytest.fixture(scope="module")
def older() -> Iterator[Path]:
    yield from _tree(BEFORE)


@pytest.fixture(scope="module")
def between() -> Iterator[Path]:
    yield from _tree(BETWEEN)


def _tree(revision: str) -> Iterator[Path]:
    if why := why_not_real():
        pytest.skip(why)
    known = subprocess.run(
        ["git", "-C", str(CHECKOUT), "cat-file", "-e", f"{revision}^{{commit}}"],
        capture_output=True,
        check=False,
    )
    if known.returncode:
        pytest.skip(f"commit {revision} is not in this clone (git fetch --unshallow brings it)")
    with other_tree(revision) as tree:
        yield tree


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_lives_is_used_charged_and_removed_after_an_upgrade(
    older: Path, between: Path, end: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with state_folder() as state:
        try:
            settings = SETTINGS | {"SANDBOXER_PROXY_LISTEN": f"127.0.0.1:{free_port()}"}
            with served(state, log=log, more=settings, is_real=True, source=older) as before:
                made = make(before)
                cli("backup", str(tmp_path / "old.tar.gz"), "--state-dir", str(state), source=older)
                if end == "stopped":
                    before.stop(60)
                else:
                    before.process.kill()
                    before.process.wait()
            _is_refused_as_older(state)
            _pass_through(between, state, log, settings)
            with served(state, log=log, more=settings, is_real=True) as now:
                _is_used(now, made)
                _is_behind_older_walls(state, made)
                _is_sealed(now, made)
                cli("backup", str(tmp_path / "new.tar.gz"), "--state-dir", str(state))
                _is_restored(tmp_path / "old.tar.gz", tmp_path / "old", made, by=between)
                _is_restored(tmp_path / "new.tar.gz", tmp_path / "new", made)
                _goes_on_after_a_restore_elsewhere(now, made)
                _is_charged_while_it_lives(now, made)
                _is_removed(now, made)
                _is_charged_to_the_sat(now, made)
                now.stop(60)
        finally:
            kill_everything(state)


def _is_refused_as_older(state: Path) -> None:
    refused = run_cli("up", "--state-dir", str(state), "--port", str(free_port()))
    assert refused.returncode != 0
    text = " ".join((refused.stdout + refused.stderr).split())
    assert "older than this program can bring forward" in text


def _pass_through(between: Path, state: Path, log: Path, settings: dict[str, str]) -> None:
    with served(state, log=log, more=settings, is_real=True, source=between) as passing:
        passing.stop(60)


def _is_used(now: Served, made: Made) -> None:
    with as_key(now, made.agent) as client:
        plain = client.sandbox(made.plain)
        assert plain.exec("cat /root/file /kept/file").stdout == "preciouson the volume"
        _reads_and_writes(client, made)
        _takes_stdin(client, made)
        assert client.sandbox(made.with_env).exec("echo $WORD").stdout == f"{SAID}\n"
        frozen = client.sandbox(made.frozen)
        assert frozen.refresh().state == "frozen"
        frozen.thaw()
        assert frozen.exec("cat /root/file").stdout == "frozen\n"
        assert plain.freeze().state == "frozen"
        assert plain.thaw().state in ("ready", "active")
        stopped = client.sandbox(made.stopped)
        assert stopped.refresh().state == "stopped"
        stopped.resume()
        assert stopped.exec("cat /root/file; echo $WORD").stdout == f"stopped\n{SAID}\n"
        session = client.sessions.get(made.session)
        assert session.run("print(x)").stdout == "42\n"
        session.freeze()
        session.thaw()
        assert session.run("print(x + 1)").stdout == "43\n"
        assert ask_service(now, client) == SERVED
    with as_key(now, made.child) as child:
        assert child.sandbox(made.childs_own).exec("echo on").stdout == "on\n"


def _reads_and_writes(client: Sandboxer, made: Made) -> None:
    plain = client.sandbox(made.plain)
    data = os.urandom(3_000_000)
    plain.files.write("/root/big", data)
    assert checksum(plain.files.read("/root/big")) == checksum(data)
    assert plain.exec("sha256sum < /root/big").stdout.split()[0] == checksum(data)
    plain.exec("mkdir /root/many; cd /root/many; for n in $(seq 1500); do : > $n; done")
    assert len(list(plain.files.list("/root/many"))) == 1500


def _takes_stdin(client: Sandboxer, made: Made) -> None:
    """Of a process that the older server started, and of a new one behind the older supervisor."""
    plain = client.sandbox(made.plain)
    plain.processes.write_stdin(made.process, b"after\n")
    assert output_so_far(client, made, b"got after") == b"got before\ngot after\n"
    data = os.urandom(240_000)
    late = plain.exec("sleep 1; sha256sum", stdin=data)
    assert late.stdout.split()[0] == checksum(data)


def _is_behind_older_walls(state: Path, made: Made) -> None:
    answer = json.loads(cli("doctor", "--json", "--state-dir", str(state)))
    behind = next(lack for lack in answer["lacks"] if lack["what"] == "the newest walls")
    for sandbox_id in made.running:
        assert sandbox_id in behind["why"]
    # It was resumed by this server, behind new walls.
    assert made.stopped not in behind["why"]


def _is_sealed(now: Served, made: Made) -> None:
    for word in (SAID, SERVED):
        assert words_in_tables(now.up.state_dir, word) == []
        within(30, partial(_is_gone_from_files, now.up.state_dir, word))
    with as_key(now, made.agent) as client:
        assert client.services.get("greeter").env["GREETING"] == SERVED


def _is_gone_from_files(state: Path, word: str) -> bool | None:
    return None if words_in_files(state, word) else True


def _is_restored(archive: Path, state: Path, made: Made, *, by: Path | None = None) -> None:
    """Into a folder of its own, and served there: the books are whole, and what was sealed opens."""
    cli("restore", str(archive), "--state-dir", str(state), source=by)
    if by is not None:
        _pass_through(by, state, state / "log", SETTINGS | {"SANDBOXER_PROXY_LISTEN": "none"})
    assert json.loads(cli("ledger", "verify", "--offline", "--json", "--state-dir", str(state)))["is_whole"]
    try:
        with (
            served(
                state, log=state / "log", more=SETTINGS | {"SANDBOXER_PROXY_LISTEN": "none"}, is_real=True
            ) as again,
            as_owner(again) as owner,
            as_key(again, made.agent) as client,
        ):
            assert owner.operator.verify_ledger().faults == []
            assert client.services.get("greeter").env["GREETING"] == SERVED
            again.stop(60)
    finally:
        kill_everything(state)


def _goes_on_after_a_restore_elsewhere(now: Served, made: Made) -> None:
    with as_key(now, made.agent) as client:
        for sandbox_id in made.running - {made.childs_own}:
            assert client.sandbox(sandbox_id).exec("echo on").stdout == "on\n"
        copy = client.snapshots.clone(made.snapshot, resources={"disk_mb": 64}).sandboxes[0]
        assert client.sandbox(copy.id).exec("cat /root/file").stdout == "precious"
        newer = client.snapshots.take(made.plain)
        assert (
            client.sandbox(client.snapshots.clone(newer.id).sandboxes[0].id).exec("ls /root/big").exit_code
            == 0
        )
        assert client.volumes.get(made.volume).state == "ready"


def _is_charged_while_it_lives(now: Served, made: Made) -> None:
    """From before the upgrade to its end after it: no gap but the server's own, no overlap."""
    with as_key(now, made.agent) as client:
        client.sandbox(made.plain).destroy()
        parts = segments_of(client, made.plain)
        assert parts[-1].use == "running"
        assert all(one.ended_at <= other.began_at for one, other in pairwise(parts))
        lived = (parts[-1].ended_at - parts[0].began_at).total_seconds()
        # The rest is time in which no server ran.
        assert lived - DOWN_AT_MOST_S < round(sum(one.seconds for one in parts), 6) <= lived


def _is_removed(now: Served, made: Made) -> None:
    with as_key(now, made.agent) as client, as_owner(now) as owner:
        client.sessions.get(made.session).end()
        client.services.remove("greeter")
        for one in [*owner.list(limit=500)]:
            owner.sandbox(one.id).destroy()
        for snapshot in [*client.snapshots.list()]:
            client.snapshots.remove(snapshot.id)
        client.volumes.remove(made.volume)
        within(60, lambda: True if not [*owner.list(limit=500)] else None)
        assert owner.host.stale() == []


def _is_charged_to_the_sat(now: Served, made: Made) -> None:
    """Every meter has ended: the segments say the whole sum."""
    with as_key(now, made.agent) as client, as_owner(now) as owner:
        assert owner.operator.verify_ledger().faults == []
        charges = [
            one.amount for one in client.account.transfers(limit=500).transfers if one.kind == "charge"
        ]
        owed_nanosats = sum(
            one.rate_msats * ((one.ended_at - one.began_at) // timedelta(microseconds=1))
            for one in segments_of(client)
        )
        assert sum(charges) == owed_nanosats // 1_000_000_000
        assert client.account.me().money.balance == SATS - CHILD_SATS - sum(charges)


def cli(*words: str, source: Path | None = None) -> str:
    done = run_cli(*words, source=source)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def run_cli(*words: str, source: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    environment["SANDBOXER_IMAGES_DIR"] = str(IMAGES)
    environment |= {} if source is None else {"PYTHONPATH": str(source / "src")}
    return subprocess.run(
        [sys.executable, "-m", "sandboxer.edges.cli.main", *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
