"""What a new sandbox needs of the backend that makes it, put together from its profile, its request and what
the operator set. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from sandboxer.backends.contract import Capability, Fingerprint
from sandboxer.hosts.routes.explanation import explain
from sandboxer.hosts.routes.policy import Decision
from sandboxer.hosts.routes.records import (
    LEVELS,
    Demand,
    IsolationLevel,
    Strategy,
    Why,
    level_of,
)
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, SandboxerError, Unavailable
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.profiles import Checkpoint, Profile
from sandboxer.sandboxes.requests import CreateRequest, check_backend, check_checkpoint

# Stands in a profile's `route.fallback` for every backend that this platform uses.
ANY = "any"


class StrangersWall(StrEnum):
    """Which wall accounts get that the operator neither opened nor is."""

    # A kernel of its own where a backend gives one, else what the profile says.
    AUTO = "auto"
    # A kernel of its own, or nothing.
    STRONG = "strong"
    # What the profile says, as for everybody.
    PROFILE = "profile"


@value_class
class RoutePolicy:
    strategy: Strategy = Strategy.EXPLICIT
    # More backends that may make sandboxes of a profile, in order.
    fallback: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Where backends stand that do not say so themselves.
    regions: Mapping[str, str] = field(default_factory=dict)
    strangers_wall: StrangersWall = StrangersWall.AUTO


def policy_from_json(written: Mapping[str, Any], *, strangers_wall: str = "auto") -> RoutePolicy:
    """Read the setting `routing`. Raises InvalidRequest naming what is wrong."""
    if unknown := written.keys() - {"strategy", "fallback", "regions"}:
        why = f"{sorted(unknown)[0]!r} is none of strategy, fallback, regions"
        raise InvalidRequest(field="routing", why=why)
    strategy, fallback = written.get("strategy", Strategy.EXPLICIT), written.get("fallback", {})
    regions = written.get("regions", {})
    if strategy not in list(Strategy):
        why = f"{strategy!r} is none of {', '.join(Strategy)}"
        raise InvalidRequest(field="routing.strategy", why=why)
    if not isinstance(fallback, Mapping) or not all(_is_texts(names) for names in fallback.values()):
        why = 'it must be like {"profile.agent-dev": ["ext.oci"]}'
        raise InvalidRequest(field="routing.fallback", why=why)
    if not isinstance(regions, Mapping) or not _is_texts(list(regions.values())):
        raise InvalidRequest(field="routing.regions", why='it must be like {"ext.docker": "eu"}')
    return RoutePolicy(
        strategy=Strategy(strategy),
        fallback={profile: tuple(names) for profile, names in fallback.items()},
        regions=dict(regions),
        strangers_wall=StrangersWall(strangers_wall),
    )


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


def demand_of(
    profile: Profile,
    request: CreateRequest,
    policy: RoutePolicy,
    *,
    is_stranger: bool = False,
    is_behind_own_kernel: bool = False,
    quoted_rate: int | None = None,
    is_paid: bool = False,
) -> Demand:
    """Return what a sandbox needs. What a request wants is added to what its profile says.

    `is_stranger`: its account gets a wall of its own (`may_raise`), since the operator did not open it.
    `is_behind_own_kernel`: who asks runs behind such a wall, and would get round it by a weaker sandbox.
    """
    asked, own = request.route, profile.constraints
    more = (*profile.fallback, *policy.fallback.get(profile.id, ()))
    isolation, raised_by = _isolation(
        profile, request, is_stranger=is_stranger, is_behind_own_kernel=is_behind_own_kernel
    )
    checkpoint = request.wishes.checkpoint or profile.checkpoint
    gpu = asked.gpu or own.gpu
    bounds = [one for one in (asked.max_msats_per_hour, own.max_msats_per_hour) if one is not None]
    able = asked.capabilities | own.capabilities
    able |= {Capability.SNAPSHOT} if request.origin is not None else set()
    able |= {Capability.VOLUMES} if request.volumes else set()
    return Demand(
        named=tuple(dict.fromkeys((profile.backend, *(name for name in more if name != ANY)))),
        is_open=ANY in more,
        strategy=asked.strategy or own.strategy or policy.strategy,
        isolation=isolation,
        raised_by=raised_by,
        walls=profile.required_walls,
        region=asked.region or own.region,
        gpus=max(asked.gpus, own.gpus, 0 if gpu is None else 1),
        gpu=gpu,
        max_msats_per_hour=min(bounds, default=None),
        quoted_rate=quoted_rate,
        is_paid=is_paid,
        capabilities=able,
        keeps_files=checkpoint is Checkpoint.FILES,
        keeps_memory=checkpoint is Checkpoint.MEMORY,
        lies_in=request.lies_in if request.origin is None else request.origin.backend,
    )


def _isolation(
    profile: Profile, request: CreateRequest, *, is_stranger: bool, is_behind_own_kernel: bool
) -> tuple[IsolationLevel, str | None]:
    """Return the least isolation that it needs, and why it is more than its profile says."""
    found: tuple[IsolationLevel, str | None] = profile.isolation, None
    wished = request.wishes.isolation
    if wished is not None and LEVELS.index(wished) > LEVELS.index(found[0]):
        found = wished, "the request asks for it"
    if LEVELS.index(found[0]) >= LEVELS.index(IsolationLevel.STRONG):
        return found
    if is_behind_own_kernel:
        found = IsolationLevel.STRONG, "the sandbox that asks for it has a kernel of its own"
    if is_stranger:
        found = IsolationLevel.STRONG, "its account was not opened by the operator"
    return found


def may_raise(policy: RoutePolicy, is_strong_there: bool) -> bool:
    """Say whether accounts of strangers get a kernel of their own; `is_strong_there`: a backend gives it."""
    if policy.strangers_wall is StrangersWall.AUTO:
        return is_strong_there
    return policy.strangers_wall is StrangersWall.STRONG


def is_strong(fingerprint: Fingerprint) -> bool:
    """Say whether a backend gives a kernel of its own on this host now."""
    level = LEVELS.index(level_of(fingerprint))
    return fingerprint.healthy and level >= LEVELS.index(IsolationLevel.STRONG)


def refusal_of(
    decision: Decision, profile: Profile, request: CreateRequest, fingerprint: Fingerprint | None
) -> SandboxerError:
    """Return the error for a sandbox that no backend may make. `fingerprint` is that of the profile's own."""
    said = {one.backend: one.reason for one in explain(decision)}
    is_alone = decision.demand.named == (profile.backend,)
    own = next((why for one, why in decision.refused if one.backend == profile.backend), None)
    if is_alone and own == Why.LACKS:
        try:
            check_backend(profile, fingerprint, request.wishes)
            keeps = any(
                one.backend == profile.backend and "keeps:files" in one.gives for one, _ in decision.refused
            )
            check_checkpoint(profile, request.wishes, fingerprint, keeps_files=keeps)
        except SandboxerError as error:
            return error
    told = [name for name in said if name in decision.demand.named] or list(said)
    why = "; ".join(f"{name}: {said[name]}" for name in told)
    if any(reason == Why.BROKEN for _, reason in decision.refused):
        return Unavailable(why=f"no backend can make it now: {why}")
    return NotAvailable(
        what=f"a backend for {profile.id}",
        why=why,
        promise="isolation" if decision.demand.raised_by else "route",
        hint=f"See what each would need: sandboxer route explain {profile.id}",
    )
