"""Shadow clones: sandboxes that stay, each with an authority, an SSH key and a git identity of its own.

They share no memory and no network. They meet in a bare repository in one more sandbox, the meeting: tasks
are taken by a commit, results are pushed, and git's own refusal of what is not up to date settles every race.
Sandboxes without a network cannot reach one another, so what is pushed and fetched is carried between them as
git bundles by whoever made them; the notebook (`notebook.py`) is what runs inside.

A clone is raised by steps that each look whether they were done, so that a broken raise goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxer.sdk.agent import notebook
from sandboxer.sdk.agent.models import Endpoint, Failed, Model, think
from sandboxer.sdk.errors import ApiError, NotFound
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox

# Lives as long as its account pays for it.
PROFILE = "profile.service"
MEETING = "/srv/meeting.git"
PROGRAM = "/opt/clone/notebook.py"
TAG = "shadow-clone"
NEEDS = ("git", "python3")
SIZE: Mapping[str, float] = {"vcpus": 1, "memory_mb": 256, "disk_mb": 256, "pids": 64}
# Each refusal is progress of another clone.
TRIES = 100
# What git says where somebody else was first.
_LATE = re.compile(
    r"non-fast-forward|fetch first|cannot lock ref|failed to update ref|reference already exists"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new clone is given."""

    slots: int = 1
    budget_sats: int = 0
    depth: int = 0
    needs: Sequence[str] = NEEDS
    # Where the private halves of SSH keys are kept, on this machine.
    keys: Path | None = None


@dataclass(frozen=True, slots=True)
class Clone:
    name: str
    sandbox: Sandbox
    meeting: Sandbox


def run(sandbox: Sandbox, command: str, *, stdin: str | None = None) -> str:
    """Runs a command that must succeed and returns what it printed. Raises Failed."""
    done = sandbox.exec(command, stdin=stdin, timeout_s=120)
    if done.exit_code != 0:
        said = (done.stderr or done.stdout).strip()[-400:]
        raise Failed(f"In {sandbox.id}, `{command.splitlines()[0][:80]}` ended with {done.exit_code}: {said}")
    return done.stdout.strip()


def _found(client: Sandboxer, name: str) -> Sandbox | None:
    try:
        return client.get(name)
    except NotFound:
        return None


def program_text() -> str:
    return Path(notebook.__file__).read_text(encoding="utf-8")


def _git_at(folder: str) -> str:
    return f"git -C {folder} "


def _taken(name: str, what: str, remedy: str) -> Failed:
    """Whoever has a sandbox of that name keeps it as it is."""
    return Failed(
        f"{name} is another sandbox already, and no {what}.",
        next_step=f"{remedy}, or end that one: sandboxer delete {name}",
    )


def meet(client: Sandboxer, name: str) -> Sandbox:
    """Returns the sandbox in which clones meet; it is made if there is none."""
    meeting = _found(client, name)
    if meeting is None:
        meeting = client.create(name=name, profile=PROFILE, resources=SIZE, labels={"agent": "meeting"})
    elif meeting.info.labels.get("agent") != "meeting":
        raise _taken(name, "meeting", "Choose another one (--meeting)")
    if meeting.exec(["test", "-e", f"{MEETING}/hooks/update"]).exit_code == 0:
        return meeting
    meeting.files.write(PROGRAM, program_text(), mode=0o700)
    begin = f"""set -e; umask 077; rm -rf {MEETING} /tmp/first
        git init -q --bare -b main {MEETING}; cd {MEETING}; git config receive.denyDeletes true
        git config receive.denyNonFastForwards true; git config receive.fsckObjects true
        git init -q -b main /tmp/first; cd /tmp/first; mkdir tasks
        echo 'Tasks are taken by a commit. Each log only grows.' > README
        git add README; git -c user.name=meeting -c user.email=meeting@clone.invalid commit -qm begin
        git push -q {MEETING} main; rm -rf /tmp/first"""
    run(meeting, begin)
    # Last, for it says that all of this was done.
    hook = f'#!/bin/sh\nexec python3 {PROGRAM} hook "$1" "$2" "$3" "$SANDBOXER_CLONE"\n'
    meeting.files.write(f"{MEETING}/hooks/update", hook, mode=0o700)
    return meeting


def find(client: Sandboxer, name: str, meeting: str) -> Clone:
    """Returns a clone that was raised. Raises Failed if there is none."""
    sandbox, met = _found(client, name), _found(client, meeting)
    if sandbox is None or met is None or sandbox.info.labels.get("agent") != TAG:
        raise Failed(
            f"There is no shadow clone {name} that meets others at {meeting}.",
            next_step=f"Make it: sandboxer agent clone {name}",
        )
    return Clone(name, sandbox, met)


def raise_clone(client: Sandboxer, name: str, meeting: str, wanted: Wanted, model: Model) -> Clone:
    """Makes a clone, or completes one that is there; what was done already is not done again."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,40}", name):
        raise Failed(f"{name!r} cannot name a clone.", next_step="Take a to z, 0 to 9 and -, as shadow-1.")
    sandbox = _found(client, name)
    if sandbox is not None and sandbox.info.labels.get("agent") != TAG:
        raise _taken(name, "shadow clone", "Choose another name")
    met = meet(client, meeting)
    if sandbox is None:
        authority = {"slots": wanted.slots, "budget_sats": wanted.budget_sats, "depth": wanted.depth}
        network = model.network if isinstance(model, Endpoint) else None
        sandbox = client.create(
            name=name,
            profile=PROFILE,
            resources=SIZE,
            labels={"agent": TAG, "meeting": meeting},
            inception=authority,
            network=network,
        )
    if isinstance(model, Endpoint):
        model.let_in(sandbox)
    clone = Clone(name, sandbox, met)
    sandbox.files.write(PROGRAM, program_text(), mode=0o700)
    _begin_notebook(clone)
    _write_down_needs(clone, wanted.needs)
    if wanted.keys is not None:
        _give_key(client, clone, wanted.keys)
    serve(clone)
    return clone


def _begin_notebook(clone: Clone) -> None:
    if clone.sandbox.exec(_git_at(notebook.HOME) + "rev-parse -q --verify HEAD").exit_code == 0:
        return
    identity = {"user.name": clone.name, "user.email": f"{clone.name}@clone.invalid", "pull.rebase": "true"}
    config = "; ".join(f"git config {key} {value}" for key, value in identity.items())
    # Others inside have no business here: what lies in it is never to be served.
    run(
        clone.sandbox,
        f"umask 077; mkdir -p {notebook.HOME}; cd {notebook.HOME}; git init -q -b main; {config}",
    )
    bring(clone)
    run(clone.sandbox, f"{_git_at(notebook.HOME)}reset -q --hard meeting/main")


def needs_of(sandbox: Sandbox, names: Sequence[str]) -> dict[str, str]:
    """Returns what each program says of its version, and what the notebook's own text is."""
    each = "; ".join(
        f'v=$({one} --version 2>/dev/null | head -n 1); echo "${{v:-missing}}"'
        for one in map(shlex.quote, names)
    )
    versions = run(sandbox, each).splitlines() if names else []
    found = dict(zip(names, versions, strict=True))
    return {"notebook": hashlib.sha256(sandbox.files.read(PROGRAM)).hexdigest()} | found


def _write_down_needs(clone: Clone, names: Sequence[str]) -> None:
    """Commits what the clone was made with, where all can see it and none changes it unseen."""
    path = f"clones/{clone.name}.json"
    found = needs_of(clone.sandbox, names)
    if missing := [name for name, version in found.items() if version == "missing"]:
        raise Failed(
            f"{clone.name} has no {', '.join(missing)}.",
            next_step=f"It is kept: install that by sandboxer exec {clone.name}, and run this again.",
        )
    text = json.dumps(found, indent=1) + "\n"
    if clone.sandbox.exec(["cat", f"{notebook.HOME}/{path}"]).stdout != text:
        words = f"note {clone.name} {path} {shlex.quote('wrote down what it needs')}"
        run(clone.sandbox, f"python3 {PROGRAM} {words}", stdin=text)
    settle(clone)


def key_file(keys: Path, clone: Clone) -> Path:
    return keys / clone.sandbox.id


def _give_key(client: Sandboxer, clone: Clone, keys: Path) -> None:
    """Makes an SSH key that opens this clone alone, where the platform has a gateway."""
    try:
        client.ssh.gateway()
    except ApiError as error:
        if error.code == "not_available":
            return
        raise
    file = key_file(keys, clone)
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not file.exists():
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", clone.name, "-f", str(file)]
        subprocess.run(made, check=True)
    public = file.with_suffix(".pub").read_text()
    known = {(one.sandbox_id, one.name) for one in client.ssh.keys()}  # noqa: SIM118
    if (clone.sandbox.id, clone.name) not in known:
        client.ssh.add_key(public, name=clone.name, sandbox_id=clone.sandbox.id)


def serve(clone: Clone) -> None:
    """Starts its service, unless it runs."""
    if any(one.running and one.tag == TAG for one in clone.sandbox.processes.list()):
        return
    words = ["python3", PROGRAM, "serve", clone.name]
    clone.sandbox.processes.start(words, cwd=notebook.HOME, tag=TAG)
    run(clone.sandbox, f"curl -fsS --retry 9 --retry-connrefused -m 9 127.0.0.1:{notebook.PORT}/healthz")


def tip(clone: Clone) -> str:
    """Returns the commit at which the meeting is."""
    return run(clone.meeting, f"{_git_at(MEETING)}rev-parse main")


# Each request counts for the account's limit: what can be asked at once is asked at once.
def bring(clone: Clone) -> None:
    """Carries what the clone has not seen yet from the meeting to it. Its own branch stays where it is."""
    had = clone.sandbox.exec(_git_at(notebook.HOME) + "rev-parse -q --verify meeting/main").stdout.strip()
    if not re.fullmatch(r"[0-9a-f]{40}", had):
        had = "none"
    bundle, there = f"/tmp/{clone.name}.out", _git_at(MEETING)
    known = f"$({there}cat-file -e {had} 2>/dev/null && echo ^{had})"
    packed = f"{there}bundle create -q {bundle} main {known} && echo packed"
    if run(clone.meeting, f"[ $({there}rev-parse main) = {had} ] || {{ {packed}; }}") != "packed":
        return
    clone.sandbox.files.write("/tmp/meeting.in", clone.meeting.files.read(bundle))
    run(clone.sandbox, f"{_git_at(notebook.HOME)}fetch -q /tmp/meeting.in main:refs/remotes/meeting/main")


def push(clone: Clone) -> bool:
    """Carries its commits to the meeting; False: somebody was first. Raises Failed if they are refused."""
    here = _git_at(notebook.HOME)
    packed = f"{here}bundle create -q /tmp/clone.out main ^meeting/main && echo packed"
    none = f"[ $({here}rev-parse main) = $({here}rev-parse meeting/main) ]"
    return run(clone.sandbox, f"{none} || {{ {packed}; }}") != "packed" or _delivered(clone, here)


def _delivered(clone: Clone, here: str) -> bool:
    arrived = f"/tmp/{clone.name}.in"
    clone.meeting.files.write(arrived, clone.sandbox.files.read("/tmp/clone.out"))
    # Objects are only checked where a push brings them, so they come from a repository of their own. The hook
    # of the meeting asks whose they are.
    taken = f"""set -e; s=$(mktemp -d); trap "rm -rf $s" EXIT; git init -q --bare $s
        echo {MEETING}/objects > $s/objects/info/alternates; cd $s
        git fetch -q {MEETING} main:met; git fetch -q {arrived} main:new
        SANDBOXER_CLONE={clone.name} git push -q {MEETING} new:refs/heads/main"""
    done = clone.meeting.exec(taken, timeout_s=120)
    if done.exit_code == 0:
        run(clone.sandbox, f"{here}update-ref refs/remotes/meeting/main main")
        return True
    if _LATE.search(done.stderr):
        return False
    raise Failed(f"The meeting refuses what {clone.name} pushes: {done.stderr.strip()[-300:]}")


def settle(clone: Clone) -> bool:
    """Pushes, and after each refusal puts its commits on top of what came in between.

    False: another clone did the same thing first, and ours is given up. Raises Failed after many tries.
    """
    here = _git_at(notebook.HOME)
    for _ in range(TRIES):
        bring(clone)
        given_up = f"{here}rebase --abort && {here}reset -q --hard meeting/main && echo given up"
        if run(clone.sandbox, f"{here}rebase -q meeting/main || {{ {given_up}; }}").endswith("given up"):
            return False
        if push(clone):
            return True
    raise Failed(f"{clone.name} was late {TRIES} times in a row.")


def put_tasks(clone: Clone, tasks: Mapping[str, str]) -> None:
    """Puts tasks before all clones, by name."""
    for name, text in tasks.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", name):
            raise Failed(f"{name!r} cannot name a task.", next_step="Take letters, digits and - alone.")
        run(clone.sandbox, f"python3 {PROGRAM} put {clone.name} {shlex.quote(name)}", stdin=text)
    if not settle(clone):
        raise Failed("Tasks of these names are there already.", next_step="Give them other names.")


def take(clone: Clone, wanted: str | None = None) -> dict[str, str] | None:
    """Takes a task that nobody has; None: there is none left."""
    for _ in range(TRIES):
        settle(clone)
        words = f"take {clone.name} {shlex.quote(wanted) if wanted else ''}"
        found: dict[str, str] | None = json.loads(run(clone.sandbox, f"python3 {PROGRAM} {words}"))
        if found is None or settle(clone):
            return found
    raise Failed(f"{clone.name} found a task taken {TRIES} times in a row.")


def work(clone: Clone, model: Model, wanted: str | None = None) -> tuple[str, str] | None:
    """Takes a task, thinks about it, and pushes the result; returns both, or None if none is left."""
    if (task := take(clone, wanted)) is None:
        return None
    asked = [
        {"role": "system", "content": f"You are {clone.name}. Do the task."},
        {"role": "user", "content": f"task: {task['text']}"},
    ]
    answer = think(clone.sandbox, model, asked)
    run(clone.sandbox, f"python3 {PROGRAM} finish {clone.name} {shlex.quote(task['id'])}", stdin=answer)
    if not settle(clone):
        raise Failed(f"{task['id']} was finished by another clone.")
    return task["id"], answer


def results(clone: Clone) -> dict[str, Any]:
    """Returns what the meeting holds of each task: its text, who took it and the result."""
    there, found = _git_at(MEETING), dict[str, Any]()
    for line in run(clone.meeting, f"{there}ls-tree -r --name-only main tasks taken results").splitlines():
        kind, _, name = line.partition("/")
        text = run(clone.meeting, f"{there}show {shlex.quote('main:' + line)}")
        found.setdefault(name, {})[kind] = text
    return found
