"""Routes of the platform itself: probes, what it can do, capacity and counts, and the host for its owner.

The probes are unsigned: is it up, is it ready, metrics for loopback, the document, what it can do. A tenant
sees capacity and its own counts, the owner everyone's.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from starlette.responses import Response
from starlette.types import Scope

from sandboxer import __version__
from sandboxer.accounts.caps import as_json as caps_json
from sandboxer.accounts.limits import Quota, free_slots, quotas
from sandboxer.artifacts.garbage import WHY, Tier
from sandboxer.artifacts.garbage import Garbage as FoundGarbage
from sandboxer.backends.contract import Capability, Capacity, Fingerprint, Resources, Trust, capabilities_of
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.authentication import address_of
from sandboxer.edges.http.binding import Asked, AskedQuery, bind
from sandboxer.identity.authenticate import MAX_V1_BODY
from sandboxer.kernel.clock import format_duration
from sandboxer.kernel.errors import Forbidden
from sandboxer.observe.metrics import counted_by
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import OVER, State
from sandboxer.sandboxes.profiles import Profile
from sandboxer.sandboxes.quarantine import Held, Quarantine
from sandboxer.sandboxes.use_cases import inspection
from sandboxer.wire import execute, processes, sessions
from sandboxer.wire import platform as wire
from sandboxer.wire import sandboxes as wire_sandboxes
from sandboxer.wire.operations import platform as operations
from sandboxer.wire.operations.declaration import RateClass
from sandboxer.wiring import Platform
from sandboxer.work.retention import count_work
from sandboxer.work.sessions.records import TTL_MAX as SESSION_TTL_MAX

_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via", b"x-forwarded-host"})
_V1_HEADERS = ["Authorization", "X-Timestamp", "X-Signature"]
SIGNATURES = [
    wire.SignatureVersion(
        name="v2",
        canonical="v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}",
        headers=[*_V1_HEADERS, "X-Nonce", "X-Content-SHA256"],
    ),
    wire.SignatureVersion(
        name="v1", canonical="{timestamp}:{METHOD}:{path with query}:{raw body}", headers=_V1_HEADERS
    ),
]
MAXIMA = {
    "exec_timeout_s": processes.TIMEOUT_MAX_S,
    "exec_output_bytes": processes.OUTPUT_LIMIT_MAX,
    "exec_stdin_bytes": processes.STDIN_MAX,
    "execute_ttl_s": execute.TTL_MAX_S,
    "execute_code_bytes": execute.CODE_MAX,
    "execute_output_bytes": execute.OUTPUT_LIMIT_MAX,
    "session_ttl_s": SESSION_TTL_MAX.total_seconds(),
    "session_cell_timeout_s": sessions.CELL_TIMEOUT_MAX_S,
    "session_code_bytes": sessions.CODE_MAX,
}
_KEPT = frozenset(State) - OVER
_SPAWNING = (State.REQUESTED, State.PROVISIONING)
Check = Literal["ok", "failing"]


async def look(platform: Platform) -> wire.Health:
    found = await platform.probes.look()
    checks: dict[str, Check] = {name: "ok" if why is None else "failing" for name, why in found.items()}
    for name in sorted(platform.backends):
        # The last known state: asking anew is slow, and reserved for the owner (GET /v1/host).
        known = platform.sandboxes.known_fingerprints.get(name)
        is_able = known is None or known.healthy
        is_whole = all(check == "ok" for part, check in checks.items() if part.startswith(f"{name}/"))
        checks[name] = "ok" if is_able and is_whole else "failing"
    is_well = all(check == "ok" for check in checks.values())
    # A payment network that does not work is shown (for why, see GET /v1/pricing), but everybody is still
    # served.
    if (x402 := platform.payments.x402) is not None:
        for way in x402.ways:
            checks[f"x402/{way.network}"] = "ok" if x402.ways.why_off(way.network) is None else "failing"
    for coin, why in platform.payments.invoices.why_off().items():
        checks[f"invoices/{coin}"] = "ok" if why is None else "failing"
    # Only a hint: after the host's wall clock was set, the server continues by its own time.
    checks["clock"] = "ok" if platform.timekeeper.trouble is None else "failing"
    return wire.Health(status="ok" if is_well else "degraded", checks=checks)


async def health(asked: Asked) -> Response:
    seen = await look(asked.platform)
    return json_response(seen, 200 if seen.status == "ok" else 503)


async def ready(asked: Asked) -> Response:
    status = asked.request.app.state.readiness
    return json_response(wire.Readiness(status=status), 200 if status == "ready" else 503)


async def metrics(asked: Asked) -> Response:
    platform = asked.platform
    if not (platform.settings.metrics_public or is_local(asked.request.scope)):
        raise Forbidden(why="metrics are for callers on this host", hint="Ask from the host itself.")
    for state, number in (await platform.sandboxes.repository.counts()).items():
        platform.metrics.sandboxes.labels(state).set(number)
    return Response(platform.metrics.render(), media_type=platform.metrics.content_type)


async def capabilities(asked: Asked) -> wire.Capabilities:
    platform = asked.platform
    dependencies = platform.sandboxes
    # The cached state, because anyone may call this and asking anew costs.
    prints = dependencies.known_fingerprints or await inspection.fingerprints(platform.sandboxes)
    return wire.Capabilities(
        version=__version__,
        backends=[
            # Only the owner sees what the host lacks, and why (GET /v1/host).
            backend(name, replace(seen, lacks=()), capabilities_of(dependencies.backends[name]))
            for name, seen in sorted(prints.items())
        ],
        trust_levels=["zero"] if dependencies.trust_max is Trust.ZERO else ["zero", "semi"],
        features=[
            "exec",
            "processes",
            "files",
            "watch",
            "tar",
            "terminals",
            "events",
            "idempotency",
            "wallet_sessions",
            "sign_in_with_x",
            "delegated_keys",
            "accounts",
            "pricing",
            "languages",
            "introspection",
        ],
        provides=[_provision(dependencies)],
        signatures=SIGNATURES,
        limits={
            "output_limit_default_bytes": processes.OUTPUT_LIMIT_DEFAULT,
            "output_limit_max_bytes": processes.OUTPUT_LIMIT_MAX,
            "timeout_default_s": processes.TIMEOUT_DEFAULT_S,
            "timeout_max_s": processes.TIMEOUT_MAX_S,
            "v1_body_max_bytes": MAX_V1_BODY,
        },
    )


def is_local(scope: Scope) -> bool:
    """Decides by the peer's address; a request that came through a proxy is never local."""
    peer = scope.get("client")
    if peer is None or any(name in _FORWARDED for name, _ in scope["headers"]):
        return False
    try:
        return ipaddress.ip_address(peer[0]).is_loopback
    except ValueError:
        return False


async def cluster(asked: Asked) -> wire.Cluster:
    platform, who = asked.platform, asked.caller
    dependencies = platform.sandboxes
    prints = dependencies.known_fingerprints or await inspection.fingerprints(platform.sandboxes)
    capacities = await inspection.capacities(platform.sandboxes)
    levels = dependencies.warm.levels()
    counts = await platform.sandboxes.repository.counts(None if who.is_owner else who.account)
    return wire.Cluster(
        mode="pooled" if levels else "on_demand",
        hosts=[
            _host(platform, name, seen, capacities.get(name), is_owner=who.is_owner)
            for name, seen in sorted(prints.items())
        ],
        pool_size=sum(level.wanted for level in levels),
        available=sum(level.ready for level in levels),
        allocated=sum(counts[state] for state in _KEPT),
        spawning=sum(counts[state] for state in _SPAWNING),
    )


async def pools(asked: Asked) -> wire.Pools:
    platform = asked.platform
    capacities = await inspection.capacities(platform.sandboxes)
    return wire.Pools(
        warm=[
            from_record(
                wire.WarmPool,
                level.kind,
                resources=from_record(wire_sandboxes.Resources, level.kind.resources),
                wanted=level.wanted,
                ready=level.ready,
            )
            for level in platform.sandboxes.warm.levels()
        ],
        storage=[
            wire.StoragePool(
                backend=name,
                kind=seen.storage_kind,
                size_mb=seen.storage_size_mb,
                used_mb=seen.storage_used_mb,
                most_mb=seen.storage_most_mb,
                promised_mb=seen.promised.disk_mb,
                free_mb=max(0, seen.total.disk_mb - seen.promised.disk_mb),
            )
            for name, seen in sorted(capacities.items())
        ],
    )


async def stats(asked: Asked) -> wire.Stats:
    platform, who = asked.platform, asked.caller
    account = None if who.is_owner else who.account
    return wire.Stats(
        of="platform" if who.is_owner else "account",
        uptime_s=round((platform.clock.now() - asked.request.app.state.started_at).total_seconds(), 3),
        sandboxes=dict(await platform.sandboxes.repository.counts(account)),
        work=await platform.store.read(lambda conn: count_work(conn, account)),
        requests=_requests(platform) if who.is_owner else None,
    )


async def limits(asked: Asked) -> wire.Limits:
    platform, who = asked.platform, asked.caller
    authority = await platform.authorities.of(who)
    now = platform.clock.now()
    address = address_of(asked.request.scope, platform)
    sender = authority.sender(who, now=now)
    counted = quotas(RateClass.API, address=address, caller=sender, policy=platform.limits)
    return from_record(
        wire.Limits,
        authority,
        requests=[_left(platform, quota) for quota in counted],
        slots_in_use=platform.admission.slots.in_use(who.account),
        free_slots=free_slots(sender.tier, policy=platform.limits),
        caps=caps_json(authority.caps),
        depth=authority.depth_left(now=now, policy=platform.limits),
        profiles=[_profile(profile) for profile in platform.sandboxes.profiles.all()],
        maxima=MAXIMA,
    )


def _host(
    platform: Platform, name: str, seen: Fingerprint, capacity: Capacity | None, *, is_owner: bool
) -> wire.ClusterHost:
    # What a host lacks and consists of would help an attacker.
    shown = seen if is_owner else replace(seen, lacks=(), facts={})
    return wire.ClusterHost(
        backend=backend(name, shown, capabilities_of(platform.backends[name])),
        total=None if capacity is None else from_record(wire_sandboxes.Resources, capacity.total),
        free=None if capacity is None else from_record(wire_sandboxes.Resources, _free(capacity)),
        facts=dict(shown.facts),
    )


def _free(capacity: Capacity) -> Resources:
    total, promised = capacity.total, capacity.promised
    return Resources(
        vcpus=max(0.0, total.vcpus - promised.vcpus),
        memory_mb=max(0, total.memory_mb - promised.memory_mb),
        disk_mb=max(0, total.disk_mb - promised.disk_mb),
        pids=max(0, total.pids - promised.pids),
    )


def _requests(platform: Platform) -> wire.RequestStats:
    by_status: Counter[str] = Counter()
    for status, number in counted_by(platform.metrics.requests, "status").items():
        by_status[f"{status[:1]}xx"] += number
    refused = counted_by(platform.metrics.refused_signatures, "reason")
    return wire.RequestStats(
        answered=by_status.total(),
        by_status=dict(sorted(by_status.items())),
        refused_signatures=sum(refused.values()),
    )


def _left(platform: Platform, quota: Quota) -> wire.RequestLimit:
    used = platform.limiter.used(quota.name, now=time.monotonic())
    what = quota.name.partition(":")[0]
    return wire.RequestLimit.model_validate(
        {"what": what, "per_minute": quota.limit, "left": max(0, quota.limit - used)}
    )


def _profile(profile: Profile) -> wire.ProfileLimit:
    return wire.ProfileLimit(
        profile=profile.id,
        ttl_default=format_duration(profile.ttl_default),
        ttl_max=format_duration(profile.ttl_max),
        resources_max=from_record(wire_sandboxes.Resources, profile.resources_max),
    )


async def inspect(asked: Asked) -> wire.Host:
    platform = asked.platform
    prints = await inspection.fingerprints(platform.sandboxes)
    return wire.Host(
        version=__version__,
        uptime_s=round((platform.clock.now() - asked.request.app.state.started_at).total_seconds(), 3),
        backends=[backend(name, seen) for name, seen in sorted(prints.items())],
        facts={f"{name}.{k}": v for name, seen in prints.items() for k, v in seen.facts.items()},
        sandboxes=dict(await platform.sandboxes.repository.counts()),
    )


async def stale(asked: Asked) -> wire.StaleList:
    sandboxes = asked.platform.sandboxes
    found = await inspection.find_stale(sandboxes, asked.caller)
    return wire.StaleList(stale=_listed(found, sandboxes.quarantine))


async def reap_stale(asked: Asked) -> wire.Reaped:
    sandboxes = asked.platform.sandboxes
    removed = await inspection.reap_stale(sandboxes, asked.caller)
    return wire.Reaped(removed=_listed(removed, sandboxes.quarantine))


async def garbage(asked: Asked) -> wire.Garbage:
    collector = asked.platform.artifacts.garbage
    found = [_garbage(one, collector.grace) for one in await collector.find(asked.caller)]
    return wire.Garbage(grace=format_duration(collector.grace), garbage=found)


async def collect_garbage(asked: AskedQuery[operations.CollectGarbageQuery]) -> wire.Collected:
    collector = asked.platform.artifacts.garbage
    removed = await collector.collect(asked.caller, despite_grace=asked.query.now)
    return wire.Collected(removed=[_garbage(one, collector.grace) for one in removed])


def _provision(dependencies: SandboxDependencies) -> wire.Provided:
    """The entry of a registry of capabilities, as other projects look for it there."""
    usable = [one.id for one in dependencies.profiles.all() if one.backend in dependencies.backends]
    return wire.Provided(
        id="capability.execution.sandbox-provision",
        name="Sandbox Provisioning",
        summary="Walled computers for agents, tests and builds, made from profiles, ended by their TTL, with"
        " every change of their state told to whoever asks.",
        owner="sandboxer",
        status="active",
        domain="infotech",
        tags=["sandbox", "isolation", "provision", "e2e", "agentic", "execution", "profile"],
        consumption_modes=["HTTP API", "CLI (sandboxer)", "Python client"],
        profiles=usable,
    )


def backend(
    name: str, seen: Fingerprint, capabilities: Iterable[Capability] = ()
) -> wire.BackendCapabilities:
    return wire.BackendCapabilities(
        name=name,
        healthy=seen.healthy,
        capabilities=sorted(one.value for one in capabilities),
        walls=sorted(wall.value for wall in seen.walls),
        lacks=[from_record(wire.Lack, lack) for lack in seen.lacks],
    )


def _garbage(one: FoundGarbage, grace: timedelta) -> wire.GarbageItem:
    return from_record(
        wire.GarbageItem,
        one,
        tier="base" if one.tier is Tier.BASE else "leftover",
        why=WHY[one.tier],
        goes_at=one.goes_at(grace),
    )


def _listed(found: Sequence[Held], quarantine: Quarantine) -> list[wire.Stale]:
    return [
        from_record(
            wire.Stale,
            one.unknown,
            sandbox_id=one.unknown.id,
            first_seen=one.sighting.first_seen,
            goes_at=quarantine.goes_at(one),
        )
        for one in found
    ]


BINDINGS = (
    bind(operations.HEALTH, health),
    bind(operations.READY, ready),
    bind(operations.METRICS, metrics),
    bind(operations.GET_CAPABILITIES, capabilities),
    bind(operations.SHOW_CLUSTER, cluster),
    bind(operations.LIST_POOLS, pools),
    bind(operations.SHOW_STATS, stats),
    bind(operations.SHOW_LIMITS, limits),
    bind(operations.INSPECT_HOST, inspect),
    bind(operations.LIST_STALE, stale),
    bind(operations.REAP_STALE, reap_stale),
    bind(operations.LIST_GARBAGE, garbage),
    bind(operations.COLLECT_GARBAGE, collect_garbage),
)
