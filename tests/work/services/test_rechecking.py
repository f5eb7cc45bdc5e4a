"""Looking at many domains: each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from sandboxer.kernel.errors import Conflict
from sandboxer.work.services.domains import ELSEWHERE, DomainPolicy, Rechecking
from sandboxer.work.services.records import Domain
from sandboxer.work.services.repository import ServiceRepository
from tests.support.identity import StillClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Shelf:
    """Proven domains, and what was written down of them."""

    def __init__(self, *names: str) -> None:
        self.claims = [
            Domain(domain=name, service_id="svc_1", token="t", verified_at=NOW, created_at=NOW)
            for name in names
        ]
        self.put: list[str] = []

    def proven_domains(self) -> Sequence[Domain]:
        return self.claims

    def domains_of(self, service_id: str) -> Sequence[Domain]:
        return self.claims

    async def put_domain(self, claim: Domain, *, actor: str, kind: str) -> Domain:
        self.put.append(claim.domain)
        return claim


async def test_a_domain_that_cannot_be_looked_at_does_not_end_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = ["odd.example.com", *(f"{n}.example.com" for n in range(20))]
    shelf = Shelf(*names)

    async def ask(domain: str) -> bytes:
        if domain == names[0]:
            raise ValueError("nobody thought of this")
        raise Conflict(why="it is gone", found=ELSEWHERE)

    policy = DomainPolicy(every=timedelta(hours=1), grace=timedelta(hours=2))
    await Rechecking(cast(ServiceRepository, shelf), StillClock(NOW), ask, policy).look()
    assert sorted(shelf.put) == sorted(names[1:])
    assert names[0] in caplog.text
