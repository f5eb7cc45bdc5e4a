"""Creates that race on connections of their own, with no lock but the rows': never more than the bucket."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from sandboxer.accounts import records as accounts
from sandboxer.accounts.caps import Caps
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.kernel.values import new_id
from sandboxer.money.buckets import credit, load_bucket
from sandboxer.money.metering import open_holds
from sandboxer.money.pricing import pricing_from_json
from sandboxer.money.verification import verify
from sandboxer.sandboxes import requests as planning
from sandboxer.sandboxes.charging import Charging
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import load_profiles
from sandboxer.sandboxes.records import rows
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.settings import Settings
from sandboxer.store.databases import parse_url
from tests.support.charging import RATES
from tests.support.money import NOW, THREADS, in_threads, persistently
from tests.support.sandboxes import ALICE
from tests.support.schemas import PostgresDatabases

CHARGING = Charging(pricing=pricing_from_json({"rates": RATES}))
PROFILE = load_profiles(Settings().profiles_dir).get("profile.agent-dev")


@pytest.fixture
def engine(postgres_databases: PostgresDatabases) -> Engine:
    url = postgres_databases.url(postgres_databases.take())
    return create_engine(parse_url(url), poolclass=NullPool)


def test_creates_racing_for_one_bucket_never_overspend(engine: Engine) -> None:
    def fund(conn: Connection) -> None:
        accounts.ensure(conn, "alice", actor="test", now=NOW)
        accounts.set_caps(conn, "alice", Caps(), actor="test", reason="test", now=NOW)
        credit(conn, "alice", 1500, id="first", reason="test", now=NOW)

    persistently(engine, fund)
    gate = threading.Barrier(THREADS)

    def create() -> bool:
        asked = planning.plan(CreateRequest(), PROFILE, ALICE, sandbox_id=new_id("sbx"), now=NOW)

        def write(conn: Connection) -> None:
            admitted = CHARGING.admit(conn, asked, now=NOW)
            placed = replace(admitted, state=State.PROVISIONING, version=1)
            rows.insert(conn, placed)
            CHARGING.apply(conn, None, placed, now=NOW, at=None)

        gate.wait()
        try:
            persistently(engine, write)
        except InsufficientCredit:
            return False
        return True

    made = in_threads([create] * THREADS)
    # Each holds ten minutes at a sat a second: two whole slices, and one of what is left.
    assert sum(bool(one) for one in made) == 3
    with engine.begin() as conn:
        assert sorted(hold.sats for hold in open_holds(conn, "alice")) == [300, 600, 600]
        assert load_bucket(conn, "alice").available == 0
        assert verify(conn).is_whole
