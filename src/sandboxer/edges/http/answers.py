"""These functions turn records into models of the wire, and models into JSON without a second validation."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote_from_bytes

from pydantic import BaseModel
from starlette.responses import Response

from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.records import State
from sandboxer.backends import guest
from sandboxer.backends.contract import VolumeMount
from sandboxer.hosts.routes.records import UNROUTED, Considered, Route
from sandboxer.kernel.clock import format_duration
from sandboxer.kernel.program import late
from sandboxer.observe import events
from sandboxer.sandboxes import records
from sandboxer.sandboxes.charging import rate_now
from sandboxer.sandboxes.exposure import Exposure
from sandboxer.sandboxes.promises import WORKSPACE, Promises

if TYPE_CHECKING:
    from sandboxer.wire import files, previews, processes, promises, routes, sandboxes
    from sandboxer.wire import images as wire_images
else:
    files, processes = late("sandboxer.wire.files"), late("sandboxer.wire.processes")
    previews, promises = late("sandboxer.wire.previews"), late("sandboxer.wire.promises")
    routes = late("sandboxer.wire.routes")
    sandboxes, wire_images = late("sandboxer.wire.sandboxes"), late("sandboxer.wire.images")

M = TypeVar("M", bound=BaseModel)
_NOTHING_ELSE = (("__pydantic_extra__", None), ("__pydantic_private__", None))


def json_response(model: BaseModel, status: int = 200, *, location: str | None = None) -> Response:
    headers = None if location is None else {"location": location}
    return Response(model.model_dump_json(), status, headers, media_type="application/json")


def from_record(model: type[M], record: object, **others: Any) -> M:
    """Returns the model with what the record has under the same names, and with `others`: what it has under
    other names or in another form. Raises AttributeError for a field that neither has.
    """
    values = {name: others[name] if name in others else getattr(record, name) for name in model.model_fields}
    made = model.__new__(model)
    # As `model_construct` does, which takes seven times as long because it looks for aliases and defaults.
    for name, value in (("__dict__", values), ("__pydantic_fields_set__", set(values)), *_NOTHING_ELSE):
        object.__setattr__(made, name, value)
    return made


def sandbox(record: records.Sandbox) -> sandboxes.Sandbox:
    return from_record(
        sandboxes.Sandbox,
        record,
        resources=from_record(sandboxes.Resources, record.resources),
        labels=dict(record.labels),
        inputs=dict(record.inputs),
        consumer=dict(record.consumer),
        ttl=format_duration(record.ttl),
        idle_timeout=None if record.idle_timeout is None else format_duration(record.idle_timeout),
        timings_ms=dict(record.timings_ms),
        report=None if record.report is None else dict(record.report),
        quote_id=record.terms.quote_id,
        snapshot=record.origin if (record.origin or "").startswith("snp_") else None,
        volumes=[attached_volume(one) for one in record.volumes],
        inception=None if record.inception is None else inception(record.inception),
        scope=record.promises.scope.value,
        workspace=workspace(record.promises),
        secret_refs=list(record.promises.secret_refs),
        answered=[from_record(promises.Answered, one) for one in record.promises.answered],
        route=None if record.route == UNROUTED else route(record.route),
        # Known at the end of a sandbox.
        spent_sats=None,
        egress_sent_bytes=None,
        egress_received_bytes=None,
        rate_msats_per_s=rate_now(record),
        kept_memory_mb=record.terms.memory_mb,
    )


def route(kept: Route) -> routes.Route:
    return routes.Route.model_construct(
        strategy=kept.strategy.value,
        considered=considered(kept.considered),
        more=kept.more,
        attempts=[from_record(routes.Attempt, one, made=one.is_made) for one in kept.attempts],
    )


def considered(found: Sequence[Considered]) -> list[routes.Considered]:
    return [from_record(routes.Considered, one, verdict=one.verdict.value) for one in found]


def workspace(promised: Promises) -> promises.Workspace:
    return promises.Workspace.model_construct(
        path=WORKSPACE, mode=promised.workspace_mode.value, access=promised.workspace_access.value
    )


def inception(granted: records.Inception) -> sandboxes.Inception:
    return from_record(
        sandboxes.Inception,
        granted,
        scopes=list(granted.scopes),
        on_parent_end=granted.on_parent_end.value,
    )


def attached_volume(mount: VolumeMount) -> sandboxes.AttachedVolume:
    return from_record(sandboxes.AttachedVolume, mount, mode="ro" if mount.is_read_only else "rw")


def event(record: events.Event) -> sandboxes.Event:
    return from_record(sandboxes.Event, record, data=dict(record.data))


def process(info: guest.ProcessInfo) -> processes.Process:
    ended = info.exit
    return from_record(
        processes.Process,
        info,
        argv=[printable(argument) for argument in info.argv],
        tag=printable(info.tag),
        started_at=moment(info.started_at),
        running=ended is None,
        exit_code=None if ended is None else ended.code,
        signal=None if ended is None else ended.signal,
        timed_out=ended is not None and ended.reason is guest.EndReason.TIMED_OUT,
        reason=None if ended is None or ended.reason is None else ended.reason.value,
        deadline=None if info.deadline is None else moment(info.deadline),
    )


def terminal(info: guest.ProcessInfo) -> processes.Terminal:
    return processes.Terminal.model_construct(
        terminal_id=info.process_id,
        argv=[printable(argument) for argument in info.argv],
        started_at=moment(info.started_at),
        running=info.exit is None,
        exit_code=None if info.exit is None else info.exit.code,
    )


def file(info: guest.FileInfo) -> files.FileInfo:
    path, raw = shown_path(info.path)
    # Each field by itself: a folder may have many files, and copying them by name takes longer.
    return files.FileInfo.model_construct(
        path=path,
        raw_path=raw,
        name=posixpath.basename(path.rstrip("/")) or "/",
        kind=info.kind.value,
        size=info.size,
        mode=info.mode & 0o7777,
        uid=info.uid,
        gid=info.gid,
        modified_at=moment(info.modified_at),
        link_target=None if info.link_target is None else printable(info.link_target),
    )


def exposure(found: Exposure) -> previews.Exposure:
    return previews.Exposure(
        findings=[
            previews.ExposedFile(
                path=one.path, kind=one.kind.value, mode=one.mode, permissions=f"{one.mode:o}"
            )
            for one in found.findings
        ],
        folders=[shown_path(one)[0] for one in found.folders],
        looked_at=found.looked_at,
        complete=found.why is None,
        why=found.why,
    )


def file_event(change: guest.FileEvent) -> files.FileEvent:
    path, raw = shown_path(change.path)
    return files.FileEvent.model_construct(path=path, raw_path=raw, change=change.change.value)


def shown_path(path: str) -> tuple[str, str | None]:
    """Returns a path as text, and its exact bytes percent-encoded if text cannot express them."""
    shown = printable(path)
    return shown, None if shown == path else quote_from_bytes(os.fsencode(path))


def printable(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def moment(unix_s: float) -> datetime:
    """Returns a time from inside, which is untrusted: one beyond the calendar becomes the nearest possible
    one.
    """
    return datetime.fromtimestamp(min(max(unix_s, 0.0), 253_402_300_799.0), UTC)


def shown_image(record: images.PublishedImage, *, is_theirs: bool = False) -> wire_images.PublishedImage:
    """Returns an image. Findings and omitted files are shown only to callers who may change it."""
    found = [from_record(wire_images.Finding, one) for one in record.findings]
    return from_record(
        wire_images.PublishedImage,
        record,
        resources=from_record(sandboxes.Resources, record.resources),
        config=dict(record.config),
        findings=found if is_theirs else [],
        findings_count=record.findings_count if is_theirs else 0,
        stripped=list(record.stripped) if is_theirs else [],
        stripped_count=record.stripped_count if is_theirs else 0,
        rate_msats_per_s=record.rate_msats if record.state is State.KEPT else 0,
    )
