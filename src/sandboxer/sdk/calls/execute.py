# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.execute import Execution, Job, JobPage, JobSummary


def execute_code(
    *,
    code: str,
    language: str | None = None,
    argv: Sequence[str] | None = None,
    stdin: str | None = None,
    stdin_encoding: str | None = None,
    files: Sequence[Mapping[str, Any]] | None = None,
    env: Mapping[str, str] | None = None,
    trust: str | None = None,
    network: str | None = None,
    ttl_s: int | None = None,
    vcpus: float | None = None,
    memory_mb: int | None = None,
    disk_mb: int | None = None,
    profile: str | None = None,
    image: str | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    artifacts: Sequence[str] | None = None,
    output_limit_bytes: int | None = None,
    encoding: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Execution]:
    """Run code in a sandbox of its own, which is deleted afterwards."""
    return Call(
        operation="executeCode",
        method="POST",
        target="/v1/execute",
        answer="sandboxer.wire.execute:Execution",
        body=json_body(
            {"code": code},
            language=language,
            argv=argv,
            stdin=stdin,
            stdin_encoding=stdin_encoding,
            files=files,
            env=env,
            trust=trust,
            network=network,
            ttl_s=ttl_s,
            vcpus=vcpus,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            profile=profile,
            image=image,
            volumes=volumes,
            artifacts=artifacts,
            output_limit_bytes=output_limit_bytes,
            encoding=encoding,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def execute_later(
    *,
    code: str,
    language: str | None = None,
    argv: Sequence[str] | None = None,
    stdin: str | None = None,
    stdin_encoding: str | None = None,
    files: Sequence[Mapping[str, Any]] | None = None,
    env: Mapping[str, str] | None = None,
    trust: str | None = None,
    network: str | None = None,
    ttl_s: int | None = None,
    vcpus: float | None = None,
    memory_mb: int | None = None,
    disk_mb: int | None = None,
    profile: str | None = None,
    image: str | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    artifacts: Sequence[str] | None = None,
    output_limit_bytes: int | None = None,
    encoding: str | None = None,
    webhook_url: str | None = None,
    idempotency_key: str | None = None,
) -> Call[JobSummary]:
    """Queue code as a job."""
    return Call(
        operation="executeLater",
        method="POST",
        target="/v1/execute/async",
        answer="sandboxer.wire.execute:JobSummary",
        body=json_body(
            {"code": code},
            language=language,
            argv=argv,
            stdin=stdin,
            stdin_encoding=stdin_encoding,
            files=files,
            env=env,
            trust=trust,
            network=network,
            ttl_s=ttl_s,
            vcpus=vcpus,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            profile=profile,
            image=image,
            volumes=volumes,
            artifacts=artifacts,
            output_limit_bytes=output_limit_bytes,
            encoding=encoding,
            webhook_url=webhook_url,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def list_jobs(
    *, state: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[JobPage]:
    """List jobs, newest first."""
    return Call(
        operation="listJobs",
        method="GET",
        target=target_of("/v1/jobs", state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.execute:JobPage",
    )


def get_job(job_id: str, *, wait_s: float | None = None, encoding: str | None = None) -> Call[Job]:
    """Show a job, and what it has printed so far."""
    return Call(
        operation="getJob",
        method="GET",
        target=target_of("/v1/jobs/{}", job_id, wait_s=wait_s, encoding=encoding),
        answer="sandboxer.wire.execute:Job",
    )


def cancel_job(job_id: str, *, encoding: str | None = None) -> Call[Job]:
    """Cancel a job: answers with what it had printed; one that has ended stays as it is."""
    return Call(
        operation="cancelJob",
        method="DELETE",
        target=target_of("/v1/jobs/{}", job_id, encoding=encoding),
        answer="sandboxer.wire.execute:Job",
        is_repeatable=True,
    )
