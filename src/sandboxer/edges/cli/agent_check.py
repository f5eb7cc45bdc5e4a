"""`agent clone|give|work|check`: shadow clones, sandboxes that stay and meet in a git repository.

`agent think`: immolants, sandboxes that are born for one thought and end with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from sandboxer.edges.cli.agent import app
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, err, facts_table, plain
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.kernel.program import late
from sandboxer.kernel.values import counted
from sandboxer.sdk.credentials import own_files
from sandboxer.sdk.sync.client import Sandboxer

if TYPE_CHECKING:
    from sandboxer.sdk.agent import checks, clones, immolants, models
else:
    checks, clones = late("sandboxer.sdk.agent.checks"), late("sandboxer.sdk.agent.clones")
    immolants, models = late("sandboxer.sdk.agent.immolants"), late("sandboxer.sdk.agent.models")

groups = {"agent": app}
_MODEL = "Which model"
Name = Annotated[str, typer.Argument(help="Name of the clone.", metavar="NAME")]
Meeting = Annotated[str, typer.Option("--meeting", help="Name of the sandbox where clones meet.")]
ModelUrl = Annotated[
    str | None,
    typer.Option(
        "--model-url",
        envvar="SANDBOXER_MODEL_URL",
        help="Where a model answers chat completions: https://api.example.com/v1. Else a plan answers.",
        rich_help_panel=_MODEL,
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model", envvar="SANDBOXER_MODEL", help="What it is called there.", rich_help_panel=_MODEL
    ),
]
ModelSecret = Annotated[
    str | None,
    typer.Option(
        "--model-secret",
        help="Secret of the account with its key: sandboxes then ask by themselves, and never see it. Else"
        " this machine asks for them, with the key in SANDBOXER_MODEL_KEY.",
        metavar="SECRET",
        rich_help_panel=_MODEL,
    ),
]
ModelKey = Annotated[str, typer.Option("--model-key", envvar="SANDBOXER_MODEL_KEY", hidden=True)]
Script = Annotated[
    Path | None,
    typer.Option(
        "--script",
        help='Answer by this plan instead of a model: [{"when": "capital", "say": "Paris"}].',
        metavar="FILE",
        rich_help_panel=_MODEL,
    ),
]


@contextmanager
def _model(
    url: str | None, name: str, secret: str | None, key: str, script: Path | None
) -> Iterator[models.Model]:
    """Gives the model that is meant; a plan's server ends with the command."""
    if url is not None:
        if script is not None:
            raise CommandFailed("--model-url and --script exclude one another", next_step="Leave one out.")
        yield models.Endpoint(url.rstrip("/"), name, key=key, secret=secret)
        return
    if secret is not None:
        raise CommandFailed("--model-secret needs a model", next_step="Name it: --model-url.")
    with models.Scripted(models.PLAN if script is None else models.plan_of(script)) as scripted:
        yield scripted


def _keys() -> Path:
    return own_files().folder / "clones"


@verb(app, "clone", wait="raising …", timeout_s=180.0)
def clone(
    platform: Sandboxer,
    name: Name,
    meeting: Meeting = "meeting",
    slots: Annotated[int, typer.Option(min=0, help="Sandboxes that it may have itself at once.")] = 1,
    budget: Annotated[int, typer.Option(min=0, help="Sats that are given to it.")] = 0,
    depth: Annotated[int, typer.Option(min=0, help="Generations that its own sandboxes may have.")] = 0,
    need: Annotated[
        list[str] | None, typer.Option("--need", help="A program that it needs besides; can be repeated.")
    ] = None,
    model_url: ModelUrl = None,
    model: ModelName = "default",
    model_secret: ModelSecret = None,
    model_key: ModelKey = "",
    script: Script = None,
) -> Answer:
    """Raise a shadow clone: a sandbox that stays, with an authority, an SSH key and a git name of its own.

    Run it again to complete one, or to start its service again after a stop.

    Examples:

        sandboxer agent clone shadow-1

        sandboxer agent clone shadow-2 --slots 3 --budget 500
    """
    wanted = clones.Wanted(
        slots=slots,
        budget_sats=budget,
        depth=depth,
        needs=[*clones.NEEDS, *(need or [])],
        keys=_keys(),
    )
    with _model(model_url, model, model_secret, model_key, script) as thinks:
        made = clones.raise_clone(platform, name, meeting, wanted, thinks)
    facts = {"name": name, "sandbox": made.sandbox.id, "meeting": made.meeting.id, "at": clones.tip(made)}
    return Answer(
        facts, facts_table(list(facts.items())), note=plain(f"check it: sandboxer agent check {name}")
    )


@verb(app, "give")
def give(
    platform: Sandboxer,
    name: Name,
    tasks: Annotated[list[str], typer.Argument(help="What is to be done; each word group is a task.")],
    meeting: Meeting = "meeting",
) -> Answer:
    """Put tasks before all clones; this one carries them to the meeting.

    Examples:

        sandboxer agent give shadow-1 "name a river" "name a mountain"
    """
    named = {f"task-{uuid.uuid4().hex[:12]}": text for text in tasks}
    clones.put_tasks(clones.find(platform, name, meeting), named)
    return Answer(named, columns(list(named.items()), "TASK", "TEXT"))


@verb(app, "work", wait="working …", timeout_s=180.0)
def work(
    platform: Sandboxer,
    names: Annotated[list[str], typer.Argument(help="Names of clones.", metavar="NAME…")],
    meeting: Meeting = "meeting",
    model_url: ModelUrl = None,
    model: ModelName = "default",
    model_secret: ModelSecret = None,
    model_key: ModelKey = "",
    script: Script = None,
) -> Answer:
    """Let clones take tasks, think and push results, all at once, until none is left.

    Examples:

        sandboxer agent work shadow-1 shadow-2
    """
    found = [clones.find(platform, name, meeting) for name in names]
    with (
        _model(model_url, model, model_secret, model_key, script) as thinks,
        ThreadPoolExecutor(len(found)) as pool,
    ):
        for one in [pool.submit(_work_all, each, thinks) for each in found]:
            one.result()
    done = clones.results(found[0])
    rows = [
        (task, of.get("taken", "").strip(), of.get("tasks", ""), of.get("results", ""))
        for task, of in done.items()
    ]
    return Answer(done, columns(rows, "TASK", "CLONE", "TEXT", "RESULT"))


def _work_all(one: clones.Clone, model: models.Model) -> None:
    while clones.work(one, model) is not None:
        pass


@verb(app, "check", wait="checking …", timeout_s=180.0)
def check(
    platform: Sandboxer,
    name: Name,
    meeting: Meeting = "meeting",
    model_url: ModelUrl = None,
    model: ModelName = "default",
    model_secret: ModelSecret = None,
    model_key: ModelKey = "",
    script: Script = None,
) -> Answer:
    """Check a clone: container, service, model, SSH, git, files, log, dependencies, a task from end to end.
    At last, what it would show to whoever reaches a port of it.

    Exit code 1 if one failed. What needs something that failed is not tried.

    Examples:

        sandboxer agent check shadow-1
    """
    with _model(model_url, model, model_secret, model_key, script) as thinks:
        subject = checks.Subject(platform, clones.find(platform, name, meeting), thinks, _keys())
        seen = checks.check(subject)
    lines = [_line(one) for one in seen]
    counted = checks.summary(seen)
    value = {"clone": name, **counted, "checks": [_as_json(one) for one in seen]}
    note = plain(f"{counted['passed']} passed, {counted['failed']} failed, {counted['not_tried']} not tried")
    code = Exit.ERROR if counted["failed"] else Exit.OK
    return Answer(value, *lines, note=note, code=code, sep="\n", soft_wrap=True)


def _as_json(one: checks.Result) -> dict[str, str]:
    return {"name": one.name, "outcome": one.outcome.value, "why": one.why}


def _line(one: checks.Result) -> Text:
    style = {"passed": "green", "failed": "red"}.get(one.outcome.value, "dim")
    word = one.outcome.value.replace("_", " ")
    return Text.assemble((f"{word:<10}", style), f"{one.name:<13}", plain(one.why))


@verb(app, "think", wait="thinking …", timeout_s=180.0)
def think(
    platform: Sandboxer,
    question: Annotated[str, typer.Argument(help="What they think about.")],
    topology: Annotated[
        str, typer.Option("--topology", help="debate, reflection or consensus.", metavar="TOPOLOGY")
    ] = "debate",
    rounds: Annotated[int, typer.Option(min=1, max=20, help="How often each side of a debate speaks.")] = 2,
    voters: Annotated[int, typer.Option(min=1, max=25, help="How many answer for a consensus.")] = 3,
    model_url: ModelUrl = None,
    model: ModelName = "default",
    model_secret: ModelSecret = None,
    model_key: ModelKey = "",
    script: Script = None,
    json: Json = False,
) -> Answer:
    """Let immolants debate, reflect or vote: each thought in a sandbox of its own, which ends with it.

    Examples:

        sandboxer agent think "Is a tomato a fruit?"

        sandboxer agent think --topology consensus "Capital of France?"
    """
    if topology not in {one.value for one in immolants.Topology}:
        raise CommandFailed(f"{topology!r} is no topology", next_step="Take debate, reflection or consensus.")

    if model_url is None and script is None and not json:
        err.print("No model is named, so a plan answers and nothing is thought: --model-url.", style="dim")

    def told(thought: immolants.Thought) -> None:
        if not json:
            err.print(plain(f"{thought.by}: {thought.text}"), style="dim")

    with _model(model_url, model, model_secret, model_key, script) as thinks:
        verdict = immolants.think_together(
            platform,
            thinks,
            question,
            immolants.Topology(topology),
            rounds=rounds,
            voters=voters,
            told=told,
        )
    value: dict[str, Any] = {"answer": verdict.answer, "how": verdict.how, "sats": verdict.sats}
    value["thoughts"] = [
        {"by": one.by, "text": one.text, "sandbox_id": one.sandbox_id, "msats": one.msats}
        for one in verdict.thoughts
    ]
    cost = f"{counted(len(verdict.thoughts), 'immolant')}, {counted(verdict.sats, 'sat')}; none is left"
    return Answer(value, plain(verdict.answer), note=plain(f"{verdict.how}; {cost}"))
