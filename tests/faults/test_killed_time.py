"""What a customer pays when a real server is killed with SIGKILL, its host starts again, its database is put
back, or somebody sets the clock.

The server is `sandboxer up` on a real database and real time. Its sandboxes are the shipped fake's, on a host
that outlives it; the host's boot and its wall clock are told by the test. All charges are exact to a second
(of a sandbox that died unseen: from the last sign of life, for which the test waits).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sandboxer.edges.cli.main import run
from sandboxer.money.heartbeat import read_beat
from sandboxer.sdk.credentials import EMPTY_SHA256, Credentials, new_nonce, signed_headers
from sandboxer.sdk.sync.client import Sandboxer
from tests.crash import books
from tests.crash.charged_server import RATES, Round, Server, Servers, forking_servers
from tests.crash.lasting_host import Held, read_host, write_host
from tests.crash.scripted_clocks import set_wall, start_host_again
from tests.support.platforms import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FUNDS, SATS_PER_S = 1_000_000, 20
# Nothing but running costs anything, so that sats are seconds.
ONLY_RUNNING = {**dict.fromkeys(RATES, 0), "running_msats": SATS_PER_S * 1000}
HOUR_S = 3600
# Hosts that start again are behind the truth by this before, and not after: callers sign with the truth.
DOWN_S = 44
# What a charge may differ from what was lived, beyond the time that a create, a look or a kill took.
EXACT_S = 1.0


@dataclass
class Lived:
    """The life of a sandbox as its customer saw it: at least and at most so long."""

    id: str
    asked_at: float
    began_at: float
    # Between these.
    ended_after: float | None = None
    ended_by: float = 0

    def check(self, spent_sats: int) -> None:
        assert self.ended_after is not None
        spent_s = spent_sats / SATS_PER_S
        least, most = self.ended_after - self.began_at, self.ended_by - self.asked_at
        assert least - EXACT_S <= spent_s <= most + EXACT_S, (least, spent_s, most)


@dataclass
class Machine:
    servers: Servers
    folder: Path
    database: str
    state_dir: Path
    customer: Credentials | None = None

    @property
    def host_file(self) -> Path:
        return self.folder / "host"

    @property
    def clocks(self) -> Path:
        return self.folder / "clocks"

    @contextmanager
    def server(self) -> Iterator[tuple[Server, Sandboxer]]:
        """With who pays; it dies by SIGKILL."""
        plan = Round(
            str(self.state_dir),
            str(self.host_file),
            free_port(),
            self.database,
            settings={"PRICING": json.dumps({"rates": ONLY_RUNNING})},
            clocks_file=str(self.clocks),
        )
        url = f"http://127.0.0.1:{plan.port}"
        with self.servers.serving(plan) as server:
            assert server.is_ready(plan)
            if self.customer is None:
                self.customer = self._open_account(url)
            key = self.customer
            with Sandboxer(url=url, public_key=key.public_key, secret_key=key.secret_key) as client:
                yield server, client

    def _open_account(self, url: str) -> Credentials:
        with Sandboxer(owner_file=self.state_dir / "owner.json", url=url) as owner:
            owner.operator.create_account(id="alice", name="alice", reason="a test")
            owner.operator.adjust("alice", FUNDS, id="first", reason="a test")
            key = owner.keys.create("alice", "alice")
        return Credentials(key.public_key, key.secret_key)

    def wait_for_sign_of_life(self) -> float:
        """The next one that the server writes down; a moment shortly before it."""
        before, unseen_at = books.read(self.database, read_beat), time.monotonic()
        deadline = time.monotonic() + 30
        while True:
            looked_at = time.monotonic()
            if books.read(self.database, read_beat) != before:
                return unseen_at
            unseen_at = looked_at
            assert time.monotonic() < deadline, "no sign of life"
            time.sleep(0.02)

    def kill_after_sign_of_life(self, server: Server, life: Lived) -> None:
        life.ended_after = self.wait_for_sign_of_life()
        server.kill()
        life.ended_by = time.monotonic()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with forking_servers() as forked:
        yield forked


@pytest.fixture
def machine(servers: Servers, tmp_path: Path, database_url: str) -> Machine:
    return Machine(servers, tmp_path, database_url, tmp_path / "state")


def born(client: Sandboxer) -> Lived:
    asked = time.monotonic()
    sandbox = client.create(resources={"disk_mb": 64, "memory_mb": 64}, ttl="4h")
    return Lived(sandbox.id, asked, time.monotonic())


def end(client: Sandboxer, life: Lived) -> None:
    """It is destroyed; what it cost is what it lived, and what its account lacks."""
    asked_at = time.monotonic()
    spent = client.sandbox(life.id).destroy().spent_sats
    assert spent is not None
    if life.ended_after is None:
        life.ended_after, life.ended_by = asked_at, time.monotonic()
    life.check(spent)
    money = client.account.me().money
    # What it cost is told rounded up; the ledger takes whole sats.
    assert (FUNDS - money.balance in (spent, spent - 1), money.debt) == (True, 0), (money, spent)


def test_a_sandbox_that_died_with_its_host_pays_for_what_it_lived(machine: Machine) -> None:
    set_wall(machine.clocks, -DOWN_S)
    with machine.server() as (server, client):
        life = born(client)
        machine.wait_for_sign_of_life()
        machine.kill_after_sign_of_life(server, life)
    held = read_host(machine.host_file)
    held.reboot()
    write_host(machine.host_file, held)
    start_host_again(machine.clocks, takes_s=DOWN_S)
    with machine.server() as (_, client):
        found = client.get(life.id).info
        assert (found.state, found.reason) == ("stopped", "host_rebooted")
        end(client, life)


def test_a_sandbox_that_died_beside_a_killed_server_pays_for_what_it_lived(machine: Machine) -> None:
    with machine.server() as (server, client):
        life = born(client)
        machine.kill_after_sign_of_life(server, life)
    held = read_host(machine.host_file)
    held.lose(life.id)
    write_host(machine.host_file, held)
    # Being away is the fault.
    time.sleep(4)
    with machine.server() as (_, client):
        assert client.get(life.id).info.state == "failed"
        end(client, life)


def test_a_sandbox_that_outlived_its_server_pays_for_its_whole_life_once(machine: Machine) -> None:
    with machine.server() as (server, client):
        life = born(client)
        server.kill()
    for _ in range(2):
        with machine.server() as (server, client):
            assert client.get(life.id).info.state == "ready"
            server.kill()
    with machine.server() as (_, client):
        end(client, life)


def test_a_database_put_back_on_another_machine_charges_until_the_backup(
    servers: Servers, tmp_path: Path
) -> None:
    first = Machine(servers, tmp_path, f"sqlite:///{tmp_path}/state/sandboxer.db", tmp_path / "state")
    saved = tmp_path / "saved.tar.gz"
    set_wall(first.clocks, -DOWN_S)
    with first.server() as (server, client):
        life = born(client)
        life.ended_after = first.wait_for_sign_of_life()
        assert run(["backup", str(saved), "--state-dir", str(first.state_dir)]) == 0
        life.ended_by = time.monotonic()
        # It lives on, and pays for that in a database which is then lost.
        first.wait_for_sign_of_life()
        server.kill()
    write_host(first.host_file, Held())
    start_host_again(first.clocks, takes_s=DOWN_S)
    other = tmp_path / "other"
    other.mkdir()
    assert run(["restore", str(saved), "--state-dir", str(other)]) == 0
    second = Machine(servers, tmp_path, f"sqlite:///{other}/sandboxer.db", other, first.customer)
    with second.server() as (_, client):
        assert client.get(life.id).info.state == "failed"
        end(client, life)


def test_a_clock_set_forward_and_back_under_kills_charges_nobody_the_hour(machine: Machine) -> None:
    with machine.server() as (server, client):
        life = born(client)
        set_wall(machine.clocks, HOUR_S)
        until_clock_is(client, "failing")
        blamed_on_us(client)
        server.kill()
    # It starts with the wrong clock, and ends with it.
    with machine.server() as (server, client):
        until_clock_is(client, "failing")
        assert client.get(life.id).info.state == "ready"
        blamed_on_us(client)
        server.kill()
    set_wall(machine.clocks, 0)
    with machine.server() as (_, client):
        until_clock_is(client, "ok")
        set_wall(machine.clocks, -HOUR_S)
        until_clock_is(client, "failing")
        set_wall(machine.clocks, 0)
        until_clock_is(client, "ok")
        end(client, life)


def until_clock_is(client: Sandboxer, wanted: str) -> None:
    """While it is awaited, a caller whose clock is right is served."""
    deadline = time.monotonic() + 20
    while httpx.get(f"{client.credentials.url}/health", trust_env=False).json()["checks"]["clock"] != wanted:
        assert time.monotonic() < deadline, f"the clock is never {wanted}"
        client.account.me()


def blamed_on_us(client: Sandboxer) -> None:
    """Who signs with the time of our wall clock, wrong as it is, is not told that his clock is wrong."""
    at = int(time.time()) + HOUR_S
    key = client.credentials
    signed = signed_headers(key, "GET", "/v1/accounts/me", EMPTY_SHA256, timestamp=at, nonce=new_nonce())
    answer = httpx.get(f"{key.url}/v1/accounts/me", headers=dict(signed), trust_env=False)
    assert (answer.status_code, answer.json()["reason"]) == (503, "server_clock")
