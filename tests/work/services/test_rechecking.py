"""Looking at many domains: each by itself."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from sandboxer.kernel.errors import Conflict
from sandboxer.work.services.domains import ELSEWHERE, DomainPolicy, Rechecking, system_resolver
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

    async def root_of(self, service_id: str) -> str:
        return "acme"

    async def put_domain(self, claim: Domain, *, actor: str, kind: str) -> Domain:
        self.put.append(claim.domain)
        return claim


async def test_names_that_nobody_answers_for_hold_up_only_the_proofs_of_who_claims_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look-up cannot be cancelled, and there are only so many threads."""
    answers = threading.Event()

    def look_up(host: str, *args: object, **options: object) -> list[object]:
        if host.endswith(".silent.example"):
            answers.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolve = system_resolver()
    silent = [asyncio.ensure_future(resolve(f"n{n}.silent.example", "evil")) for n in range(40)]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(10):
        assert await resolve("good.example", "good") == ["93.184.216.34"]
    answers.set()
    await asyncio.gather(*silent, return_exceptions=True)


async def test_a_domain_that_cannot_be_looked_at_does_not_end_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = ["odd.example.com", *(f"{n}.example.com" for n in range(20))]
    shelf = Shelf(*names)

    async def ask(domain: str, owner: str) -> bytes:
        if domain == names[0]:
            raise ValueError("nobody thought of this")
        raise Conflict(why="it is gone", found=ELSEWHERE)

    policy = DomainPolicy(every=timedelta(hours=1), grace=timedelta(hours=2))
    await Rechecking(cast(ServiceRepository, shelf), StillClock(NOW), ask, policy).look()
    assert sorted(shelf.put) == sorted(names[1:])
    assert names[0] in caplog.text
