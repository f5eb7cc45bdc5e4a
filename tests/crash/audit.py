"""What must be true of a platform that has just started, whatever happened to the one before it."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.artifacts.records import State as SnapshotState
from sandboxer.backends.contract import Presence, Snapshots
from sandboxer.backends.guest import Command, Exit
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.identity.keys import Caller
from sandboxer.observe.events import Event
from sandboxer.sandboxes.lifecycle import Signal, State, next_state
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import inspection
from sandboxer.wiring import Platform
from tests.support.walls import traces

OWNER = Caller(public_key="sbx-pk-crash", account="owner", is_owner=True)
# One that holds nothing on the host, or nothing that a start leaves as it is.
EMPTY = frozenset({State.FAILED, State.DESTROYED})
UNSETTLED = frozenset({State.REQUESTED, State.PROVISIONING, State.EXPIRED, State.DESTROYING})
# A sandbox with this label runs a process that must outlive every server.
STEADY = {"kind": "steady"}


async def audit(platform: Platform) -> list[str]:
    """Complaints; none if all is well."""
    histories = await everything_with_events(platform)
    records = [sandbox for sandbox, _ in histories]
    complaints = [f"{s.id} is still {s.state}" for s in records if s.state in UNSETTLED]
    for sandbox, events in histories:
        complaints += chain_complaints(sandbox, events)
        complaints += await life_complaints(platform, sandbox)
    held = {s.id for s in records if s.state not in EMPTY}
    found = set(await platform.backends["ext.namespaces"].inventory())
    strays = {sandbox_id for sandbox_id in found - held if not platform.sandboxes.warm.holds(sandbox_id)}
    complaints += [
        f"{sandbox_id} is on the host without a reason: {remains(platform, sandbox_id)}"
        for sandbox_id in strays
    ]
    complaints += [f"{sandbox_id} is not on the host" for sandbox_id in held - found]
    return complaints + await kept_complaints(platform)


def remains(platform: Platform, sandbox_id: str) -> list[str]:
    """What there is of it. Whoever reads the complaint comes when everything is gone."""
    backend = platform.backends["ext.namespaces"]
    return traces(backend, sandbox_id) if isinstance(backend, NamespacesBackend) else []


async def kept_complaints(platform: Platform) -> list[str]:
    """Every snapshot is kept or gone, and what is kept is what was taken."""
    backend = platform.backends["ext.namespaces"]
    assert isinstance(backend, Snapshots)
    living = {one.id: one for one in await platform.artifacts.snapshots.repository.living()}
    there = set(await backend.kept())
    complaints = [
        f"{one.id} is still {one.state}" for one in living.values() if one.state is not SnapshotState.KEPT
    ]
    complaints += [f"{disk_id} is kept without a reason" for disk_id in there - living.keys()]
    complaints += [f"{disk_id} is not kept" for disk_id in living.keys() - there]
    for disk_id in there & living.keys():
        await backend.check_kept(disk_id)
    return complaints


async def everything(platform: Platform) -> list[Sandbox]:
    records: list[Sandbox] = []
    cursor = None
    while True:
        page = await inspection.list_sandboxes(
            platform.sandboxes, OWNER, states=tuple(State), limit=500, cursor=cursor
        )
        records += page.records
        cursor = page.next_cursor
        if cursor is None:
            return records


async def everything_with_events(platform: Platform) -> list[tuple[Sandbox, list[Event]]]:
    """A loop may record a step between the two reads, such as that work began: then both are read again."""
    records, histories = await everything(platform), list[tuple[Sandbox, list[Event]]]()
    while [sandbox for sandbox, _ in histories] != records:
        histories = [(sandbox, await history(platform, sandbox.id)) for sandbox in records]
        records = await everything(platform)
    return histories


async def history(platform: Platform, sandbox_id: str) -> list[Event]:
    events: list[Event] = []
    while page := await platform.events.page(sandbox_id, after=events[-1].id if events else 0):
        events += page
    return events


def chain_complaints(sandbox: Sandbox, events: Sequence[Event]) -> list[str]:
    """The events are a legal path through the table without a gap, and end where the record is."""
    complaints = []
    # Every write adds one to the version and one event; the first has version 0.
    if len(events) != sandbox.version + 1:
        complaints.append(f"{sandbox.id} has version {sandbox.version} but {len(events)} events")
    steps = [event for event in events if "signal" in event.data]
    state = State.REQUESTED
    for event in steps[1:]:
        if event.data["from"] != state:
            complaints.append(f"{sandbox.id}: event {event.id} leaves {event.data['from']}, it was {state}")
        state = next_state(state, Signal(event.data["signal"]))
        if event.data["to"] != state or not event.actor or not event.reason:
            complaints.append(f"{sandbox.id}: event {event.id} is {event}")
    if state is not sandbox.state:
        complaints.append(f"{sandbox.id} is {sandbox.state}, its events end in {state}")
    return complaints


async def life_complaints(platform: Platform, sandbox: Sandbox) -> list[str]:
    """A living sandbox answers; a steady one has gone on all the while."""
    backend = platform.backends[sandbox.backend]
    if sandbox.handle is None:
        return []
    presence = (await backend.recover(sandbox.handle)).presence
    wanted = {
        State.READY: Presence.RUNNING,
        State.ACTIVE: Presence.RUNNING,
        State.FROZEN: Presence.FROZEN,
        State.STOPPED: Presence.STOPPED,
    }.get(sandbox.state)
    if presence is not wanted:
        return [f"{sandbox.id} is {sandbox.state} and found {presence}"]
    if presence is not Presence.RUNNING:
        return []
    guest = await backend.guest(sandbox.handle)
    async with await guest.run(Command(argv=("/bin/echo", "hi"), keep=False)) as process:
        items = [item async for item in process.output()]
    if b"".join(item.data for item in items if not isinstance(item, Exit)) != b"hi\n":
        return [f"{sandbox.id} does not echo: {items}"]
    running = {info.process_id for info in await guest.processes() if info.exit is None}
    if is_steady(sandbox) and "prc_steady" not in running:
        return [f"{sandbox.id} lost its process"]
    return []


def is_steady(sandbox: Sandbox) -> bool:
    """Its process was started for certain: the extension of its TTL came after."""
    return sandbox.labels == STEADY and sandbox.ttl != sandbox.ttl_max / 6
