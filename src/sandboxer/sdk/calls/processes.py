# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandboxer.sdk.call import EVENT_STREAM, NOTHING, STREAM_TIMEOUT_S, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.processes import ExecResult, Process, ProcessList, StdinWritten, TerminalList


def run_command(
    sandbox_id: str,
    *,
    command: str | None = None,
    argv: Sequence[str] | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    trace: bool | None = None,
    stdin: str | None = None,
    stdin_encoding: str | None = None,
    timeout_s: float | None = None,
    output_limit_bytes: int | None = None,
    encoding: str | None = None,
    is_streamed: bool | None = None,
) -> Call[ExecResult]:
    """Run a command to its end."""
    return Call(
        operation="runCommand",
        method="POST",
        target=target_of("/v1/sandboxes/{}/exec", sandbox_id, stream=is_streamed),
        answer="sandboxer.wire.processes:ExecResult",
        body=json_body(
            {},
            command=command,
            argv=argv,
            cwd=cwd,
            env=env,
            user=user,
            trace=trace,
            stdin=stdin,
            stdin_encoding=stdin_encoding,
            timeout_s=timeout_s,
            output_limit_bytes=output_limit_bytes,
            encoding=encoding,
        ),
        headers=headers_of(content_type="application/json"),
    )


def start_process(
    sandbox_id: str,
    *,
    command: str | None = None,
    argv: Sequence[str] | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    trace: bool | None = None,
    has_stdin: bool | None = None,
    timeout_s: float | None = None,
    tag: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Process]:
    """Start a process in the background."""
    return Call(
        operation="startProcess",
        method="POST",
        target=target_of("/v1/sandboxes/{}/processes", sandbox_id),
        answer="sandboxer.wire.processes:Process",
        body=json_body(
            {},
            command=command,
            argv=argv,
            cwd=cwd,
            env=env,
            user=user,
            trace=trace,
            has_stdin=has_stdin,
            timeout_s=timeout_s,
            tag=tag,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def list_processes(sandbox_id: str) -> Call[ProcessList]:
    """List background processes, oldest first."""
    return Call(
        operation="listProcesses",
        method="GET",
        target=target_of("/v1/sandboxes/{}/processes", sandbox_id),
        answer="sandboxer.wire.processes:ProcessList",
    )


def get_process(sandbox_id: str, process_id: str) -> Call[Process]:
    """Show a process."""
    return Call(
        operation="getProcess",
        method="GET",
        target=target_of("/v1/sandboxes/{}/processes/{}", sandbox_id, process_id),
        answer="sandboxer.wire.processes:Process",
    )


def attach_process(
    sandbox_id: str,
    process_id: str,
    *,
    after: str | None = None,
    encoding: str | None = None,
    follow: bool | None = None,
    last_event_id: str | None = None,
) -> Call[None]:
    """Follow a process's output: what is kept, then what comes."""
    return Call(
        operation="attachProcess",
        method="GET",
        target=target_of(
            "/v1/sandboxes/{}/processes/{}/output",
            sandbox_id,
            process_id,
            after=after,
            encoding=encoding,
            follow=follow,
        ),
        answer=NOTHING,
        headers=headers_of(accept=EVENT_STREAM, last_event_id=last_event_id),
        timeout_s=STREAM_TIMEOUT_S,
    )


def write_stdin(
    sandbox_id: str,
    process_id: str,
    *,
    data: str,
    encoding: str | None = None,
    close: bool | None = None,
    offset: int | None = None,
) -> Call[StdinWritten]:
    """Write to a process's stdin."""
    return Call(
        operation="writeStdin",
        method="POST",
        target=target_of("/v1/sandboxes/{}/processes/{}/stdin", sandbox_id, process_id),
        answer="sandboxer.wire.processes:StdinWritten",
        body=json_body({"data": data}, encoding=encoding, close=close, offset=offset),
        headers=headers_of(content_type="application/json"),
        timeout_s=3600.0,
    )


def close_stdin(sandbox_id: str, process_id: str) -> Call[None]:
    """Close a process's stdin."""
    return Call(
        operation="closeStdin",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/processes/{}/stdin", sandbox_id, process_id),
        answer=NOTHING,
        timeout_s=3600.0,
    )


def signal_process(sandbox_id: str, process_id: str, *, signal: str, tree: bool | None = None) -> Call[None]:
    """Send a process a signal; ended already is success."""
    return Call(
        operation="signalProcess",
        method="POST",
        target=target_of("/v1/sandboxes/{}/processes/{}/signal", sandbox_id, process_id),
        answer=NOTHING,
        body=json_body({"signal": signal}, tree=tree),
        headers=headers_of(content_type="application/json"),
    )


def wait_process(sandbox_id: str, process_id: str, *, timeout_s: float | None = None) -> Call[Process]:
    """Wait for a process to end, or for the time to be over."""
    return Call(
        operation="waitProcess",
        method="GET",
        target=target_of("/v1/sandboxes/{}/processes/{}/wait", sandbox_id, process_id, timeout_s=timeout_s),
        answer="sandboxer.wire.processes:Process",
    )


def end_process(sandbox_id: str, process_id: str) -> Call[None]:
    """Kill a process and everything it started, and forget it."""
    return Call(
        operation="endProcess",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/processes/{}", sandbox_id, process_id),
        answer=NOTHING,
    )


def open_terminal(
    sandbox_id: str,
    *,
    terminal_id: str | None = None,
    cols: int | None = None,
    rows: int | None = None,
    command: str | None = None,
    cwd: str | None = None,
    user: str | None = None,
) -> Call[None]:
    """Open a terminal (WebSocket)."""
    return Call(
        operation="openTerminal",
        method="GET",
        target=target_of(
            "/v1/sandboxes/{}/terminal",
            sandbox_id,
            terminal_id=terminal_id,
            cols=cols,
            rows=rows,
            command=command,
            cwd=cwd,
            user=user,
        ),
        answer=NOTHING,
    )


def list_terminals(sandbox_id: str) -> Call[TerminalList]:
    """List terminals, oldest first."""
    return Call(
        operation="listTerminals",
        method="GET",
        target=target_of("/v1/sandboxes/{}/terminals", sandbox_id),
        answer="sandboxer.wire.processes:TerminalList",
    )


def end_terminal(sandbox_id: str, terminal_id: str) -> Call[None]:
    """End a terminal and what runs in it."""
    return Call(
        operation="endTerminal",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/terminals/{}", sandbox_id, terminal_id),
        answer=NOTHING,
    )
