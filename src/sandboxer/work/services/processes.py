"""Functions that start and end the processes of a service inside its sandbox, check their health, and copy
what they print into the log.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from sandboxer.backends.guest import Connection, Exit, Guest, ProcessInfo, Stream, whole
from sandboxer.kernel.errors import GuestRefused, PathNotFound, SandboxerError
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.use_cases.access import RESIDENT_TAG
from sandboxer.work.lines import SHELLS, WORKSPACE, RateLimit, Wanted, launch
from sandboxer.work.processes import end_process
from sandboxer.work.services.dependencies import ServiceDependencies
from sandboxer.work.services.lifecycle import Health
from sandboxer.work.services.logs import LineCutter, ServiceLog
from sandboxer.work.services.records import Service

log = logging.getLogger(__name__)
# Bytes a second. Each line costs as much as this many extra bytes.
RATE = 256 * 1024
LINE_COSTS = 100
# Lines written in one go: the server does nothing else meanwhile, and a piece of output may hold 60,000.
AT_ONCE = 256
# Process ids with this prefix were started by the platform.
PREFIX = "svp"
_FOLDER = "/var/lib/sandboxer/services"
# How often we look whether a process that was asked to end has.
_GLANCE_S = 0.05


async def start(
    guest: Guest,
    service: Service,
    *,
    process_id: str,
    port: int,
    sandbox_env: Mapping[str, str],
    secrets: Mapping[str, str],
) -> None:
    """Under exactly this id: a second start of the same is refused by the supervisor inside."""
    spec = service.spec
    if spec.cwd is None:
        await guest.files.mkdir(WORKSPACE)
    own = {"PORT": str(port), "SANDBOXER_SERVICE": service.name}
    wanted = Wanted(
        # Command and folder are fixed here, because a second try of `launch` would use another id.
        argv=await _argv(guest, service),
        cwd=spec.cwd or WORKSPACE,
        user=spec.user,
        env={**spec.env, **secrets, **own},
    )
    async with await launch(guest, wanted, sandbox_env, tag=RESIDENT_TAG, process_id=process_id):
        return


async def _argv(guest: Guest, service: Service) -> tuple[str, ...]:
    spec = service.spec
    shell = await _shell(guest)
    if spec.bootstrap is None:
        return (shell, "-c", spec.command or "")
    path = f"{_FOLDER}/{service.name}-{service.run}"
    await guest.files.write(path, whole(spec.bootstrap.encode()), mode=0o755)
    # The first line of a script names its interpreter; a script without one is run by a shell.
    return (path,) if spec.bootstrap.startswith("#!") else (shell, path)


async def _shell(guest: Guest) -> str:
    try:
        await guest.files.stat(SHELLS[0])
    except PathNotFound:
        return SHELLS[1]
    return SHELLS[0]


async def ours(guest: Guest) -> Mapping[str, ProcessInfo]:
    return {i.process_id: i for i in await guest.processes() if i.process_id.startswith(f"{PREFIX}_")}


async def end(guest: Guest, process_id: str, *, patience_s: float) -> None:
    """Asks the process to end, waits, then kills everything it started. A process that ended already, or is
    unknown, counts as success.
    """
    if (info := (await ours(guest)).get(process_id)) is not None and info.exit is None:
        await _ask_to_end(guest, process_id)
    deadline = asyncio.get_running_loop().time() + patience_s
    while (info := (await ours(guest)).get(process_id)) is not None:
        if info.exit is not None or asyncio.get_running_loop().time() >= deadline:
            await end_process(guest, info)
            return
        await asyncio.sleep(_GLANCE_S)


async def end_others(guest: Guest, process_id: str | None) -> None:
    """Ends the processes that an interrupted redeploy left behind."""
    for info in (await ours(guest)).values():
        if info.process_id != process_id and info.exit is None:
            await end_process(guest, info)


async def _ask_to_end(guest: Guest, process_id: str) -> None:
    # It may end meanwhile; the caller will notice.
    with suppress(SandboxerError):
        async with await guest.attach(process_id) as process:
            await process.signal(signal.SIGTERM)


@dataclass(eq=False)
class Pump:
    """A pump copies what one process prints into the service's log and learns how the process ends.

    A process that prints faster than `RATE` is slowed down by its own full pipe: one noisy service must not
    keep the server from serving the others.
    """

    process_id: str
    run: int
    # Called when the process has ended or the connection to it broke.
    on_end: Callable[[], None]
    exit: Exit | None = None
    is_over: bool = False

    async def carry(self, dependencies: ServiceDependencies, service_id: str, guest: Guest) -> None:
        """Copies output until the process ends. Never raises for what happens to the sandbox."""
        try:
            self.exit = await self._carry(dependencies, service_id, guest)
        except SandboxerError as error:
            log.info("the line to %s of %s ended: %s", self.process_id, service_id, error)
        except OSError as error:
            log.warning("the log of %s could not be written: %s", service_id, error)
        except Exception:
            # The end of a task of its own: what one service prints must not end the platform.
            log.exception("the log of %s met a fault", service_id)
        finally:
            self.is_over = True
            self.on_end()

    async def _carry(self, dependencies: ServiceDependencies, service_id: str, guest: Guest) -> Exit | None:
        kept = dependencies.log(service_id)
        cutter = LineCutter({stream: kept.offset(self.process_id, stream.value) for stream in Stream})
        rate_limit = RateLimit(RATE)
        ended: Exit | None = None
        async with await guest.attach(self.process_id) as process:
            async for item in process.output():
                if isinstance(item, Exit):
                    ended = item
                    break
                found = cutter.feed(item)
                while lines := list(islice(found, AT_ONCE)):
                    self._write(dependencies, kept, lines)
                    await rate_limit.spend(LINE_COSTS * len(lines))
                await rate_limit.spend(len(item.data))
        self._write(dependencies, kept, list(cutter.finish()))
        return ended

    def _write(
        self, dependencies: ServiceDependencies, kept: ServiceLog, lines: Sequence[tuple[Stream, str, int]]
    ) -> None:
        if lines:
            plain = [(stream.value, text, offset) for stream, text, offset in lines]
            kept.write_all(dependencies.clock.now(), self.run, self.process_id, plain)


_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]")
_MAX_HEAD = 4096


@brief_value_class
class Verdict:
    is_well: bool
    why: str


async def look(guest: Guest, port: int, health: Health) -> Verdict:
    """Checks once, through the supervisor, whether the service answers on its port. Never raises for what the
    service or its sandbox does.

    Every byte of the answer is untrusted: it is read up to a size limit and within a time limit, and only its
    first line counts.
    """
    try:
        async with asyncio.timeout(health.timeout_s):
            connection = await guest.connect(port)
            try:
                if health.path is None:
                    return Verdict(True, f"it takes connections on port {port}")
                return await _ask(connection, health.path)
            finally:
                await connection.close()
    except TimeoutError:
        return Verdict(False, f"no answer on port {port} within {health.timeout_s:g} s")
    except GuestRefused:
        return Verdict(False, f"nothing listens on port {port}")
    except SandboxerError as error:
        return Verdict(False, f"its sandbox does not answer: {error}")


async def _ask(connection: Connection, path: str) -> Verdict:
    ask = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: sandboxer-health\r\nConnection: close\r\n\r\n"
    )
    await connection.write(ask.encode("ascii", "replace"))
    head = b""
    while b"\n" not in head and len(head) < _MAX_HEAD:
        if not (chunk := await connection.read(_MAX_HEAD)):
            break
        head += chunk
    line = head.split(b"\n", 1)[0]
    if (status := _STATUS.match(line)) is None:
        shown = "nothing" if not line else repr(line[:60].decode("latin-1"))
        return Verdict(False, f"it answered GET {path} with {shown}, which is not HTTP")
    code = int(status[1])
    return Verdict(200 <= code < 400, f"it answered GET {path} with {code}")
