"""Defines what a check is, and runs one against a backend, on a test machine or an operator's host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeVar

from sandboxer.backends.contract import (
    Backend,
    Capability,
    Freezes,
    Handle,
    Order,
    Presence,
    Resizes,
    Snapshots,
    Stops,
    Volumes,
    capabilities_of,
)
from sandboxer.backends.guest import Command, Exit, Files, Guest, Output, Stream, TerminalSize
from sandboxer.kernel.values import brief_value_class, value_class

MakeOrder = Callable[[], Order]
Reopen = Callable[[], AbstractAsyncContextManager[Backend]]
# One behaviour, sandbox included; the slowest takes a few seconds on a busy machine.
TIMEOUT_S = 60.0
T = TypeVar("T")


class FullBackend(Backend, Stops, Freezes, Resizes, Snapshots, Volumes, Protocol):
    """Names everything that checks may ask of a backend. What a check needs of it, `Check.needs` says."""


class CheckFailed(AssertionError):
    """The backend does not behave as the contract says."""


def expect(condition: object, message: str) -> None:
    """Raises CheckFailed unless the condition holds. Not `assert`: the suite must work under `python -O`."""
    if not condition:
        raise CheckFailed(message)


@value_class
class Ran:
    """Holds what a command did."""

    exit: Exit
    stdout: bytes
    stderr: bytes


@brief_value_class
class Box:
    """A sandbox that a check works with."""

    backend: FullBackend
    order: Order
    handle: Handle

    async def guest(self) -> Guest:
        return await self.backend.guest(self.handle)

    async def ping(self) -> None:
        await (await self.guest()).ping()

    async def resumed(self) -> Box:
        """Starts it again after a stop."""
        return replace(self, handle=await self.backend.resume(self.handle, self.order))

    async def demand(self, presence: Presence) -> None:
        seen = await self.backend.recover(self.handle)
        expect(seen.presence is presence, f"it is {seen.presence}")

    async def text(self, script: str) -> bytes:
        """Returns what a shell script prints."""
        return (await self.run(script)).stdout

    async def running(self) -> set[str]:
        return {one.process_id for one in await (await self.guest()).processes() if one.exit is None}

    async def wait_for_file(self, path: str, message: str, *, within_s: float = 5.0) -> None:
        async def is_there() -> bool:
            return (await self.run(f"test -e {path}")).exit.code == 0

        await until(is_there, message, within_s=within_s)

    async def run(
        self,
        script: str | Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        user: str = "root",
        terminal: TerminalSize | None = None,
    ) -> Ran:
        """Runs a shell script, or the words of a command, to its end."""
        given = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **(env or {})}
        command = Command(
            argv=("/bin/sh", "-c", script) if isinstance(script, str) else script,
            env=given,
            cwd=cwd,
            user=user,
            has_stdin=stdin is not None,
            terminal=terminal,
            keep=False,
        )
        guest = await self.guest()
        async with await guest.run(command) as process:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(collect(process.output()))
                if stdin is not None:
                    await process.write_stdin(stdin)
                    await process.close_stdin()
            return reading.result()


@brief_value_class
class Bench:
    """Gives a check its backend, and sandboxes that are gone when it ends."""

    backend: FullBackend
    make_order: MakeOrder
    # Opens the backend a second time, as a restarted server would; None where the caller cannot.
    reopen: Reopen | None = None

    @asynccontextmanager
    async def box(self, order: Order | None = None) -> AsyncIterator[Box]:
        order = order or self.make_order()
        handle = await self.backend.provision(order)
        try:
            yield Box(self.backend, order, handle)
        finally:
            await self.backend.teardown(order.sandbox_id)

    @asynccontextmanager
    async def guest(self) -> AsyncIterator[tuple[Box, Guest]]:
        async with self.box() as box:
            yield box, await box.guest()

    @asynccontextmanager
    async def files(self) -> AsyncIterator[tuple[Box, Files]]:
        async with self.guest() as (box, guest):
            yield box, guest.files

    def sized_order(self, **resources: float) -> Order:
        order = self.make_order()
        return replace(order, resources=replace(order.resources, **resources))  # type: ignore[arg-type]

    async def refuse_order(self, order: Order, *kinds: type[Exception]) -> None:
        """Demands that the backend refuses an order and leaves nothing of it."""
        await refused(self.backend.provision(order), *kinds)
        expect(order.sandbox_id not in await self.backend.inventory(), "something is left")


@brief_value_class
class Check:
    name: str
    # What would go wrong for users of a backend that fails it.
    why: str
    run: Callable[[Bench], Awaitable[None]]
    # Only for backends that offer this.
    needs: Capability | None = None


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    # Fails as the backend's author said it would.
    DEVIATES = "deviates"
    # Passes although a deviation is declared: the declaration is out of date.
    NO_LONGER_DEVIATES = "no_longer_deviates"
    NOT_OFFERED = "not_offered"


@value_class
class CheckResult:
    name: str
    why: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0

    @property
    def is_fine(self) -> bool:
        return self.verdict not in (Verdict.FAILED, Verdict.NO_LONGER_DEVIATES)


@dataclass
class Suite:
    """Collects checks as they are defined."""

    checks: list[Check] = field(default_factory=list)

    def check(
        self, why: str, *, needs: Capability | None = None
    ) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[Bench], Awaitable[None]]]:
        def add(run: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
            self.checks.append(Check(run.__name__, why, run, needs))
            return run

        return add


async def run_check(check: Check, bench: Bench, *, deviation: str | None = None) -> CheckResult:
    """Runs one check. A failure of any kind is a result, not an error of this function."""
    started = time.monotonic()
    if check.needs is not None and check.needs not in capabilities_of(bench.backend):
        return CheckResult(name=check.name, why=check.why, verdict=Verdict.NOT_OFFERED)
    failure = ""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await check.run(bench)
    except Exception as error:
        # One of the outermost loops: whatever a foreign backend raises is its result.
        failure = f"{type(error).__name__}: {error}"
    if deviation is not None:
        verdict = Verdict.DEVIATES if failure else Verdict.NO_LONGER_DEVIATES
        failure = deviation if failure else f"declared to fail ({deviation}), but it passes"
    else:
        verdict = Verdict.FAILED if failure else Verdict.PASSED
    spent = time.monotonic() - started
    return CheckResult(name=check.name, why=check.why, verdict=verdict, detail=failure, seconds=spent)


async def collect(output: AsyncIterator[Output | Exit]) -> Ran:
    kept = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    end: Exit | None = None
    async for item in output:
        if isinstance(item, Exit):
            end = item
        else:
            kept[item.stream] += item.data
    expect(end is not None, "the output ended without an Exit")
    assert end is not None
    return Ran(exit=end, stdout=bytes(kept[Stream.STDOUT]), stderr=bytes(kept[Stream.STDERR]))


async def until(condition: Callable[[], Awaitable[object]], message: str, *, within_s: float = 5.0) -> None:
    """Waits up to five seconds for a condition: the kernel cleans up asynchronously."""
    deadline = time.monotonic() + within_s
    while not await condition():
        expect(time.monotonic() < deadline, message)
        await asyncio.sleep(0.02)


async def refused(act: Awaitable[object], *kinds: type[Exception]) -> None:
    """Awaits `act`, which has to raise one of these errors."""
    wanted = " or ".join(kind.__name__ for kind in kinds)
    try:
        await act
    except kinds:
        return
    except Exception as error:
        raise CheckFailed(f"{wanted} was expected, not {type(error).__name__}: {error}") from error
    raise CheckFailed(f"{wanted} was expected, but nothing was raised")


async def at_once(acts: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Runs all of these side by side, and returns what they returned."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(act) for act in acts]
    return [task.result() for task in tasks]
