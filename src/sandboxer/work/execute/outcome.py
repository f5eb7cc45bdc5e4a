"""The recorder keeps what a run printed and how it ended: the first bytes of each stream, while the rest is
only counted.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandboxer.backends.guest import EndReason, Output, Stream
from sandboxer.kernel.budget import Lease
from sandboxer.work.execute.artifacts import NOTHING, Artifact, Collected, LeftOut
from sandboxer.work.execute.run import Began, Ended, Event, Said, Stage

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """The output of one stage. `end` is None while it runs."""

    stdout: bytes
    stderr: bytes
    stdout_dropped: int
    stderr_dropped: int
    end: Ended | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    compile: StageResult | None
    run: StageResult | None
    collected: Collected = NOTHING

    @property
    def last(self) -> StageResult | None:
        """Returns the stage that decides how the run ended."""
        return self.run or self.compile

    @property
    def exit_code(self) -> int | None:
        last = self.last
        return None if last is None or last.end is None else last.end.exit_code

    @property
    def timed_out(self) -> bool:
        last = self.last
        return last is not None and last.end is not None and last.end.timed_out

    @property
    def reason(self) -> str | None:
        last = self.last
        if last is None or last.end is None:
            return None
        if last.end.reason is not None:
            return last.end.reason.value
        return COMPILE_FAILED if self.run is None and last.end.exit_code else None

    @property
    def truncated(self) -> bool:
        stages = (stage for stage in (self.compile, self.run) if stage is not None)
        return any(stage.stdout_dropped or stage.stderr_dropped for stage in stages)


EMPTY = Outcome(compile=None, run=None)


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
        tapes = self._tapes.get(stage)
        if tapes is None:
            return None
        out, err = tapes[Stream.STDOUT], tapes[Stream.STDERR]
        return StageResult(
            stdout=bytes(out.data),
            stderr=bytes(err.data),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            end=self._ends.get(stage),
        )


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Returns the outcome as it is stored in the record of a job."""
    return {
        "compile": _stage_to_json(outcome.compile),
        "run": _stage_to_json(outcome.run),
        "artifacts": [[a.name, a.mode, _text(a.data)] for a in outcome.collected.artifacts],
        "left_out": [[one.name, one.why, one.size] for one in outcome.collected.left_out],
    }


def from_json(kept: Mapping[str, Any]) -> Outcome:
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
    end = kept["end"]
    if end is not None:
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
