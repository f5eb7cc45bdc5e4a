"""`run`: a program from a file or a pipe, in a sandbox of its own; its output live, its exit code ours.

`job`: programs that run on their own. `run --async` makes them.
"""

from __future__ import annotations

import base64
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from sandboxer.edges.cli.exec import open_stdin, write_chunk
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import (
    After,
    Cpus,
    Disk,
    InState,
    Json,
    Limit,
    Memory,
    NetworkOption,
    StateDir,
    Timeout,
    Url,
    VolumeOption,
    client,
    duration,
    mounts,
    pairs,
)
from sandboxer.edges.cli.output import ago, columns, err, facts_table, out, plain, print_json, size
from sandboxer.edges.cli.verbs import Answer, group, show_answer, verb
from sandboxer.kernel.program import late
from sandboxer.kernel.values import counted
from sandboxer.sdk.code import CodeChunk, CodePiece, Options
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.execute import Execution, Job, JobSummary

if TYPE_CHECKING:
    from sandboxer.edges.cli import builds
else:
    builds = late("sandboxer.edges.cli.builds")

STDIN = "-"
ENDED = frozenset({"finished", "failed", "cancelled", "timed_out", "lost"})
STEP_S = 5.0
app = typer.Typer(rich_markup_mode="rich")
FileOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", help="PATH or NAME=PATH, put beside the program; can be repeated."),
]
ArtifactOption = Annotated[
    list[str] | None,
    typer.Option("--artifact", "-a", help="Name or pattern of files to bring back; can be repeated."),
]
LanguageOption = Annotated[
    str | None, typer.Option("--language", "-l", help="Default: as the first line or the extension says.")
]
ImageOption = Annotated[
    str | None, typer.Option("--image", help="Image to run it in. Default: one that has the language.")
]
BuildOption = Annotated[
    bool, typer.Option("--build", help="Build the image that the language needs, if there is none.")
]
jobs = group("Look at, wait for and cancel jobs.")
groups = {"job": jobs}
JobId = Annotated[str, typer.Argument(help="Id of the job (job_…).", metavar="ID")]


@app.command("run")
def run(
    file: Annotated[str, typer.Argument(help="The program; - reads it from standard input.")],
    argv: Annotated[list[str] | None, typer.Argument(help="Words for the program.", metavar="ARGV…")] = None,
    language: LanguageOption = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; can be repeated.")] = None,
    input_file: FileOption = None,
    artifact: ArtifactOption = None,
    into: Annotated[Path, typer.Option("--into", help="Folder for what comes back.")] = Path(),
    ttl: Annotated[float, duration("--ttl", words="Kill it after this, 15m at most.")] = 60,
    network: NetworkOption = None,
    vcpus: Cpus = None,
    memory_mb: Memory = None,
    disk_mb: Disk = None,
    profile: Annotated[str | None, typer.Option(help="Recipe of the sandbox.")] = None,
    image: ImageOption = None,
    volume: VolumeOption = None,
    is_async: Annotated[
        bool, typer.Option("--async", help="Queue it as a job and print the job's id.")
    ] = False,
    webhook: Annotated[str | None, typer.Option(help="With --async: a URL to be told at the end.")] = None,
    build: BuildOption = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Run a program in a sandbox of its own: output as it comes, its exit code returned.

    What is piped into us is given to the program. Words that begin with a dash go after --. Where no image
    has the language, the smallest that would is offered to be built (as root, on the platform's host).

    Examples:

        sandboxer run hello.py

        echo 'puts 6 * 7' | sandboxer run - --language ruby

        sandboxer run plot.py --file data.csv --artifact '*.png' -- --wide

        sandboxer run app.py --image tools --network packages

        sandboxer run train.py --volume models:/models:ro --ttl 15m --async
    """
    code = _read(file)
    options = Options(
        argv=argv or [],
        files=_files(input_file),
        env=pairs(env, "--env"),
        network=network,
        ttl_s=int(ttl),
        vcpus=vcpus,
        memory_mb=memory_mb,
        disk_mb=disk_mb,
        profile=profile,
        image=image,
        volumes=mounts(volume),
        artifacts=artifact or [],
    )
    if file != STDIN and (piped := open_stdin()) is not None:
        options["stdin"] = piped.read()
    named = _language(file, code, language)
    with client(url, state_dir) as platform:
        if profile is None and image is None:
            _offer_image(platform, named, code, may_build=build, state_dir=state_dir)
        if is_async:
            job = platform.code.submit(code, language=named, webhook_url=webhook, **options)
            print_json(job) if json else out.print(job.id)
            return
        done = _run(platform, code, named, options, is_json=json)
    _save(done, into)
    raise typer.Exit(done.exit_code or 0)


def _offer_image(
    platform: Sandboxer, word: str | None, code: str, *, may_build: bool, state_dir: Path | None
) -> None:
    try:
        builds.ensure_language(platform, word, code, may_build=may_build, state_dir=state_dir)
    except ModuleNotFoundError:
        # The client alone builds no images; the platform itself says which one is missing.
        if may_build:
            raise


def _run(
    platform: Sandboxer, code: str, language: str | None, options: Options, *, is_json: bool
) -> Execution:
    if not is_json:
        return _show(platform.code.stream(code, language=language, **options))
    done = platform.code.run(code, language=language, **options)
    print_json(done)
    return done


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return data.decode()
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not text in UTF-8.", next_step="Give a source file.") from None
    except OSError as error:
        raise CommandFailed(
            f"{file} cannot be read: {error.strerror}.", next_step="Check its name."
        ) from None


def _language(file: str, code: str, given: str | None) -> str | None:
    """As said; else left to the first line of the code; else the extension."""
    if given is not None or code.startswith("#!"):
        return given
    return Path(file).suffix.removeprefix(".") or None


def _files(words: list[str] | None) -> dict[str, bytes]:
    found = {}
    for word in words or []:
        name, equals, path = word.partition("=")
        source = Path(path if equals else word)
        try:
            found[name if equals else source.name] = source.read_bytes()
        except OSError as error:
            raise CommandFailed(
                f"--file {source} cannot be read: {error.strerror}.", next_step="Check its name."
            ) from None
    return found


def _show(pieces: Iterator[CodePiece]) -> Execution:
    for piece in pieces:
        if isinstance(piece, CodeChunk):
            # What a compiler says is never the program's own output.
            write_chunk(piece.chunk, is_stderr=piece.stage == "compile")
        elif isinstance(piece, Execution):
            _explain(piece)
            return piece
    raise CommandFailed("The stream ended before the program did.", next_step="Run it again.")


def _explain(done: Execution) -> None:
    if done.timed_out:
        err.print("[yellow]timed out; everything it started was killed[/] [dim](--ttl allows more)[/]")
    elif done.reason == "compile_failed":
        err.print("[yellow]it did not compile[/]")
    elif done.reason:
        err.print(f"[yellow]ended by the sandbox: {done.reason}[/]")
    for missing in done.left_out:
        err.print(Text.assemble(("left out: ", "yellow"), plain(f"{missing.name} ({missing.why})")))


def _save(done: Execution, into: Path) -> None:
    for artifact in done.artifacts:
        target = into / artifact.name
        # The platform checks names too; a client should not have to trust it with our files.
        if not target.resolve().is_relative_to(into.resolve()):
            raise CommandFailed(f"{artifact.name} would be written outside {into}.", next_step="Tell us.")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(base64.b64decode(artifact.content))
        err.print(Text.assemble(("brought back: ", "dim"), plain(target)))


@verb(jobs, "list")
def list_jobs(platform: Sandboxer, state: InState = None, after: After = None, limit: Limit = 50) -> Answer:
    """List jobs, newest first.

    Examples:

        sandboxer job list --state running
    """
    found = platform.jobs.page(state=state, cursor=after, limit=limit)
    rows = [(job.id, job.state, job.reason, job.language, ago(job.created_at)) for job in found.jobs]
    table = columns(rows, "ID", "STATE", "REASON", "LANGUAGE", "MADE")
    return Answer(found, table, make="run FILE --async")


@verb(jobs, "show")
def show(platform: Sandboxer, job_id: JobId, json: Json = False) -> None:
    """Show a job, and what it has printed so far.

    Examples:

        sandboxer job show job_0123456789abcdefghjkmnpqrs
    """
    _show_job(platform.jobs.get(job_id), json)


@verb(jobs, "cancel")
def cancel(platform: Sandboxer, job_id: JobId, json: Json = False) -> None:
    """End a job; shows what it had printed.

    Examples:

        sandboxer job cancel job_0123456789abcdefghjkmnpqrs
    """
    _show_job(platform.jobs.cancel(job_id), json)


@verb(jobs, "wait")
def wait(platform: Sandboxer, job_id: JobId, timeout: Timeout = None, json: Json = False) -> None:
    """Wait for a job's end, print what it printed, and return its exit code.

    Examples:

        sandboxer job wait $(sandboxer run train.py --async)
    """
    job = _wait(platform, job_id, timeout)
    if json:
        print_json(job)
    else:
        _print_output(job)
        if job.state != "finished":
            err.print(f"[yellow]{job.state}: {job.reason}[/]")
    raise typer.Exit(_exit_code(job))


def _wait(platform: Sandboxer, job_id: str, timeout: float | None) -> Job:
    """Says what it waits for after a second, and again when that changes."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    step, said = 1.0, ""
    while True:
        left = until - time.monotonic()
        job = platform.jobs.wait(job_id, timeout_s=min(step, left)) if left > 0 else platform.jobs.get(job_id)
        if job.state in ENDED or left <= step:
            return job
        if said != (said := _why_waiting(job)):
            err.print(f"[dim]{said}[/]", soft_wrap=True)
        step = STEP_S


def _why_waiting(job: Job) -> str:
    if job.state == "running":
        since = f", for {ago(job.started_at).removesuffix(' ago')}" if job.started_at else ""
        return f"waiting: it runs in {job.sandbox_id}{since}"
    reasons = {"queued": "other jobs are before it", "never_started": "the platform was started again"}
    why = reasons.get(job.reason, job.reason.replace("_", " "))
    return f"waiting: it is queued, {why}; `sandboxer job cancel {job.id}` ends it"


def _exit_code(job: Job) -> int:
    """The program's own; 5 while it has none because it still runs, 1 when it never will."""
    if job.result is not None and job.result.exit_code is not None:
        return job.result.exit_code
    return 1 if job.state in ENDED else 5


def _show_job(job: Job, is_json: bool) -> None:
    show_answer(Answer(job, facts_table(_facts(job))), is_json=is_json)
    if not is_json:
        _print_output(job)


def _facts(job: JobSummary) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("id", job.id),
        ("state", f"{job.state} ({job.reason})"),
        ("language", job.language),
        ("sandbox", job.sandbox_id),
        ("made", ago(job.created_at)),
        ("ended", ago(job.ended_at)),
        ("cost", counted(job.sats, "sat") if job.sats else None),
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
    if lost := job.result.stdout_dropped + job.result.stderr_dropped:
        err.print(f"[yellow]… {size(lost)} were not kept[/]")
