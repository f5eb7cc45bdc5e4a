"""Templates of other platforms: steps that become a Dockerfile, and builds that go on while their caller asks
how far they are.

A template is a published image with tags. Files for its steps are sent before the build, each lot under a
hash of its own, and are held for the next builds as long as there is room. A build and what it said are kept
in memory alone: a server that ends, ends its builds.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
import os
import posixpath
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING
from uuid import uuid4
from weakref import WeakValueDictionary

from sandboxer.artifacts.images.builders.use_cases import READY, START, ImageBuilders, Recipe, Source
from sandboxer.artifacts.images.builders.workshop import Said
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import ImageUseCases, Wanted
from sandboxer.backends.guest import whole
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest, NotFound, QueueFull, SandboxerError
from sandboxer.kernel.program import late
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.sandboxes.requests import WantedResources, check_maker

if TYPE_CHECKING:
    import tarfile
else:
    tarfile = late("tarfile")

log = logging.getLogger(__name__)
# Whose steps are that name nobody.
_DEFAULT = "user"
# Builds that are remembered, of one account and in all.
_PER_ACCOUNT, _IN_ALL = 8, 64
# As many times as much as one upload may have is held of the files of one account, and of all.
_HELD_OF_ONE, _HELD_OF_ALL = 1, 4
_MOST_LOTS = 256
_MOMENT_S = 1.0
_MOST_SAID = 512 * 1024
# What a line is held in beside its characters: a million empty ones are no less than a million others.
_LINE = 64
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# By number: an image need not know the name.
_ROOT = "0"
_PATTERN = re.compile(r"[*?\[{]")
_STEP = re.compile(r"^STEP (\d+)/\d+: ", re.M)
# The user that every template has, and his folder; the id is the first free one.
_PREPARE = (
    "if ! grep -q ^user: /etc/passwd; then for id in 1000 1001 1002 1003; do"
    " cut -d: -f3 /etc/passwd /etc/group | grep -qx $id || break; done;"
    " echo user:x:$id:$id::/home/user:/bin/sh >> /etc/passwd; echo user:x:$id: >> /etc/group; fi;"
    " mkdir -p /home/user; chown user:user /home/user"
)
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

    # As in `FROM`.
    base: str
    # What sandboxes of it are made as.
    profile: str
    steps: Sequence[Step] = ()
    login: Source | None = None
    start: str | None = None
    ready: str | None = None
    cached: bool = True

    @property
    def recipe(self) -> Recipe:
        given = ((START, self.start), (READY, self.ready))
        labels = {name: words for name, words in given if words}
        return Recipe(labels=labels, cached=self.cached, login=self.login)


@value_class
class Written:
    dockerfile: str
    # The number of the step (from 1; 0 is the beginning) that each instruction belongs to.
    steps: Sequence[int]


def dockerfile_of(template: Template) -> Written:
    """Writes a template as a Dockerfile. Raises InvalidRequest that names a step which it cannot express."""
    begin = [f"FROM {template.base}", f"USER {_ROOT}", _run(_PREPARE, _home(_ROOT)), f"USER {_DEFAULT}"]
    begin += [f"WORKDIR {_home(_DEFAULT)}"]
    lines, numbers, user = list(begin), [0] * len(begin), _DEFAULT
    for number, step in enumerate(template.steps, 1):
        try:
            user, made = _instructions(step, user)
        except (IndexError, ValueError) as error:
            why = f"step {number}, {step.kind}: {error if isinstance(error, ValueError) else 'too little'}"
            raise InvalidRequest(field=f"steps.{number - 1}", why=why) from None
        lines += made
        numbers += [number] * len(made)
    return Written(dockerfile="\n".join(lines) + "\n", steps=numbers)


def _instructions(step: Step, user: str) -> tuple[str, list[str]]:
    """Returns the user of the steps after this one, and its instructions. Raises ValueError."""
    for word in step.args:
        if step.kind != "RUN" and any(ord(char) < 32 for char in word):
            raise ValueError("a line break or another control character")
    match step.kind:
        case "RUN":
            named = _user(step.args[1]) if len(step.args) > 1 and step.args[1] else user
            run = _run(step.args[0], _home(named))
            return user, [run] if named == user else [f"USER {named}", run, f"USER {user}"]
        case "COPY":
            return user, [_copy(step, user)]
        case "ENV":
            pairs = zip(step.args[::2], step.args[1::2], strict=True)
            return user, [f"ENV {' '.join(_variable(name, value) for name, value in pairs)}"]
        case "WORKDIR":
            return user, [f"WORKDIR {_escaped(step.args[0])}"]
        case "USER":
            return _user(step.args[0]), [f"USER {_user(step.args[0])}"]
        case _:
            raise ValueError("it is not understood here; RUN, COPY, ENV, WORKDIR and USER are")


def _run(command: str, home: str) -> str:
    # As JSON it is one line, whatever is in it.
    return f"RUN {json.dumps(['/bin/sh', '-c', _SHELL, command, home])}"


def _copy(step: Step, user: str) -> str:
    source, target, owner, mode = (*step.args, "", "")[:4]
    path = posixpath.normpath(source)
    if step.files is None or path.startswith(("/", "../")) or path == "..":
        raise ValueError(f"{source!r} is not a path among the files that were sent for it")
    # Whoever sent the files of a pattern found them, and sent no others: they are the folder before it. So
    # links among them stay links, which Buildah would follow if they were named.
    named = itertools.takewhile(lambda part: not _PATTERN.search(part), path.split("/"))
    path = "/".join(named) or "."
    options = [f"--chown={_owner(owner or user)}"]
    options += [f"--chmod={int(mode, 8):04o}"] if mode else []
    # A folder that is named with a slash at its end, or a dot, means what is in it, as without.
    return f"COPY {' '.join(options)} {json.dumps([f'{step.files}/{path}', target])}"


def _owner(text: str) -> str:
    return ":".join(_user(one) for one in text.split(":", 1))


def _user(name: str) -> str:
    if _USER.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a user")
    return _ROOT if name == "root" else name


def _home(user: str) -> str:
    return "/root" if user == _ROOT else f"/home/{user}"


def _variable(name: str, value: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a variable")
    return f'{name}="{_escaped(value)}"'


def _escaped(text: str) -> str:
    return re.sub(r'(["\\$])', r"\\\1", text)


@brief_value_class
class Line:
    at: datetime
    text: str


@dataclass(eq=False)
class Build:
    """A build of a template: asked for, under way, or over."""

    id: str
    account: str
    name: str
    tags: tuple[str, ...]
    resources: WantedResources
    steps: Sequence[Step] = ()
    # "waiting", "building", "ready", "error".
    status: str = "waiting"
    lines: list[Line] = field(default_factory=list)
    # Why it failed, and at which step.
    reason: str = ""
    step: str = ""
    said: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, text: str, now: datetime) -> None:
        if self.said > _MOST_SAID:
            return
        lines = text.split("\n")
        self.said += len(text) + _LINE * len(lines)
        lines = lines if self.said <= _MOST_SAID else ["(the rest is left out)"]
        self.lines += [Line(now, one) for one in lines]


class TemplateBuilds:
    def __init__(self, builders: ImageBuilders, images: ImageUseCases, tasks: TaskOwner) -> None:
        self._builders = builders
        self._images = images
        self._tasks = tasks
        self._builds: OrderedDict[str, Build] = OrderedDict()
        self._lots: OrderedDict[tuple[str, str], IO[bytes]] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def request(self, name: str, tags: Sequence[str], resources: WantedResources, caller: Caller) -> Build:
        """Opens a build. Raises Forbidden for who may make no images, TooManyRequests."""
        check_maker(caller, self._images.sandboxes.makers, "making images")
        build = Build(str(uuid4()), caller.account, name, tuple(tags), resources)
        self._make_room(caller.account, _PER_ACCOUNT)
        if len(self._builds) >= _IN_ALL:
            # Of whoever has most: nobody's are lost to somebody who opens more and more.
            counts = Counter(one.account for one in self._builds.values())
            self._make_room(*counts.most_common(1)[0])
        self._builds[build.id] = build
        return build

    def _make_room(self, account: str, most: int) -> None:
        """Makes room for one more of an account: what is over goes first, then what was never begun."""
        mine = [one for one in self._builds.values() if one.account == account]
        for status in ("ready", "error", "waiting"):
            for one in [one for one in mine if one.status == status]:
                if len(mine) < most:
                    return
                mine.remove(one)
                del self._builds[one.id]
        if len(mine) >= most:
            raise QueueFull(why=f"{most} builds are under way", retry_after_s=30)

    def get(self, build_id: str, name: str, caller: Caller) -> Build:
        """Raises NotFound, also for a build of somebody else."""
        build = self._builds.get(build_id)
        if build is None or build.account != caller.account or build.name != name:
            raise NotFound(
                what="build", id=build_id, hint="Begin it again: it ended long ago, or never began."
            )
        return build

    async def follow(self, build: Build) -> None:
        """Returns when the build is over, or after a moment: who asks how far it is, asks again and again."""
        if build.status == "building":
            with suppress(TimeoutError):
                async with asyncio.timeout(_MOMENT_S):
                    await build.over.wait()

    def has_files(self, lot: str, caller: Caller) -> bool:
        return (caller.account, lot) in self._lots

    async def keep_files(self, lot: str, archive: AsyncIterator[bytes], caller: Caller) -> None:
        """Holds files for a step, sent as one tar, packed or not."""
        self._lots[caller.account, lot] = await self._builders.receive(archive, caller)
        self._lots.move_to_end((caller.account, lot))
        most = self._images.policy.upload_bytes
        self._drop_oldest([one for one in self._lots if one[0] == caller.account], _HELD_OF_ONE * most)
        self._drop_oldest(list(self._lots), _HELD_OF_ALL * most)

    def _drop_oldest(self, lots: Sequence[tuple[str, str]], most: int) -> None:
        """Drops the oldest of these until they are no more than that; a build that reads one still has it."""
        sizes = {lot: os.fstat(self._lots[lot].fileno()).st_size for lot in lots}
        for lot in lots[:-1]:
            if sum(sizes.values()) <= most and len(sizes) <= _MOST_LOTS:
                return
            del self._lots[lot], sizes[lot]

    def start(self, build: Build, template: Template, caller: Caller) -> None:
        """Begins a build, which goes on by itself. Raises InvalidRequest for what cannot be built."""
        if build.status != "waiting":
            return
        written, lots = dockerfile_of(template), {}
        for lot in dict.fromkeys(step.files for step in template.steps if step.files is not None):
            if (caller.account, lot) not in self._lots:
                raise InvalidRequest(field="filesHash", why=f"the files of {lot} were not sent, or are gone")
            lots[lot] = self._lots[caller.account, lot]
        build.status, build.steps = "building", template.steps
        self._tasks.start(self._make(build, template, written, lots, caller), name=f"build {build.id}")

    async def _make(
        self,
        build: Build,
        template: Template,
        written: Written,
        lots: Mapping[str, IO[bytes]],
        caller: Caller,
    ) -> None:
        turn = self._turns.setdefault(build.account, asyncio.Lock())
        try:
            # One after the other: an account may import one image at a time.
            async with turn:
                image = await self._build(build, template, written, lots, caller)
            await self._images.tag(image, build.tags, build.id, caller)
        except SandboxerError as error:
            build.reason = f"{str(error).rstrip('.')}. {error.what_next()}"
        except Exception:
            log.exception("build %s broke", build.id)
            build.reason = "it broke; the operator finds the reason in the log"
        build.say(build.reason or f"template {build.name} is ready", self._images.clock.now())
        build.status = "error" if build.reason else "ready"
        build.over.set()

    async def _build(
        self,
        build: Build,
        template: Template,
        written: Written,
        lots: Mapping[str, IO[bytes]],
        caller: Caller,
    ) -> PublishedImage:
        wanted = Wanted(name=build.name, resources=build.resources)
        context = await self._builders.importing.spool(whole(_archive(written.dockerfile)))
        making = self._builders.build(
            context, template.recipe, wanted, caller, profile=template.profile, lots=lots
        )
        build.step = "base"
        async with aclosing(making) as events:
            async for event in events:
                if not isinstance(event, Said):
                    return event
                for number in _STEP.findall(event.text):
                    known = written.steps[: int(number)]
                    build.step = str(known[-1]) if known and known[-1] else "base"
                build.say(event.text, self._images.clock.now())
        raise NotFound(what="image", id=build.id)


def _archive(dockerfile: str) -> bytes:
    made, data = io.BytesIO(), dockerfile.encode()
    with tarfile.open(fileobj=made, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return made.getvalue()
