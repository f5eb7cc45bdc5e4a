"""A session goes on with the memory of its sandbox: after a stop, in each clone, and when it is restored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.http.served import Served
from tests.support.oci import serving_behind_gvisor
from tests.support.real_backend import state_folder

# `make test-slow` builds runsc first.
pytestmark = pytest.mark.slow

# A variable, a listening server, an open file.
FIRST = """
import socket
x = 42
listener = socket.create_server(("127.0.0.1", 4242))
book = open("/root/book", "a+")
book.write("begun "); book.flush()
"""


def then(word: str) -> str:
    return f"""
client = socket.create_connection(("127.0.0.1", 4242)); listener.accept()[0].close(); client.close()
book.write("{word} "); book.flush(); book.seek(0)
print(x, book.read())
"""


@pytest_asyncio.fixture
async def strong() -> AsyncIterator[Served]:
    with state_folder() as state:
        async with serving_behind_gvisor(state, "profile.strong", of="agent-dev") as running:
            yield running


async def ran(served: Served, session_id: str, code: str) -> str:
    answer = await served.client.post(f"/v1/sessions/{session_id}/cells", {"code": code})
    assert answer.status_code == 200, answer.text
    cell = answer.json()
    assert cell["status"] == "ok", cell
    return str(cell["stdout"]).strip()


async def sessions_of(served: Served, path: str) -> list[dict[str, Any]]:
    answer = await served.client.get(f"/v1/sessions?sandbox_id={path.removeprefix('/v1/sandboxes/')}")
    found: list[dict[str, Any]] = answer.json()["sessions"]
    return found


async def test_a_session_goes_on_after_a_stop_in_ten_clones_and_when_restored(strong: Served) -> None:
    client = strong.client
    path = await strong.sandbox()
    wanted = {"language": "python", "sandbox_id": path.removeprefix("/v1/sandboxes/")}
    made = await client.post("/v1/sessions", wanted)
    assert made.status_code == 201, made.text
    session = made.json()["id"]
    await ran(strong, session, FIRST)
    stopped = await client.post(f"{path}/stop?memory=true")
    assert stopped.status_code == 200, stopped.text
    resumed = await client.post(f"{path}/resume")
    assert resumed.status_code == 200, resumed.text
    assert await ran(strong, session, then("resumed")) == "42 begun resumed"

    kept = (await client.post(f"{path}/snapshots", {"memory": True})).json()
    clones = (await client.post(f"/v1/snapshots/{kept['id']}/clone", {"count": 10})).json()["sandboxes"]
    assert len(clones) == 10
    for number, one in enumerate(clones):
        (own,) = await sessions_of(strong, f"/v1/sandboxes/{one['id']}")
        assert own["id"] != session
        assert await ran(strong, own["id"], then(f"clone{number}")) == f"42 begun resumed clone{number}"
        await client.delete(f"/v1/sandboxes/{one['id']}")

    assert await ran(strong, session, "x = 43; print(x)") == "43"
    restored = await client.post(f"/v1/snapshots/{kept['id']}/restore")
    assert restored.status_code == 200, restored.text
    assert restored.json()["state"] == "ready", restored.text
    assert await ran(strong, session, then("restored")) == "42 begun resumed restored"


async def test_a_session_whose_sandbox_begins_anew_can_only_be_restarted(strong: Served) -> None:
    client = strong.client
    path = await strong.sandbox()
    wanted = {"language": "python", "sandbox_id": path.removeprefix("/v1/sandboxes/")}
    session = (await client.post("/v1/sessions", wanted)).json()["id"]
    await ran(strong, session, "x = 42")
    await client.post(f"{path}/stop")
    await client.post(f"{path}/resume")
    answer = await client.post(f"/v1/sessions/{session}/cells", {"code": "print(x)"})
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] == "session_died"
