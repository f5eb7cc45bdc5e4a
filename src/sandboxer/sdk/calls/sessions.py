# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.sessions import Cell, CellList, Interrupted, Session, SessionPage


def run_cell(
    session_id: str,
    *,
    code: str,
    timeout_s: float | None = None,
    wait: bool | None = None,
    encoding: str | None = None,
) -> Call[Cell]:
    """Run a cell in a session; it runs on when you disconnect."""
    return Call(
        operation="runCell",
        method="POST",
        target=target_of("/v1/sessions/{}/cells", session_id),
        answer="sandboxer.wire.sessions:Cell",
        body=json_body({"code": code}, timeout_s=timeout_s, wait=wait, encoding=encoding),
        headers=headers_of(content_type="application/json"),
    )


def start_session(
    *,
    language: str,
    sandbox_id: str | None = None,
    name: str | None = None,
    profile: str | None = None,
    image: str | None = None,
    trust: str | None = None,
    network: str | None = None,
    vcpus: int | None = None,
    resources: Mapping[str, Any] | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    ttl: str | None = None,
    idle: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Session]:
    """Start an interpreter that keeps its state."""
    return Call(
        operation="startSession",
        method="POST",
        target="/v1/sessions",
        answer="sandboxer.wire.sessions:Session",
        body=json_body(
            {"language": language},
            sandbox_id=sandbox_id,
            name=name,
            profile=profile,
            image=image,
            trust=trust,
            network=network,
            vcpus=vcpus,
            resources=resources,
            volumes=volumes,
            env=env,
            cwd=cwd,
            ttl=ttl,
            idle=idle,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=180.0,
    )


def list_sessions(
    *,
    sandbox_id: str | None = None,
    state: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[SessionPage]:
    """List sessions, newest first."""
    return Call(
        operation="listSessions",
        method="GET",
        target=target_of("/v1/sessions", sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.sessions:SessionPage",
    )


def get_session(session_id: str) -> Call[Session]:
    """Show a session."""
    return Call(
        operation="getSession",
        method="GET",
        target=target_of("/v1/sessions/{}", session_id),
        answer="sandboxer.wire.sessions:Session",
    )


def end_session(session_id: str) -> Call[Session]:
    """End a session, and its sandbox if that was made for it; ended already is success."""
    return Call(
        operation="endSession",
        method="DELETE",
        target=target_of("/v1/sessions/{}", session_id),
        answer="sandboxer.wire.sessions:Session",
        is_repeatable=True,
    )


def list_cells(session_id: str) -> Call[CellList]:
    """List a session's cells that are still kept, oldest first."""
    return Call(
        operation="listCells",
        method="GET",
        target=target_of("/v1/sessions/{}/cells", session_id),
        answer="sandboxer.wire.sessions:CellList",
    )


def get_cell(
    session_id: str,
    n: int,
    *,
    wait_s: float | None = None,
    encoding: str | None = None,
    last_event_id: str | None = None,
) -> Call[Cell]:
    """Show a cell, wait for it, or follow it while it runs."""
    return Call(
        operation="getCell",
        method="GET",
        target=target_of("/v1/sessions/{}/cells/{}", session_id, n, wait_s=wait_s, encoding=encoding),
        answer="sandboxer.wire.sessions:Cell",
        headers=headers_of(last_event_id=last_event_id),
    )


def interrupt_session(session_id: str) -> Call[Interrupted]:
    """Stop the running cell as Ctrl-C would; the state stays."""
    return Call(
        operation="interruptSession",
        method="POST",
        target=target_of("/v1/sessions/{}/interrupt", session_id),
        answer="sandboxer.wire.sessions:Interrupted",
    )


def restart_session(session_id: str) -> Call[Session]:
    """Start a fresh interpreter: variables are lost, files are not."""
    return Call(
        operation="restartSession",
        method="POST",
        target=target_of("/v1/sessions/{}/restart", session_id),
        answer="sandboxer.wire.sessions:Session",
        timeout_s=180.0,
    )


def freeze_session(session_id: str) -> Call[Session]:
    """Freeze a session: its sandbox is paused in memory."""
    return Call(
        operation="freezeSession",
        method="POST",
        target=target_of("/v1/sessions/{}/freeze", session_id),
        answer="sandboxer.wire.sessions:Session",
        timeout_s=180.0,
    )


def thaw_session(session_id: str) -> Call[Session]:
    """Let a frozen session go on."""
    return Call(
        operation="thawSession",
        method="POST",
        target=target_of("/v1/sessions/{}/thaw", session_id),
        answer="sandboxer.wire.sessions:Session",
        timeout_s=180.0,
    )


def boost_session(session_id: str, *, vcpus: int) -> Call[Session]:
    """Give a session more CPUs, and 2 GB of memory with each, at once."""
    return Call(
        operation="boostSession",
        method="POST",
        target=target_of("/v1/sessions/{}/boost", session_id),
        answer="sandboxer.wire.sessions:Session",
        body=json_body({"vcpus": vcpus}),
        headers=headers_of(content_type="application/json"),
    )


def unboost_session(session_id: str) -> Call[Session]:
    """Take back what a boost gave a session; not boosted is success."""
    return Call(
        operation="unboostSession",
        method="POST",
        target=target_of("/v1/sessions/{}/unboost", session_id),
        answer="sandboxer.wire.sessions:Session",
        timeout_s=180.0,
    )


def lock_session(session_id: str) -> Call[Session]:
    """Lock a session: ending its sandbox then needs a second proof."""
    return Call(
        operation="lockSession",
        method="POST",
        target=target_of("/v1/sessions/{}/lock", session_id),
        answer="sandboxer.wire.sessions:Session",
        timeout_s=180.0,
    )


def unlock_session(session_id: str) -> Call[Session]:
    """Unlock a session."""
    return Call(
        operation="unlockSession",
        method="POST",
        target=target_of("/v1/sessions/{}/unlock", session_id),
        answer="sandboxer.wire.sessions:Session",
        timeout_s=180.0,
    )
