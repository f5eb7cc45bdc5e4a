"""Says in plain words why a backend was taken or refused. Pure; what nobody reads is not made."""

from __future__ import annotations

from datetime import datetime

from sandboxer.hosts.routes.breaker import in_words
from sandboxer.hosts.routes.policy import HEALTHY, OPEN, Decision, measured_ms, needed
from sandboxer.hosts.routes.records import (
    LEVELS,
    Candidate,
    Considered,
    Demand,
    Route,
    Strategy,
    Verdict,
    Why,
)

# A record keeps so many in words, and of the rest how many there were.
KEPT = 20


def explain(decision: Decision, *, most: int | None = None) -> tuple[Considered, ...]:
    """Say for each, or the first so many, why it was taken or refused. Those taken come first."""
    taken = decision.taken[:most]
    refused = decision.refused if most is None else decision.refused[: max(0, most - len(taken))]
    return (
        *(_of_taken(decision, place, one) for place, one in enumerate(taken)),
        *(_of_refused(decision, one, why) for one, why in refused),
    )


def route_of(decision: Decision) -> Route:
    """Return what a sandbox keeps of a decision."""
    considered = explain(decision, most=KEPT)
    more = len(decision.taken) + len(decision.refused) - len(considered)
    return Route(strategy=decision.demand.strategy, considered=considered, more=more)


def _of_taken(decision: Decision, place: int, one: Candidate) -> Considered:
    why = _why_taken(decision.demand, one, now=decision.now)
    if decision.is_last_resort:
        why += "; it failed several times in a row, and nothing else can make it"
    if place:
        why += "; asked if those before it fail"
    return _considered(one, Verdict.FALLBACK if place else Verdict.CHOSEN, why, decision.now)


def _of_refused(decision: Decision, one: Candidate, why: str) -> Considered:
    reason = _why_refused(decision.demand, one, why, now=decision.now)
    return _considered(one, Verdict.REFUSED, reason, decision.now)


def _considered(one: Candidate, verdict: Verdict, why: str, now: datetime) -> Considered:
    ms = measured_ms(one, now)
    return Considered(
        backend=one.backend,
        verdict=verdict,
        reason=why,
        rate_msats_per_s=one.rate,
        latency_ms=None if ms < 0 else round(ms, 3),
    )


def _why_taken(demand: Demand, one: Candidate, *, now: datetime) -> str:
    is_named = one.backend in demand.named
    if demand.strategy is Strategy.LOWEST_COST:
        why = f"it costs {_per_hour((one.rate or 0) * 3600)}"
    elif demand.strategy is Strategy.LOWEST_LATENCY:
        ms = measured_ms(one, now)
        why = "nobody has measured it lately, so it is tried" if ms < 0 else f"it takes {ms:.0f} ms, measured"
    elif demand.strategy is Strategy.PREFER_SELF_HOSTED:
        why = "a provider charges for it" if one.is_metered else "it stands on a machine of the operator's"
    else:
        place = demand.named.index(one.backend) + 1 if is_named else 0
        why = "it is the one that is named" if len(demand.named) == 1 else f"it is named, as number {place}"
        why = why if is_named else "no backend that is named may make it"
    if demand.raised_by is not None and not is_named:
        why += f"; it gives the isolation {demand.isolation}, which is needed since {demand.raised_by}"
    return why


def _why_refused(demand: Demand, one: Candidate, why: str, *, now: datetime) -> str:
    if why == Why.LACKS:
        return _lacking(demand, one)
    if why == Why.BROKEN:
        return in_words(one.breaker, now=now)
    texts: dict[str, str] = {
        Why.NOT_NAMED: "neither profile nor settings name it for this",
        Why.EXPERIMENTAL: f"it is experimental ({one.experimental}) and only used where a profile names it",
        Why.ELSEWHERE: f"what it begins with lies in {demand.lies_in}",
        Why.UNPRICED: one.unpriced,
        Why.QUOTED: f"it costs {_per_hour((one.rate or 0) * 3600)}, more than the quote promises",
        Why.DEAR: f"it costs {_per_hour((one.rate or 0) * 3600)}, and at most"
        f" {_per_hour(demand.max_msats_per_hour or 0)} is wanted",
        Why.FEW_GPUS: f"it has {one.gpus} GPUs for one sandbox, and {demand.gpus} are wanted",
    }
    return texts.get(why, why)


def _lacking(demand: Demand, one: Candidate) -> str:
    """Say what it lacks, the worst first."""
    missing = needed(demand) - one.gives
    if OPEN in missing:
        return "this platform does not use it (SANDBOXER_BACKENDS)"
    if HEALTHY in missing:
        return f"it cannot work here ({one.ill or 'its host is not fit'})"
    by_kind: dict[str, list[str]] = {}
    for word in sorted(missing):
        kind, _, what = word.partition(":")
        by_kind.setdefault(kind, []).append(what)
    since = "" if demand.raised_by is None else f", which is needed since {demand.raised_by}"
    best = max((level for level in LEVELS if f"isolation:{level}" in one.gives), key=LEVELS.index)
    texts = {
        "isolation": f"it gives the isolation {best}, not {demand.isolation}{since}",
        "wall": "it cannot give these walls: " + ", ".join(by_kind.get("wall", ())),
        "capability": "it cannot do this: " + ", ".join(by_kind.get("capability", ())),
        "region": f"it is not in the region {demand.region}",
        "gpu": f"it has no GPU {demand.gpu}",
        "keeps": "its snapshots do not keep " + " and ".join(by_kind.get("keeps", ())),
    }
    return "; ".join(texts[kind] for kind in texts if kind in by_kind)


def _per_hour(msats: int) -> str:
    sats, rest = divmod(msats, 1000)
    return f"{sats}.{rest:03d}".rstrip("0").rstrip(".") + " sats an hour"
