"""`jobs`: programs that run on their own. `run --async` makes them."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, err, facts_table, out, print_json
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.jobs import Job, JobSummary

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True, help="Look at, wait for and cancel jobs.")
groups = {"jobs": app}
JobId = Annotated[str, typer.Argument(help="Id of the job (job_…).", metavar="ID")]
ENDED = frozenset({"finished", "failed", "cancelled", "timed_out", "lost"})
STEP_S = 30.0


@app.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """List jobs, newest first.

    Examples:

        sandboxer jobs list --state running
    """
    with client(url, state_dir) as platform:
        found = list(islice(platform.jobs.list(state=state, limit=limit), limit))
    if json:
        print_json(found)
        return
    rows = [(job.id, job.state, job.reason, job.language, ago(job.created_at)) for job in found]
    out.print(columns(rows, "ID", "STATE", "REASON", "LANGUAGE", "MADE"))


@app.command("show")
def show(job_id: JobId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show a job, and what it has printed so far.

    Examples:

        sandboxer jobs show job_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        job = platform.jobs.get(job_id)
    print_json(job) if json else show_job(job)


@app.command("cancel")
def cancel(job_id: JobId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """End a job; shows what it had printed.

    Examples:

        sandboxer jobs cancel job_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        job = platform.jobs.cancel(job_id)
    print_json(job) if json else show_job(job)


@app.command("wait")
def wait(
    job_id: JobId,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Wait for a job's end, print what it printed, and return its exit code.

    Examples:

        sandboxer jobs wait $(sandboxer run train.py --async)
    """
    with client(url, state_dir) as platform:
        job = _wait(platform, job_id, timeout)
    if json:
        print_json(job)
    else:
        _print_output(job)
        if job.state != "finished":
            err.print(f"[yellow]{job.state}: {job.reason}[/]")
    raise typer.Exit(_exit_code(job))


def _wait(platform: Sandboxer, job_id: str, timeout: float | None) -> Job:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = STEP_S if until is None else until - time.monotonic()
        job = (
            platform.jobs.wait(job_id, timeout_s=min(STEP_S, left)) if left > 0 else platform.jobs.get(job_id)
        )
        if job.state in ENDED or (left <= STEP_S and until is not None):
            return job


def _exit_code(job: Job) -> int:
    """The program's own; 5 while it has none because it still runs, 1 when it never will."""
    if job.result is not None and job.result.exit_code is not None:
        return job.result.exit_code
    return 1 if job.state in ENDED else 5


def show_job(job: Job) -> None:
    out.print(facts_table(_facts(job)))
    _print_output(job)


def _facts(job: JobSummary) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("id", job.id),
        ("state", f"{job.state} ({job.reason})"),
        ("language", job.language),
        ("sandbox", job.sandbox_id),
        ("made", ago(job.created_at)),
        ("ended", ago(job.ended_at)),
        ("cost", f"{job.sats} sats" if job.sats else None),
        ("problem", None if job.problem is None else job.problem.detail),
    ]
    if isinstance(job, Job) and job.result is not None:
        facts.append(("exit code", job.result.exit_code))
        if job.result.compile is not None:
            facts.append(("compiler", job.result.compile.stderr or job.result.compile.stdout))
    return facts


def _print_output(job: Job) -> None:
    if job.result is None:
        return
    out.out(job.result.stdout, end="", highlight=False)
    err.out(job.result.stderr, end="", highlight=False)
    lost = job.result.stdout_dropped + job.result.stderr_dropped
    if lost:
        err.print(f"[yellow]… {lost} bytes were not kept[/]")
