"""The warm pool holds sandboxes that are made before anyone asks (decision 0004), without a record. What
start hooks put into every sandbox of a kind, whoever gets it, is in them already.

Their backend marks them as unused, so a start after a crash removes them at once, unlike anything else
without a record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from sandboxer.backends.contract import Backend, Handle, Order, Resources, Trust
from sandboxer.kernel.values import brief_value_class, new_id
from sandboxer.sandboxes.profiles import Sudo
from sandboxer.sandboxes.records import Sandbox

log = logging.getLogger(__name__)
# What a start hook has left to do in a spare when somebody gets it.
Rest = Callable[[Sandbox], Awaitable[None]]
Rests = Mapping[object, Rest]


@brief_value_class
class Kind:
    """What two sandboxes must have in common so that one can replace the other."""

    backend: str
    image: str
    resources: Resources
    trust: Trust
    sudo: Sudo = Sudo.NONE


@brief_value_class
class Spare:
    kind: Kind
    handle: Handle
    # By start hook. One that is not among them has done nothing in it yet.
    rests: Rests


Prepare = Callable[[Order, Handle, Sudo], Awaitable[Rests]]
# Returns the order with the files of start hooks, and what to hold until they have prepared it.
Bring = Callable[[Order, str, Sudo], tuple[Order, object]]


def _bring_nothing(order: Order, backend: str, sudo: Sudo) -> tuple[Order, object]:
    return order, None


@brief_value_class
class Level:
    """How many sandboxes of a kind are wanted, and how many are ready."""

    kind: Kind
    wanted: int
    ready: int


class WarmPool:
    def __init__(self, backends: Mapping[str, Backend], wanted: Mapping[Kind, int]) -> None:
        self._backends = backends
        self._wanted = dict(wanted)
        self._ready: dict[Kind, deque[Spare]] = {kind: deque() for kind in wanted}
        # Being made, or claimed and about to get a record: they are in use although they have no record.
        self._reserved: set[str] = set()
        self._called = asyncio.Event()
        self._called.set()

    def claim(self, sandbox: Sandbox, sudo: Sudo) -> Spare | None:
        """Return one that fits, or None. The caller must call `claimed` once it has a record or is gone."""
        kind = Kind(sandbox.backend, sandbox.image, sandbox.resources, sandbox.trust, sudo)
        if not (ready := self._ready.get(kind)):
            return None
        spare = ready.popleft()
        self._reserved.add(spare.handle.sandbox_id)
        self._called.set()
        return spare

    def give_back(self, spare: Spare) -> bool:
        """Take one back that nobody got after all. False: others were made meanwhile, and it must go."""
        if len(self._ready[spare.kind]) >= self._wanted[spare.kind]:
            return False
        self._ready[spare.kind].appendleft(spare)
        return True

    def claimed(self, sandbox_id: str) -> None:
        self._reserved.discard(sandbox_id)

    def holds(self, sandbox_id: str) -> bool:
        return sandbox_id in self._reserved or any(
            spare.handle.sandbox_id == sandbox_id for ready in self._ready.values() for spare in ready
        )

    def count(self) -> int:
        return sum(len(ready) for ready in self._ready.values())

    def levels(self) -> Sequence[Level]:
        return [Level(kind, number, len(self._ready[kind])) for kind, number in self._wanted.items()]

    def drop(self, sandbox_id: str) -> bool:
        """Forget one that died and have another made; the caller removes its remains.

        False: it was not here.
        """
        for ready in self._ready.values():
            for spare in ready:
                if spare.handle.sandbox_id == sandbox_id:
                    ready.remove(spare)
                    self._called.set()
                    return True
        return False

    async def call(self) -> None:
        """Wait until one may be missing."""
        await self._called.wait()
        self._called.clear()

    def missing(self) -> Kind | None:
        for kind, number in self._wanted.items():
            if len(self._ready[kind]) < number:
                return kind
        return None

    async def make(self, kind: Kind, prepare: Prepare, bring: Bring = _bring_nothing) -> None:
        """Make one more of this kind. Raises what the backend raises; nothing is left then."""
        sandbox_id, backend = new_id("sbx"), self._backends[kind.backend]
        self._reserved.add(sandbox_id)
        try:
            order = Order(
                sandbox_id=sandbox_id,
                image=kind.image,
                resources=kind.resources,
                trust=kind.trust,
                is_spare=True,
            )
            order, held = bring(order, kind.backend, kind.sudo)
            handle = await backend.provision(order)
            try:
                rests = await prepare(order, handle, kind.sudo)
            except BaseException:
                await backend.teardown(sandbox_id)
                raise
            del held
            self._ready[kind].append(Spare(kind, handle, rests))
        finally:
            self._reserved.discard(sandbox_id)

    async def drain(self) -> None:
        """Remove all of them, because the next server cannot use them."""
        for kind, ready in self._ready.items():
            while ready:
                sandbox_id = ready.popleft().handle.sandbox_id
                try:
                    await self._backends[kind.backend].teardown(sandbox_id)
                except Exception:
                    # The server is ending: the others must be removed too.
                    log.exception("warm sandbox %s stays behind until the next start", sandbox_id)
