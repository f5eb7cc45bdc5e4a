"""Opens the room of secrets: the book filled, sandboxes furnished, and what ended sandboxes had dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sandboxer.access.secrets.injected import InjectedBook
from sandboxer.access.secrets.use_cases import Secrets
from sandboxer.access.secrets.vault import Vault
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.lifecycle import FINAL
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_secrets(
    sandboxes: SandboxUseCases, store: Store, clock: Clock, seal: Seal
) -> AsyncIterator[Secrets]:
    """Before anything that starts processes in sandboxes."""
    book = InjectedBook(store, seal)
    await book.load()
    secrets = Secrets(sandboxes, clock, Vault(store, clock, seal), book)
    sandboxes.room.furnishers.append(secrets)
    ended: asyncio.Queue[str] = asyncio.Queue()

    def changed(sandbox: Sandbox, steps: Sequence[Step]) -> None:
        del steps
        if sandbox.state in FINAL and secrets.holds(sandbox.id):
            ended.put_nowait(sandbox.id)

    sandboxes.room.book.on_change(changed)
    async with own_tasks() as tasks:
        tasks.start(_drop_ended(secrets, ended), name="secrets of ended sandboxes")
        try:
            yield secrets
        finally:
            sandboxes.room.furnishers.remove(secrets)


async def _drop_ended(secrets: Secrets, ended: asyncio.Queue[str]) -> None:
    while True:
        sandbox_id = await ended.get()
        try:
            await secrets.drop(sandbox_id)
        except Exception:
            # They are dropped at the next start.
            log.exception("the secrets of %s could not be dropped", sandbox_id)
