"""What routing costs: a decision over a thousand backends, and what one that fails adds to the create of the
next one.

Creates that go wrong first and plain ones of the same backend alternate. The first backend is the shipped
fake, which fails at once: what is measured is the turn to the next, not somebody's slow failure. Decisions
wait for nothing, so their time is the processor's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

from bench.measurements import Bar, Row, Samples
from sandboxer.backends.contract import Capability, Fingerprint, Wall
from sandboxer.backends.namespaces import open_backend
from sandboxer.backends.scripted import Scripted
from sandboxer.hosts.routes.breaker import BreakerPolicy
from sandboxer.hosts.routes.explanation import route_of
from sandboxer.hosts.routes.latency import Latency
from sandboxer.hosts.routes.observations import Observations
from sandboxer.hosts.routes.policy import decide, given
from sandboxer.hosts.routes.records import LEVELS, Candidate, Demand, Strategy
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.errors import ProvisionFailed
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, namespaces_settings, open_platform

BACKENDS = 1000
# Decisions of a round: long enough to time.
A_ROUND = 20
NEXT = "ext.namespaces"
OWNER = Caller(public_key="sbx-pk-bench", account=OWNER_ACCOUNT, is_owner=True)
PROFILE = """
id: profile.{name}
version: "1"
backend: {backend}
isolation: {{level: container}}
network: {{default: deny}}
ttl: {{default: 10m, max: 10m}}
resources: {{cpu: 1, memory_mb: 128, disk_mb: 64, pids: 64}}
route: {{fallback: [{fallback}]}}
"""


def routes(folder: Path, images_dir: Path, rounds: int) -> Iterator[Row | Samples]:
    yield from _decisions(rounds)
    yield from asyncio.run(_failover(folder / "routes", images_dir, rounds))


def _decisions(rounds: int) -> Iterator[Row | Samples]:
    chance, now = random.Random(1), datetime.now(UTC)
    candidates = [_any(chance, number, now) for number in range(BACKENDS)]
    demand = Demand(named=tuple(one.backend for one in candidates), strategy=Strategy.LOWEST_LATENCY)
    alone, kept = [], []
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(A_ROUND):
            decide(candidates, demand, now=now)
        half = time.thread_time()
        for _ in range(A_ROUND):
            route_of(decide(candidates, demand, now=now))
        alone.append((half - start) * 1000 / A_ROUND)
        kept.append((time.thread_time() - half) * 1000 / A_ROUND)
    yield Row(
        figure="a route over 1,000 backends",
        subject=Samples("decided, with the reasons that a sandbox keeps", "ms", tuple(kept)),
        baseline=None,
        bar=Bar(text="≤ 1 ms", limit=1.0),
    )
    yield Samples("decided alone", "ms", tuple(alone))


def _any(chance: random.Random, number: int, now: datetime) -> Candidate:
    facts = {"isolation_level": chance.choice(LEVELS), "region": chance.choice(("eu", "us"))}
    seen = Fingerprint(healthy=chance.random() < 0.95, walls=frozenset(Wall), facts=facts)
    return Candidate(
        backend=f"ext.b{number}",
        gives=given(seen, Capability),
        rate=chance.randrange(100),
        latency=Latency(ms=chance.uniform(1, 100), at=now),
        is_metered=chance.random() < 0.5,
    )


async def _failover(folder: Path, images_dir: Path, rounds: int) -> list[Row | Samples]:
    profiles = folder / "profiles"
    folder.mkdir(mode=0o700)
    profiles.mkdir()
    for name, backend, fallback in (("plain", NEXT, ""), ("turned", "ext.broken", NEXT)):
        text = PROFILE.format(name=name, backend=backend, fallback=fallback)
        (profiles / f"{name}.yaml").write_text(text)
    settings = Settings(
        state_dir=folder,
        images_dir=images_dir,  # type: ignore[call-arg]
        profiles_dir=profiles,
        default_profile="profile.plain",
        pool_size_mb=2048,
    )
    why = ProvisionFailed(step="boot", why="it is broken")
    broken = Scripted(name="ext.broken", fail_on={"provision": repeat(why, rounds + 1)})
    async with (
        open_backend(namespaces_settings(settings)) as real,
        open_platform(settings, backends={NEXT: real, broken.name: broken}) as platform,
    ):
        # A breaker would leave the broken one alone, and nothing would be turned.
        policy = BreakerPolicy(trips_after=10**9)
        platform.sandboxes.routes.observed = Observations(platform.clock, policy)
        found = await _turns(platform, rounds)
    # They outlive a backend by design.
    real.dependencies.cgroups.remove_parents()
    real.dependencies.pool.unmount()
    return found


async def _turns(platform: Platform, rounds: int) -> list[Row | Samples]:
    plain: list[float] = []
    turned: list[float] = []
    for number in range(rounds + 1):
        for name, found in (("plain", plain), ("turned", turned)):
            start = time.perf_counter()
            request = CreateRequest(profile=f"profile.{name}")
            made = await creation.create(platform.sandboxes, request, OWNER)
            if number:
                # The first of each imports what it needs.
                found.append((time.perf_counter() - start) * 1000)
            assert made.backend == NEXT
            await lifetime.destroy(platform.sandboxes, made.id, OWNER)
    added = tuple(later - sooner for later, sooner in zip(turned, plain, strict=True))
    return [
        Row(
            figure="failover to the next backend",
            subject=Samples("added to its own create", "ms", added),
            baseline=None,
            bar=Bar(text="≤ 50 ms", limit=50.0),
        ),
        Samples("create after one that failed", "ms", tuple(turned)),
        Samples("create", "ms", tuple(plain)),
    ]
