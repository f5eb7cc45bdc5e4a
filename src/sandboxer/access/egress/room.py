"""Opens the ways out: relays of what runs already, a hook for what starts, a loop that counts and charges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sandboxer.access.egress.charging import EgressCharges
from sandboxer.access.egress.outlet import Secrets
from sandboxer.access.egress.outlets import Outlets
from sandboxer.access.egress.use_cases import Egress
from sandboxer.identity.seal import Seal
from sandboxer.kernel.dial_judge import Network
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.pricing import Pricing
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store


@asynccontextmanager
async def open_egress(
    sandboxes: SandboxUseCases,
    store: Store,
    seal: Seal,
    *,
    secrets: Secrets,
    pricing: Pricing | None,
    never: Sequence[Network] = (),
) -> AsyncIterator[Egress]:
    """`pricing` None: nobody pays here. `never`: networks that are not to be reached by anybody."""
    room = sandboxes.room
    charges = None if pricing is None else EgressCharges(pricing)
    async with own_tasks() as relays:
        outlets = Outlets(room, store, seal, relays, secrets=secrets, charges=charges, never=never)
        room.furnishers.append(outlets)
        try:
            await outlets.reopen()
            async with own_tasks() as loops:
                loops.start(outlets.run(), name="egress traffic")
                yield Egress(sandboxes, store, outlets)
        finally:
            room.furnishers.remove(outlets)
            await outlets.flush()
