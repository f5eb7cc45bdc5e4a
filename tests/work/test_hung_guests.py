"""A guest that never answers: every kind of call ends with a typed error, and nobody else is kept waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandboxer.backends import limited as limits
from sandboxer.backends.guest import Relays
from sandboxer.backends.limited import CallLimits, limited
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.backends.scripted.box import ScriptedFiles, ScriptedGuest
from sandboxer.kernel.errors import BackendLost
from sandboxer.settings import Settings
from tests.support.http.served import Served, serving, settings  # noqa: F401

QUICK = CallLimits(ask_s=0.2, connect_s=0.2, piece_s=0.2, tree_s=0.2)


async def never(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


async def never_a_piece(*_: object, **__: object) -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def takes_one_chunk(_: object, path: str, chunks: AsyncIterator[bytes], **__: object) -> Any:
    await anext(chunks)
    await asyncio.Event().wait()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMITS", QUICK)
    for name in ("run", "attach", "processes", "forget", "connect", "ping"):
        monkeypatch.setattr(ScriptedGuest, name, never)
    for name in ("stat", "list_page", "mkdir", "move", "remove"):
        monkeypatch.setattr(ScriptedFiles, name, never)
    monkeypatch.setattr(ScriptedFiles, "write", takes_one_chunk)
    for name in ("read", "list"):
        monkeypatch.setattr(ScriptedFiles, name, never_a_piece)


async def test_no_request_waits_for_a_guest_that_never_answers(
    settings: Settings,
    quick: None,
) -> None:
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        path = await served.sandbox()
        for method, target, body in (
            ("POST", "/exec", {"command": "true"}),
            ("POST", "/processes", {"argv": ["true"]}),
            ("GET", "/processes", None),
            ("GET", "/files?path=/", None),
            ("GET", "/files/content?path=/a", None),
            ("POST", "/files/mkdir", {"path": "/a"}),
            ("POST", "/files/remove", {"path": "/a"}),
        ):
            answer = await asyncio.wait_for(served.client.send(method, path + target, body=body), 20)
            assert (answer.status_code, answer.json()["code"]) == (503, "backend_lost"), (target, answer.text)
        put = await served.client.send("PUT", f"{path}/files/content?path=%2Fa", content=b"x" * 10)
        assert (put.status_code, put.json()["code"]) == (503, "backend_lost"), put.text
        port = await served.client.get(f"{path}/ports/3000/")
        assert port.status_code in (502, 503), port.text
        session = await served.client.post(
            "/v1/sessions", {"language": "python", "sandbox_id": path.rsplit("/", 1)[1]}
        )
        assert (session.status_code, session.json()["code"]) == (503, "backend_lost"), session.text
        run = await served.client.post("/v1/execute", {"language": "bash", "code": "true"})
        assert (run.status_code, run.json()["code"]) == (503, "backend_lost"), run.text
        assert (await served.client.delete(path)).status_code == 200


async def test_only_the_guest_s_own_time_counts_and_what_it_can_do_it_still_can(served_guest: Any) -> None:
    guest = limited(served_guest, QUICK)
    assert isinstance(guest, Relays)

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(3):
            await asyncio.sleep(0.15)
            yield b"x"

    assert (await guest.files.write("/tmp/slow", slow())).size == 3
    served_guest.connect = never
    with pytest.raises(BackendLost, match="connect"):
        await guest.connect(80)


async def test_a_page_of_a_listing_is_waited_for_as_long_as_a_piece_of_one(served_guest: Any) -> None:
    """It had the ten minutes of what changes a whole tree."""
    guest = limited(served_guest, CallLimits(piece_s=0.2))
    served_guest.files.list_page = never
    with pytest.raises(BackendLost, match="list"):
        await asyncio.wait_for(guest.files.list_page("/", limit=10), 10)


@pytest.fixture
async def served_guest(settings: Settings) -> AsyncIterator[Any]:
    backend = Scripted(name="ext.namespaces")
    async with serving(settings, {"ext.namespaces": backend}) as served:
        yield ScriptedGuest(next(iter([backend.boxes[(await served.sandbox()).rsplit("/", 1)[1]]])))
