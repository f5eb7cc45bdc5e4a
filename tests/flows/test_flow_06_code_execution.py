"""Flow 6 of the paper, code execution: sync and async, by language and by first line, over HTTP, for real.

Its seven tools are execute, executeCodeAsync, run, runAsync, getJob, listJobs and deleteJob; "run" is
"execute" without a language, found by the first line of the code.
"""

from __future__ import annotations

import asyncio
import base64

import pytest

from tests.support.flows import Charging
from tests.support.http.execute import SMALL, look, nothing_left, printed, run, submit, until
from tests.support.http.flows import flow
from tests.support.http.real import IMAGES, real  # noqa: F401
from tests.support.http.served import Served
from tests.support.http.signed import Client, Credentials

# Interpreted and compiled, from both images.
HELLOS = {
    "python": "print('hello')",
    "javascript": "console.log('hello')",
    "bash": "echo hello",
    "perl": 'print "hello\\n";',
    "c": '#include <stdio.h>\nint main(void){puts("hello");}',
    "cpp": '#include <iostream>\nint main(){std::cout << "hello\\n";}',
}
FROM_THE_LARGE_IMAGE = {
    "ruby": "puts 'hello'",
    "lua": "print('hello')",
    "fortran": "program p\n  print '(a)', 'hello'\nend program",
}


@flow("executeCode", "executeLater", "getJob", "listJobs", "cancelJob")
async def test_an_agent_runs_code_at_once_and_as_jobs(real: Served) -> None:
    agent = await real.stranger("agent")
    credit = {"sats": 10**6, "id": "flow-6", "reason": "what flow 3 paid for"}
    assert (await real.client.post("/v1/accounts/agent/adjust", credit)).status_code < 300
    await _execute(agent)
    await _run(agent)
    await _execute_async(agent)
    await _errors(real, agent)
    await nothing_left(real)


async def _execute(agent: Client) -> None:
    for language, code in HELLOS.items():
        done = await run(agent, {"language": language, "code": code, **SMALL})
        assert (done["stdout"], done["exit_code"], done["language"]) == ("hello\n", 0, language), done
    whole = await run(
        agent,
        {
            "language": "python",
            "code": "import sys, os\n"
            "open('out.txt', 'w').write(open('in.txt').read().upper())\n"
            "print(sys.argv[1], os.environ['WHO'], sys.stdin.read()); sys.exit(7)",
            "argv": ["one"],
            "env": {"WHO": "agent"},
            "stdin": "line",
            "files": [{"name": "in.txt", "content": "text"}],
            "artifacts": ["*.txt"],
            "ttl_s": 30,
            "vcpus": 1,
            **SMALL,
        },
    )
    assert (whole["stdout"], whole["exit_code"]) == ("one agent line\n", 7)
    assert [(a["name"], base64.b64decode(a["content"])) for a in whole["artifacts"]] == [("out.txt", b"TEXT")]
    assert whole["sats"] >= 1


async def _run(agent: Client) -> None:
    assert (await run(agent, {"code": "#!/bin/sh\necho $((6 * 7))", **SMALL}))["stdout"] == "42\n"
    later = await submit(agent, {"code": "#!/usr/bin/env perl\nprint 6 * 7", **SMALL})
    assert printed(await look(agent, later, 30)) == "42"


async def _execute_async(agent: Client) -> None:
    code = "import time\nfor n in range(600):\n  print(n, flush=True); time.sleep(0.1)"
    endless = await submit(agent, {"language": "python", "code": code, **SMALL})
    short = [await submit(agent, {"language": "bash", "code": f"exit {n}", **SMALL}) for n in range(3)]
    codes = [(await look(agent, job_id, 30))["result"]["exit_code"] for job_id in short]
    assert codes == [0, 1, 2]
    job = await until(agent, endless, lambda job: printed(job).startswith("0\n1\n"))
    assert job["state"] == "running"
    listed = (await agent.get("/v1/jobs?state=running")).json()["jobs"]
    assert [one["id"] for one in listed] == [endless]
    cancelled = (await agent.delete(f"/v1/jobs/{endless}")).json()
    assert cancelled["state"] == "cancelled"
    assert printed(cancelled).startswith("0\n1\n")
    timed_out = await submit(agent, {"language": "python", "code": code, "ttl_s": 1, **SMALL})
    assert (await look(agent, timed_out, 30))["state"] == "timed_out"


async def _errors(real: Served, agent: Client) -> None:
    """What each refusal looks like: the caller's fault in the 400s, the program's own in its exit code."""
    hello = {"language": "python", "code": "print(1)", **SMALL}
    broken = await run(agent, {"language": "python", "code": "raise ValueError('no')", **SMALL})
    assert (broken["exit_code"], "ValueError: no" in broken["stderr"]) == (1, True)
    refusals = {
        401: real.as_(Credentials("sbx-pk-" + "0" * 26, "sbx-sk-" + "0" * 52)).post("/v1/execute", hello),
        402: (await real.stranger("poor")).post("/v1/execute", hello),
        404: agent.get("/v1/jobs/job_" + "0" * 26),
        422: agent.post("/v1/execute", {"language": "phyton", "code": ""}),
    }
    for status, asking in refusals.items():
        answer = await asking
        assert answer.status_code == status, answer.text
        assert answer.json()["next_step"]
    assert "python" in (await agent.post("/v1/execute", {"language": "phyton", "code": ""})).json()["detail"]


@pytest.mark.slow
async def test_languages_beyond_the_small_image_run_in_the_large_one(real: Served) -> None:
    if not (IMAGES / "languages" / "image.json").is_file():
        pytest.skip(f"no languages image in {IMAGES}: run `sandboxer image build languages`")
    async with asyncio.TaskGroup() as group:
        runs = {
            language: group.create_task(run(real.client, {"language": language, "code": code, **SMALL}))
            for language, code in FROM_THE_LARGE_IMAGE.items()
        }
    assert {language: task.result()["stdout"] for language, task in runs.items()} == dict.fromkeys(
        FROM_THE_LARGE_IMAGE, "hello\n"
    )


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(6)
