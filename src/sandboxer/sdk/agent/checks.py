"""The functional checks of a shadow clone: nine of them, and a look at what its service could show.

Each asks the running clone and says what it saw. One that needs what another found broken is not tried, so
that the first cause is named and not everything that follows from it. The clone is not believed: what was
agreed on is read from the meeting, and hashes are computed here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from sandboxer.sdk.agent import notebook
from sandboxer.sdk.agent.clones import (
    MEETING,
    Clone,
    bring,
    key_file,
    needs_of,
    put_tasks,
    run,
    settle,
    take,
    tip,
    work,
)
from sandboxer.sdk.agent.models import Failed, Model, think
from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.sdk.sync.client import Sandboxer

# What becomes of an answer that has another form than it should.
ODD = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
HERE = f"git -C {notebook.HOME} "


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    # What it needs is broken, or is not on this platform.
    NOT_TRIED = "not_tried"


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    outcome: Outcome
    # What was seen, as a sentence.
    why: str


class NotHere(Exception):
    """This platform lacks what the check is about."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What the checks are about, and with what."""

    client: Sandboxer
    clone: Clone
    model: Model
    keys: Path | None


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    # Says what is well, or raises what is not.
    look: Callable[[Subject], str]
    needs: tuple[str, ...] = ("container",)


def container(on: Subject) -> str:
    info = on.clone.sandbox.refresh()
    if info.state not in ("ready", "active"):
        raise Failed(f"It is {info.state}: {info.reason}")
    told = json.loads(run(on.clone.sandbox, "cat /run/sandboxer/sandbox.json"))
    if told["id"] != info.id or told["budget"] is None:
        raise Failed("What it is told of itself is not what it is")
    return f"It is {info.state}, runs commands; sandboxes that it may have itself: {told['budget']['slots']}"


def service(on: Subject) -> str:
    said = json.loads(run(on.clone.sandbox, f"curl -fsS -m 5 http://127.0.0.1:{notebook.PORT}/healthz"))
    if said.get("clone") != on.clone.name:
        raise Failed(f"Another program answers on port {notebook.PORT}")
    return f"It answers on port {notebook.PORT}"


def model(on: Subject) -> str:
    asked = [{"role": "user", "content": "Answer with one word: are you there?"}]
    if not (said := think(on.clone.sandbox, on.model, asked)):
        raise Failed(f"The model {on.model.name} said nothing")
    return f"The model {on.model.name} answered: {said[:40]}"


def ssh(on: Subject) -> str:
    try:
        gateway = on.client.ssh.gateway()
    except ApiError as error:
        if error.code == "not_available":
            raise NotHere("This platform has no SSH gateway (SANDBOXER_SSH_LISTEN opens one)") from None
        raise
    key = None if on.keys is None else key_file(on.keys, on.clone)
    if key is None or not key.exists():
        raise Failed("Its SSH key is not on this machine")
    if shutil.which("ssh") is None:
        raise NotHere("There is no ssh here")
    with TemporaryDirectory(prefix="sandboxer-ssh-") as folder:
        known = Path(folder, "known_hosts")
        host = gateway.host if gateway.port == 22 else f"[{gateway.host}]:{gateway.port}"
        known.write_text(f"{host} {gateway.host_key}\n")
        options = [f"UserKnownHostsFile={known}", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes"]
        options += ["BatchMode=yes", "ConnectTimeout=10", "LogLevel=ERROR", "ForwardAgent=no"]
        words = ["ssh", "-p", str(gateway.port), "-i", str(key), *(f"-o{one}" for one in options)]
        words += [f"{on.clone.sandbox.id}@{gateway.host}", "echo", on.clone.name]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if done.stdout.strip() != on.clone.name:
        raise Failed(f"Its key does not open it: {done.stderr.strip()[-200:] or done.returncode}")
    return "Its own key opens it by SSH"


def git(on: Subject) -> str:
    # Objects that nothing names any more are no fault.
    run(on.clone.sandbox, f"{HERE}fsck --full --strict --no-dangling")
    if (name := run(on.clone.sandbox, f"{HERE}config user.name")) != on.clone.name:
        raise Failed(f"It would commit as {name}")
    run(on.clone.sandbox, f"{HERE}commit-tree -m probe 'HEAD^{{tree}}'")
    return "Its repository is whole, and it can commit under its own name"


def sync(on: Subject) -> str:
    if changed := run(on.clone.sandbox, f"{HERE}status --porcelain -- . ':!log'"):
        raise Failed(f"Files differ from what was committed: {', '.join(changed.split()[1::2][:5])}")
    bring(on.clone)
    if not settle(on.clone):
        raise Failed("What it committed contradicts the meeting, and was given up")
    if (here := run(on.clone.sandbox, f"{HERE}rev-parse main")) != tip(on.clone):
        raise Failed("It is not where the meeting is")
    return f"It has all that the meeting has ({here[:10]})"


def log(on: Subject) -> str:
    name = on.clone.name
    text = on.clone.sandbox.files.read_text(f"{notebook.HOME}/log/{name}")
    agreed = on.clone.meeting.exec(f"git -C {MEETING} show main:log/{name}").stdout
    if (fault := notebook.fault_of(text, name)) is not None:
        raise Failed(f"Of its log, {fault}")
    if not text.startswith(agreed):
        raise Failed("Its log is not the one that it pushed")
    return f"Each of the {len(text.splitlines())} lines of its log follows from the one before"


def dependencies(on: Subject) -> str:
    asked = f"git -C {MEETING} show main:clones/{on.clone.name}.json"
    agreed: dict[str, str] = json.loads(run(on.clone.meeting, asked))
    now = needs_of(on.clone.sandbox, [name for name in agreed if name != "notebook"])
    if other := [
        f"{name} is {now[name][:40]}, was {was[:40]}" for name, was in agreed.items() if now[name] != was
    ]:
        raise Failed("; ".join(other))
    return f"What it was made with is there unchanged: {', '.join(agreed)}"


def task(on: Subject) -> str:
    name = f"{notebook.OF_A_CHECK}{uuid.uuid4().hex[:12]}"
    put_tasks(on.clone, {name: "say that this check arrived"})
    done = work(on.clone, on.model, name)
    there = run(on.clone.meeting, f"git -C {MEETING} show main:results/{name}")
    if done is None or there != done[1].strip():
        raise Failed("Its result did not arrive at the meeting")
    if take(on.clone, name) is not None:
        raise Failed("A task that is done can be taken again")
    return f"It took {name}, thought about it, and its result is at the meeting"


def exposure(on: Subject) -> str:
    found = on.clone.sandbox.previews.exposure()
    if found.findings:
        raise Failed(f"Whoever reaches it may be shown {', '.join(one.path for one in found.findings[:5])}")
    rest = "" if found.why is None else f", not all: {found.why}"
    return f"No secret and no git folder is open to all inside ({found.looked_at} looked at{rest})"


CHECKS: Sequence[Check] = (
    Check("container", container, needs=()),
    Check("service", service),
    Check("model", model),
    Check("ssh", ssh),
    Check("git", git),
    Check("log", log),
    # A log that was changed is a change that was not committed, too.
    Check("sync", sync, needs=("container", "git", "log")),
    Check("dependencies", dependencies),
    Check("task", task, needs=("container", "model", "git", "log", "sync")),
    Check("exposure", exposure),
)


def check(on: Subject, checks: Sequence[Check] = CHECKS) -> list[Result]:
    """Returns what each check saw, in their order."""
    seen: dict[str, Result] = {}
    for one in checks:
        broken = [name for name in one.needs if name in seen and seen[name].outcome is not Outcome.PASSED]
        seen[one.name] = (
            Result(one.name, Outcome.NOT_TRIED, f"It needs {broken[0]}") if broken else _result(one, on)
        )
    return list(seen.values())


def _result(one: Check, on: Subject) -> Result:
    try:
        return Result(one.name, Outcome.PASSED, one.look(on))
    except NotHere as absent:
        return Result(one.name, Outcome.NOT_TRIED, str(absent))
    except (SdkError, OSError, subprocess.SubprocessError, *ODD) as error:
        why = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
        return Result(one.name, Outcome.FAILED, why)


def summary(results: Sequence[Result]) -> Mapping[str, int]:
    """Counts the results by outcome."""
    return {outcome.value: sum(one.outcome is outcome for one in results) for outcome in Outcome}
