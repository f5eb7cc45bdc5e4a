"""The decision which backend makes a sandbox, as properties over any candidates and demands."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sandboxer.backends.contract import Capability, Fingerprint, Wall
from sandboxer.hosts.routes import policy
from sandboxer.hosts.routes.breaker import CLOSED, failed, may_try
from sandboxer.hosts.routes.explanation import explain, route_of
from sandboxer.hosts.routes.latency import STALE_AFTER, Latency, measured
from sandboxer.hosts.routes.policy import Decision, decide
from sandboxer.hosts.routes.records import (
    LEVELS,
    Candidate,
    Demand,
    IsolationLevel,
    Strategy,
    Verdict,
    from_json,
    to_json,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = [f"ext.b{number}" for number in range(8)]
BROKEN = failed(failed(failed(CLOSED, why="a", now=NOW), why="b", now=NOW), why="c", now=NOW)
REGIONS = ("eu", "us")

fingerprints = st.builds(
    lambda healthy, walls, level, region, memory, gpu: Fingerprint(
        healthy=healthy,
        walls=frozenset(walls),
        facts={"isolation_level": level, **region, **memory, **gpu},
    ),
    st.sampled_from((True, True, True, False)),
    st.sets(st.sampled_from(list(Wall))),
    st.sampled_from(LEVELS),
    st.sampled_from([{}, {"region": "eu"}, {"region": "US"}]),
    st.sampled_from([{}, {"checkpoint": "memory"}]),
    st.sampled_from([{}, {"gpu": "A100"}]),
)
abilities = st.frozensets(st.sampled_from(list(Capability)))


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    made = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        seen = draw(st.none() | fingerprints)
        made.append(
            Candidate(
                backend=name,
                gives=policy.given(seen, draw(abilities)),
                gpus=draw(st.integers(0, 4)),
                is_metered=draw(st.booleans()),
                experimental=draw(st.none() | st.just("nobody has tried it")),
                rate=draw(st.none() | st.integers(0, 50)),
                unpriced="nobody knows what it costs",
                latency=draw(st.none() | st.builds(Latency, ms=st.floats(1, 500), at=st.just(NOW))),
                breaker=draw(st.sampled_from((CLOSED, CLOSED, BROKEN))),
            )
        )
    return made


demands = st.builds(
    Demand,
    named=st.lists(st.sampled_from(NAMES), unique=True, max_size=4).map(tuple),
    strategy=st.sampled_from(Strategy),
    is_open=st.booleans(),
    isolation=st.sampled_from(LEVELS),
    raised_by=st.none() | st.just("the request asks for it"),
    walls=st.frozensets(st.sampled_from((Wall.FILES, Wall.PIDS)), max_size=2),
    region=st.none() | st.sampled_from(REGIONS),
    gpus=st.integers(0, 2),
    gpu=st.none() | st.just("a100"),
    max_msats_per_hour=st.none() | st.integers(0, 200_000),
    quoted_rate=st.none() | st.integers(0, 50),
    is_paid=st.booleans(),
    capabilities=st.frozensets(st.sampled_from(list(Capability)), max_size=1),
    keeps_files=st.booleans(),
    lies_in=st.none() | st.sampled_from(NAMES),
)
# Most demands of the above nobody can meet.
plain = st.builds(
    Demand,
    named=st.permutations(NAMES).map(lambda names: tuple(names[:5])),
    strategy=st.sampled_from(Strategy),
    is_open=st.booleans(),
    isolation=st.sampled_from(LEVELS[:2]),
)


@given(candidates(), demands | plain)
def test_every_candidate_is_either_taken_or_refused_and_once(found: list[Candidate], demand: Demand) -> None:
    decision = decide(found, demand, now=NOW)

    names = [one.backend for one in decision.taken] + [one.backend for one, _ in decision.refused]
    assert sorted(names) == sorted(one.backend for one in found)
    said = explain(decision)
    assert [one.backend for one in said] == names
    assert all(one.reason.strip() for one in said)
    chosen = [one.backend for one in said if one.verdict is Verdict.CHOSEN]
    assert chosen == [one.backend for one in decision.taken[:1]]


@given(candidates(), demands | plain)
def test_nothing_is_taken_that_does_not_keep_a_constraint(found: list[Candidate], demand: Demand) -> None:
    for one in decide(found, demand, now=NOW).taken:
        assert {policy.OPEN, policy.HEALTHY, f"isolation:{demand.isolation}"} <= one.gives
        assert all(f"wall:{wall}" in one.gives for wall in demand.walls)
        assert all(f"capability:{able}" in one.gives for able in demand.capabilities)
        assert demand.region is None or f"region:{demand.region}" in one.gives
        assert demand.gpu is None or f"gpu:{demand.gpu}" in one.gives
        assert one.gpus >= demand.gpus
        assert one.rate is not None or not (demand.is_paid or demand.max_msats_per_hour is not None)
        if one.rate is not None:
            assert demand.max_msats_per_hour is None or one.rate * 3600 <= demand.max_msats_per_hour
            assert demand.quoted_rate is None or one.rate <= demand.quoted_rate
        assert demand.lies_in in (None, one.backend)
        is_named = one.backend in demand.named or one.backend == demand.lies_in
        assert is_named or demand.is_open or (demand.raised_by is not None and not one.is_metered)
        assert is_named or one.experimental is None


@given(candidates(), demands | plain, st.randoms(use_true_random=False))
def test_the_order_of_candidates_changes_nothing(
    found: list[Candidate], demand: Demand, chance: random.Random
) -> None:
    mixed = list(found)
    chance.shuffle(mixed)

    assert _names(decide(mixed, demand, now=NOW)) == _names(decide(found, demand, now=NOW))


@given(candidates(), plain)
def test_each_strategy_ranks_by_what_it_says(found: list[Candidate], demand: Demand) -> None:
    taken = decide(found, demand, now=NOW).taken
    in_order = [_rank(demand, one) for one in taken]

    assert in_order == sorted(in_order)


@given(candidates(), demands | plain)
def test_a_broken_backend_is_asked_only_if_all_that_could_are_broken(
    found: list[Candidate], demand: Demand
) -> None:
    decision = decide(found, demand, now=NOW)
    whole = decide([replace(one, breaker=CLOSED) for one in found], demand, now=NOW)

    broken = [one for one in decision.taken if not may_try(one.breaker, now=NOW)]

    # A breaker alone never leaves a sandbox unmade.
    assert bool(decision.taken) == bool(whole.taken)
    assert not broken or (decision.is_last_resort and len(broken) == len(decision.taken))


@given(candidates(), demands | plain, st.data())
def test_whoever_asks_for_more_gets_none_who_would_not_do_for_less(
    found: list[Candidate], demand: Demand, data: st.DataObject
) -> None:
    stricter = replace(
        demand,
        isolation=data.draw(st.sampled_from(LEVELS[LEVELS.index(demand.isolation) :])),
        walls=demand.walls | data.draw(st.frozensets(st.sampled_from(list(Wall)))),
        max_msats_per_hour=0 if data.draw(st.booleans()) else demand.max_msats_per_hour,
    )
    healed = [replace(one, breaker=CLOSED) for one in found]

    assert set(_names(decide(healed, stricter, now=NOW))) <= set(_names(decide(healed, demand, now=NOW)))


@given(candidates(), demands | plain)
def test_what_a_sandbox_keeps_of_its_route_is_read_back_as_it_was(
    found: list[Candidate], demand: Demand
) -> None:
    route = route_of(decide(found, demand, now=NOW))

    assert from_json(to_json(route)) == route


def test_of_a_thousand_backends_a_sandbox_keeps_twenty_reasons_and_a_count() -> None:
    many = [_self_hosted(f"ext.b{number}") for number in range(1000)]

    route = route_of(decide(many, Demand(named=("ext.b7",)), now=NOW))

    assert route.considered[0].backend == "ext.b7"
    assert (len(route.considered), route.more) == (20, 980)


def test_a_kernel_of_its_own_stands_for_uids() -> None:
    walls = frozenset(Wall) - {Wall.UID_RANGE}
    demand = Demand(named=("ext.b0",), walls=frozenset(Wall))

    def taken(level: IsolationLevel) -> bool:
        seen = Fingerprint(healthy=True, walls=walls, facts={"isolation_level": level})
        return bool(
            decide([Candidate(backend="ext.b0", gives=policy.given(seen, ()))], demand, now=NOW).taken
        )

    assert taken(IsolationLevel.STRONG)
    assert not taken(IsolationLevel.CONTAINER)


def test_reasons_are_in_plain_words() -> None:
    weak, absent = _self_hosted("ext.weak"), Candidate(backend="ext.absent", gives=frozenset())
    dear = replace(_self_hosted("ext.dear", level=IsolationLevel.STRONG), rate=50)
    demand = Demand(
        named=("ext.weak", "ext.absent", "ext.dear"),
        isolation=IsolationLevel.STRONG,
        raised_by="the request asks for it",
        max_msats_per_hour=100_000,
    )

    said = {one.backend: one.reason for one in explain(decide([weak, absent, dear], demand, now=NOW))}

    assert said == {
        "ext.weak": "it gives the isolation container, not strong, which is needed since the request asks"
        " for it",
        "ext.absent": "this platform does not use it (SANDBOXER_BACKENDS)",
        "ext.dear": "it costs 180 sats an hour, and at most 100 sats an hour is wanted",
    }


@given(st.lists(st.floats(0.1, 10_000), min_size=1))
def test_a_measured_latency_lies_between_what_was_measured(times: list[float]) -> None:
    known = None
    for took in times:
        known = measured(known, took, now=NOW)

    assert known is not None
    assert min(times) * 0.999 <= known.ms <= max(times) * 1.001


def test_what_was_measured_long_ago_is_forgotten() -> None:
    old = Latency(ms=500, at=NOW)

    assert measured(old, 5, now=NOW + STALE_AFTER + timedelta(seconds=1)).ms == 5
    assert measured(old, 5, now=NOW + STALE_AFTER).ms == 401


def _rank(demand: Demand, one: Candidate) -> float:
    if demand.strategy is Strategy.EXPLICIT:
        return demand.named.index(one.backend) if one.backend in demand.named else len(demand.named)
    if demand.strategy is Strategy.PREFER_SELF_HOSTED:
        return one.is_metered
    if demand.strategy is Strategy.LOWEST_COST:
        # What nobody knows the price of is dearest.
        return float("inf") if one.rate is None else one.rate
    # Those that nobody has measured first, so that somebody does.
    return -1 if one.latency is None else one.latency.ms


def _self_hosted(name: str, *, level: IsolationLevel = IsolationLevel.CONTAINER) -> Candidate:
    seen = Fingerprint(healthy=True, walls=frozenset(Wall), facts={"isolation_level": level})
    return Candidate(backend=name, gives=policy.given(seen, Capability))


def _names(decision: Decision) -> list[str]:
    return [one.backend for one in decision.taken]
