"""Flow 1 of the paper, discovery: an agent that knows an address finds the rest, and changes nothing by it.

The scripted agent (`tests/support/reading_agent.py`) takes each address, header and body from the text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection, func, select

from sandboxer.observe.events import events
from sandboxer.settings import Settings
from sandboxer.wire.operations.table import OPERATIONS
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.support import reading_agent
from tests.support.chains.evm import evm
from tests.support.flows import Charging
from tests.support.http.real import IMAGES, on_real_walls, why_not
from tests.support.http.served import Served
from tests.support.http.x402 import shop
from tests.support.reading_agent import ReadingAgent

__all__ = ["evm"]
DOCUMENTS = ("/.well-known/sandboxer.json", "/llms.txt", "/openapi.json")


@pytest.fixture
async def selling(evm: Anvil, tmp_path: Path) -> AsyncIterator[Served]:
    async with shop(evm, tmp_path) as running:
        yield running


async def text_of(served: Served) -> str:
    """What it serves, with the port that the test drew."""
    return (await served.client.http.get("/llms.txt")).text.replace(served.platform.settings.url, served.url)


async def test_an_agent_with_a_wallet_and_the_text_pays_creates_and_runs(selling: Served, evm: Anvil) -> None:
    wallet = evm.new_wallet(5_000_000)
    async with httpx.AsyncClient() as http:
        agent = ReadingAgent(http, wallet)
        await agent.follow(await text_of(selling))
    assert (agent.kept["output"], agent.kept["exit_code"]) == ("hello\n", 0)
    assert agent.statuses[0] == 201
    assert evm.balance(address_of(wallet)) < 5_000_000
    assert selling.backend.boxes == {}


async def test_an_agent_with_a_key_and_the_text_runs_in_a_real_sandbox(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    settings = Settings(
        state_dir=tmp_path / "state", host="127.0.0.1", port=0, images_dir=IMAGES, pool_size_mb=1500
    )
    async with on_real_walls(settings) as real, httpx.AsyncClient() as http:
        key = real.client.credentials
        agent = ReadingAgent(http, kept={"public_key": key.public_key, "secret_key": key.secret_key})
        await agent.follow(await text_of(real))
    assert (agent.kept["output"], agent.kept["exit_code"]) == ("hello\n", 0)


def test_the_agent_knows_no_path_of_the_platform() -> None:
    source = inspect.getsource(reading_agent)
    words = {word for one in OPERATIONS for word in re.findall(r"/[a-z0-9_.-]{2,}", one.path)}
    assert [word for word in words if word in source] == []


async def test_what_is_found_is_for_everybody_can_be_kept_and_changes_nothing(selling: Served) -> None:
    before = await selling.platform.store.read(_events)
    async with httpx.AsyncClient(base_url=selling.url, timeout=30) as http:
        for path in DOCUMENTS:
            answer = await http.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["cache-control"] == "public, max-age=300", path
        found = (await http.get(DOCUMENTS[0])).json()
        for name, address in found["links"].items():
            if name not in ("sandboxes", "execute", "mcp"):
                shown = address.replace(selling.platform.settings.url, selling.url)
                assert (await http.get(shown)).status_code == 200, name
    assert (found["is_charged"], found["takes_strangers"]) == (True, True)
    assert await selling.platform.store.read(_events) == before


def _events(conn: Connection) -> int:
    return conn.execute(select(func.count()).select_from(events)).scalar_one()


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(1)
