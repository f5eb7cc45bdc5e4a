"""Builds the use cases of commands, processes, files and terminals. The edges hold these and nothing else
of the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.work.deadline import Overdue
from sandboxer.work.exec import Exec
from sandboxer.work.files import Archives, SandboxFiles
from sandboxer.work.lines import Lines
from sandboxer.work.processes import Processes, Terminals

# The platform itself, ending what is overdue: it may reach into every sandbox.
OVERDUE = Caller(public_key="system:overdue", account="system", is_owner=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    exec: Exec
    processes: Processes
    files: SandboxFiles
    archives: Archives
    terminals: Terminals
    overdue: Overdue

    async def run(self, living: Iterable[str]) -> None:
        """Keep time limits, those of sandboxes that were `living` before us included. Cancel it to stop."""
        for sandbox_id in living:
            await self.overdue.adopt(sandbox_id)
        await self.overdue.run()


def open_work(sandboxes: SandboxUseCases, clock: Clock) -> Work:
    lines = Lines(sandboxes)
    overdue = Overdue(clock, lambda id_: sandboxes.line(id_, OVERDUE, activity=ActivityKind.PROCESSES))
    return Work(
        exec=Exec(lines, clock),
        processes=Processes(lines, clock, overdue),
        files=SandboxFiles(lines),
        archives=Archives(lines),
        terminals=Terminals(lines),
        overdue=overdue,
    )
