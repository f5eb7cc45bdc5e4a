"""The rooms that stand on sandboxes: execution, sessions, services, access, artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandboxer.access.egress.room import open_egress
from sandboxer.access.ports.targets import Target
from sandboxer.access.room import Access, open_access
from sandboxer.access.secrets.room import open_secrets
from sandboxer.access.ssh.room import open_ssh
from sandboxer.accounts.authority import AuthorityBook
from sandboxer.artifacts.garbage.trees import Trees
from sandboxer.artifacts.images import list_images
from sandboxer.artifacts.room import Artifacts, open_artifacts
from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.identity.seal import Seal
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.dial_judge import DialJudge
from sandboxer.observe.webhooks.room import Webhooks
from sandboxer.sandboxes.slots import Slots
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.settings import Settings
from sandboxer.store.engine import Store
from sandboxer.work.execute.room import Execution, open_execution
from sandboxer.work.languages.offering import HostImages, ImageContent
from sandboxer.work.services.room import open_services
from sandboxer.work.services.use_cases import ServiceUseCases
from sandboxer.work.sessions.room import open_sessions
from sandboxer.work.sessions.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class UpperRooms:
    """The rooms that stand on sandboxes."""

    slots: Slots
    execution: Execution
    sessions: Sessions
    services: ServiceUseCases
    access: Access
    artifacts: Artifacts


async def open_upper_rooms(
    settings: Settings,
    store: Store,
    clock: Clock,
    seal: Seal,
    authorities: AuthorityBook,
    webhooks: Webhooks,
    sandboxes: SandboxUseCases,
    closing: AsyncExitStack,
    *,
    budget: Budget,
) -> UpperRooms:
    slots = Slots(sandboxes.room, store)
    # First: whatever starts a process needs them.
    secrets = await closing.enter_async_context(open_secrets(sandboxes, store, clock, seal))
    pricing = settings.prices if settings.charging else None
    egress = await closing.enter_async_context(
        open_egress(
            sandboxes, store, seal, secrets=secrets.vault, pricing=pricing, never=settings.never_reached
        )
    )
    execution = await closing.enter_async_context(
        _open_execution(settings, sandboxes, store, clock, authorities, slots, webhooks)
    )
    sessions = await closing.enter_async_context(open_sessions(store, clock, sandboxes, execution.images))
    services = await closing.enter_async_context(
        open_services(
            sandboxes,
            store,
            clock,
            seal,
            state_dir=settings.state_dir,
            domain=settings.proxy_domain,
            domain_port=settings.domain_proof_port,
            judge=DialJudge(allow_private=settings.webhook_allow_private, never=settings.never_reached),
            domain_policy=settings.domain_policy,
        )
    )
    ssh = await open_ssh(sandboxes, store, clock)
    access = closing.enter_context(
        open_access(
            sandboxes,
            store,
            clock,
            seal,
            secrets=secrets,
            ssh=ssh,
            egress=egress,
            targets=services.targets(Target),
        )
    )
    artifacts = await closing.enter_async_context(
        _open_artifacts(settings, sandboxes, store, clock, authorities, slots, budget)
    )
    return UpperRooms(
        slots=slots,
        execution=execution,
        sessions=sessions,
        services=services,
        access=access,
        artifacts=artifacts,
    )


def _open_execution(
    settings: Settings,
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    authorities: AuthorityBook,
    slots: Slots,
    webhooks: Webhooks,
) -> AbstractAsyncContextManager[Execution]:
    return open_execution(
        sandboxes,
        store,
        clock,
        authorities=authorities,
        slots=slots,
        webhooks=webhooks,
        policy=settings.job_policy,
        images=HostImages(lambda: _contents(settings.images_dir)),
    )


def _contents(images_dir: Path) -> Iterator[ImageContent]:
    for image in list_images(images_dir):
        # An older tree, `name@digest`, serves disks that lie over it, not new sandboxes.
        if "@" not in image.name:
            yield ImageContent(
                name=image.name, packages=image.packages, has_file=partial(_has_file, image.rootfs)
            )


def _has_file(rootfs: Path, path: str) -> bool:
    """A link in there may point anywhere, so none is followed."""
    return os.path.lexists(rootfs / path)


def _open_artifacts(
    settings: Settings,
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    authorities: AuthorityBook,
    slots: Slots,
    budget: Budget,
) -> AbstractAsyncContextManager[Artifacts]:
    charges = None
    if settings.charging:
        charges = KeepCharges(pricing=settings.prices, holds=settings.holds, storage=settings.storage_policy)
    return open_artifacts(
        sandboxes,
        store,
        clock,
        authorities=authorities,
        slots=slots,
        budget=budget,
        charges=charges,
        policy=settings.snapshot_policy,
        image_policy=settings.image_policy,
        spool_dir=settings.state_dir / "imports",
        lists_dir=settings.state_dir / "image-lists",
        default_profile=settings.default_profile,
        volume_policy=settings.volume_policy,
        trees=Trees(settings.images_dir, is_ours=settings.images_dir.is_relative_to(settings.state_dir)),
        garbage_grace=settings.garbage_kept_for,
    )
