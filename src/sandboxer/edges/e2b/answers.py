"""Turns records into E2B's models, and these into answers.

E2B's metadata is kept as labels, by which lists can be filtered. A label's key is narrower than a key of
metadata: bytes that it cannot have are written as `-` and two digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote_plus

from pydantic import BaseModel
from starlette.responses import Response

from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.backends.contract import Usage
from sandboxer.identity.keys import Caller
from sandboxer.identity.sandbox_tokens import TRAFFIC
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.events import Event
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import AtEnd, Sandbox
from sandboxer.wire.e2b import control
from sandboxer.wiring import Platform

# The oldest daemon that has everything which clients ask of one.
ENVD_VERSION = "0.6.7"
CLIENT = "sandboxer"
PROFILE = "profile.e2b"
TEMPLATE = "base"
INTERPRETER = "code-interpreter-v1"
# Templates that E2B itself has.
TEMPLATES = (TEMPLATE, INTERPRETER)
# What the ids of snapshots begin with.
SNAPSHOT = "snp_"
# The tag that a name without one means.
DEFAULT_TAG = ":default"
RUNNING = frozenset({State.READY, State.ACTIVE, State.GRACE, State.FROZEN})
PAUSED = frozenset({State.STOPPED, State.REAPED})
STATES: Mapping[str, frozenset[State]] = {"running": RUNNING, "paused": PAUSED}
_PREFIX = "e2b/"
_MOST = 63
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._")
_WRITTEN = re.compile(r"-([0-9a-f]{2})")


def answer(
    model: BaseModel | Sequence[BaseModel], status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns the answer, without what is not known: to E2B's clients null and absent are different."""
    text = as_json(model) if isinstance(model, BaseModel) else f"[{','.join(map(as_json, model))}]"
    return Response(text, status, headers, media_type="application/json")


def as_json(model: BaseModel) -> str:
    return model.model_dump_json(by_alias=True, exclude_none=True)


def outer_id(sandbox_id: str) -> str:
    """Returns the id as E2B's clients see it: they make host names of it."""
    return sandbox_id.replace("_", "-")


def template_of(record: Sandbox) -> str:
    if record.origin is not None and record.origin.startswith(SNAPSHOT):
        return record.origin
    return TEMPLATE if record.profile == PROFILE and record.image == TEMPLATE else record.image


def opened(platform: Platform, record: Sandbox, caller: Caller) -> control.Sandbox:
    return control.Sandbox.model_construct(
        template_id=template_of(record),
        sandbox_id=outer_id(record.id),
        client_id=CLIENT,
        envd_version=ENVD_VERSION,
        envd_access_token=platform.sandbox_tokens.of(caller, record.id),
        traffic_access_token=platform.sandbox_tokens.of(caller, record.id + TRAFFIC),
        domain=_domain(platform),
    )


def listed(record: Sandbox) -> control.ListedSandbox:
    return control.ListedSandbox.model_construct(**_facts(record))


def detail(platform: Platform, record: Sandbox, caller: Caller) -> control.SandboxDetail:
    return control.SandboxDetail.model_construct(
        **_facts(record),
        envd_access_token=platform.sandbox_tokens.of(caller, record.id),
        domain=_domain(platform),
        lifecycle=control.Lifecycle.model_construct(
            on_timeout="kill" if record.at_end is AtEnd.DESTROY else "pause",
            auto_resume=record.at_end is AtEnd.SLEEP,
        ),
        pause_mode=_pause_mode(record),
    )


def _pause_mode(record: Sandbox) -> Literal["filesystem", "full"] | None:
    if record.state not in PAUSED:
        return None
    return "full" if record.terms.memory_mb else "filesystem"


def _facts(record: Sandbox) -> dict[str, Any]:
    return {
        "template_id": template_of(record),
        "sandbox_id": outer_id(record.id),
        "client_id": CLIENT,
        "started_at": record.ready_at or record.created_at,
        "end_at": record.expires_at or record.created_at + record.ttl,
        "cpu_count": math.ceil(record.resources.vcpus),
        "memory_mb": record.resources.memory_mb,
        "disk_size_mb": record.resources.disk_mb,
        "envd_version": ENVD_VERSION,
        "state": "paused" if record.state in PAUSED else "running",
        "metadata": metadata_of(record.labels),
    }


def metric(record: Sandbox, usage: Usage, now: datetime) -> control.Metric:
    """Returns one measurement; its CPU is the average of the whole life."""
    lived = max((now - (record.ready_at or now)).total_seconds(), 1.0)
    return control.Metric.model_construct(
        timestamp=now,
        timestamp_unix=int(now.timestamp()),
        cpu_count=math.ceil(record.resources.vcpus),
        cpu_used_pct=round(100 * usage.cpu_s / lived, 2),
        mem_used=usage.memory_bytes,
        mem_total=usage.memory_limit_bytes,
        mem_cache=0,
        disk_used=usage.disk_bytes,
        disk_total=usage.disk_limit_bytes,
    )


def snapshot_info(record: Snapshot) -> control.SnapshotInfo:
    name = record.name
    names = [] if name is None else [name if ":" in name else name + DEFAULT_TAG]
    return control.SnapshotInfo.model_construct(snapshot_id=record.id, names=names)


def log_entry(event: Event) -> control.LogEntry:
    return control.LogEntry.model_construct(
        timestamp=event.at, message=event.kind, level="info", fields={"actor": event.actor}
    )


def _domain(platform: Platform) -> str | None:
    where = platform.access.ports.where
    if where is None or where.scheme != "https":
        return None
    return where.domain if where.port == 443 else f"{where.domain}:{where.port}"


def labels_of(metadata: Mapping[str, str]) -> dict[str, str]:
    return {_label(key): value for key, value in metadata.items()}


def metadata_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns what of the labels is metadata."""
    found = {key.removeprefix(_PREFIX): value for key, value in labels.items() if key.startswith(_PREFIX)}
    return {_key(key): value for key, value in found.items()}


def wanted_labels(query: str) -> dict[str, str]:
    """Returns the labels that a filter names: a query inside a query, each word of which is quoted again."""
    return labels_of({unquote_plus(key): unquote_plus(value) for key, value in parse_qsl(query)})


def _label(key: str) -> str:
    label = _PREFIX + "".join(
        chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in key.encode("utf-8", "surrogatepass")
    )
    if len(label) > _MOST or not key:
        raise InvalidRequest(field="metadata", why=f"the key {key[:80]!r} is empty or too long to be kept")
    return label


def _key(text: str) -> str:
    raw = _WRITTEN.sub(lambda found: chr(int(found[1], 16)), text)
    return raw.encode("latin-1").decode("utf-8", "replace")
