"""Builds of templates of other platforms, which go on while their caller asks how far they are.

A template is a published image with tags. Files for its steps are sent before the build, each lot under a
hash of its own, and are held for the next builds as long as there is room. A build and what it said are kept
in memory alone: a server that ends, ends its builds.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO
from uuid import uuid4
from weakref import WeakValueDictionary

from sandboxer.artifacts.images.builders.steps import Step, StepByStep, Template, check_steps
from sandboxer.artifacts.images.builders.use_cases import ImageBuilders
from sandboxer.artifacts.images.builders.workshop import Said
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import ImageUseCases, Wanted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest, NotFound, QueueFull, SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.requests import WantedResources, check_maker

log = logging.getLogger(__name__)
# Builds that are remembered, of one account and in all.
_PER_ACCOUNT, _IN_ALL = 8, 64
# As many times as much as one upload may have is held of the files of one account, and of all.
_HELD_OF_ONE, _HELD_OF_ALL = 1, 4
_MOST_LOTS = 256
_MOMENT_S = 1.0
_MOST_SAID = 512 * 1024
# What a line is held in beside its characters: a million empty ones are no less than a million others.
_LINE = 64


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
        self._step_by_step = StepByStep(builders=builders)
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
        check_steps(template)
        lots = {}
        for lot in dict.fromkeys(step.files for step in template.steps if step.files is not None):
            if (caller.account, lot) not in self._lots:
                raise InvalidRequest(field="filesHash", why=f"the files of {lot} were not sent, or are gone")
            lots[lot] = self._lots[caller.account, lot]
        build.status, build.steps = "building", template.steps
        self._tasks.start(self._make(build, template, lots, caller), name=f"build {build.id}")

    async def _make(
        self,
        build: Build,
        template: Template,
        lots: Mapping[str, IO[bytes]],
        caller: Caller,
    ) -> None:
        turn = self._turns.setdefault(build.account, asyncio.Lock())
        try:
            # One after the other: an account may import one image at a time.
            async with turn:
                image = await self._build(build, template, lots, caller)
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
        lots: Mapping[str, IO[bytes]],
        caller: Caller,
    ) -> PublishedImage:
        wanted = Wanted(name=build.name, resources=build.resources)
        build.step = "base"
        async with aclosing(self._step_by_step.build(template, lots, wanted, caller)) as events:
            async for event in events:
                if not isinstance(event, Said):
                    return event
                build.step = str(event.step) if event.step else build.step
                build.say(event.text, self._images.clock.now())
        raise NotFound(what="image", id=build.id)
