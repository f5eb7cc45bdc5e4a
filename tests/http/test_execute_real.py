"""Programs that misbehave, each in a real sandbox of its own: the answer says what happened, nothing else
suffers, nothing stays."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support.http.execute import SMALL, look, nothing_left, printed, run, submit, until
from tests.support.http.real import real  # noqa: F401
from tests.support.http.served import Served


def python(code: str, **more: object) -> dict[str, object]:
    return {"language": "python", "code": code, **SMALL, **more}


async def test_programs_that_misbehave_are_answered_for_and_leave_nothing(real: Served) -> None:
    async def ran(code: str, **more: object) -> dict[str, Any]:
        return await run(real.client, python(code, **more))

    endless = await ran("while True: pass", ttl_s=1)
    assert (endless["timed_out"], endless["reason"], endless["exit_code"]) == (True, "timed_out", 137)

    for seconds in (1, 5, 25):
        chatty = await ran("while True: print('x' * 1000)", ttl_s=seconds, output_limit_bytes=5000)
        if chatty["truncated"]:
            # Otherwise the machine is so busy that it has hardly begun within that time.
            break
    assert (len(chatty["stdout"]), chatty["truncated"], chatty["timed_out"]) == (5000, True, True)
    assert chatty["stdout_dropped"] > 5000

    waiting = await ran("import sys; print(repr(sys.stdin.read()))", ttl_s=60)
    assert (waiting["stdout"], waiting["exit_code"]) == ("''\n", 0)

    suicide = await ran("import os; print('a', flush=True); os.kill(os.getpid(), 9)")
    assert (suicide["stdout"], suicide["exit_code"]) == ("a\n", 137)

    filler = await ran("f = open('big', 'wb')\nwhile True: f.write(b'x' * 1_000_000); f.flush()", ttl_s=30)
    assert filler["exit_code"] != 0
    assert "quota" in filler["stderr"] or "space" in filler["stderr"]

    eater = await ran("x = []\nwhile True: x.append(bytearray(10_000_000))", ttl_s=30)
    assert (eater["exit_code"], eater["reason"]) == (137, "oom_killed")

    broken = await ran(r"import os; os.write(1, b'\xff\xfe ok \xc3')", encoding="utf-8")
    assert broken["stdout"] == "\ufffd\ufffd ok \ufffd"
    exact = await ran(r"import os; os.write(1, b'\xff\x00')", encoding="base64")
    assert exact["stdout"] == "/wA="

    names = await ran("import os; open(os.fsdecode(b'\\xff.txt'), 'w').write('x')", artifacts=["*.txt"])
    assert [one["name"] for one in names["artifacts"]] == ["\ufffd.txt"]

    clash = python("", files=[{"name": "main.py/x", "content": ""}])
    assert (await real.client.post("/v1/execute", clash)).json()["code"] == "not_a_directory"

    links = "import os; os.symlink('/etc/passwd', 'p'); os.mkfifo('f'); os.mkdir('d')"
    kept_out = await ran(links, artifacts=["*", "f", "d"])
    assert (kept_out["artifacts"], len(kept_out["left_out"])) == ([], 2)

    bomb = await ran("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", ttl_s=2)
    assert bomb["timed_out"]
    marks = await ran("print('event: done\\ndata: {}\\n\\n')")
    assert marks["stdout"] == "event: done\ndata: {}\n\n\n"
    assert (await ran("print('well')"))["stdout"] == "well\n"
    await nothing_left(real)


async def test_compilers_speak_apart_from_programs(real: Served) -> None:
    good = {"language": "c", "code": '#include <stdio.h>\nint main(){puts("hi");return 4;}', **SMALL}
    done = await run(real.client, good)
    assert (done["exit_code"], done["stdout"], done["compile"]["exit_code"]) == (4, "hi\n", 0)
    failed = await run(real.client, {"language": "c", "code": "int main(){", **SMALL})
    assert (failed["exit_code"], failed["reason"], failed["stdout"]) == (1, "compile_failed", "")
    assert "error" in failed["compile"]["stderr"]
    job = await look(real.client, await submit(real.client, {"language": "c", "code": "x", **SMALL}), 20)
    assert (job["state"], job["reason"]) == ("failed", "compile_failed")


async def test_a_run_whose_sandbox_is_reaped_is_a_typed_error(real: Served) -> None:
    code = "import time\nprint('on', flush=True)\ntime.sleep(60)"
    job_id = await submit(real.client, python(code))
    job = await until(real.client, job_id, lambda job: printed(job) == "on\n")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(real.client.post("/v1/execute", python(code)))
        found: list[str] = []
        async with asyncio.timeout(10):
            while not found:
                listed = (await real.client.get("/v1/sandboxes?state=active")).json()["sandboxes"]
                found = [one["id"] for one in listed if one["id"] != job["sandbox_id"]]
                await asyncio.sleep(0.02)
        for sandbox_id in (*found, job["sandbox_id"]):
            await real.client.delete(f"/v1/sandboxes/{sandbox_id}")
    assert running.result().status_code == 503
    assert running.result().json()["code"] == "backend_lost"
    assert running.result().json()["sandbox_id"] == found[0]
    lost = await look(real.client, job_id, 10)
    assert (lost["state"], printed(lost)) == ("lost", "on\n")
    assert printed({"result": await run(real.client, python("print('unharmed')"))}) == "unharmed\n"


async def test_the_answer_does_not_wait_for_the_destroy(real: Served) -> None:
    backend = real.platform.backends["ext.namespaces"]
    teardown, may_go = backend.teardown, asyncio.Event()

    async def slow(sandbox_id: str) -> None:
        await may_go.wait()
        await teardown(sandbox_id)

    backend.teardown = slow  # type: ignore[method-assign]
    began = time.monotonic()
    assert (await run(real.client, python("print(1)")))["stdout"] == "1\n"
    assert time.monotonic() - began < 10
    assert await backend.inventory()
    may_go.set()
    await nothing_left(real)


async def test_an_answer_says_which_version_of_the_language_ran_it(real: Served) -> None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = await run(real.client, python(code))
    assert done["version"].startswith(done["stdout"].strip() + "."), done
    offered = (await real.client.get("/v1/languages/python")).json()
    assert done["version"] == offered["version"]
    job = (await real.client.post("/v1/execute/async", python(code))).json()["id"]
    ended = (await real.client.get(f"/v1/jobs/{job}?wait_s=30")).json()
    assert ended["result"]["version"] == done["version"]
