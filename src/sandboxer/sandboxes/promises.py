"""What a caller wishes of a new sandbox, and what it was promised: pure decisions. A wish is kept or refused;
what is only preferred is answered, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any
from urllib.parse import urlsplit

from sandboxer.backends.contract import Trust, VolumeMount
from sandboxer.backends.guest import FolderMount
from sandboxer.hosts.routes.records import IsolationLevel
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.profiles import (
    Checkpoint,
    Profile,
    Scope,
    WorkspaceAccess,
    WorkspaceMode,
)

# Every base image has it.
WORKSPACE = "/workspace"
# What every platform calls the host that it runs on.
LOCAL = "local"
# Who shares a sandbox is named by the first of these that the consumer has.
_NAMED_BY: Mapping[Scope, tuple[str, ...]] = {
    Scope.SESSION: ("session_id", "run_id", "job_id"),
    Scope.AGENT: ("agent_id", "agent", "harness"),
}


@value_class
class Wishes:
    """What a request says. None and nothing: as the profile says."""

    scope: Scope | None = None
    workspace_mode: WorkspaceMode | None = None
    workspace_access: WorkspaceAccess | None = None
    instructions: str | None = None
    instructions_ref: str | None = None
    secret_refs: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()
    isolation: IsolationLevel | None = None
    checkpoint: Checkpoint | None = None
    memory_at_end: bool = False


@value_class
class Answered:
    """A wish that nothing depends on, and what came of it."""

    wish: str
    honoured: bool
    reason: str


@value_class
class Repository:
    """A repository to be cloned into the workspace."""

    url: str
    # A branch, a tag or a commit; None: what its server calls HEAD.
    revision: str | None = None


@value_class
class Promises:
    """What a sandbox was promised, kept with its record."""

    scope: Scope = Scope.SESSION
    # Stands for all that asked for the same, of those who share it; None: it is nobody else's.
    shared_by: str | None = None
    workspace_mode: WorkspaceMode = WorkspaceMode.REMOTE_CANONICAL
    workspace_access: WorkspaceAccess = WorkspaceAccess.READ_WRITE
    repository: Repository | None = None
    # Scripts that run in the workspace before it is ready, in order: the profile's, and the request's.
    instructions: tuple[str, ...] = ()
    # Of a file of the repository, run after them.
    instructions_path: str | None = None
    # Told inside.
    instructions_ref: str | None = None
    # A compose file of the workspace, where its backend brings one up.
    bundle: str | None = None
    # Beside those of its profile.
    secret_refs: tuple[str, ...] = ()
    answered: tuple[Answered, ...] = ()
    # What runs when its time is over is kept with its disk, and goes on when it is resumed.
    memory_at_end: bool = False

    @property
    def expects_bundle(self) -> bool:
        """Says whether the compose file must be there when the sandbox begins."""
        return self.bundle is not None and not any(
            one.wish == "inputs.compose_bundle_ref" for one in self.answered
        )

    def folders(self, *, is_ready: bool = True) -> tuple[FolderMount, ...]:
        """Return what its backend has to mount for the workspace; until it is ready, what is to be put into
        a read-only one can be.
        """
        if self.workspace_access is WorkspaceAccess.READ_WRITE:
            return ()
        is_filled_first = self.workspace_access is WorkspaceAccess.READ_ONLY and not is_ready
        return (FolderMount(path=WORKSPACE, is_read_only=not is_filled_first),)


NOTHING = Promises()


def promised(
    wishes: Wishes,
    profile: Profile,
    *,
    inputs: Mapping[str, object],
    trust: Trust,
    is_copy: bool,
    volumes: Sequence[VolumeMount] = (),
    host_names: Sequence[str] = (LOCAL,),
) -> Promises:
    """Return what a sandbox of these wishes is promised. Raises InvalidRequest naming what cannot be.

    `is_copy`: its disk begins as a copy, and the profile's setup ran in the original. `host_names`: where it
    will stand; the first of them is told.
    """
    _check_texts(wishes, inputs)
    repository, answered = _repository(inputs)
    if repository is not None and trust is Trust.ZERO:
        raise InvalidRequest(
            field="inputs.repo",
            why="it is fetched over the network, and this sandbox has none",
            hint="Ask for a network that reaches its host (`network`: `allow:HOST`), or copy the files in.",
        )
    access = wishes.workspace_access or profile.workspace_access
    by_path = _instructions_path(wishes.instructions_ref, repository)
    if access is WorkspaceAccess.NONE and repository is not None:
        why = "`none` is an empty workspace, and inputs.repo fills it"
        raise InvalidRequest(field="workspace.access", why=why)
    _check_volumes(access, volumes)
    scripts = ("" if is_copy else profile.setup.instructions, wishes.instructions or "")
    instructions = tuple(text for text in scripts if text.strip())
    bundle, is_filled = _bundle(inputs), bool(repository or instructions or is_copy)
    return Promises(
        scope=wishes.scope or profile.scope,
        workspace_mode=wishes.workspace_mode or profile.workspace_mode,
        workspace_access=access,
        repository=repository,
        instructions=instructions,
        instructions_path=by_path,
        instructions_ref=wishes.instructions_ref,
        bundle=bundle,
        secret_refs=wishes.secret_refs,
        answered=(
            *answered,
            *_stack(inputs, bundle, is_filled=is_filled),
            *_reference(wishes.instructions_ref, by_path),
            *_placed(wishes, profile, host_names),
        ),
        memory_at_end=wishes.memory_at_end,
    )


def sharing(wishes: Wishes, consumer: Mapping[str, object], kind: Mapping[str, object]) -> str | None:
    """Return what stands for everybody who shares a sandbox of this kind; None if it is not to be shared, or
    if nobody is named to share it with. `kind` is what all of them have to ask for.
    """
    if (scope := wishes.scope) is None:
        return None
    named = [(name, consumer[name]) for name in _NAMED_BY.get(scope, ()) if consumer.get(name) is not None]
    if scope is not Scope.SHARED and not named:
        return None
    who = {"scope": scope.value, "harness": consumer.get("harness"), "name": named[:1]}
    walls = (wishes.isolation, wishes.checkpoint)
    text = json.dumps([who, walls, kind], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def unshared(wishes: Wishes, shared_by: str | None) -> tuple[Answered, ...]:
    """Answer who asks to share a sandbox and says with nobody."""
    if (scope := wishes.scope) is None or shared_by is not None:
        return ()
    names = ", ".join(f"consumer.{name}" for name in _NAMED_BY[scope])
    reason = f"nobody is named to share it with (one of {names}), so it is nobody else's"
    return (Answered(wish="scope", honoured=False, reason=reason),)


def _repository(inputs: Mapping[str, object]) -> tuple[Repository | None, tuple[Answered, ...]]:
    """Return the repository that the inputs name. What is no address of one stays a parameter."""
    named, revision = inputs.get("repo"), inputs.get("repo_ref")
    wish = "inputs.repo"
    if named is None and _is_url(revision):
        named, revision, wish = revision, None, "inputs.repo_ref"
    if not _is_url(named):
        given = [name for name in ("repo", "repo_ref") if inputs.get(name) is not None]
        reason = "it is no http or https URL, so nothing is cloned; the sandbox has it as a variable"
        return None, tuple(Answered(wish=f"inputs.{name}", honoured=False, reason=reason) for name in given)
    url, _, fragment = str(named).partition("#")
    # As git writes it.
    url = re.sub("^https?", lambda found: found.group().lower(), url, flags=re.IGNORECASE)
    if "@" in _host(url, wish):
        raise InvalidRequest(
            field=wish,
            why="it has a user or a password in it, and inputs are shown with the sandbox",
            hint="Keep it as a secret, and let a rule of egress send it with requests to that host.",
        )
    if not (revision is None or isinstance(revision, str)):
        raise InvalidRequest(field="inputs.repo_ref", why="it is no text")
    chosen = fragment or revision
    if chosen is not None and (chosen.startswith("-") or not chosen.isprintable() or len(chosen) > 255):
        raise InvalidRequest(field="inputs.repo_ref", why="it is no name of a branch, a tag or a commit")
    return Repository(url=url, revision=chosen), ()


def _is_url(value: object) -> bool:
    is_address = isinstance(value, str) and value.lower().startswith(("https://", "http://"))
    return is_address and str(value).isprintable()


def _host(url: str, wish: str) -> str:
    """Return the part of an address that names a host. Raises InvalidRequest for one that names none."""
    try:
        parts = urlsplit(url)
        # Asked for, since a number that is none is refused only then.
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise InvalidRequest(field=wish, why="it names no host", hint="Say https://HOST/PATH.")
    return parts.netloc


def _instructions_path(reference: str | None, repository: Repository | None) -> str | None:
    if reference is None or repository is None or "://" in reference or reference.startswith("/"):
        return None
    return None if ".." in reference.split("/") else reference


def _bundle(inputs: Mapping[str, object]) -> str | None:
    """Return the compose file that the inputs name; None for what is no path in a workspace."""
    named = inputs.get("compose_bundle_ref")
    if not isinstance(named, str) or not named or not named.isprintable() or len(named) > 255:
        return None
    is_elsewhere = named.startswith(("/", "-")) or ".." in named.split("/") or "://" in named
    return None if is_elsewhere else named


def _stack(inputs: Mapping[str, object], bundle: str | None, *, is_filled: bool) -> tuple[Answered, ...]:
    """Answer who names a compose file that is not there when the sandbox begins."""
    if inputs.get("compose_bundle_ref") is None or (bundle is not None and is_filled):
        return ()
    reason = (
        "it is no path of a file in the workspace, so no stack is made of it"
        if bundle is None
        else "nothing puts it into the workspace before the sandbox is ready: once it is there, a stop and a"
        " resume bring it up"
    )
    return (Answered(wish="inputs.compose_bundle_ref", honoured=False, reason=reason),)


def _reference(reference: str | None, by_path: str | None) -> tuple[Answered, ...]:
    if reference is None or by_path is not None:
        return ()
    reason = (
        "it names no file of a repository in `inputs`, so nothing ran; the sandbox has it as"
        " SANDBOXER_SETUP_INSTRUCTIONS_REF"
    )
    return (Answered(wish="setup_metadata.instructions_ref", honoured=False, reason=reason),)


def _placed(wishes: Wishes, profile: Profile, here: Sequence[str]) -> tuple[Answered, ...]:
    """Answer where it was to stand. There is one host, and it has these names, and its backend's."""
    here = (*here, profile.backend)
    prefer = _place("placement.prefer", wishes.prefer or profile.placement_prefer, here)
    if any(one.honoured for one in prefer):
        return prefer
    return (*prefer, *_place("placement.fallback", wishes.fallback or profile.placement_fallback, here))


def _place(wish: str, names: Sequence[str], here: Sequence[str]) -> tuple[Answered, ...]:
    if not names:
        return ()
    is_here = any(name in here for name in names)
    elsewhere = f"there is no host {', '.join(names)} here; it stands on {here[0]}"
    return (Answered(wish=wish, honoured=is_here, reason="it stands there" if is_here else elsewhere),)


def _check_texts(wishes: Wishes, inputs: Mapping[str, object]) -> None:
    """Raise InvalidRequest for what can be neither argument nor variable: no command could be started."""
    texts = {
        "setup.instructions": wishes.instructions,
        "setup_metadata.instructions_ref": wishes.instructions_ref,
    }
    for name, value in {**texts, **{f"inputs.{name}": value for name, value in inputs.items()}}.items():
        if isinstance(value, str) and "\0" in value:
            raise InvalidRequest(field=name, why="it has a zero byte in it, which no command can be given")


def _check_volumes(access: WorkspaceAccess, volumes: Sequence[VolumeMount]) -> None:
    for number, one in enumerate(volumes):
        lies_in = f"{one.path}/".startswith(f"{WORKSPACE}/")
        may = access is WorkspaceAccess.READ_ONLY and one.is_read_only
        if lies_in and access is not WorkspaceAccess.READ_WRITE and not may:
            raise InvalidRequest(
                field=f"volumes.{number}.path",
                why=f"{one.path} lies in {WORKSPACE}, of which `workspace.access` is `{access.value}`",
            )


def to_json(kept: Promises) -> dict[str, Any] | None:
    """Return what the record keeps; nothing for a sandbox that was promised nothing."""
    return None if kept == NOTHING else asdict(kept)


def from_json(kept: Mapping[str, Any] | None) -> Promises:
    if kept is None:
        return NOTHING
    repository = kept["repository"]
    return Promises(
        scope=Scope(kept["scope"]),
        shared_by=kept["shared_by"],
        workspace_mode=WorkspaceMode(kept["workspace_mode"]),
        workspace_access=WorkspaceAccess(kept["workspace_access"]),
        repository=None if repository is None else Repository(**repository),
        instructions=tuple(kept["instructions"]),
        instructions_path=kept["instructions_path"],
        instructions_ref=kept["instructions_ref"],
        # Records of before it was kept have none.
        bundle=kept.get("bundle"),
        secret_refs=tuple(kept["secret_refs"]),
        answered=tuple(Answered(**one) for one in kept["answered"]),
        memory_at_end=bool(kept.get("memory_at_end", False)),
    )


# -- what runs before it is ready

_CLONE = """
set -e
export GIT_TERMINAL_PROMPT=0
if [ -n "$(ls -A /workspace)" ]; then echo "/workspace is not empty" >&2; exit 1; fi
cd /workspace
git init -q
git remote add origin "$1"
revision="${2:-HEAD}"
if git fetch -q --depth 1 origin "$revision" 2>/dev/null || git fetch -q origin "$revision"; then
    git checkout -q FETCH_HEAD
else
    git fetch -q --tags origin
    git checkout -q "$revision"
fi
"""
_SCRIPT = """
cd /workspace
case "$1" in
'#!'*) f=$(mktemp) && printf %s "$1" > "$f" && chmod 700 "$f" && { "$f"; c=$?; rm -f "$f"; exit $c; } ;;
*) exec /bin/sh -c "$1" ;;
esac
"""
_FILE = """
cd /workspace
if [ ! -f "$1" ]; then echo "there is no file $1 in the repository" >&2; exit 1; fi
if [ -x "$1" ]; then exec "./$1"; fi
exec /bin/sh "./$1"
"""


@value_class
class Task:
    """Something that runs inside before it is ready."""

    # As the promise is called.
    promise: str
    argv: tuple[str, ...] = field(default=())


def tasks_of(promises: Promises) -> tuple[Task, ...]:
    """Return what has to run for these promises, in order."""
    tasks = []
    if (repository := promises.repository) is not None:
        tasks.append(_task("inputs.repo", _CLONE, repository.url, repository.revision or ""))
    tasks += [_task("setup.instructions", _SCRIPT, text) for text in promises.instructions]
    if promises.instructions_path is not None:
        tasks.append(_task("setup_metadata.instructions_ref", _FILE, promises.instructions_path))
    return tuple(tasks)


def _task(promise: str, script: str, *arguments: str) -> Task:
    return Task(promise=promise, argv=("/bin/sh", "-c", script, "setup", *arguments))
