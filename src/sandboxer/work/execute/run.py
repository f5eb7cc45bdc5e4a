"""One run inside a ready sandbox: the code is written, compiled and run, and its artifacts are fetched.

It is a generator of events, so that a run can be shown live, recorded, or both. Process ids are chosen
beforehand, so that a server that takes over can find the run again (`resume`). Closing the generator early
kills what it started.

The recorder keeps what a run printed and how it ended: the first bytes of each stream, while the rest is only
counted.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandboxer.backends.guest import EndReason, Exit, Guest, Output, Process, Stream, whole
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import BackendLost, NotFound
from sandboxer.kernel.values import brief_value_class, new_id, value_class
from sandboxer.work.exec import Deadline, Feeding, killed_unless_ended
from sandboxer.work.execute import artifacts
from sandboxer.work.execute.artifacts import NOTHING, Artifact, Collected, LeftOut
from sandboxer.work.execute.submission import Plan
from sandboxer.work.lines import EXEC_TAG, WORKSPACE, Line, Wanted, launch


class Stage(StrEnum):
    COMPILE = "compile"
    RUN = "run"


@value_class
class Began:
    stage: Stage
    # For a caller who wants to end it early.
    process: Process


@brief_value_class
class Said:
    stage: Stage
    output: Output


@value_class
class Ended:
    stage: Stage
    exit_code: int
    timed_out: bool
    reason: EndReason | None
    duration_ms: float


Event = Began | Said | Ended | Collected


@value_class
class ProcessIds:
    compile: str
    run: str


def new_process_ids() -> ProcessIds:
    return ProcessIds(compile=new_id("prc"), run=new_id("prc"))


@value_class
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
    if not (known := await _known(line.guest, attempt)):
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
    await guest.files.write(path, whole(data), mode=0o755 if data.startswith(b"#!") else None)


@value_class
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


COMPILE_FAILED = "compile_failed"


@dataclass(slots=True)
class Tape:
    """Keeps the first `limit` bytes of one stream."""

    limit: int
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def room_for(self, output: Output) -> int:
        """Returns how many bytes of the data will be kept."""
        return min(len(output.data), max(0, self.limit - len(self.data)))

    def take(self, output: Output) -> None:
        part = output.data[: self.room_for(output)]
        self.data += part
        self.dropped += output.dropped + len(output.data) - len(part)


@value_class
class StageResult:
    """The output of one stage. `end` is None while it runs."""

    stdout: bytes
    stderr: bytes
    stdout_dropped: int
    stderr_dropped: int
    end: Ended | None


@value_class
class Outcome:
    compile: StageResult | None
    run: StageResult | None
    collected: Collected = NOTHING

    @property
    def last(self) -> StageResult | None:
        """Returns the stage that decides how the run ended."""
        return self.run or self.compile

    @property
    def end(self) -> Ended | None:
        """Returns how that stage ended, or None while it runs."""
        return None if self.last is None else self.last.end

    @property
    def exit_code(self) -> int | None:
        return None if self.end is None else self.end.exit_code

    @property
    def timed_out(self) -> bool:
        return self.end is not None and self.end.timed_out

    @property
    def reason(self) -> str | None:
        if self.end is not None and self.end.reason is not None:
            return self.end.reason.value
        return COMPILE_FAILED if self.run is None and self.exit_code else None

    @property
    def truncated(self) -> bool:
        stages = (stage for stage in (self.compile, self.run) if stage is not None)
        return any(stage.stdout_dropped or stage.stderr_dropped for stage in stages)


class Recorder:
    """Records events; `outcome` returns what there is so far. Kept output counts against `lease`."""

    def __init__(self, limit: int, lease: Lease) -> None:
        self._limit = limit
        self._lease = lease
        self._tapes: dict[Stage, dict[Stream, Tape]] = {}
        self._ends: dict[Stage, Ended] = {}
        self._collected = NOTHING

    async def take(self, event: Event) -> None:
        """Records an event. The program waits while there is no memory for its output. Raises OverBudget,
        NoCapacity.
        """
        match event:
            case Said(stage=stage, output=output):
                tape = self._tapes[stage][output.stream]
                await self._lease.grow(tape.room_for(output))
                tape.take(output)
            case Began(stage=stage):
                self._tapes[stage] = {stream: Tape(self._limit) for stream in Stream}
            case Ended(stage=stage):
                self._ends[stage] = event
            case Collected():
                self._collected = event

    def outcome(self) -> Outcome:
        return Outcome(
            compile=self._stage(Stage.COMPILE), run=self._stage(Stage.RUN), collected=self._collected
        )

    def _stage(self, stage: Stage) -> StageResult | None:
        if (tapes := self._tapes.get(stage)) is None:
            return None
        out, err = tapes[Stream.STDOUT], tapes[Stream.STDERR]
        return StageResult(
            stdout=bytes(out.data),
            stderr=bytes(err.data),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            end=self._ends.get(stage),
        )


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Returns the outcome as it is stored in the record of a job."""
    return {
        "compile": _stage_to_json(outcome.compile),
        "run": _stage_to_json(outcome.run),
        "artifacts": [[a.name, a.mode, _text(a.data)] for a in outcome.collected.artifacts],
        "left_out": [[one.name, one.why, one.size] for one in outcome.collected.left_out],
    }


def outcome_from_json(kept: Mapping[str, Any]) -> Outcome:
    return Outcome(
        compile=_stage_from_json(Stage.COMPILE, kept["compile"]),
        run=_stage_from_json(Stage.RUN, kept["run"]),
        collected=Collected(
            artifacts=[
                Artifact(name=name, mode=mode, data=base64.b64decode(data))
                for name, mode, data in kept["artifacts"]
            ],
            left_out=[LeftOut(name=name, why=why, size=size) for name, why, size in kept["left_out"]],
        ),
    )


def _stage_to_json(stage: StageResult | None) -> dict[str, Any] | None:
    if stage is None:
        return None
    end = stage.end
    return {
        "stdout": _text(stage.stdout),
        "stderr": _text(stage.stderr),
        "stdout_dropped": stage.stdout_dropped,
        "stderr_dropped": stage.stderr_dropped,
        "end": None
        if end is None
        else {
            "exit_code": end.exit_code,
            "timed_out": end.timed_out,
            "reason": None if end.reason is None else end.reason.value,
            "duration_ms": end.duration_ms,
        },
    }


def _stage_from_json(stage: Stage, kept: Mapping[str, Any] | None) -> StageResult | None:
    if kept is None:
        return None
    if (end := kept["end"]) is not None:
        reason = None if end["reason"] is None else EndReason(end["reason"])
        end = Ended(stage=stage, **{**end, "reason": reason})
    return StageResult(
        stdout=base64.b64decode(kept["stdout"]),
        stderr=base64.b64decode(kept["stderr"]),
        stdout_dropped=kept["stdout_dropped"],
        stderr_dropped=kept["stderr_dropped"],
        end=end,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
