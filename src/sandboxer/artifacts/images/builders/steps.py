"""The steps of a template are done one after the other in an ordinary sandbox of the image that it begins as,
whose disk is then published. What each step left is kept for the next builds, as long as the server lives.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import posixpath
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import field, replace
from typing import IO, Any

from sandboxer.artifacts.clones import is_image_id
from sandboxer.artifacts.images.build import find_image
from sandboxer.artifacts.images.builders.references import explain_step
from sandboxer.artifacts.images.builders.use_cases import READY, START, Event, ImageBuilders, Source
from sandboxer.artifacts.images.builders.workshop import Bench, Said, pieces
from sandboxer.artifacts.images.oci.applying import is_packed
from sandboxer.artifacts.images.published.use_cases import PASSING, Wanted
from sandboxer.artifacts.records import MB
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest, SandboxerError
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.requests import CreateRequest, Origin, wanted_resources
from sandboxer.sandboxes.use_cases import disks

log = logging.getLogger(__name__)
# What the name of an image of this platform begins with, where others are of registries.
OURS = "sandboxer/"
# Whose steps are that name nobody.
_DEFAULT = "user"
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# By number: an image need not know the name.
_ROOT = "0"
_PATTERN = re.compile(r"[*?\[{]")
# The user that every template has, and his folder; the id is the first free one.
_PREPARE = (
    "if ! grep -q ^user: /etc/passwd; then for id in 1000 1001 1002 1003; do"
    " cut -d: -f3 /etc/passwd /etc/group | grep -qx $id || break; done;"
    " echo user:x:$id:$id::/home/user:/bin/sh >> /etc/passwd; echo user:x:$id: >> /etc/group; fi;"
    " mkdir -p /home/user; chown user:user /home/user"
)
# Puts what was sent where it belongs: what is in a folder, a file under a new name or into a folder. It is
# given away before, so that nothing that was there changes its owner.
_COPY = """
set -e
chown -Rh "$2" "$0"
[ -z "$3" ] || [ -L "$0" ] || chmod -R "$3" "$0"
folder=$1
[ -d "$0" ] && [ ! -L "$0" ] || [ -d "$1" ] || case $1 in */) ;; *) folder=$(dirname "$1") ;; esac
[ -d "$folder" ] || { mkdir -p "$folder"; chown "$2" "$folder"; }
if [ -d "$0" ] && [ ! -L "$0" ]; then
    for one in "$0"/* "$0"/.[!.]* "$0"/..?*; do
        [ ! -e "$one" ] && [ ! -L "$one" ] || cp -a "$one" "$folder/"
    done
else
    cp -a "$0" "$1"
fi
"""
_FOLDER = '[ -d "$0" ] || { mkdir -p "$0" && chown "$1" "$0"; }'
# Where files of a step lie until they are in their place.
_SENT = "/.sent-for-build"
_TTL = "1h"
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# How many steps' disks are kept, of one account and in all.
_LAYERS_OF_ONE, _LAYERS_OF_ALL = 16, 64
# Bash where there is one, as where such templates come from.
_SHELL = 'export HOME="$1"; if command -v bash >/dev/null; then exec bash -c "$0"; else exec sh -c "$0"; fi'


@value_class
class Step:
    kind: str
    args: tuple[str, ...]
    # Under which its files were sent.
    files: str | None = None


@value_class
class Template:
    """What to build: on what, by which steps, and what to start in a sandbox of it."""

    # An image of this platform after `OURS`, else one of a registry.
    base: str
    # What sandboxes of it are made as.
    profile: str
    steps: Sequence[Step] = ()
    # How to ask the registry for it, if that asks for a user.
    login: Source | None = None
    start: str | None = None
    ready: str | None = None
    cached: bool = True

    @property
    def labels(self) -> dict[str, str]:
        return {name: words for name, words in ((START, self.start), (READY, self.ready)) if words}


def check_steps(template: Template) -> None:
    """Raises InvalidRequest that names a step which cannot be done here."""
    for number, step in enumerate(template.steps, 1):
        try:
            _check(step)
        except (IndexError, ValueError) as error:
            why = f"step {number}, {step.kind}: {error if isinstance(error, ValueError) else 'too little'}"
            raise InvalidRequest(field=f"steps.{number - 1}", why=why) from None


def _check(step: Step) -> None:
    first = step.args[0]
    if step.kind != "RUN" and any(ord(char) < 32 for word in step.args for char in word):
        raise ValueError("a line break or another control character")
    match step.kind:
        case "RUN":
            _runner(step, _DEFAULT)
        case "COPY":
            _copied(step, _DEFAULT)
        case "ENV":
            for name, _ in zip(step.args[::2], step.args[1::2], strict=True):
                if _NAME.fullmatch(name) is None:
                    raise ValueError(f"{name!r} is no name of a variable")
        case "USER":
            _user(first)
        case "WORKDIR":
            pass
        case _:
            raise ValueError("it is not understood here; RUN, COPY, ENV, WORKDIR and USER are")


def _runner(step: Step, user: str) -> str:
    return _user(step.args[1]) if len(step.args) > 1 and step.args[1] else user


def _copied(step: Step, user: str) -> tuple[str, str, str, str]:
    """Returns what is copied, among the files that were sent for it, where to, for whom, and its mode."""
    source, target, owner, mode = (*step.args, "", "")[:4]
    path = posixpath.normpath(source)
    if step.files is None or path.startswith(("/", "../")) or path == "..":
        raise ValueError(f"{source!r} is not a path among the files that were sent for it")
    # Whoever sent the files of a pattern found them, and sent no others: they are the folder before it. So
    # links among them stay links.
    named = itertools.takewhile(lambda part: not _PATTERN.search(part), path.split("/"))
    path = "/".join(named) or "."
    return path, target, _owner(owner or user), f"{int(mode, 8):04o}" if mode else ""


def _owner(text: str) -> str:
    return ":".join(_user(one) for one in text.split(":", 1))


def _user(name: str) -> str:
    if _USER.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a user")
    return _ROOT if name == "root" else name


def _home(user: str) -> str:
    return "/root" if user == _ROOT else f"/home/{user}"


@value_class
class Stage:
    """A step with what holds for it: who does it, where, and with which variables."""

    number: int
    step: Step
    user: str
    folder: str
    env: Mapping[str, str]
    # Of everything up to it: two builds that have the same made the same.
    key: str

    @property
    def changes_files(self) -> bool:
        return self.step.kind in ("RUN", "COPY", "WORKDIR")

    @property
    def shown(self) -> str:
        return f"{self.step.kind} {' '.join(self.step.args)}".rstrip()


def stages_of(template: Template, base: str, env: Mapping[str, str]) -> list[Stage]:
    """Returns what is to be done over a base of this digest: the user that every template has, then its
    steps, which `check_steps` let pass.
    """
    first = Step(kind="RUN", args=(_PREPARE, _ROOT))
    user, folder, made = _DEFAULT, _home(_DEFAULT), list[Stage]()
    key = hashlib.sha256(base.encode()).hexdigest()
    for number, step in enumerate((first, *template.steps)):
        user = _user(step.args[0]) if step.kind == "USER" else user
        if step.kind == "WORKDIR":
            folder = posixpath.normpath(posixpath.join(folder, step.args[0]))
        if step.kind == "ENV":
            env = {**env, **dict(zip(step.args[::2], step.args[1::2], strict=True))}
        key = hashlib.sha256(json.dumps([key, step.kind, step.args, step.files]).encode()).hexdigest()
        # The folder of the first user is there once he is.
        where = folder if number else "/"
        made.append(Stage(number=number, step=step, user=user, folder=where, env=env, key=key))
    return made


@value_class
class Base:
    """An image of this platform that a template begins as."""

    name: str
    digest: str
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        pairs = (str(one).partition("=") for one in self.config.get("Env") or ())
        return {name: value for name, mark, value in pairs if mark and name}

    def config_after(self, last: Stage, labels: Mapping[str, str]) -> dict[str, Any]:
        """Returns the config of an image that this stage was the last of."""
        env = [f"{name}={value}" for name, value in last.env.items()]
        said = {"User": last.user, "WorkingDir": last.folder if last.number else _home(_DEFAULT)}
        return {**self.config, "Env": env, **said, "Labels": {**(self.config.get("Labels") or {}), **labels}}


@value_class
class StepByStep:
    builders: ImageBuilders
    # By account and key of a stage: the disk that it left, its backend and how much it holds at most; the
    # one used last is the last.
    layers: OrderedDict[tuple[str, str], tuple[Origin, int]] = field(default_factory=OrderedDict)

    async def build(
        self, template: Template, lots: Mapping[str, IO[bytes]], wanted: Wanted, caller: Caller
    ) -> AsyncGenerator[Event]:
        """Yields what the steps say, then the image. Closing it early leaves nothing behind."""
        name, labels = template.base.removeprefix(OURS), template.labels
        if name == template.base:
            async with aclosing(self._fetch(template, caller)) as events:
                async for event in events:
                    if isinstance(event, Said):
                        yield event
                    else:
                        name = event.id
        base = await self._base(name, caller)
        stages = stages_of(template, base.digest, base.env)
        last, images = stages[-1], self.builders.importing.use_cases
        key = hashlib.sha256(json.dumps([last.key, sorted(labels.items())]).encode()).hexdigest()
        made = replace(wanted, config=base.config_after(last, labels), source=f"build@sha256:{key}")
        yield Said(f"taking {base.name} from this platform")
        same = await self.builders.same(made, caller, template.profile) if template.cached else None
        done = len(stages) if same else self._done(stages, template, caller)
        with self._in_use(caller, stages[:done]) as kept:
            for stage in stages[:done]:
                yield _heading(stage, stages)
                yield Said(f"--> Using cache {stage.key[:12]}")
            if same is not None:
                yield Said(f"it is {same.id}, built before")
                yield await images.clone(same.id, made, caller, source=made.source)
                return
            async with self._sandbox(template, base, kept, wanted, caller) as bench:
                for stage in stages[done:]:
                    yield _heading(stage, stages)
                    async with aclosing(_do(bench, stage, lots)) as said:
                        async for line in said:
                            yield line
                    if stage.changes_files:
                        await self._keep(bench.sandbox_id, base, stage, caller)
                yield Said("publishing it")
                profile = images.sandboxes.profiles.get(template.profile)
                resources = wanted_resources(wanted.resources, profile)
                yield await images.publish_sandbox(
                    bench.sandbox_id, made, caller, source=made.source, resources=resources
                )

    async def _fetch(self, template: Template, caller: Caller) -> AsyncGenerator[Event]:
        """Yields the image of a registry: one that was fetched before, unless nothing of earlier builds is to
        be used, or a user is named, whom the registry is asked about.
        """
        if template.cached and template.login is None:
            yield await self.builders.ensure(template.base, caller)
            return
        source = template.login or Source(reference=template.base)
        async with aclosing(self.builders.pull(source, Wanted(name=""), caller)) as events:
            async for event in events:
                yield event

    async def _base(self, name: str, caller: Caller) -> Base:
        if not is_image_id(name):
            return Base(name=name, digest=find_image(name, self.builders.images_dir).digest)
        async with self.builders.importing.use_cases.reading(name, caller) as image:
            told = json.dumps([image.digest, image.config], sort_keys=True)
            return Base(name=name, digest=told, config=image.config)

    def _done(self, stages: Sequence[Stage], template: Template, caller: Caller) -> int:
        """Returns how many stages need not be done: the last of them left a disk that is kept."""
        if not template.cached:
            return 0
        known = (one.number + 1 for one in reversed(stages) if (caller.account, one.key) in self.layers)
        return next(known, 0)

    @contextmanager
    def _in_use(self, caller: Caller, done: Sequence[Stage]) -> Iterator[Origin | None]:
        """Takes the disk of the last of these stages out of those that may be dropped: builds of others make
        room for theirs at any moment.
        """
        key = (caller.account, done[-1].key if done else "")
        kept = self.layers.pop(key, None)
        try:
            yield None if kept is None else kept[0]
        finally:
            if kept is not None:
                self.layers[key] = kept

    @asynccontextmanager
    async def _sandbox(
        self, template: Template, base: Base, kept: Origin | None, wanted: Wanted, caller: Caller
    ) -> AsyncIterator[Bench]:
        resources = replace(wanted.resources, disk_mb=self.builders.workshop.policy.disk_mb)
        request = CreateRequest(profile=template.profile, image=base.name, ttl=_TTL, resources=resources)
        if kept is not None:
            request = replace(request, origin=kept)
        else:
            request = await self.builders.spawning.complete(request, caller)
        async with self.builders.workshop.open_plain(request, caller, _ENV) as bench:
            yield bench

    async def _keep(self, sandbox_id: str, base: Base, stage: Stage, caller: Caller) -> None:
        """Keeps the disk as the stage left it. A build needs no such disk: without room it goes on."""
        images, policy = self.builders.importing.use_cases, self.builders.workshop.policy
        if not policy.cache_mb:
            return
        disk = new_id(PASSING)
        images.passing.add(disk)
        try:
            kept = await disks.keep(images.sandboxes, sandbox_id, caller, disk)
        except BaseException as error:
            images.passing.discard(disk)
            if not isinstance(error, SandboxerError):
                raise
            log.warning("what step %d of a build left is not kept: %s", stage.number, error)
            return
        origin = Origin(disk_id=disk, backend=kept.sandbox.backend, image=base.name)
        old = self.layers.pop((caller.account, stage.key), None)
        self.layers[caller.account, stage.key] = origin, kept.disk.at_most_bytes
        if old is not None:
            await self._drop(old[0])
        await self._drop_oldest(
            [one for one in self.layers if one[0] == caller.account], _LAYERS_OF_ONE, policy.cache_mb * MB
        )
        await self._drop_oldest(list(self.layers), _LAYERS_OF_ALL)

    async def _drop_oldest(
        self, keys: list[tuple[str, str]], most: int, most_bytes: float = float("inf")
    ) -> None:
        # Another build may drop some of them, or use one, whenever this waits.
        while keys := [key for key in keys if key in self.layers]:
            if len(keys) <= most and sum(self.layers[key][1] for key in keys) <= most_bytes:
                return
            origin, _ = self.layers.pop(keys[0])
            await self._drop(origin)

    async def _drop(self, origin: Origin) -> None:
        images = self.builders.importing.use_cases
        backend = images.sandboxes.backends.get(origin.backend)
        try:
            await disks.reconciler_of(backend, origin.backend).drop(origin.disk_id)
        except SandboxerError as error:
            # The next server drops it.
            log.warning("%s could not be dropped: %s", origin.disk_id, error)
        else:
            images.passing.discard(origin.disk_id)


def _heading(stage: Stage, stages: Sequence[Stage]) -> Said:
    shown = stage.shown if stage.number else "the user that every template has"
    return Said(f"STEP {stage.number}/{len(stages) - 1}: {shown}", step=stage.number)


async def _do(bench: Bench, stage: Stage, lots: Mapping[str, IO[bytes]]) -> AsyncGenerator[Said]:
    step, explain = stage.step, explain_step(stage.shown)
    match step.kind:
        case "RUN":
            user = _runner(step, stage.user)
            words = ["/bin/sh", "-c", _SHELL, step.args[0], _home(user)]
            said = bench.say(words, explain, user=user, cwd=stage.folder, env=stage.env)
        case "COPY" if step.files is not None:
            path, target, owner, mode = _copied(step, stage.user)
            owner = owner if ":" in owner else f"{owner}:{owner}"
            await bench.unpack(pieces(lots[step.files]), _SENT, packed=is_packed(lots[step.files]))
            words = ["/bin/sh", "-c", _COPY, posixpath.join(_SENT, path), target, owner, mode]
            said = bench.say(words, explain, cwd=stage.folder)
        case "WORKDIR":
            said = bench.say(["/bin/sh", "-c", _FOLDER, stage.folder, stage.user], explain)
        case _:
            return
    async with aclosing(said):
        async for line in said:
            yield line
    if step.kind == "COPY":
        await bench.run(["rm", "-rf", _SENT], explain)
