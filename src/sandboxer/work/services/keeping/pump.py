"""Carries what one process prints into the service's log, and hears how it ends.

A process that prints faster than `RATE` is slowed down by its own full pipe: one noisy service must not
keep the server from serving the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from sandboxer.backends.guest import Exit, Guest, Stream
from sandboxer.kernel.errors import SandboxerError
from sandboxer.work.pace import Pace
from sandboxer.work.services.keeping.logs import LineCutter, ServiceLog
from sandboxer.work.services.keeping.means import Means

log = logging.getLogger(__name__)
# Bytes a second; a line costs as much as so many bytes more.
RATE = 256 * 1024
LINE_COSTS = 100
# Lines written in one go: the server does nothing else meanwhile, and a piece of output may hold 60,000.
AT_ONCE = 256


@dataclass(eq=False)
class Pump:
    """One attached process."""

    process_id: str
    run: int
    # Called when the process ended, or the line to it broke.
    on_end: Callable[[], None]
    exit: Exit | None = None
    is_over: bool = False

    async def carry(self, means: Means, service_id: str, guest: Guest) -> None:
        """Until it ends; never raises for what happens to the sandbox."""
        try:
            self.exit = await self._carry(means, service_id, guest)
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

    async def _carry(self, means: Means, service_id: str, guest: Guest) -> Exit | None:
        kept = means.log(service_id)
        cutter = LineCutter({stream: kept.offset(self.process_id, stream.value) for stream in Stream})
        pace = Pace(RATE)
        ended: Exit | None = None
        async with await guest.attach(self.process_id) as process:
            async for item in process.output():
                if isinstance(item, Exit):
                    ended = item
                    break
                found = cutter.feed(item)
                while lines := list(islice(found, AT_ONCE)):
                    self._write(means, kept, lines)
                    await pace.spend(LINE_COSTS * len(lines))
                await pace.spend(len(item.data))
        self._write(means, kept, list(cutter.finish()))
        return ended

    def _write(self, means: Means, kept: ServiceLog, lines: Sequence[tuple[Stream, str, int]]) -> None:
        if lines:
            plain = [(stream.value, text, offset) for stream, text, offset in lines]
            kept.write_all(means.clock.now(), self.run, self.process_id, plain)
