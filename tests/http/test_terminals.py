"""Terminals over WebSocket."""

from __future__ import annotations

import json

import pytest
import websockets
from websockets.asyncio.client import connect

from tests.support.http.flows import flow
from tests.support.http.served import Served
from tests.support.http.terminals import dial, read_until


@flow("listTerminals", "endTerminal", "openTerminal")
async def test_a_terminal_survives_its_viewer_and_is_attached_to_again(served: Served) -> None:
    path = await served.sandbox()
    async with dial(served, path, command="echo begun; cat", cols=100, rows=30) as socket:
        ready = json.loads(await socket.recv())
        assert ready["type"] == "ready"
        assert not ready["reattached"]
        await read_until(socket, b"begun")
        await socket.send(b"typed\n")
        await read_until(socket, b"typed")
        await socket.send(json.dumps({"type": "resize", "cols": 120, "rows": 40}))
    listed = (await served.client.get(f"{path}/terminals")).json()["terminals"]
    assert [(t["terminal_id"], t["running"]) for t in listed] == [(ready["terminal_id"], True)]
    async with dial(served, path, terminal_id=ready["terminal_id"]) as socket:
        again = json.loads(await socket.recv())
        assert again["reattached"]
        assert again["terminal_id"] == ready["terminal_id"]
        kept = await read_until(socket, b"typed")
        assert b"begun" in kept
    assert (await served.client.delete(f"{path}/terminals/{ready['terminal_id']}")).status_code == 204
    assert (await served.client.get(f"{path}/terminals")).json()["terminals"] == []


async def test_the_end_of_the_program_is_told_and_the_socket_closed(served: Served) -> None:
    path = await served.sandbox()
    async with dial(served, path, command="echo bye; false") as socket:
        frames = [frame async for frame in socket]
    assert socket.close_code == 1000
    words = [json.loads(frame) for frame in frames if isinstance(frame, str)]
    assert words[-1] == {"type": "exit", "exit_code": 1, "reason": None}


@pytest.mark.parametrize("text", ["{", '{"type": "dance"}', '{"type": "resize", "cols": 0, "rows": 1}', "[]"])
async def test_a_word_nobody_knows_is_a_problem_and_the_program_goes_on(served: Served, text: str) -> None:
    path = await served.sandbox()
    async with dial(served, path, command="cat") as socket:
        await socket.recv()
        await socket.send(text)
        answer = json.loads(await socket.recv())
        assert answer["type"] == "error"
        assert answer["problem"]["code"] == "invalid_request"
    assert [t["running"] for t in (await served.client.get(f"{path}/terminals")).json()["terminals"]] == [
        True
    ]


async def test_an_unsigned_upgrade_is_refused_over_http(served: Served) -> None:
    path = await served.sandbox()
    for head in ({}, served.owner.head("GET", path)):
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connect(
                served.url.replace("http", "ws") + f"{path}/terminal", additional_headers=head, proxy=None
            ):
                pass
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body)["code"] == "unauthenticated"


async def test_a_signed_upgrade_works_once(served: Served) -> None:
    path = await served.sandbox()
    where = f"{path}/terminal?command=true"
    head = served.owner.head("GET", where)
    url = served.url.replace("http", "ws") + where
    async with connect(url, additional_headers=head, proxy=None):
        pass
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(url, additional_headers=head, proxy=None):
            pass
    assert json.loads(refused.value.response.body)["reason"] == "replayed"


async def test_what_is_missing_is_refused_before_the_upgrade(served: Served) -> None:
    path = await served.sandbox()
    cases = [
        (path, {"terminal_id": "trm_none"}, 404),
        ("/v1/sandboxes/sbx_" + "0" * 26, {}, 404),
        (path, {"cols": 0}, 422),
        (path, {"cwd": "relative"}, 422),
    ]
    for where, query, status in cases:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with dial(served, where, **query):
                pass
        assert refused.value.response.status_code == status


async def test_a_terminal_without_a_websocket_says_what_it_needs(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.get(f"{path}/terminal")
    assert answer.status_code == 426
    assert answer.json()["code"] == "upgrade_required"
