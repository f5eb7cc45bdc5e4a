"""Programs: code that is run once or in the cells of a session, and what comes of it, piece by piece."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from sandboxer.sdk.bodies import SandboxOptions, VolumesIn
from sandboxer.sdk.call import parse
from sandboxer.sdk.commands import Chunk, ServerEvent, bytes_of, input_of, raise_problem, stream_of
from sandboxer.wire.execute import Execution, ExecutionBegan, ExecutionOutput
from sandboxer.wire.sessions import CellEnd, CellOutput, CellResult


class Options(TypedDict, total=False):
    """How to run it; what is not given is as the language and the platform say."""

    argv: Sequence[str]
    stdin: str | bytes | None
    # By name, relative to the working folder.
    files: Mapping[str, str | bytes]
    env: Mapping[str, str]
    trust: str | None
    # `none`, `packages`, `open`, or `allow:` and hosts.
    network: str | None
    ttl_s: int | None
    vcpus: float | None
    memory_mb: int | None
    disk_mb: int | None
    profile: str | None
    # Of the host or a published one, by name or id; without it one that has the language.
    image: str | None
    # `volume`, `path` and `mode` of each.
    volumes: VolumesIn | None
    # Names and patterns of files to bring back.
    artifacts: Sequence[str]
    output_limit_bytes: int | None


class StartOptions(SandboxOptions, total=False):
    """Where a session runs, and for how long; what is not given is as the language and the platform say."""

    # A sandbox that is there; without it one is made, and ends with the session.
    sandbox_id: str | None
    image: str | None
    vcpus: int | None
    env: Mapping[str, str]
    cwd: str | None
    idle: str | None


@dataclass(frozen=True, slots=True)
class CodeChunk:
    """A piece of output, exactly as it was written, and by whom."""

    stage: Literal["compile", "run"]
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Shown:
    """Something a cell showed, by media type; pictures in base 64."""

    data: Mapping[str, str]


CodePiece = ExecutionBegan | CodeChunk | Execution
# A `CellEnd` comes first (it began) and last (it ended).
CellPiece = CellEnd | Chunk | Shown


def options_in(options: Options) -> dict[str, Any]:
    """As the platform takes them: files in a list, bytes in base 64."""
    fields: dict[str, Any] = {**options, **input_of(options.get("stdin"))}
    if "files" in options:
        fields["files"] = [{"name": name, **_content(data)} for name, data in options["files"].items()]
    return fields


def code_piece(event: ServerEvent) -> CodePiece | None:
    """What an event says; raises the problem of a broken stream. The last one's output is base 64."""
    if event.name in ("stdout", "stderr"):
        output = parse(ExecutionOutput, event.data)
        return CodeChunk(output.stage, Chunk(stream_of(event), bytes_of(output.data), output.dropped))
    if event.name in ("placed", "began"):
        return parse(ExecutionBegan, event.data)
    if event.name == "done":
        return parse(Execution, event.data)
    raise_problem(event)
    return None


def cell_piece(event: ServerEvent) -> CellPiece | None:
    """What an event says; raises the problem of a broken stream."""
    if event.name in ("stdout", "stderr"):
        return Chunk(stream_of(event), bytes_of(parse(CellOutput, event.data).data))
    if event.name == "result":
        return Shown(parse(CellResult, event.data).data)
    if event.name in ("cell", "done"):
        return parse(CellEnd, event.data)
    raise_problem(event)
    return None


def _content(data: str | bytes) -> dict[str, str]:
    if isinstance(data, str):
        return {"content": data}
    return {"content": base64.b64encode(data).decode(), "encoding": "base64"}
