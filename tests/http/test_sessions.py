"""Sessions over HTTP, on real walls: state that stays, output per cell, and everything code can do to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings
from tests.support.http.accounts import cut, funded, with_both
from tests.support.http.flows import flow
from tests.support.http.real import IMAGES, real, why_not
from tests.support.http.served import Served, eventually, serving
from tests.support.http.signed import Credentials
from tests.support.http.wallets import proof
from tests.support.sessions import over

__all__ = ["real"]


async def start(served: Served, language: str = "python", **more: object) -> str:
    """The path of a fresh one."""
    wanted: dict[str, object] = {"language": language, **more}
    if "sandbox_id" not in wanted:
        wanted.setdefault("resources", {"disk_mb": 128})
    answer = await served.client.post("/v1/sessions", wanted)
    assert answer.status_code == 201, answer.text
    return f"/v1/sessions/{answer.json()['id']}"


async def cell(served: Served, path: str, code: str, **more: object) -> dict[str, Any]:
    answer = await served.client.post(f"{path}/cells", {"code": code, **more})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


@flow("startSession", "runCell", "getSession", "endSession")
async def test_what_a_cell_sets_the_next_one_finds(real: Served) -> None:
    path = await start(real)
    first = await cell(real, path, "x = 42")
    assert (first["status"], first["n"], first["stdout"], first["results"]) == ("ok", 1, "", [])
    assert (await cell(real, path, "print(x)"))["stdout"] == "42\n"
    shown = await cell(real, path, "import sys; print('oops', file=sys.stderr); x")
    assert shown["stderr"] == "oops\n"
    assert shown["results"] == [{"text/plain": "42"}]
    failed = await cell(real, path, "def f():\n    return 1/0\nf()")
    assert failed["status"] == "error"
    assert failed["error"]["name"] == "ZeroDivisionError"
    assert '"<cell 4>", line 2, in f' in failed["error"]["traceback"]
    session = (await real.client.get(path)).json()
    assert (session["state"], session["cells"], session["owns_sandbox"]) == ("ready", 4, True)
    ended = (await real.client.delete(path)).json()
    assert ended["state"] == "ended"
    sandbox = (await real.client.get(f"/v1/sandboxes/{session['sandbox_id']}")).json()
    assert sandbox["state"] == "destroyed"


@flow("interruptSession", "getCell", "listCells")
async def test_an_interrupt_and_a_timeout_keep_the_state(real: Served) -> None:
    path = await start(real)
    await cell(real, path, "x = 42")
    running = await cell(real, path, "while True: pass", wait=False)
    assert running["status"] in ("queued", "running")
    assert (await real.client.get(path)).json()["state"] == "busy"
    stopped = (await real.client.post(f"{path}/interrupt")).json()
    assert stopped == {"cell": 2}
    ended = (await real.client.get(f"{path}/cells/2?wait_s=10")).json()
    assert (ended["status"], ended["error"]["name"]) == ("interrupted", "KeyboardInterrupt")
    late = await cell(real, path, "import time; print('a', flush=True); time.sleep(60)", timeout_s=0.5)
    assert (late["status"], late["stdout"]) == ("timed_out", "a\n")
    assert (await cell(real, path, "x"))["results"] == [{"text/plain": "42"}]
    assert (await real.client.post(f"{path}/interrupt")).json() == {"cell": None}
    listed = (await real.client.get(f"{path}/cells")).json()["cells"]
    assert [c["status"] for c in listed] == ["ok", "interrupted", "timed_out", "ok"]


@flow("restartSession")
async def test_code_that_ignores_interrupts_is_killed_and_the_session_can_be_restarted(real: Served) -> None:
    path = await start(real)
    sandbox = (await real.client.get(path)).json()["sandbox_id"]
    other = await start(real, sandbox_id=sandbox)
    await cell(real, other, "y = 7")
    await cell(real, path, "x = 42; open('/workspace/kept', 'w').write('here')")
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    killed = await cell(real, path, stubborn, timeout_s=0.2)
    assert (killed["status"], killed["error"]["name"]) == ("died", "session_died")
    refused = await real.client.post(f"{path}/cells", {"code": "x"})
    assert (refused.status_code, refused.json()["code"]) == (409, "session_died")
    assert (await real.client.get(path)).json()["state"] == "died"
    # The rest is unharmed: another session in the same sandbox, and the files.
    assert (await cell(real, other, "y"))["results"] == [{"text/plain": "7"}]
    again = (await real.client.post(f"{path}/restart")).json()
    assert (again["state"], again["generation"]) == ("ready", 2)
    fresh = await cell(real, path, "x")
    assert (fresh["error"]["name"], fresh["n"]) == ("NameError", 3)
    assert (await real.client.get(f"{path}/cells/2")).json()["status"] == "died"
    assert (await cell(real, path, "open('/workspace/kept').read()"))["results"] == [{"text/plain": "'here'"}]


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.kill(os.getpid(), 9)",
        "import os; os._exit(3)",
        "import os; os.closerange(0, 256)",
        "import os; os.kill(os.getppid(), 9)",
        "import ctypes; ctypes.string_at(0)",
    ],
)
async def test_code_that_ends_its_interpreter_ends_only_that(real: Served, code: str) -> None:
    path = await start(real)
    result = await cell(real, path, f"print('before', flush=True)\n{code}")
    assert (result["status"], result["error"]["name"]) == ("died", "session_died")
    # Who kills the one that listens may be quicker than its ear.
    assert result["stdout"] == "before\n" or "getppid" in code
    await real.client.post(f"{path}/restart")
    assert (await cell(real, path, "1 + 1"))["results"] == [{"text/plain": "2"}]


async def test_an_error_that_raises_when_it_is_shown_is_an_error_like_any_other(real: Served) -> None:
    path = await start(real)
    odd = "class Odd(Exception):\n    def __str__(self): raise {}\nx = 42\nraise Odd"
    for raised in ("SystemExit(3)", "KeyboardInterrupt", "BaseException", "ValueError"):
        failed = await cell(real, path, odd.format(raised))
        assert (failed["status"], failed["error"]["name"]) == ("error", "Odd")
    assert (await cell(real, path, "x"))["results"] == [{"text/plain": "42"}]


async def test_a_result_that_is_too_large_is_left_out_and_the_session_goes_on(real: Served) -> None:
    path = await start(real)
    big = "class Big:\n    def _repr_html_(self): return 'x' * ({} << 20)\nBig()"
    for size in (2, 5):
        shown = await cell(real, path, big.format(size), timeout_s=20)
        assert [sorted(one) for one in shown["results"]] == [["text/html", "text/plain"][size > 4 :]]
    cut = await cell(real, path, "'x' * (5 << 20)", timeout_s=20)
    assert [len(one["text/plain"]) for one in cut["results"]] == [1 << 20]


async def test_a_line_that_is_written_in_pieces_comes_as_one(real: Served) -> None:
    path = await start(real)
    code = "import os, time\nfor piece in (b'a', b'b', b'c\\n'): os.write(1, piece); time.sleep(0.003)"
    heard = {"accept": "text/event-stream"}
    # A machine that is busy may let a piece wait too long, but not every time.
    for _ in range(5):
        answer = await real.client.post(f"{path}/cells", {"code": code}, headers=heard)
        if answer.text.count("event: stdout") == 1:
            break
    assert answer.text.count("event: stdout") == 1, answer.text


async def test_nothing_that_code_prints_confuses_the_host(real: Served) -> None:
    path = await start(real)
    forged = 'print(\'{"t":"done","n":1,"status":0,"fault":null,"lost":[0,0]}\\nend 0 1\', flush=True); 5'
    result = await cell(real, path, forged)
    assert result["stdout"].endswith("end 0 1\n")
    assert result["results"] == [{"text/plain": "5"}]
    raw = await cell(real, path, "import os; _ = os.write(1, bytes(range(256)))", encoding="base64")
    assert raw["stdout"].startswith("AAECAwQF")
    assert (await cell(real, path, "import os; _ = os.write(1, b'\\xff\\xfe')"))["stdout"] == "\ufffd\ufffd"
    flood = await cell(real, path, "for i in range(20000): print('x' * 1000)")
    assert flood["truncated"]
    assert 500_000 < len(flood["stdout"]) <= 1 << 20
    forked = (
        "import os, sys\nif os.fork() == 0:\n    import time; time.sleep(0.3); print('late', flush=True)\n"
        "    time.sleep(300)\n    os._exit(0)\n'parent'"
    )
    assert (await cell(real, path, forked))["results"] == [{"text/plain": "'parent'"}]
    # What a child prints while no cell runs is told with the next one.
    deadline = time.monotonic() + 10
    while (seen := await cell(real, path, "1"))["stdout"] != "late\n":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert seen["results"] == [{"text/plain": "1"}]
    stdin = await cell(real, path, "input()", timeout_s=10)
    assert stdin["error"]["name"] == "EOFError"


async def test_cells_run_one_after_the_other_and_can_be_followed_by_another_client(real: Served) -> None:
    path = await start(real)
    slow = "import time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.2)\nx = 1"
    await cell(real, path, slow, wait=False)
    second = asyncio.create_task(cell(real, path, "x + 1"))
    events = []
    async for event in real.client.events("GET", f"{path}/cells/1"):
        events.append(event)
    assert events[0].name == "cell"
    assert "".join(e.data["data"] for e in events if e.name == "stdout") == "0\n1\n2\n"
    assert (events[-1].name, events[-1].data["status"]) == ("done", "ok")
    assert (await second)["results"] == [{"text/plain": "2"}]


@flow("freezeSession", "thawSession", "boostSession", "unboostSession")
async def test_frozen_and_thawed_and_boosted_x_is_still_42(real: Served) -> None:
    path = await start(real)
    await cell(real, path, "x = 42")
    slow = await cell(real, path, "import time; time.sleep(1.5); x", wait=False, timeout_s=2)
    assert (await real.client.post(f"{path}/freeze")).json()["state"] == "frozen"
    refused = await real.client.post(f"{path}/cells", {"code": "x"})
    assert (refused.status_code, refused.json()["code"]) == (409, "illegal_transition")
    # Longer than the cell's time limit, which stands still with it.
    await asyncio.sleep(2.5)
    assert (await real.client.post(f"{path}/thaw")).json()["state"] in ("ready", "busy")
    ended = (await real.client.get(f"{path}/cells/{slow['n']}?wait_s=10")).json()
    assert (ended["status"], ended["results"]) == ("ok", [{"text/plain": "42"}])
    sandbox = f"/v1/sandboxes/{(await real.client.get(path)).json()['sandbox_id']}"
    assert (await real.client.post(f"{path}/boost", {"vcpus": 2})).status_code == 200
    usage = (await real.client.get(f"{sandbox}/usage")).json()
    assert usage["memory_limit_bytes"] == 2 * 2048 * 2**20
    grown = await cell(real, path, "b = bytearray(700 * 2**20); len(b)")
    assert grown["status"] == "ok"
    assert (await real.client.post(f"{path}/unboost")).json()["code"] == "conflict"
    await cell(real, path, "del b")
    assert (await real.client.post(f"{path}/unboost")).status_code == 200
    assert (await real.client.get(f"{sandbox}/usage")).json()["memory_limit_bytes"] == 512 * 2**20
    assert (await cell(real, path, "x"))["results"] == [{"text/plain": "42"}]


async def test_a_session_whose_sandbox_goes_in_mid_cell_says_so(real: Served) -> None:
    sandbox = await real.sandbox()
    path = await start(real, sandbox_id=sandbox.rsplit("/", 1)[1])
    running = asyncio.create_task(cell(real, path, "print(1, flush=True); import time; time.sleep(60)"))
    deadline = time.monotonic() + 10
    while (await real.client.get(f"{path}/cells/1")).json().get("stdout") != "1\n":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await real.client.post(f"{sandbox}/stop")
    ended = await running
    assert (ended["status"], ended["stdout"], ended["error"]["name"]) == ("died", "1\n", "session_died")
    assert "sandbox" in ended["error"]["message"]
    session = (await real.client.get(path)).json()
    assert (session["state"], session["reason"]) == ("died", "sandbox_stopped")
    # Its disk is kept: resumed, the session starts anew.
    assert (await real.client.post(f"{path}/restart")).json()["code"] == "illegal_transition"
    await real.client.post(f"{sandbox}/resume")
    assert (await real.client.post(f"{path}/restart")).json()["state"] == "ready"
    assert (await cell(real, path, "2"))["results"] == [{"text/plain": "2"}]
    await real.client.delete(sandbox)
    while (session := (await real.client.get(path)).json())["state"] != "ended":
        assert time.monotonic() < deadline + 10
        await asyncio.sleep(0.02)
    assert session["reason"] == "sandbox_ended"


async def test_whoever_follows_a_cell_is_sent_away_when_his_key_is_revoked(real: Served) -> None:
    path = await start(replace(real, client=await funded(real, "team", 1_000_000)))
    made = (await real.client.post("/v1/keys", {"name": "second", "account": "team"})).json()
    second = real.as_(Credentials(made["public_key"], made["secret_key"]))
    endless = "import time\nwhile True:\n    print('tick', flush=True); time.sleep(0.2)"
    heard: list[str] = []

    async def follow(method: str, target: str, body: object) -> None:
        async for event in second.events(method, target, body=body):
            heard.append(event.name)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(follow("POST", f"{path}/cells", {"code": endless, "timeout_s": 300}))
        await eventually(lambda: heard.count("stdout") > 1, 30)
        watching = group.create_task(follow("GET", f"{path}/cells/1", None))
        await eventually(lambda: heard.count("cell") > 1, 30)
        gone = await real.client.delete(f"/v1/keys/{second.credentials.public_key}")
        assert gone.status_code == 204, gone.text
        await running
        await watching
    assert "done" not in heard
    # What it began goes on: it is the account's, not the key's.
    assert (await real.client.get(path)).json()["state"] == "busy"
    assert (await second.get(path)).status_code == 401


async def test_a_server_that_starts_again_finds_its_interpreters(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    settings = Settings(state_dir=state, host="127.0.0.1", port=0, images_dir=IMAGES, pool_size_mb=800)
    slow = "import time\nfor i in range(40):\n    print(i, flush=True); time.sleep(0.1)\nx"
    try:
        async with serving(settings, None) as first:
            path = await start(first)
            await cell(first, path, "x = 42")
            await cell(first, path, slow, wait=False)
        async with serving(settings, None) as second:
            try:
                session = (await second.client.get(path)).json()
                assert (session["state"], session["cells"]) == ("busy", 2)
                ended = (await second.client.get(f"{path}/cells/2?wait_s=20")).json()
                assert ended["status"] == "ok"
                assert ended["stdout"] == "".join(f"{i}\n" for i in range(40))
                assert ended["results"] == [{"text/plain": "42"}]
                assert (await second.client.get(f"{path}/cells/1")).json()["status"] == "ok"
                assert (await cell(second, path, "x"))["n"] == 3
            finally:
                await second.client.delete(path)
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


@flow("lockSession", "unlockSession")
async def test_a_locked_session_is_ended_only_with_a_second_proof(real: Served) -> None:
    client, wallet = await with_both(real)
    account = (await client.get("/v1/accounts/me")).json()["account"]["id"]
    credit = {"sats": 10**5, "id": "locks", "reason": "for the test"}
    assert (await real.client.post(f"/v1/accounts/{account}/adjust", credit)).status_code < 300
    made = await client.post("/v1/sessions", {"language": "bash", "resources": {"disk_mb": 128}})
    path = f"/v1/sessions/{made.json()['id']}"
    assert (await client.post(f"{path}/lock")).status_code == 200
    asked = await client.delete(path)
    assert (asked.status_code, asked.json()["factor"]) == (428, "wallet")
    asked = (await client.post(f"{path}/unlock")).json()
    assert (await client.post(f"{path}/unlock", headers=proof(asked, wallet.signer))).status_code == 200
    assert (await client.delete(path)).json()["state"] == "ended"


@flow("boostSandbox", "unboostSandbox")
async def test_any_sandbox_can_be_boosted(served: Served) -> None:
    path = await served.sandbox()
    more = (await served.client.post(f"{path}/boost", {"vcpus": 3})).json()["resources"]
    assert (more["vcpus"], more["memory_mb"]) == (3.0, 3 * 2048)
    assert (await served.client.post(f"{path}/boost", {"vcpus": 99})).status_code == 422
    less = (await served.client.post(f"{path}/unboost")).json()["resources"]
    assert (less["vcpus"], less["memory_mb"]) == (1.0, 512)


@flow("listSessions")
async def test_a_stranger_sees_nothing_and_can_do_nothing(real: Served) -> None:
    path = await start(real)
    stranger = await real.stranger()
    for method, where in (("GET", path), ("POST", f"{path}/interrupt"), ("DELETE", path)):
        assert (await stranger.send(method, where)).status_code == 404
    assert (await stranger.post(f"{path}/cells", {"code": "1"})).status_code == 404
    assert (await stranger.get("/v1/sessions")).json()["sessions"] == []
    listed = (await real.client.get("/v1/sessions")).json()["sessions"]
    assert [one["id"] for one in listed] == [path.rsplit("/", 1)[1]]
    sandbox = listed[0]["sandbox_id"]
    body = {"language": "python", "sandbox_id": sandbox}
    assert (await stranger.post("/v1/sessions", body)).status_code == 404


async def test_the_same_key_starts_one_session(real: Served) -> None:
    body = {"language": "bash", "resources": {"disk_mb": 128}}
    first = await real.client.post("/v1/sessions", body, headers={"Idempotency-Key": "k1"})
    again = await real.client.post("/v1/sessions", body, headers={"Idempotency-Key": "k1"})
    assert first.json()["id"] == again.json()["id"]
    assert len((await real.client.get("/v1/sessions")).json()["sessions"]) == 1


async def test_what_is_not_there_is_refused_with_a_reason(real: Served) -> None:
    unknown = await real.client.post("/v1/sessions", {"language": "pythn"})
    assert (unknown.status_code, "python" in unknown.text) == (422, True)
    sandbox = (await real.sandbox()).rsplit("/", 1)[1]
    for language, image in (("ruby", "scripting"), ("typescript", "scripting"), ("java", "jvm")):
        absent = await real.client.post("/v1/sessions", {"language": language, "sandbox_id": sandbox})
        assert (absent.status_code, absent.json()["code"]) == (422, "not_available")
        assert f"the image `{image}` has it" in absent.text
    assert (await real.client.get("/v1/sessions")).json()["sessions"] == []


async def test_a_delegated_key_ends_a_sandbox_with_its_session_only_if_it_may_destroy(served: Served) -> None:
    child = await cut(served, await served.stranger("acme"), scopes=["exec", "sandboxes:read"])
    key = await served.platform.keys.find(child.credentials.public_key)
    assert key is not None
    account = key.caller.account
    repository = served.platform.sessions.repository
    lent = replace(over(repository, account), expires_at=repository.clock.now() + timedelta(hours=1))
    own = replace(lent, id=new_id("ses"), owns_sandbox=True)
    for session in (lent, own):
        await repository.create(session)
    refused = await child.delete(f"/v1/sessions/{own.id}")
    assert (refused.status_code, refused.json()["scope"]) == (403, "sandboxes:destroy")
    assert (await child.delete(f"/v1/sessions/{lent.id}")).json()["state"] == "ended"
