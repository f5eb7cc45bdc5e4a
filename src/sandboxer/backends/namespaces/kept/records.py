"""Records each kept disk, and each sandbox whose disk began as a copy: `kept/<id>.json`.

Space is counted for whoever wrote it first. When a sandbox is gone, what others still hold of its disk stays,
under the number its disk had. The `owners` of a disk are the numbers under which it may hold something.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import is_kept_id, is_sandbox_id, is_volume_id, value_class


class Owner(NamedTuple):
    # Of a subvolume, and whose disk it is or was.
    number: int
    sandbox_id: str


@value_class
class Heritage:
    # Of a kept disk, of a sandbox or of a volume.
    id: str
    owners: tuple[Owner, ...] = ()
    # From here on of kept disks only: the very tree below it.
    image: str = ""
    # As it was when it was taken; whoever changed it since is found out.
    uuid: str = ""
    changed: int = 0
    at_most_bytes: int = 0
    # Once somebody looked at every file.
    bytes: int | None = None

    @property
    def is_kept(self) -> bool:
        return is_kept_id(self.id)


_FIELDS = tuple(field.name for field in fields(Heritage))


def check_kept_id(disk_id: str) -> None:
    if not is_kept_id(disk_id):
        raise InvalidRequest(field="disk_id", why="not an id of a kept disk")


class HeritageFolder:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.known: dict[str, Heritage] = {}
        # How many may hold something that was written under this number, or by this sandbox.
        self._holders: Counter[Owner | str] = Counter()
        self._changing = threading.Lock()
        # Whoever writes more of one, and whoever removes it: together they would bring it back.
        self._amending = threading.Lock()
        self._sweep()
        for id_ in self._ids():
            if (found := self._read(id_)) is not None:
                self._know(found)

    def write(self, heritage: Heritage) -> None:
        """Writes a record, whole or not at all."""
        fresh = self._path / f".{heritage.id}"
        fresh.write_text(json.dumps(asdict(heritage)))
        os.rename(fresh, self._path / f"{heritage.id}.json")
        self._know(heritage)

    def write_either(self, id_: str, owners: Iterable[Owner]) -> None:
        """Records that a disk is about to be exchanged for one with these owners: either may be there after a
        crash.
        """
        older = self.known.get(id_)
        both = {*owners, *(() if older is None else older.owners)}
        self.write(Heritage(id=id_, owners=tuple(sorted(both))))

    def amend(self, heritage: Heritage) -> bool:
        """Adds to a record. Returns False if it was removed meanwhile, and leaves it so."""
        with self._amending:
            if heritage.id not in self.known:
                return False
            self.write(heritage)
            return True

    def remove(self, id_: str) -> None:
        with self._amending:
            self._forget(id_)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path / f"{id_}.json")

    def is_shared(self, sandbox_id: str) -> bool:
        """Says whether its disk began as a copy, or others may hold something of it."""
        return sandbox_id in self.known or self._holders[sandbox_id] > 0

    def owners(self) -> list[Owner]:
        with self._changing:
            return [whom for whom in self._holders if isinstance(whom, Owner)]

    def is_held_by_others(self, owner: Owner, heritage: Heritage) -> bool:
        return self._holders[owner] > (owner in heritage.owners)

    def find_kept(self, disk_id: str) -> Heritage | None:
        found = self.known.get(disk_id)
        return found if found is not None and found.is_kept else None

    def kept(self) -> list[Heritage]:
        with self._changing:
            return [one for one in self.known.values() if one.is_kept]

    def _know(self, heritage: Heritage) -> None:
        with self._changing:
            self._drop(heritage.id)
            self.known[heritage.id] = heritage
            for owner in heritage.owners:
                self._count(owner, +1)

    def _forget(self, id_: str) -> None:
        with self._changing:
            self._drop(id_)

    def _drop(self, id_: str) -> None:
        if (older := self.known.pop(id_, None)) is not None:
            for owner in older.owners:
                self._count(owner, -1)

    def _count(self, owner: Owner, change: int) -> None:
        for whom in (owner, owner.sandbox_id):
            self._holders[whom] += change
            if not self._holders[whom]:
                del self._holders[whom]

    def _sweep(self) -> None:
        """Removes what a killed server was writing."""
        for name in os.listdir(self._path):
            if name.startswith("."):
                os.unlink(self._path / name)

    def _ids(self) -> Iterator[str]:
        for name in os.listdir(self._path):
            id_ = name.removesuffix(".json")
            if id_ != name and (is_kept_id(id_) or is_sandbox_id(id_) or is_volume_id(id_)):
                yield id_

    def _read(self, id_: str) -> Heritage | None:
        """Reads a record. Fields of a newer server are ignored, as in `Box`."""
        try:
            raw = json.loads((self._path / f"{id_}.json").read_bytes())
            known = {name: raw[name] for name in _FIELDS if name in raw}
            return Heritage(**{**known, "owners": tuple(Owner(*each) for each in raw["owners"])})
        except (ValueError, TypeError, KeyError):
            return None
