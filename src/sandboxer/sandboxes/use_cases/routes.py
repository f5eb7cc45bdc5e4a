"""Chooses the backend of a new sandbox, and explains what it would choose. What is looked up here (backends,
prices, keys) goes into the decision; nothing is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from sandboxer.backends.contract import Capability, Fingerprint, Order, capabilities_of
from sandboxer.backends.reports import CostsNothing, EstimatesCost, TakesKeys, estimate_of
from sandboxer.backends.shared import ServesSome
from sandboxer.hosts.routes.explanation import KEPT, explain
from sandboxer.hosts.routes.policy import Decision, decide, given
from sandboxer.hosts.routes.records import Candidate, Considered, Constraints, Demand, IsolationLevel
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest, SandboxerError
from sandboxer.kernel.values import brief_value_class, new_id, value_class
from sandboxer.money.amounts import Rate
from sandboxer.money.pricing import Basis, Pricing, passed_through, rate_card
from sandboxer.sandboxes import requests as planning
from sandboxer.sandboxes.charging import size_of
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.profiles import Profile
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.routes import demand_of, is_strong, may_raise
from sandboxer.sandboxes.use_cases.inspection import fingerprint_of

log = logging.getLogger(__name__)
# How long a provider may take to say what a sandbox costs.
ESTIMATE_S = 5.0
SILENT = "it does not say what it costs"


@value_class
class Explanation:
    profile: str
    demand: Demand
    considered: Sequence[Considered]


async def choose(
    dependencies: SandboxDependencies,
    requested: Sandbox,
    request: CreateRequest,
    profile: Profile,
    caller: Caller,
) -> Decision:
    """Decide who may make this sandbox, in order. Raises what refuses its quote or its keys."""
    routes = dependencies.routes
    seen = {name: await _look_at(dependencies, name) for name in dependencies.backends}
    is_strong_there = any(one.is_strong and name not in routes.experimental for name, one in seen.items())
    demand = demand_of(
        profile,
        request,
        routes.policy,
        # Asked only where it makes a difference.
        is_stranger=may_raise(routes.policy, is_strong_there) and await routes.is_stranger(caller),
        is_behind_own_kernel=_is_behind_own_kernel(routes.asks_from(caller), seen),
        quoted_rate=await _quoted(dependencies, requested),
        is_paid=routes.pricing is not None
        and not dependencies.repository.is_free(requested.account, profile.id),
    )
    for name in request.route.keys.values():
        # Only whether it is there: it is resolved again when it is needed, and kept nowhere.
        await routes.resolve_key(requested.account, name)
    basis = Basis(gpus=demand.gpus)
    order = replace(requested, route=replace(requested.route, basis=basis)).order()
    candidates = [
        await _candidate(dependencies, name, one, order, requested, request.route, caller)
        if not one.is_estimated or _may_serve(name, demand)
        # Its provider is not asked for a price, so that nobody waits for one who has nothing to do with it.
        else Candidate(backend=name, gives=one.gives, gpus=one.gpus, rate=None, ill=one.ill)
        for name, one in seen.items()
    ]
    absent = [name for name in demand.named if name not in seen]
    candidates += [Candidate(backend=name, gives=frozenset()) for name in absent]
    return decide(candidates, demand, now=dependencies.clock.now(), breakers=routes.observed.policy)


def _may_serve(name: str, demand: Demand) -> bool:
    """Return whether anything could have this backend taken: `policy.decide` says what of these does."""
    is_sought = demand.is_open or demand.raised_by is not None
    return is_sought or name in demand.named or name == demand.lies_in


def _is_behind_own_kernel(maker: Sandbox | None, seen: Mapping[str, Seen]) -> bool:
    """Say whether a sandbox that asks for another has a kernel of its own, be it fit to make more or not."""
    its = None if maker is None else seen.get(maker.backend)
    return its is not None and f"isolation:{IsolationLevel.STRONG}" in its.gives


async def explain_route(
    dependencies: SandboxDependencies, request: CreateRequest, caller: Caller
) -> Explanation:
    """Say of every backend whether it would make such a sandbox, and why."""
    profile = dependencies.profiles.get(request.profile or dependencies.default_profile)
    requested = planning.plan(
        request, profile, caller, sandbox_id=new_id("sbx"), now=dependencies.clock.now()
    )
    decision = await choose(dependencies, requested, request, profile, caller)
    return Explanation(profile=profile.id, demand=decision.demand, considered=explain(decision, most=MOST))


# Of one explanation; a platform has a handful.
MOST = 50 * KEPT


@brief_value_class
class Seen:
    """A backend, as far as it is the same for every sandbox."""

    fingerprint: Fingerprint | None
    gives: frozenset[str]
    gpus: int
    # Somebody charges for its sandboxes, so it is asked how much.
    is_estimated: bool
    is_strong: bool = False
    ill: str = ""


async def _look_at(dependencies: SandboxDependencies, name: str) -> Seen:
    """Return what is known of a backend, worked out once for each of its fingerprints."""
    known: Seen | None = dependencies.routes.seen.get(name)
    backend = dependencies.backends[name]
    if known is not None and known.fingerprint is dependencies.known_fingerprints.get(name):
        return known
    try:
        found = await fingerprint_of(dependencies, name)
    except (SandboxerError, OSError) as error:
        log.warning("%s cannot say what it can do: %s", name, error)
        return Seen(None, frozenset({"open"}), 0, is_estimated=False, ill="it does not answer")
    assert found is not None
    words = given(found, capabilities_of(backend))
    region = dependencies.routes.policy.regions.get(name)
    seen = Seen(
        found,
        words if region is None else words | {f"region:{region.lower()}"},
        _count(found.facts.get("gpus", "0")),
        is_estimated=isinstance(backend, EstimatesCost) and not isinstance(backend, CostsNothing),
        is_strong=is_strong(found),
        ill="; ".join(f"{lack.what}: {lack.why}" for lack in found.lacks),
    )
    dependencies.routes.seen[name] = seen
    return seen


async def _candidate(
    dependencies: SandboxDependencies,
    name: str,
    seen: Seen,
    order: Order,
    requested: Sandbox,
    wanted: Constraints,
    caller: Caller,
) -> Candidate:
    routes, backend = dependencies.routes, dependencies.backends[name]
    key = wanted.keys.get(name)
    unfit = "" if key is None or isinstance(backend, TakesKeys) else "it takes no key of an account"
    if isinstance(backend, ServesSome) and not (caller.is_owner or backend.serves(caller.account)):
        unfit = "the operator opens it to accounts by name"
    basis, unpriced = await _basis(dependencies, name, seen, order, has_key=key is not None)
    rate: Rate | None = None
    if basis is not None:
        rate, unpriced = _rate(routes.pricing, requested, basis)
    return Candidate(
        backend=name,
        gives=seen.gives,
        gpus=seen.gpus,
        is_metered=name in routes.metered or (basis is not None and basis.is_metered),
        experimental=routes.experimental.get(name),
        rate=rate,
        unpriced=unpriced,
        basis=basis or Basis(gpus=order.gpus),
        latency=routes.observed.latency(name),
        breaker=routes.observed.breaker(name),
        key_name=key,
        # Where a host stands and what it lacks is the operator's to know (GET /v1/host).
        ill=seen.ill if caller.is_owner else "",
        unfit=unfit,
    )


def _rate(pricing: Pricing | None, requested: Sandbox, basis: Basis) -> tuple[Rate | None, str]:
    """Return what it costs the account a second; None and why, where no account could pay it."""
    if pricing is None:
        return basis.infrastructure, ""
    try:
        return rate_card(requested.profile, size_of(requested.resources), pricing, basis).running, ""
    except InvalidRequest as error:
        return None, f"nobody can pay what it costs ({error})"


async def _basis(
    dependencies: SandboxDependencies, name: str, seen: Seen, order: Order, *, has_key: bool
) -> tuple[Basis | None, str]:
    """Return what the price rests on there; None and why, where nobody knows."""
    is_metered = name in dependencies.routes.metered
    if has_key:
        return Basis(gpus=order.gpus, is_metered=True, is_own_key=True), ""
    if not seen.is_estimated:
        return Basis(gpus=order.gpus, is_metered=is_metered), ""
    infrastructure, why = await _passed_on(dependencies, name, order)
    if infrastructure is None:
        return None, why
    basis = Basis(gpus=order.gpus, infrastructure=infrastructure, is_metered=is_metered or infrastructure > 0)
    return basis, ""


async def _passed_on(dependencies: SandboxDependencies, name: str, order: Order) -> tuple[Rate | None, str]:
    """Return what its provider charges a second; None and why, where it names no price.

    Whatever goes wrong there: sandboxes that others make do not wait for it to be mended.
    """
    usd_per_btc = dependencies.routes.usd_per_btc
    try:
        async with asyncio.timeout(ESTIMATE_S):
            estimate = await estimate_of(dependencies.backends[name], order, hours=Decimal(1))
        if estimate is None:
            return None, SILENT
        if not estimate.amount:
            return 0, ""
        if estimate.unit != "usd" or usd_per_btc is None:
            why = f"it is charged in {estimate.unit}, and no rate of it is set (SANDBOXER_FIXED_RATES)"
            return None, why
        return passed_through(estimate.amount, usd_per_btc), ""
    except TimeoutError:
        return None, "it did not say in time what it costs"
    except SandboxerError as error:
        return None, f"{SILENT} ({error})"
    except Exception:
        log.exception("%s could not be asked what a sandbox costs", name)
        return None, SILENT


async def _quoted(dependencies: SandboxDependencies, requested: Sandbox) -> int | None:
    """Return the most that a backend may cost, whose sandbox is paid by a quote: what an ordinary one costs.

    The quote holds though prices went up since; what a provider or a GPU adds was never part of it.
    """
    quote_id, pricing = requested.terms.quote_id, dependencies.routes.pricing
    if quote_id is None or pricing is None:
        return None
    terms = await dependencies.repository.promised(requested, quote_id)
    plain = rate_card(requested.profile, size_of(requested.resources), pricing)
    return None if terms.is_free else max(terms.card.running, plain.running)


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


async def home_of(
    dependencies: SandboxDependencies,
    caller: Caller,
    profile_id: str | None = None,
    *,
    able: Capability = Capability.VOLUMES,
) -> str:
    """Return the backend that this caller's plain sandboxes of a profile stand on: what begins without one,
    and is to be used by them, shall lie there.
    """
    profile = dependencies.profiles.get(profile_id or dependencies.default_profile)
    request = CreateRequest(profile=profile.id)
    requested = planning.plan(
        request, profile, caller, sandbox_id=new_id("sbx"), now=dependencies.clock.now()
    )
    needs = replace(request, route=Constraints(capabilities=frozenset({able})))
    decision = await choose(dependencies, requested, needs, profile, caller)
    return decision.taken[0].backend if decision.taken else profile.backend
