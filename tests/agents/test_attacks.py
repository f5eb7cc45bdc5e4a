"""What hostile programs inside try with the socket that they have: to flood it, to reach something else by
it, to multiply, to outlive their money, and to take an authority along that another sandbox has.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.census import cgroup_roots
from sandboxer.access.connections import Patience
from sandboxer.agents.inception.grants import living_grants
from sandboxer.agents.inception.relays import CONNECTIONS
from sandboxer.settings import Settings
from sandboxer.wire.e2b import api_key_of
from tests.support.http.accounts import funded
from tests.support.http.inside import CONNECTION, SMALL, account, ask, granted, money, raw, raw_bytes
from tests.support.http.real import IMAGES, on_real_walls, sh, why_not
from tests.support.http.served import Served, eventually

TINY: dict[str, Any] = {
    "resources": {"vcpus": 0.25, "memory_mb": 24, "disk_mb": 24, "pids": 16},
    "ttl": "10m",
}


def settings(folder: Path, **more: object) -> Settings:
    if why := why_not():
        pytest.skip(why)
    facts = {"state_dir": folder / "state", "host": "127.0.0.1", "port": 0, "images_dir": IMAGES}
    return Settings.model_validate(facts | {"pool_size_mb": 800, "charging": False} | more)


@pytest.fixture
async def unlimited(tmp_path: Path) -> AsyncIterator[Served]:
    """One on which only what a sandbox has for itself bounds it."""
    uncounted = dict.fromkeys(("limit_address", "limit_refusals", "limit_bucket_only"), 1_000_000)
    async with on_real_walls(settings(tmp_path, **uncounted)) as served:
        yield served


def of_sandboxes(served: Served) -> int:
    """How many connections of sandboxes the host holds."""
    return sum(1 for slot in served.platform.front.slots if slot.sandbox is not None)


async def start(served: Served, path: str, program: str, *words: str) -> str:
    """Starts a program inside that goes on, and returns the path of its process."""
    body = {"argv": ["python3", "-c", program, *words], "has_stdin": True}
    answer = await served.client.post(f"{path}/processes", body)
    assert answer.status_code == 201, answer.text
    return f"{path}/processes/{answer.json()['process_id']}"


# Sixteen connections, each with its part of ten thousand requests, sent whether they are answered or not.
TEN_THOUSAND = """
import re, socket, threading
told = []
def flood():
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(60)
    line.connect("/run/sandboxer/api.sock")
    sender = threading.Thread(target=send, args=(line,))
    sender.start()
    seen, count = b"", 0
    try:
        while count < 625 and (piece := line.recv(65536)):
            seen += piece
            for found in re.finditer(rb"HTTP/1.1 ([0-9]+)", seen):
                told.append(found[1].decode())
                count += 1
            seen = seen[-11:] if b"HTTP/1.1" not in seen[-11:] else b""
    except OSError:
        pass
    line.close()
    sender.join()
def send(line):
    try:
        for _ in range(625):
            line.sendall(b"GET /v1/sandboxes HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    except OSError:
        pass
lines = [threading.Thread(target=flood) for _ in range(16)]
for line in lines: line.start()
for line in lines: line.join()
print(sorted(set(told)), told.count("200"))
"""


async def test_ten_thousand_requests_end_in_a_typed_refusal_and_keep_nobody_waiting(free: Served) -> None:
    path = await granted(free)
    flood = asyncio.create_task(sh(free, path, f"python3 - <<'E'\n{TEN_THOUSAND}\nE", timeout_s=90))
    await eventually(lambda: of_sandboxes(free) > 0)
    asked = 0
    while not flood.done():
        async with asyncio.timeout(5):
            assert (await free.client.get("/v1/sandboxes")).status_code == 200
        asked += 1
        assert of_sandboxes(free) <= CONNECTIONS
    said = str((await flood)["stdout"])
    assert said.startswith("['200', '429'] "), said
    assert int(said.split()[-1]) <= free.platform.limits.address
    assert asked
    refused = await ask(free, path, "GET", "/v1/sandboxes", code=4)
    assert (refused["code"], refused["status"]) == ("too_many_requests", 429)


# Says something, and nothing more: no end of a head, no body, no reader of an answer.
HALF_OPEN = """
import socket, sys
head = b" /v1/sandboxes HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 9\\r\\n"
kinds = [b"GET" + head, b"", b"POST" + head + b"\\r\\n"]
lines = []
for at in range(64):
    line = socket.socket(socket.AF_UNIX)
    line.setblocking(False)
    try:
        line.connect("/run/sandboxer/api.sock")
        line.send(kinds[at % 3])
        if at % 2: line.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    lines.append(line)
sys.stdin.read()
"""


async def test_half_open_streams_and_slow_heads_lose_their_place_to_who_asks(unlimited: Served) -> None:
    path = await granted(unlimited)
    unlimited.platform.front.patience = Patience(first_byte_s=0.5, idle_s=0.5, head_s=0.5, body_s=0.5)
    process = await start(unlimited, path, HALF_OPEN)
    await eventually(lambda: of_sandboxes(unlimited) == CONNECTIONS)
    # All 64 stand before this one in the queue of the socket inside.
    assert (await ask(unlimited, path, "GET", "/v1/sandboxes"))["sandboxes"] == []
    assert (await unlimited.client.delete(process)).status_code in (200, 204)
    await eventually(lambda: of_sandboxes(unlimited) == 0)


async def test_a_head_that_never_ends_is_told_so(unlimited: Served) -> None:
    path = await granted(unlimited)
    unlimited.platform.front.patience = Patience(head_s=0.5)
    said = await raw(unlimited, path, "GET /v1/sandboxes HTTP/1.1\nHost: x\n")
    assert " 408 " in said.splitlines()[0], said
    assert '"code": "too_slow"' in said


async def test_no_method_host_or_upgrade_leads_anywhere_else(unlimited: Served) -> None:
    """A request through the socket is for the API, whatever host, form or protocol it names."""
    path = await granted(unlimited)
    mine, domain = account(path), unlimited.platform.settings.proxy_domain
    victim = await unlimited.sandbox(**SMALL)
    name = f"8000-{victim.rpartition('/')[2].replace('_', '-')}.{domain}"
    hostile = (
        "CONNECT 127.0.0.1:22 HTTP/1.1\nHost: 127.0.0.1:22\n\n",
        f"CONNECT {name}:80 HTTP/1.1\nHost: {name}\n\n",
        "TRACE /v1/accounts/me HTTP/1.1\nHost: x\n\n",
        "GET ftp://127.0.0.1/v1/accounts/me HTTP/1.1\nHost: x\n\n",
        # The same operation as without the escape, and judged as that.
        "POST /v1%2fkeys HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
        "GET /v1//accounts/me HTTP/1.1\nHost: x\n\n",
        f"GET {victim}/../../metrics HTTP/1.1\nHost: x\n\n",
        f"GET {victim} HTTP/1.1\nHost: x\n\n",
        f"GET {victim}/ports/8000/ HTTP/1.1\nHost: x\n\n",
        f"GET {victim}/%70orts/8000/ HTTP/1.1\nHost: x\n\n",
        f"GET / HTTP/1.1\nHost: 49983-{name[5:]}\n\n",
        "GET /sandboxes HTTP/1.1\nHost: api.localhost\nX-Api-Key: e2b_forged\n\n",
        "GET /v1/accounts/me HTTP/1.1\nHost: x\nHost: y\n\n",
        "GET /v1/accounts/me HTTP/1.1\nHost : x\n\n",
        "GET /v1/accounts/me HTTP/1.1\nHost: x\nX-Folded: a\n b\n\n",
    )
    for request in hostile:
        said = await raw(unlimited, path, request.replace("\n\n", "\nConnection: close\n\n", 1))
        assert re.match(r"HTTP/1\.1 40[01345] ", said), (request, said)
        assert re.search(r'"(error_)?code": ', said), (request, said)
    for host in (name, f"api.{domain}", "169.254.169.254"):
        said = await raw(
            unlimited, path, f"GET /v1/accounts/me HTTP/1.1\nHost: {host}\nConnection: close\n\n"
        )
        assert mine in said, (host, said)
    bare = "GET /v1/accounts/me HTTP/1.1\nHost: x\n\n"
    assert " 400 " in (await raw_bytes(unlimited, path, f"{bare}\0\r\n\r\n")).splitlines()[0]


async def test_an_upgrade_smuggles_no_second_request(unlimited: Served) -> None:
    path = await granted(unlimited, slots=1)
    child = await ask(unlimited, path, "POST", "/v1/sandboxes", SMALL)
    smuggled = "GET /metrics HTTP/1.1\nHost: x\n\n"
    key = "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    terminal = f"GET /v1/sandboxes/{child['id']}/terminal"
    upgrades = {
        # No protocol but that of WebSocket, and that only where there is one.
        "GET /v1/accounts/me": "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABk",
        "GET /v1/sandboxes": f"Connection: Upgrade\nUpgrade: websocket\n{key}",
        terminal: f"Connection: Upgrade\nUpgrade: websocket\nContent-Length: 5\n{key}",
    }
    for target, head in upgrades.items():
        said = await raw(unlimited, path, f"{target} HTTP/1.1\nHost: x\n{head}\n\n{smuggled}")
        assert " 101 " not in said.splitlines()[0], said
        assert "sandboxer_requests" not in said, said
    # What follows an upgrade that is granted is frames, and no request.
    said = await raw(
        unlimited,
        path,
        f"{terminal} HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket\n{key}\n\n{smuggled}",
    )
    assert said.count("HTTP/1.1 ") == 1, said


JOB = {"language": "bash", "code": "id"}
# What would lead a network in or out; and the same without that.
WAYS: dict[tuple[str, str], tuple[dict[str, object], dict[str, object] | None]] = {
    ("POST", "/v1/sandboxes/CHILD/previews"): ({"port": 8000, "wakes": False}, None),
    ("POST", "/v1/ssh-keys"): ({"name": "k", "public_key": "ssh-ed25519 AAAA"}, None),
    ("POST", "/v1/images/pull"): ({"reference": "collector.example/data:latest", "name": "a"}, None),
    ("POST", "/v1/images"): (
        {"sandbox": "CHILD", "name": "b", "visibility": "public"},
        {"sandbox": "CHILD", "name": "b"},
    ),
    # Its reason is read by whoever gets it.
    ("POST", "/v1/transfers"): ({"to": "pub_a", "sats": 1, "id": "t1", "reason": "what I know"}, None),
    ("POST", "/v1/execute/async"): ({**JOB, "webhook_url": "https://collector.example/"}, JOB),
}


async def test_what_has_no_network_gets_none_by_the_platform_either(free: Served) -> None:
    path = await granted(free, slots=4)
    child = (await ask(free, path, "POST", "/v1/sandboxes", SMALL))["id"]

    async def asked(method: str, where: str, body: object, code: int = 0) -> Any:
        said = json.loads(json.dumps(body).replace("CHILD", child))
        return await ask(free, path, method, where.replace("CHILD", child), said, code=code)

    for (method, where), (leads_out, does_not) in WAYS.items():
        refused = await asked(method, where, leads_out, code=4)
        assert (refused["status"], refused["axis"]) == (403, "trust"), (where, refused)
        if does_not is not None:
            assert "id" in await asked(method, where, does_not)
    refused = await ask(free, path, "GET", "/e2b/v2/sandboxes", code=4)
    assert "trust: the sandbox that asks has no network" in refused["message"]
    # Whoever made it decides; and one with a network may by itself.
    outside = await free.client.post(f"/v1/sandboxes/{child}/previews", {"port": 8000})
    assert outside.status_code == 201, outside.text
    other = await free.sandbox(**SMALL, trust="semi", inception={"slots": 1})
    below = await ask(free, other, "POST", "/v1/sandboxes", SMALL)
    body = {"port": 8000, "wakes": False}
    assert (await ask(free, other, "POST", f"/v1/sandboxes/{below['id']}/previews", body))["port"] == 8000


# Makes as many sandboxes as it can, each of which does the same.
BOMB = (
    CONNECTION
    + """
program, depth = sys.argv[1], int(sys.argv[2])
line, ids = Inside("localhost", timeout=60), []
def asked(method, path, body):
    line.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    said = answer.read()
    return answer.status, json.loads(said) if said else None
tiny = json.loads(sys.argv[3])
refused = set()
for slots in (6, 3, 1, 0) * 3:
    grant = {"inception": {"slots": slots, "depth": depth - 1}} if depth and slots else {}
    status, said = asked("POST", "/v1/sandboxes", tiny | grant)
    if status != 201:
        refused.add((status, said["code"]))
        continue
    argv = ["python3", "-c", program, program, str(max(0, depth - 1)), sys.argv[3]]
    if grant: asked("POST", f"/v1/sandboxes/{said['id']}/processes", {"argv": argv})
print(json.dumps(sorted(refused)))
"""
)


@pytest.mark.timeout(170)
async def test_a_bomb_of_sandboxes_has_no_more_than_its_slots_and_ends_with_its_top(
    unlimited: Served,
) -> None:
    slots = 10
    top = (await unlimited.sandbox(**TINY, inception={"slots": slots, "depth": 3})).rpartition("/")[2]
    repository = unlimited.platform.sandboxes.repository
    most = 0
    bomb = asyncio.create_task(
        unlimited.client.post(
            f"/v1/sandboxes/{top}/exec",
            {"argv": ["python3", "-c", BOMB, BOMB, "3", json.dumps(TINY)], "timeout_s": 90},
        )
    )
    while not bomb.done():
        async with asyncio.timeout(10):
            shown = (await unlimited.client.get("/v1/tree")).json()["sandboxes"]
        most = max(most, len(list(repository.living())))
        assert max(one["depth"] for one in shown) <= 4
    said = (await bomb).json()
    assert said["exit_code"] == 0, said
    # Refused for slots, or on the axis on which it asked for too much.
    assert {code for _, code in json.loads(said["stdout"])} == {"forbidden"}, said
    # What it made goes on by itself, until nothing is left to be had.
    await eventually(lambda: len(list(repository.living())) == 1 + slots)
    assert most <= 1 + slots
    async with asyncio.timeout(10):
        beside = await unlimited.sandbox(**TINY)
    assert (await sh(unlimited, beside, "echo here"))["stdout"] == "here\n"
    assert (await unlimited.client.delete(f"/v1/sandboxes/{top}")).status_code == 200
    left = beside.rpartition("/")[2]
    await eventually(lambda: {one.id for one in repository.living()} == {left}, 60)
    roots = cgroup_roots(unlimited.platform.settings.state_dir)
    await eventually(lambda: {group.name for root in roots for group in root.glob("sbx_*")} == {left}, 10)
    assert not await unlimited.platform.store.read(living_grants)


async def test_a_child_ends_when_the_money_that_it_was_given_is_used_up(tmp_path: Path) -> None:
    """Neither its parent's money nor grace carries it on: it never paid for anything else."""
    pricing = {"rates": dict.fromkeys(("running_msats", "vcpu_msats", "memory_gb_msats"), 20_000)}
    async with on_real_walls(settings(tmp_path, charging=True, pricing=pricing)) as served:
        maker = await funded(served, "maker", 1_000_000)
        made = await maker.post("/v1/sandboxes", {**TINY, "inception": {"budget_sats": 60, "slots": 2}})
        assert made.status_code == 201, made.text
        path = f"/v1/sandboxes/{made.json()['id']}"
        child = await ask(served, path, "POST", "/v1/sandboxes", TINY)
        repository = served.platform.sandboxes.repository

        def is_over() -> bool:
            found = repository.peek(child["id"])
            return found is None or found.state.value not in ("ready", "active", "grace")

        await eventually(is_over, 30)
        refused = await ask(served, path, "POST", "/v1/sandboxes", TINY, code=4)
        assert (refused["status"], refused["code"]) == (402, "insufficient_credit")
        resumed = await ask(served, path, "POST", f"/v1/sandboxes/{child['id']}/resume", code=4)
        assert resumed["status"] == 402, resumed
        before = await money(maker)
        assert (await served.client.get("/v1/ledger/verify")).json()["is_whole"]
        # Its parent runs on, and pays for itself alone.
        assert (await maker.get(path)).json()["state"] in ("ready", "active")
        assert before["balance"] > 900_000


async def test_no_copy_of_a_disk_has_the_authority_of_its_origin(unlimited: Served) -> None:
    """Clones of a snapshot, sandboxes of a published image, and forks as E2B's clients make them."""
    maker = await unlimited.stranger()
    bearer = await unlimited.client.post(f"/v1/keys/{maker.credentials.public_key}/bearer")
    made = await maker.post("/v1/sandboxes", {**SMALL, "inception": {"slots": 2}})
    sandbox_id = made.json()["id"]
    path = f"/v1/sandboxes/{sandbox_id}"
    await sh(unlimited, path, "cp -a /run/sandboxer /root/taken; ln -s /run/sandboxer/api.sock /root/way")
    kept = (await maker.post(f"{path}/snapshots", {"name": "kept"})).json()
    cloned = await maker.post(f"/v1/snapshots/{kept['id']}/clone", {})
    image = await maker.post("/v1/images", {"name": "origin", "sandbox": sandbox_id})
    spawned = await maker.post(f"/v1/images/{image.json()['id']}/spawn", {})
    forked = await unlimited.client.http.post(
        f"/e2b/sandboxes/{sandbox_id.replace('_', '-')}/fork",
        headers={"X-Api-Key": api_key_of(bearer.json()["bearer_token"])},
        json={"count": 1},
    )
    assert {cloned.status_code, spawned.status_code, forked.status_code} == {201}, forked.text
    copies = [one.json()["sandboxes"][0]["id"] for one in (cloned, spawned)]
    copies.append(forked.json()[0]["sandbox"]["sandboxID"].replace("-", "_"))
    for copy in copies:
        where = f"/v1/sandboxes/{copy}"
        ran = await sh(unlimited, where, "sandboxer api GET /v1/sandboxes; ls -A /run/sandboxer")
        assert "may not speak to the platform" in str(ran["stderr"]), copy
        assert "api.sock" not in str(ran["stdout"]).split(), copy
        ways = await sh(
            unlimited,
            where,
            "for at in /root/way /root/taken/api.sock; do python3 -c 'import socket, sys;"
            " socket.socket(socket.AF_UNIX).connect(sys.argv[1])' $at && echo open; done; true",
        )
        assert "open" not in str(ways["stdout"]), copy
        told = json.loads(str((await sh(unlimited, where, "sandboxer discover --json"))["stdout"]))
        assert (told["id"], told["api"], told["budget"]) == (copy, None, None)


# Keeps the connection by which it asked first, and asks by that again whenever it is told to.
HELD = (
    CONNECTION
    + """
import os
for way in ("/root/again", "/root/said"): os.mkfifo(way)
line = Inside("localhost", timeout=20)
line.connect()
# No other connection than this one.
line.connect, line.auto_open = None, 0
while True:
    open("/root/again").read()
    try:
        line.request("GET", "/v1/accounts/me")
        answer = line.getresponse()
        body = answer.read()
        said = f"{answer.status} {json.loads(body).get('code', '')}"
    except (OSError, http.client.HTTPException) as error:
        said = f"none {type(error).__name__}"
    open("/root/said", "w").write(said)
"""
)


async def ask_again(served: Served, path: str) -> str:
    command = "until test -p /root/said; do sleep 0.01; done; echo > /root/again; cat /root/said"
    return str((await sh(served, path, command))["stdout"])


async def test_a_connection_that_is_held_ends_with_the_authority_that_it_had(unlimited: Served) -> None:
    path = await granted(unlimited)
    await start(unlimited, path, HELD)
    assert await ask_again(unlimited, path) == "200 "
    assert (await unlimited.client.post(f"{path}/freeze")).status_code == 200
    assert (await unlimited.client.post(f"{path}/thaw")).status_code == 200
    assert await ask_again(unlimited, path) == "200 "
    (grant,) = await unlimited.platform.store.read(living_grants)
    key = grant.public_key
    assert (await unlimited.client.delete(f"/v1/keys/{key}")).status_code in (200, 204)
    assert await ask_again(unlimited, path) == "403 forbidden"


async def test_no_connection_outlives_the_processes_that_held_it(unlimited: Served) -> None:
    """A stop, and the restore of a snapshot, begin processes anew: nothing of the former ones may ask."""
    path = await granted(unlimited)
    kept = (await unlimited.client.post(f"{path}/snapshots", {"name": "kept"})).json()
    for words in ((f"{path}/stop", f"{path}/resume"), (f"/v1/snapshots/{kept['id']}/restore",)):
        await sh(unlimited, path, "rm -f /root/again /root/said")
        process = await start(unlimited, path, HELD)
        assert await ask_again(unlimited, path) == "200 "
        held = {slot for slot in unlimited.platform.front.slots if slot.sandbox is not None}
        assert held
        for word in words:
            answer = await unlimited.client.post(word)
            assert answer.status_code == 200, answer.text
        await eventually(lambda held=held: not held & unlimited.platform.front.slots)  # type: ignore[misc]
        assert (await unlimited.client.get(process)).status_code == 404
        assert (await ask(unlimited, path, "GET", "/v1/sandboxes"))["sandboxes"] == []
