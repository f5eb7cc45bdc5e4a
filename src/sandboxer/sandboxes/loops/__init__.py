"""What goes on without a caller: timer, watch for deaths, activity recorder, the warm pool's filler.

Each sleeps until something is due or happens; none scans by the second.
"""

from __future__ import annotations

from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.loops.deaths import watch_deaths
from sandboxer.sandboxes.loops.filler import keep_filled
from sandboxer.sandboxes.loops.recorder import record_activity
from sandboxer.sandboxes.loops.timer import Timer
from sandboxer.sandboxes.room import Room


def start_loops(room: Room, tasks: TaskOwner) -> None:
    tasks.start(Timer(room).run(), name="timer")
    tasks.start(record_activity(room), name="activity recorder")
    tasks.start(keep_filled(room), name="warm pool")
    for name, backend in room.backends.items():
        tasks.start(watch_deaths(room, backend), name=f"deaths of {name}")
