"""The platform as its callers may see it. A tenant sees capacity and its own counts, the owner everyone's."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from sandboxer.accounts.caps import as_json as caps_json
from sandboxer.accounts.limits import Quota, free_slots, quotas
from sandboxer.backends.contract import Capacity, Fingerprint, Resources, capabilities_of
from sandboxer.edges.http.authentication import address_of
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.routes.host import backend
from sandboxer.kernel.durations import format_duration
from sandboxer.observe.metrics import counted_by
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import Profile
from sandboxer.wire import exec, execute, sessions
from sandboxer.wire import introspection as wire
from sandboxer.wire import sandboxes as wire_sandboxes
from sandboxer.wire.introspection import Cluster, Limits, Pools, Stats
from sandboxer.wire.operations import introspection as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.terms import RateClass
from sandboxer.wiring import Platform
from sandboxer.work.counting import count_work
from sandboxer.work.sessions.lifetime import TTL_MAX as SESSION_TTL_MAX

MAXIMA = {
    "exec_timeout_s": exec.TIMEOUT_MAX_S,
    "exec_output_bytes": exec.OUTPUT_LIMIT_MAX,
    "exec_stdin_bytes": exec.STDIN_MAX,
    "execute_ttl_s": execute.TTL_MAX_S,
    "execute_code_bytes": execute.CODE_MAX,
    "execute_output_bytes": execute.OUTPUT_LIMIT_MAX,
    "session_ttl_s": SESSION_TTL_MAX.total_seconds(),
    "session_cell_timeout_s": sessions.CELL_TIMEOUT_MAX_S,
    "session_code_bytes": sessions.CODE_MAX,
}
_KEPT = frozenset(State) - {State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED}
_SPAWNING = (State.REQUESTED, State.PROVISIONING)


async def cluster(asked: Asked[NoParameters, NoParameters, None]) -> Cluster:
    platform, who = asked.platform, asked.caller
    room = platform.sandboxes.room
    prints = room.known_fingerprints or await platform.sandboxes.fingerprints()
    capacities = await platform.sandboxes.capacities()
    levels = room.warm.levels()
    counts = await platform.sandboxes.counts(None if who.is_owner else who.account)
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


async def pools(asked: Asked[NoParameters, NoParameters, None]) -> Pools:
    platform = asked.platform
    capacities = await platform.sandboxes.capacities()
    return wire.Pools(
        warm=[
            wire.WarmPool(
                backend=level.kind.backend,
                image=level.kind.image,
                trust=level.kind.trust.value,
                resources=_resources(level.kind.resources),
                wanted=level.wanted,
                ready=level.ready,
            )
            for level in platform.sandboxes.room.warm.levels()
        ],
        storage=[
            wire.StoragePool(
                backend=name,
                kind=seen.storage_kind,
                size_mb=seen.storage_size_mb,
                used_mb=seen.storage_used_mb,
                promised_mb=seen.promised.disk_mb,
                free_mb=max(0, seen.total.disk_mb - seen.promised.disk_mb),
            )
            for name, seen in sorted(capacities.items())
        ],
    )


async def stats(asked: Asked[NoParameters, NoParameters, None]) -> Stats:
    platform, who = asked.platform, asked.caller
    account = None if who.is_owner else who.account
    return wire.Stats(
        of="platform" if who.is_owner else "account",
        uptime_s=round((platform.clock.now() - asked.request.app.state.started_at).total_seconds(), 3),
        sandboxes=dict(await platform.sandboxes.counts(account)),
        work=await platform.store.read(lambda conn: count_work(conn, account)),
        requests=_requests(platform) if who.is_owner else None,
    )


async def limits(asked: Asked[NoParameters, NoParameters, None]) -> Limits:
    platform, who = asked.platform, asked.caller
    authority = await platform.authorities.of(who)
    now = platform.clock.now()
    address = address_of(asked.request.scope, platform)
    sender = authority.sender(who, now=now)
    counted = quotas(RateClass.API, address=address, caller=sender, policy=platform.limits)
    return wire.Limits(
        requests=[_left(platform, quota) for quota in counted],
        slots=authority.slots,
        slots_in_use=platform.slots.in_use(who.account),
        free_slots=free_slots(sender.tier, policy=platform.limits),
        caps=caps_json(authority.caps),
        depth=authority.depth,
        expires_at=authority.expires_at,
        profiles=[_profile(profile) for profile in platform.sandboxes.profiles()],
        maxima=MAXIMA,
    )


def _host(
    platform: Platform, name: str, seen: Fingerprint, capacity: Capacity | None, *, is_owner: bool
) -> wire.ClusterHost:
    can = [one.value for one in capabilities_of(platform.backends[name])]
    # What a host lacks and what it is made of help whoever attacks it.
    shown = seen if is_owner else replace(seen, lacks=(), facts={})
    return wire.ClusterHost(
        backend=backend(name, shown, can),
        total=None if capacity is None else _resources(capacity.total),
        free=None if capacity is None else _resources(_free(capacity)),
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


def _resources(some: Resources) -> wire_sandboxes.Resources:
    return wire_sandboxes.Resources(
        vcpus=some.vcpus, memory_mb=some.memory_mb, disk_mb=some.disk_mb, pids=some.pids
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
        resources_max=_resources(profile.resources_max),
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.SHOW_CLUSTER, cluster),
    bind(operations.LIST_POOLS, pools),
    bind(operations.SHOW_STATS, stats),
    bind(operations.SHOW_LIMITS, limits),
)
