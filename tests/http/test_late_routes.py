"""A module of routes that cannot be imported: what it serves fails as anything does; all else is served."""

from __future__ import annotations

import httpx
import pytest

from sandboxer.edges.http.app import ROUTES, create_app
from sandboxer.edges.http.matcher import Matcher, Routes
from tests.support.http.served import Served

BROKEN = Routes("sandboxer.edges.http.routes.no_such_module", "/v1/broken")


async def test_what_cannot_be_imported_is_a_problem_told_to_known_callers_only(served: Served) -> None:
    app = create_app(served.platform, (BROKEN, *ROUTES))
    served.client.http = http = httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url=served.url
    )
    for path in ("/v1/broken", "/v1/broken/further"):
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        answer = await served.client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (500, "broken")
        assert answer.headers["x-request-id"] == answer.json()["request_id"]
        assert "no_such_module" not in answer.text
    assert (await http.get("/health")).status_code == 200


async def test_a_module_that_is_broken_keeps_no_other_from_being_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sound = Routes("sandboxer.edges.http.routes.keys", "/v1/keys")
    await Matcher((BROKEN, sound)).load_all()
    assert sound.is_imported
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert BROKEN.module in caplog.text
