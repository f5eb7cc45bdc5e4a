"""Jobs: code that runs on after its request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sandboxer.wire.execute import Execution
from sandboxer.wire.words import Answer, Moment

JobId = Annotated[
    str,
    Field(
        pattern=r"^job_[0-9a-hjkmnp-tv-z]{26}$",
        max_length=30,
        description="Id of a job.",
        examples=["job_0123456789abcdefghjkmnpqrs"],
    ),
]
JobState = Literal["queued", "running", "finished", "failed", "cancelled", "timed_out", "lost"]


class JobProblem(Answer):
    """Why a job could not be started, or was lost."""

    code: str
    detail: str
    next_step: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)


class JobSummary(Answer):
    id: str
    state: Annotated[
        JobState,
        Field(
            description="`finished`: the program ended by itself, whatever its exit code. `failed`: it did "
            "not compile or could not be started. `lost`: its sandbox went away under it."
        ),
    ]
    reason: str
    language: str
    sandbox_id: str | None = None
    sats: int = 0
    webhook_url: str | None = None
    problem: JobProblem | None = None
    created_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = None


class Job(JobSummary):
    result: Annotated[
        Execution | None, Field(description="What there is of it so far; whole once it ended.")
    ] = None


class JobPage(Answer):
    jobs: list[JobSummary]
    next_cursor: str | None = None
