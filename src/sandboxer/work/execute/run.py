"""One run inside a ready sandbox: the code is written, compiled and run, and its artifacts are fetched.

It is a generator of events, so that a run can be shown live, recorded, or both. Process ids are chosen
beforehand, so that a server that takes over can find the run again (`resume`). Closing the generator early
kills what it started.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from sandboxer.backends.guest import EndReason, Exit, Guest, Output, Process
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import BackendLost, NotFound
from sandboxer.kernel.ids import new_id
from sandboxer.work.deadline import Deadline
from sandboxer.work.exec import Feeding, killed_unless_ended
from sandboxer.work.execute import artifacts
from sandboxer.work.execute.artifacts import Collected
from sandboxer.work.execute.submission import Plan
from sandboxer.work.lines import EXEC_TAG, WORKSPACE, Line, Wanted, launch


class Stage(StrEnum):
    COMPILE = "compile"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    stage: Stage
    # For a caller who wants to end it early.
    process: Process


@dataclass(frozen=True, slots=True)
class Said:
    stage: Stage
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    stage: Stage
    exit_code: int
    timed_out: bool
    reason: EndReason | None
    duration_ms: float


Event = Began | Said | Ended | Collected


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIds:
    compile: str
    run: str


def new_process_ids() -> ProcessIds:
    return ProcessIds(compile=new_id("prc"), run=new_id("prc"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A plan and the circumstances of one attempt at it."""

    plan: Plan
    ids: ProcessIds
    # Seconds left for compiling and running together.
    seconds: float
    # The deadline in Unix seconds, stored beside the process.
    deadline: float
    # Whether the output stays in the sandbox for a server that takes over.
    keep: bool = False
    # Whether a previous server began the run.
    resume: bool = False
    # Accounts for what is kept of the run.
    lease: Lease


async def happen(line: Line, attempt: Attempt) -> AsyncGenerator[Event, None]:
    """Yields Began, Said and Ended for each stage, then what was collected. A failed compile is the last
    stage.
    """
    until = time.monotonic() + attempt.seconds
    plan, wanted = attempt.plan, attempt.plan.submission.artifacts
    known = await _known(line.guest, attempt)
    if not known:
        await _write(line.guest, plan)
    before: artifacts.Seen = {}
    if attempt.ids.run not in known:
        if plan.commands.compile is not None:
            ended: Ended | None = None
            start = _Start(
                line=line, attempt=attempt, stage=Stage.COMPILE, is_known=attempt.ids.compile in known
            )
            async with aclosing(_stage(Stage.COMPILE, start, until, None)) as events:
                async for event in events:
                    ended = event if isinstance(event, Ended) else None
                    yield event
            if ended is None or ended.exit_code != 0:
                return
        before = await artifacts.look(line.guest, wanted)
    start = _Start(line=line, attempt=attempt, stage=Stage.RUN, is_known=attempt.ids.run in known)
    async with aclosing(_stage(Stage.RUN, start, until, plan.submission.stdin)) as events:
        async for event in events:
            yield event
    if wanted:
        yield await artifacts.collect(line.guest, wanted, before, attempt.lease)


async def _known(guest: Guest, attempt: Attempt) -> frozenset[str]:
    """Returns which of our processes the previous server has started."""
    if not attempt.resume:
        return frozenset()
    ours = {attempt.ids.compile, attempt.ids.run}
    return frozenset(info.process_id for info in await guest.processes() if info.process_id in ours)


async def _write(guest: Guest, plan: Plan) -> None:
    await _write_one(guest, plan.commands.file, plan.submission.code.encode("utf-8", "surrogatepass"))
    for file in plan.submission.files:
        await _write_one(guest, f"{WORKSPACE}/{file.name}", file.data)


async def _write_one(guest: Guest, path: str, data: bytes) -> None:
    async def once() -> AsyncIterator[bytes]:
        yield data

    await guest.files.write(path, once(), mode=0o755 if data.startswith(b"#!") else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """How the process of a stage is obtained: started now, or found again."""

    line: Line
    attempt: Attempt
    stage: Stage
    is_known: bool

    async def process(self) -> Process:
        plan, ids = self.attempt.plan, self.attempt.ids
        process_id = ids.compile if self.stage is Stage.COMPILE else ids.run
        if self.is_known:
            try:
                return await self.line.guest.attach(process_id)
            except NotFound:
                raise BackendLost(why="the process was forgotten by its sandbox") from None
        argv = plan.commands.compile if self.stage is Stage.COMPILE else plan.run
        return await launch(
            self.line.guest,
            Wanted(argv=argv, cwd=WORKSPACE),
            self.line.env,
            tag=EXEC_TAG,
            has_stdin=self.stage is Stage.RUN and plan.submission.stdin is not None,
            deadline=self.attempt.deadline,
            keep=self.attempt.keep,
            process_id=process_id,
        )


async def _stage(
    stage: Stage, start: _Start, until: float, stdin: bytes | None
) -> AsyncGenerator[Began | Said | Ended, None]:
    began = time.monotonic()
    process = await start.process()
    exit_: Exit | None = None
    async with (
        process,
        killed_unless_ended(process) as guard,
        Deadline(process, max(0.0, until - began)) as deadline,
    ):
        # A kept process goes on without this server; the next one may take it over.
        guard.ended = start.attempt.keep
        yield Began(stage=stage, process=process)
        # What was written before a takeover is not written twice; an older guest does not say how much that
        # was.
        given = None if start.is_known and process.stdin_bytes is None else stdin
        async with Feeding(process, given, resume=start.is_known):
            async for item in process.output():
                if isinstance(item, Exit):
                    exit_ = item
                    break
                yield Said(stage, item)
        if exit_ is None:
            raise BackendLost(why="the program's output ended without its exit")
        guard.ended = True
    timed_out = deadline.passed and exit_.signal is not None
    yield Ended(
        stage=stage,
        exit_code=exit_.code,
        timed_out=timed_out,
        reason=EndReason.TIMED_OUT if timed_out else exit_.reason,
        duration_ms=round((time.monotonic() - began) * 1000, 3),
    )
