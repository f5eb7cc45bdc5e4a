"""Sessions over HTTP, on real walls: state that stays, output per cell, and everything code can do to it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.http.conftest import Served
from tests.http.flows import flow
from tests.http.test_real import real

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


@flow("startSession")
@flow("runCell")
@flow("getSession")
@flow("endSession")
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


@flow("interruptSession")
@flow("getCell")
@flow("listCells")
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
    assert (await cell(real, path, "x"))["error"]["name"] == "NameError"
    assert (await cell(real, path, "open('/workspace/kept').read()"))["results"] == [{"text/plain": "'here'"}]


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.kill(os.getpid(), 9)",
        "import os; os._exit(3)",
        "import os; os.closerange(0, 256)",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.write(int([f for f in os.listdir('/proc/self/fd')][-1]), b'x')\nimport ctypes; ctypes.string_at(0)",
    ],
)
async def test_code_that_ends_its_interpreter_ends_only_that(real: Served, code: str) -> None:
    path = await start(real)
    result = await cell(real, path, f"print('before', flush=True)\n{code}")
    assert (result["status"], result["stdout"]) == ("died", "before\n")
    assert result["error"]["name"] == "session_died"
    await real.client.post(f"{path}/restart")
    assert (await cell(real, path, "1 + 1"))["results"] == [{"text/plain": "2"}]


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
    assert [e.name for e in events][0] == "cell"
    assert "".join(e.data["data"] for e in events if e.name == "stdout") == "0\n1\n2\n"
    assert (events[-1].name, events[-1].data["status"]) == ("done", "ok")
    assert (await second)["results"] == [{"text/plain": "2"}]
