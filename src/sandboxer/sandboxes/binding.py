"""Every start checks that this database and the disks of a backend belong together, before it changes
anything.

Both carry the id of one installation. A start on the wrong database (a mistyped URL, a deleted file, an older
dump) is refused: its records do not know the disks, so everything that cleans up would remove the wrong
things.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection

from sandboxer.backends.contract import Backend, CarriesMark
from sandboxer.backends.shared import StandsElsewhere
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotAvailable, Unavailable
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.quarantine import forget_all
from sandboxer.store.claim import Installation, count_on, load_installation
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# How often the count grows: a dump that is older than two of these differs from the database it came from.
EVERY = timedelta(minutes=5)
# A file in the state folder, written by `adopt-pool` and `restore`: the next start may take the disks over.
ADOPTION = "adopt-pool"


@brief_value_class
class Mark:
    """The mark that a backend stores beside its disks: the installation and its count."""

    installation: str
    beat: int


class Finding(StrEnum):
    BELONGS = "belongs"
    # The disks are another installation's.
    FOREIGN = "foreign"
    # The database was never used with any disks, or has no records at all, and there are some.
    NEW_DATABASE = "new_database"
    # The database is of the same installation, but older than the disks.
    OLDER = "older"
    # The database has records of disks, but the pool is new and empty.
    DISKS_GONE = "disks_gone"


@brief_value_class
class Records:
    """What the database knows of disks: whether it ever had records, and how many disks it names now."""

    is_empty: bool
    disks: int
    # The disks by backend: one that was added to a platform has none yet, whatever the others have.
    by_backend: Mapping[str, int] = field(default_factory=dict)

    def of(self, backend: str) -> Records:
        return Records(self.is_empty, self.by_backend.get(backend, 0))


@brief_value_class
class Bound:
    installation: Installation
    # The operator adopted the disks, so records may be older than they are.
    is_adopted: bool
    # Those on hosts that did not answer: whose disks theirs are is not known, and they are not marked.
    unasked: frozenset[str] = frozenset()


def judge(known: Installation | None, mark: Mark | None, *, has_disks: bool, records: Records) -> Finding:
    """Judge whether database and disks belong together. Pure.

    Without disks nothing can be lost but the records of disks that lie elsewhere. Disks without a mark are
    from before there were marks, unless the database has never had a record.
    """
    if not has_disks:
        is_gone = mark is None and known is not None and records.disks
        return Finding.DISKS_GONE if is_gone else Finding.BELONGS
    if mark is None:
        return Finding.NEW_DATABASE if records.is_empty else Finding.BELONGS
    if known is None:
        return Finding.NEW_DATABASE
    if known.id != mark.installation:
        return Finding.FOREIGN
    return Finding.OLDER if known.beat < mark.beat else Finding.BELONGS


async def bind(
    store: Store,
    backends: Mapping[str, Backend],
    *,
    clock: Clock,
    read_records: Callable[[Connection], Records],
    state_dir: Path,
    database: str,
) -> Bound:
    """Bind database and disks. Raises Conflict if they do not belong together; nothing is changed then."""
    known = await store.read(load_installation)
    records = await store.read(read_records)
    marks, unasked = await _marks(backends)
    carrying = {name: one for name, one in backends.items() if isinstance(one, CarriesMark) and name in marks}
    may_adopt = _may_adopt(state_dir, known)
    adopted = False
    for name, backend in carrying.items():
        disks = await backend.disks()
        finding = judge(known, marks[name], has_disks=bool(disks), records=records.of(name))
        if finding is not Finding.BELONGS and not may_adopt:
            raise _refusal(finding, known, marks[name], len(disks) or records.disks, state_dir, database)
        if may_adopt and disks:
            # Even if nothing looks wrong: a dump of a few minutes ago looks like the database itself.
            adopted = True
            log.warning("the %d disks of %s are adopted (%s)", len(disks), name, finding.value)
    counted = max((mark.beat for mark in marks.values() if mark is not None), default=0)

    def begin(conn: Connection) -> Installation:
        if adopted:
            # Their quarantine starts again, because the list is older than the disks.
            forget_all(conn)
        return count_on(conn, at_least=counted, now=clock.now())

    installation = await store.write(begin)
    await _mark_all(carrying, installation.id, max(installation.beat - 1, 0))
    (state_dir / ADOPTION).unlink(missing_ok=True)
    return Bound(installation, adopted, frozenset(unasked))


async def _marks(backends: Mapping[str, Backend]) -> tuple[dict[str, Mark | None], list[str]]:
    """Read the mark of every backend that carries one, and name those on hosts that do not answer: the
    sandboxes of other hosts need not wait for them. What has no record there is kept apart, as everywhere.
    """
    marks, unasked = {}, []
    for name, backend in backends.items():
        if not isinstance(backend, CarriesMark):
            continue
        try:
            marks[name] = read_mark(await backend.mark())
        except (NotAvailable, Unavailable) as error:
            if not isinstance(backend, StandsElsewhere):
                raise
            log.warning("whose sandboxes %s has is not known: %s", name, error)
            unasked.append(name)
    return marks, unasked


async def keep_counting(store: Store, backends: Mapping[str, Backend], clock: Clock) -> None:
    """Run until cancelled, and count on. Backends get the count before the last one, which is on the disk for
    certain: a power cut must not make the database look older than its disks."""
    carrying = {name: one for name, one in backends.items() if isinstance(one, CarriesMark)}
    while True:
        await clock.sleep(EVERY)
        try:
            counted = await store.write(lambda conn: count_on(conn, now=clock.now()))
            await _mark_all(carrying, counted.id, counted.beat - 1)
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the installation's count could not be written")


def allow_adoption(state_dir: Path, installation: str) -> None:
    """Allow the next start to adopt the disks for this installation ("": for a database without an id)."""
    place = state_dir / ADOPTION
    place.write_text(json.dumps({"installation": installation}) + "\n")
    place.chmod(0o600)


def read_mark(text: str | None) -> Mark | None:
    """Read a mark; None if there is none or it cannot be read."""
    try:
        raw = json.loads(text or "")
        return Mark(str(raw["installation"]), int(raw["beat"]))
    except (ValueError, KeyError, TypeError):
        return None


async def _mark_all(carrying: Mapping[str, CarriesMark], installation: str, beat: int) -> None:
    for name, backend in carrying.items():
        try:
            await backend.set_mark(json.dumps({"installation": installation, "beat": beat}) + "\n")
        except OSError as error:
            # A full pool must not keep the server from starting, because it is needed to clear the pool.
            log.warning("the disks of %s could not be marked: %s", name, error)


def _may_adopt(state_dir: Path, known: Installation | None) -> bool:
    try:
        allowed = json.loads((state_dir / ADOPTION).read_text())["installation"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(allowed == ("" if known is None else known.id))


def _refusal(
    finding: Finding,
    known: Installation | None,
    mark: Mark | None,
    disks: int,
    state_dir: Path,
    database: str,
) -> Conflict:
    pool = f"the storage pool in {state_dir} holds {disks} disks"
    owner = "an installation without an id" if mark is None else mark.installation
    what = {
        Finding.NEW_DATABASE: f"{pool} of {owner}, and the database {database} is new: it knows none of them",
        Finding.FOREIGN: f"{pool} of {owner}, and the database {database} is of {known.id if known else '?'}",
        Finding.OLDER: f"{pool}, and the database {database} is older than they are: a copy was restored",
        Finding.DISKS_GONE: f"the storage pool in {state_dir} is new, and the database {database} has records"
        f" of {disks} disks: they lie elsewhere (is a disk of this host not mounted?), or are lost",
    }[finding]
    return Conflict(
        why=f"{what}. Nothing was started and nothing was removed",
        reason="installation_mismatch",
        hint="Check SANDBOXER_DATABASE (or --database): it may be mistyped, or the file was deleted; restore"
        " the newest backup then. If this database is meant, run"
        f" `sandboxer adopt-pool --state-dir {state_dir}` and start again: every disk stays, and those that"
        " it has no record of are kept apart (`sandboxer inspect stale`).",
    )
