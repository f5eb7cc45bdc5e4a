"""Turns records into E2B's models, and these into answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from sandboxer.backends.contract import Usage
from sandboxer.edges.e2b.metadata import metadata_of
from sandboxer.identity.keys import Caller
from sandboxer.identity.sandbox_tokens import TRAFFIC
from sandboxer.observe.events import Event
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.wire.e2b import control
from sandboxer.wiring import Platform

# The oldest daemon that has everything which clients ask of one.
ENVD_VERSION = "0.6.7"
CLIENT = "sandboxer"
PROFILE = "profile.e2b"
TEMPLATE = "base"
# Templates of E2B that the base image stands for.
TEMPLATES = (TEMPLATE, "code-interpreter-v1")
RUNNING = frozenset({State.READY, State.ACTIVE, State.GRACE, State.FROZEN})
PAUSED = frozenset({State.STOPPED, State.REAPED})
STATES: Mapping[str, frozenset[State]] = {"running": RUNNING, "paused": PAUSED}


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
        pause_mode="filesystem" if record.state in PAUSED else None,
    )


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


def log_entry(event: Event) -> control.LogEntry:
    return control.LogEntry.model_construct(
        timestamp=event.at, message=event.kind, level="info", fields={"actor": event.actor}
    )


def _domain(platform: Platform) -> str | None:
    where = platform.access.ports.where
    if where is None or where.scheme != "https":
        return None
    return where.domain if where.port == 443 else f"{where.domain}:{where.port}"
