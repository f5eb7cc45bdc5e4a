"""An operation that is declared as deprecated says so in every answer, and in the document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from functools import partial

import httpx
import pytest

from sandboxer.edges.http.app import all_bindings, create_app
from sandboxer.edges.http.binding import OperationRoute
from sandboxer.edges.http.matcher import Binding, Routes
from sandboxer.edges.http.routes.front import build_document
from sandboxer.wire.operations.declaration import Deprecation
from sandboxer.wire.operations.platform import LIST_PROFILES
from tests.support.http.served import Served
from tests.support.http.signed import Client

GOING = Deprecation(since=date(2026, 11, 17), sunset=date(2027, 6, 1), instead="getCapabilities")


def as_deprecated(binding: Binding) -> Binding:
    assert isinstance(binding.route, OperationRoute)
    operation = replace(binding.operation, deprecated=GOING)
    return Binding(operation, partial(OperationRoute, operation, binding.route.handler))


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    """Of a platform on which the profiles are no longer to be listed."""
    bindings = [as_deprecated(one) if one.operation is LIST_PROFILES else one for one in all_bindings()]
    routes = Routes("given", "")
    routes.bindings = bindings
    app = create_app(served.platform, [routes])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=served.url) as http:
        yield Client(http, served.owner)


async def test_an_answer_says_since_when_and_until_when(client: Client) -> None:
    answer = await client.get(LIST_PROFILES.path)
    assert answer.status_code == 200
    assert answer.headers["deprecation"] == "@1794873600"
    assert answer.headers["sunset"] == "Tue, 01 Jun 2027 00:00:00 GMT"


async def test_a_refusal_says_so_too(client: Client) -> None:
    answer = await client.http.get(LIST_PROFILES.path)
    assert answer.status_code == 401
    assert "deprecation" in answer.headers


async def test_what_is_not_deprecated_says_nothing(client: Client) -> None:
    answer = await client.get("/v1/capabilities")
    assert answer.status_code == 200
    assert not {"deprecation", "sunset"} & set(answer.headers)


def test_the_document_tells_it() -> None:
    bindings = [as_deprecated(one) if one.operation is LIST_PROFILES else one for one in all_bindings()]
    shown = build_document(bindings)["paths"][LIST_PROFILES.path]["get"]
    assert shown["deprecated"] is True
    assert shown["x-sunset"] == "2027-06-01"
    assert shown["x-instead"] == "getCapabilities"


def test_callers_have_half_a_year() -> None:
    with pytest.raises(ValueError, match="180 days"):
        Deprecation(since=date(2026, 11, 17), sunset=date(2026, 12, 17))
