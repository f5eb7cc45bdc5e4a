"""Functions that read a request strictly: who is calling, labels, moments, byte ranges, volumes, names that
may not be UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from sandboxer.accounts.authority import parse_scopes, scopes_to_json, usual_scopes
from sandboxer.accounts.operators import demand_operator
from sandboxer.backends.contract import Capability, VolumeMount
from sandboxer.edges.http.authentication import LEASE, caller_of
from sandboxer.hosts.routes.records import ANYTHING, Constraints, IsolationLevel, Strategy
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.profiles import Checkpoint, WorkspaceAccess, WorkspaceMode
from sandboxer.sandboxes.profiles import Scope as SharingScope
from sandboxer.sandboxes.promises import Wishes
from sandboxer.sandboxes.records import Inception, OnParentEnd
from sandboxer.sandboxes.requests import CreateRequest, WantedResources, WantedVolume
from sandboxer.wiring import Platform

if TYPE_CHECKING:
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.images import SpawnImage
    from sandboxer.wire.routes import WantedRoute
    from sandboxer.wire.snapshots import CloneSnapshot

V = TypeVar("V")


def platform_of(connection: HTTPConnection) -> Platform:
    platform = connection.app.state.platform
    assert isinstance(platform, Platform)
    return platform


def caller(connection: HTTPConnection) -> Caller:
    return caller_of(connection.scope)


def lease_of(scope: Scope) -> Lease:
    """Returns the lease that accounts for what this request holds beyond 64 KiB."""
    lease = scope[LEASE]
    assert isinstance(lease, Lease)
    return lease


def require_owner(connection: HTTPConnection) -> Caller:
    who = caller(connection)
    demand_operator(who)
    return who


def path_of(scope: Scope, name: str = "path") -> str:
    """Returns the parameter's exact bytes, with surrogates for those that are not UTF-8 (`os.fsdecode`)."""
    wanted = name.encode()
    found: list[bytes] = []
    for pair in scope["query_string"].split(b"&"):
        key, _, value = pair.partition(b"=")
        if key == wanted:
            found.append(value)
    if len(found) != 1:
        raise InvalidRequest(field=name, why="give it exactly once")
    return os.fsdecode(unquote_to_bytes(found[0].replace(b"+", b" ")))


def exact(path: str, encoding: str) -> str:
    """Returns a path of a JSON body, whose bytes may be percent-encoded."""
    return path if encoding == "text" else os.fsdecode(unquote_to_bytes(path))


def labels_of(filters: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in filters:
        key, _, value = text.partition("=")
        if labels.setdefault(key, value) != value:
            raise InvalidRequest(field="label", why=f"{key} cannot have two values at once")
    return labels


def moment(text: str | None, *, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(field=field, why="there is no such moment") from None


_FORM = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@brief_value_class
class Span:
    offset: int
    length: int
    # False for the whole file.
    is_part: bool

    def content_range(self, size: int) -> str:
        return f"bytes {self.offset}-{self.offset + self.length - 1}/{size}"


class NotSatisfiable(Exception):
    """The range begins after the end of the file."""


def span(header: str | None, size: int) -> Span:
    """Returns what to send. A range that is not understood (several at once, other units) means the whole
    file.
    """
    whole = Span(0, size, False)
    match = _FORM.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return whole
    first, last = match.groups()
    if first == "":
        if (length := min(int(last), size)) == 0:
            raise NotSatisfiable
        return Span(size - length, length, True)
    start = int(first)
    end = size - 1 if last == "" else min(int(last), size - 1)
    if last != "" and int(last) < start:
        return whole
    if start >= size:
        raise NotSatisfiable
    return Span(start, end - start + 1, True)


def wanted_resources(wanted: wire.WantedResources | None) -> WantedResources:
    """Returns the resources that a body asks for; those of the profile where it asks for none."""
    return WantedResources() if wanted is None else WantedResources(**wanted.model_dump())


def from_body(kind: Callable[..., V], body: BaseModel, /, **others: Any) -> V:
    """Returns the request of a use case, a frozen value, with what the body has under the same names, and
    with `others`: what it has under other names or in another form.
    """
    names = kind.__dataclass_fields__.keys() & type(body).model_fields.keys()  # type: ignore[attr-defined]
    return kind(**{name: getattr(body, name) for name in names} | others)


def copy_request(body: wire.CreateSandbox | SpawnImage | CloneSnapshot) -> CreateRequest:
    """Returns the request for a sandbox, without its volumes."""
    inception = wanted_inception(getattr(body, "inception", None))
    resources = wanted_resources(body.resources)
    return from_body(
        CreateRequest,
        body,
        resources=resources,
        volumes=(),
        inception=inception,
        wishes=wishes_of(body),
        route=constraints_of(getattr(body, "route", None)),
    )


def constraints_of(wanted: WantedRoute | None) -> Constraints:
    """Returns what a create wants of the backend that makes it."""
    if wanted is None:
        return ANYTHING
    most = wanted.max_sats_per_hour
    return Constraints(
        strategy=None if wanted.strategy is None else Strategy(wanted.strategy),
        region=wanted.region,
        gpus=wanted.gpus,
        gpu=wanted.gpu,
        max_msats_per_hour=None if most is None else most * 1000,
        capabilities=frozenset(map(Capability, wanted.capabilities)),
        keys=dict(wanted.keys),
    )


def wishes_of(body: wire.CreateSandbox | SpawnImage | CloneSnapshot) -> Wishes:
    """Returns what a create wishes besides; bodies that make a sandbox in other ways have none of it."""
    scope, isolation = getattr(body, "scope", None), getattr(body, "isolation", None)
    workspace, setup = getattr(body, "workspace", None), getattr(body, "setup", None)
    by_reference, placement = getattr(body, "setup_metadata", None), getattr(body, "placement", None)
    checkpoint = getattr(body, "checkpoint", None)
    mode, access = getattr(workspace, "mode", None), getattr(workspace, "access", None)
    refs = (*(getattr(setup, "secret_refs", None) or ()), *(getattr(by_reference, "secret_refs", None) or ()))
    return Wishes(
        scope=None if scope is None else SharingScope(scope),
        workspace_mode=None if mode is None else WorkspaceMode(mode),
        workspace_access=None if access is None else WorkspaceAccess(access),
        instructions=getattr(setup, "instructions", None),
        instructions_ref=getattr(by_reference, "instructions_ref", None),
        secret_refs=tuple(dict.fromkeys(refs)),
        prefer=tuple(getattr(placement, "prefer", ())),
        fallback=tuple(getattr(placement, "fallback", ())),
        isolation=None if isolation is None else IsolationLevel(isolation),
        checkpoint=None if checkpoint is None else Checkpoint(checkpoint),
    )


def wanted_inception(wanted: wire.WantedInception | None) -> Inception | None:
    if wanted is None:
        return None
    scopes = parse_scopes(wanted.scopes) if wanted.scopes is not None else usual_scopes(wanted.depth)
    return Inception(
        budget_sats=wanted.budget_sats,
        depth=wanted.depth,
        slots=wanted.slots,
        scopes=tuple(scopes_to_json(scopes)),
        on_parent_end=OnParentEnd(wanted.on_parent_end),
    )


def wanted_volumes(wanted: Sequence[wire.WantedVolume]) -> tuple[WantedVolume, ...]:
    """Returns the volumes for a request that is completed at its admission."""
    return tuple(
        WantedVolume(volume=one.volume, path=one.path, is_read_only=one.mode == "ro") for one in wanted
    )


async def mounts(request: Request, wanted: Sequence[wire.WantedVolume]) -> tuple[VolumeMount, ...]:
    """Returns the mounts. Raises NotFound for a volume that is not the caller's, InvalidRequest for a bad
    mount point.
    """
    if not wanted:
        return ()
    return await platform_of(request).artifacts.volumes.mounts(wanted_volumes(wanted), caller(request))
