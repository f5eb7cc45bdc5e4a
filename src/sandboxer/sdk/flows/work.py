"""Flows 5 to 8: an agent has its tools, runs code, keeps interpreters, and keeps programs running."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from sandboxer.sdk.aio.code import AsyncSession
from sandboxer.sdk.errors import ApiError, NotFound, SdkError
from sandboxer.sdk.flows.suite import (
    GONE,
    TTL,
    Bench,
    Flow,
    NotOffered,
    expect,
    expect_equal,
    nothing_is_left,
    refused,
    sh,
    until,
)
from sandboxer.wire.execute import Execution
from sandboxer.wire.operations import platform
from sandboxer.wire.operations.table import OPERATIONS
from sandboxer.wire.services import Service

tools = Flow(5, "Tools: what an agent installs, and what is there already")
execution = Flow(6, "Execution: code at once and as jobs")
sessions = Flow(7, "Sessions: interpreters that keep their state")
services = Flow(8, "Services: programs that are kept running")
REGISTRIES = ("https://pypi.org/simple/", "https://registry.npmjs.org/left-pad", "https://deb.debian.org/")
OVER = frozenset({"finished", "failed", "cancelled", "timed_out", "lost"})


@tools.check("an agent cannot call what the platform does not have")
async def every_call_of_this_client_is_an_operation_of_the_platform(bench: Bench) -> None:
    answer = await bench.send("GET", platform.GET_OPENAPI.path, signs=False)
    paths = answer.json()["paths"].values()
    known = {one["operationId"] for path in paths for one in path.values() if "operationId" in one}
    # Streams of two directions have no place in such a document.
    called = {one.id for one in OPERATIONS if one.method in ("GET", "POST", "PUT", "PATCH", "DELETE")}
    missing = sorted(called - known - NOT_IN_OPENAPI)
    expect(not missing, f"it has no {', '.join(missing)}: client and platform are of different versions")


NOT_IN_OPENAPI = frozenset[str]()


@tools.check("the image need not bring anything")
async def a_sandbox_has_the_client_inside_and_needs_no_key_for_it(bench: Bench) -> None:
    sandbox = await bench.sandbox()
    where = json.loads(await sh(sandbox, "cat /run/sandboxer/sandbox.json"))["tools"]["client"]
    said = await sandbox.exec([where, "discover", "--json"], env={"PATH": "/nowhere"})
    expect_equal(said.exit_code, 0, f"what {where} ended with")
    expect_equal(json.loads(said.stdout)["id"], sandbox.id, f"the sandbox that {where} names")


@tools.check("what an agent installed has to be there when it comes back")
async def a_tool_that_was_installed_outlives_a_stop(bench: Bench) -> None:
    await bench.demand_capability("stop")
    sandbox = await bench.sandbox()
    await sandbox.files.write("/usr/local/bin/flowtool", "#!/bin/sh\necho tool $1\n")
    await sh(sandbox, "chmod +x /usr/local/bin/flowtool")
    expect_equal(await sh(sandbox, "flowtool 1"), "tool 1\n", "what the tool prints")
    await sandbox.stop()
    await sandbox.resume()
    expect_equal(await sh(sandbox, "flowtool 2"), "tool 2\n", "what it prints after a stop")


@tools.check("pip, npm and apt have to work, and nothing else leaves with them")
async def packages_come_from_registries_and_nothing_from_elsewhere(bench: Bench) -> None:
    if "semi" not in (await bench.client.capabilities()).trust_levels:
        raise NotOffered("no sandbox here has a network")
    sandbox = await bench.sandbox(network="packages")
    for url in REGISTRIES:
        expect((await sandbox.egress.explain(url)).allowed, f"{url} may not be reached")
    for url in ("https://flowcheck.invalid/", "https://169.254.169.254/"):
        expect(not (await sandbox.egress.explain(url)).allowed, f"{url} may be reached")


tools.check("an agent's tools cost as long as they are there")(nothing_is_left)


async def _language(bench: Bench) -> str:
    """A language that keeps sessions and has files: Python, or else a shell."""
    await bench.demand_means()
    here = {one.name for one in await bench.client.languages.list(available=True)}
    word = next((one for one in ("python", "bash", "sh") if one in here), None)
    if word is None:
        raise NotOffered("neither Python nor a shell runs here")
    return word


CODE = {
    "python": "import sys\nprint('out', 6 * 7)\nprint('bad', file=sys.stderr)\nsys.exit(3)",
    "bash": "echo out $((6 * 7)); echo bad >&2; exit 3",
}
UPPER = {
    "python": "import sys\nopen('o.txt', 'w').write(open('i.txt').read().upper())\nprint(sys.stdin.read())",
    "bash": "tr a-z A-Z < i.txt > o.txt; cat; echo",
}
ENDLESS = {
    "python": "import time\nprint('begun', flush=True)\ntime.sleep(600)",
    "bash": "echo begun; sleep 600",
}


def _in(language: str, of: dict[str, str]) -> str:
    return of.get(language, of["bash"])


@execution.check("an agent decides by what a program printed and how it ended")
async def code_tells_what_it_printed_and_how_it_ended(bench: Bench) -> None:
    language = await _language(bench)
    done = await bench.client.code.run(_in(language, CODE), language=language)
    expect_equal((done.stdout, done.stderr, done.exit_code), ("out 42\n", "bad\n", 3), "what came of it")


@execution.check("a program works with what it is given")
async def code_has_its_input_and_gives_files_back(bench: Bench) -> None:
    language = await _language(bench)
    done = await bench.client.code.run(
        _in(language, UPPER),
        language=language,
        stdin="line",
        files={"i.txt": b"text"},
        artifacts=["o.txt"],
    )
    expect_equal((done.stdout, done.exit_code), ("line\n", 0), "what came of it")
    expect_equal([one.name for one in done.artifacts], ["o.txt"], "the files that it gave back")


@execution.check("a program that hangs must not cost for ever")
async def code_that_runs_too_long_is_ended(bench: Bench) -> None:
    language = await _language(bench)
    done = await bench.client.code.run(_in(language, ENDLESS), language=language, ttl_s=2)
    expect(done.timed_out, f"it ended with {done.exit_code} and is not said to have run too long")


@execution.check("what a program prints is wanted while it runs")
async def output_comes_in_pieces_and_then_the_end(bench: Bench) -> None:
    language = await _language(bench)
    pieces = [one async for one in bench.client.code.stream(_in(language, CODE), language=language)]
    end = pieces[-1]
    expect(isinstance(end, Execution), "the stream does not end with what came of it")
    assert isinstance(end, Execution)
    expect(len(pieces) > 1, "there were no pieces before the end")
    expect_equal(end.exit_code, 3, "how it ended")


@execution.check("an agent does not wait for everything")
async def a_job_runs_later_and_one_that_is_cancelled_ends(bench: Bench) -> None:
    language = await _language(bench)
    short = await bench.client.code.submit(_in(language, CODE), language=language)
    long = await bench.client.code.submit(_in(language, ENDLESS), language=language)
    bench.takes_back(_cancel, bench, long.id)
    done = await bench.client.jobs.wait(short.id)
    expect_equal(done.state, "finished", "the state of a job that ended by itself")
    expect(done.result is not None and done.result.stdout == "out 42\n", "it lost what it printed")
    expect((await bench.client.jobs.get(long.id)).state not in OVER, "an endless job is over")
    expect_equal((await bench.client.jobs.cancel(long.id)).state, "cancelled", "the state of a cancelled one")


async def _cancel(bench: Bench, job_id: str) -> None:
    if (await bench.client.jobs.get(job_id)).state not in OVER:
        await bench.client.jobs.cancel(job_id)


@execution.check("each run has walls of its own, and pays for no longer than it lasts")
async def the_sandbox_of_a_run_is_gone_with_it(bench: Bench) -> None:
    language = await _language(bench)
    done = await bench.client.code.run(_in(language, CODE), language=language)

    async def is_gone() -> bool:
        try:
            return (await bench.client.sandbox(str(done.sandbox_id)).refresh()).state in GONE
        except NotFound:
            return True

    await until(is_gone, f"{done.sandbox_id} is still there")


SETS = {"python": ("x = 42", "print(x)", "1/0"), "bash": ("x=42", "echo $x", "false")}


@sessions.check("an agent works step by step")
async def what_one_cell_sets_the_next_one_finds(bench: Bench) -> None:
    language = await _language(bench)
    sets, prints, fails = SETS.get(language, SETS["bash"])
    async with await _session(bench, language) as session:
        expect_equal((await session.run(sets)).status, "ok", "the first cell")
        expect_equal((await session.run(prints)).stdout, "42\n", "what the second one prints")
        expect_equal((await session.run(fails)).status, "error", "a cell that fails")
        expect_equal((await session.run(prints)).stdout, "42\n", "what is left after it")


async def _session(bench: Bench, language: str) -> AsyncSession:
    made = await bench.client.sessions.start(language, name=bench.name("session"), ttl=TTL)
    bench.takes_back(made.end)
    return made


@sessions.check("the paper's session: freeze to stop the clock, go on where you were")
async def a_frozen_session_goes_on_where_it_was(bench: Bench) -> None:
    await bench.demand_capability("freeze")
    language = await _language(bench)
    sets, prints, _ = SETS.get(language, SETS["bash"])
    session = await _session(bench, language)
    await session.run(sets)
    expect_equal((await session.freeze()).state, "frozen", "the state of a frozen session")
    expect_equal((await session.thaw()).state, "ready", "the state of a thawed one")
    expect_equal((await session.run(prints)).stdout, "42\n", "what it still knows")


@sessions.check("a fresh beginning is needed, too")
async def a_restarted_session_has_forgotten_and_kept_its_files(bench: Bench) -> None:
    language = await _language(bench)
    sets, prints, _ = SETS.get(language, SETS["bash"])
    session = await _session(bench, language)
    sandbox = bench.client.sandbox((await session.refresh()).sandbox_id)
    await session.run(sets)
    await sh(sandbox, "echo kept > /workspace/kept")
    again = await session.restart()
    expect_equal(again.generation, 2, "how often it began")
    expect((await session.run(prints)).stdout != "42\n", "it still knows what was set before")
    expect_equal(await sh(sandbox, "cat /workspace/kept"), "kept\n", "its file")


@sessions.check("what is ended costs nothing any more")
async def an_ended_session_takes_its_sandbox_with_it(bench: Bench) -> None:
    session = await _session(bench, await _language(bench))
    sandbox = bench.client.sandbox((await session.refresh()).sandbox_id)
    expect_equal((await session.end()).state, "ended", "its state")
    await refused(session.run("x"), 404, 409, what="a cell of an ended session")
    expect((await sandbox.refresh()).state in ("destroying", "destroyed"), "its sandbox goes on")


sessions.check("a session that stays costs")(nothing_is_left)

# Counts its visitors in a file, and dies when it is asked to.
SERVER = """#!/usr/bin/env python3
import http.server, os, pathlib
from os import environ
kept = pathlib.Path("/workspace/visits")
class Counter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("/crash"):
            os._exit(9)
        with kept.open("a") as file: file.write("x")
        words = f"WORD {os.getpid()} {kept.stat().st_size}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)
    def log_message(self, *words): print("asked", self.path, flush=True)
print("listening", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(environ["PORT"])), Counter).serve_forever()
"""


async def _service(bench: Bench) -> Service:
    await bench.demand_means()
    if "python" not in {one.name for one in await bench.client.languages.list(available=True)}:
        raise NotOffered("no image here has Python, in which the service of this check is written")
    name = bench.name("service")
    making = asyncio.ensure_future(
        bench.client.services.create(
            name, bootstrap=SERVER.replace("WORD", "hello"), restart={"backoff_s": 0.1}
        )
    )
    bench.takes_back(_remove, bench, name, making)
    made = await asyncio.shield(making)
    expect_equal(made.state, "running", f"the state of {name} ({made.reason})")
    return made


async def _remove(bench: Bench, name: str, making: asyncio.Future[Service]) -> None:
    # Whoever hangs up before the answer does not stop what was asked for, and could not know what to remove.
    with suppress(SdkError):
        await making
    try:
        await bench.client.services.remove(name)
    except ApiError as error:
        if error.status not in (404, 409):
            raise


async def _visit(bench: Bench, name: str, path: str = "") -> tuple[int, list[str]]:
    """What the service answers now, through the API, which needs no name in the DNS."""
    service = await bench.client.services.get(name)
    answer = await bench.send("GET", f"/v1/sandboxes/{service.sandbox_id}/ports/{service.port}/{path}")
    return answer.status_code, answer.text.split()


@services.check("a program has to be reached where it listens")
async def a_service_runs_and_answers(bench: Bench) -> None:
    made = await _service(bench)
    status, words = await _visit(bench, made.name)
    expect_equal((status, words[:1], words[2:]), (200, ["hello"], ["1"]), "what it answers")
    told = [line.text for line in await bench.client.services.logs(made.name)]
    expect("listening" in told, "its log lacks what it printed")


@services.check("redeploy without losing state, as the paper has it")
async def a_redeploy_keeps_what_was_written_and_a_bad_one_changes_nothing(bench: Bench) -> None:
    made = await _service(bench)
    await _visit(bench, made.name)
    await bench.client.services.redeploy(made.name, bootstrap=SERVER.replace("WORD", "bonjour"))
    status, words = await _visit(bench, made.name)
    expect_equal((status, words[:1], words[2:]), (200, ["bonjour"], ["2"]), "what the new one answers")
    bad = bench.client.services.redeploy(made.name, command="exit 1")
    await refused(bad, 409, what="a redeploy whose program ends at once")
    status, words = await _visit(bench, made.name)
    expect_equal((status, words[:1]), (200, ["bonjour"]), "what answers after a bad redeploy")


@services.check("a frozen service costs less and is not lost")
async def a_frozen_service_is_the_same_process_when_it_wakes(bench: Bench) -> None:
    await bench.demand_capability("freeze")
    made = await _service(bench)
    _, before = await _visit(bench, made.name)
    expect_equal((await bench.client.services.freeze(made.name)).state, "sleeping", "its state")
    expect_equal((await bench.client.services.thaw(made.name)).state, "running", "its state after it")
    status, words = await _visit(bench, made.name)
    expect_equal((status, words[1:2]), (200, before[1:2]), "its process")


@services.check("nobody looks after it at 3 am")
async def a_service_that_dies_is_started_again(bench: Bench) -> None:
    made = await _service(bench)
    await _visit(bench, made.name, "crash")

    async def is_back() -> bool:
        seen = await bench.client.services.get(made.name)
        return seen.state == "running" and seen.run > made.run

    await until(is_back, "it was not started again")
    expect_equal((await _visit(bench, made.name))[0], 200, "the status of its answer then")


@services.check("what is removed costs nothing any more")
async def a_removed_service_is_gone_with_its_sandbox(bench: Bench) -> None:
    made = await _service(bench)
    expect_equal((await bench.client.services.remove(made.name)).state, "removed", "its state")
    sandbox = await bench.client.sandbox(made.sandbox_id).refresh()
    expect(sandbox.state in ("destroying", "destroyed"), "its sandbox goes on")


services.check("a service that stays costs")(nothing_is_left)
