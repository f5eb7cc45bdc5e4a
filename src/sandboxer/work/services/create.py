"""Making a service: its record is written with its sandbox's, so that neither is without the other."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.ids import new_id
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.store.repository import Also
from sandboxer.work.files import check_path
from sandboxer.work.lines import WORKSPACE
from sandboxer.work.services.keeping.means import SYSTEM, Means
from sandboxer.work.services.keeping.supervisor import Supervisor
from sandboxer.work.services.records import Service
from sandboxer.work.services.repository import Step
from sandboxer.work.services.specs import NewFile, NewService
from sandboxer.work.services.states import Signal, State

# Whose life has no end but its account's sats.
PROFILE = "profile.service"
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?")
_SUFFIX = "0123456789abcdefghjkmnpqrstvwxyz"


async def create(
    means: Means, supervisor: Supervisor, wanted: NewService, caller: Caller, *, also: Also | None
) -> Service:
    """Its process is started, and nothing more is known of it yet."""
    service = _requested(means, wanted, caller)

    def record(conn: Connection, sandbox_id: str) -> None:
        placed = replace(service, sandbox_id=sandbox_id)
        means.repository.add(conn, placed, also=also, now=service.created_at)

    try:
        sandbox = await means.sandboxes.create(_sandbox(means, wanted), caller, also=record)
    except BaseException:
        if await means.repository.recall(service.id):
            await means.repository.move(
                service.id, Step(signal=Signal.REMOVE, reason="its sandbox could not be made")
            )
        raise
    opened = replace(service, sandbox_id=sandbox.id)
    means.repository.announce(opened)
    reconciler = supervisor.keep(opened.id)
    async with reconciler.alone() as made:
        try:
            await write_files(means, made.sandbox_id, wanted.files)
        except BaseException:
            await means.sandboxes.destroy(made.sandbox_id, SYSTEM, despite_lock=True)
            await means.repository.move(
                made.id, Step(signal=Signal.REMOVE, reason="its files could not be written")
            )
            supervisor.let_go(made.id)
            means.forget(made)
            raise
        return await reconciler.launch(made, "created")


async def write_files(means: Means, sandbox_id: str, files: Sequence[NewFile]) -> None:
    if not files:
        return
    async with means.sandboxes.line(sandbox_id, SYSTEM, activity=ActivityKind.FILES) as guest:
        for file in files:
            path = file.path if file.path.startswith("/") else f"{WORKSPACE}/{file.path}"
            await guest.files.write(check_path(path, field="files"), _whole(file.content), mode=file.mode)


def _requested(means: Means, wanted: NewService, caller: Caller) -> Service:
    if _NAME.fullmatch(wanted.name) is None:
        raise InvalidRequest(
            field="name",
            why="it must be a DNS label: a to z, 0 to 9 and -, at most 48, beginning with a letter",
        )
    service_id, now = new_id("svc"), means.clock.now()
    suffix = "".join(secrets.choice(_SUFFIX) for _ in range(6))
    return Service(
        id=service_id,
        version=0,
        account=caller.account,
        created_by=caller.public_key,
        name=wanted.name,
        slug=f"{wanted.name}-{suffix}",
        # Known when its sandbox's record is written.
        sandbox_id="",
        state=State.CREATING,
        reason="requested",
        state_since=now,
        is_wanted=True,
        spec=wanted.spec,
        vault=means.vault.close(service_id, wanted.secrets),
        vault_names=tuple(sorted(wanted.secrets)),
        vault_at=now if wanted.secrets else None,
        process_id=None,
        port=None,
        launched_at=None,
        run=0,
        crashes=(),
        restart_at=None,
        created_at=now,
        deployed_at=now,
    )


def price_request(means: Means, wanted: NewService) -> CreateRequest:
    """What to say a price for: a month, where there is no end."""
    asked = _sandbox(means, wanted)
    return asked if wanted.sandbox.ttl or asked.profile != PROFILE else replace(asked, ttl="30d")


def _sandbox(means: Means, wanted: NewService) -> CreateRequest:
    """It never ends for being idle: what a service does when nobody asks is its own setting."""
    request = wanted.sandbox
    profile = means.sandboxes.dependencies.profiles.get(request.profile or PROFILE)
    most = format_duration(profile.ttl_max)
    return replace(
        request,
        profile=profile.id,
        name=wanted.name,
        ttl=request.ttl or most,
        idle_timeout=most,
        labels={**request.labels, "service": wanted.name},
    )


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
