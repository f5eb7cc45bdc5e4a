"""What a caller asks of the backend, over HTTP, and what it is told of why it was chosen."""

from __future__ import annotations

import pytest

from tests.support.http.flows import flow
from tests.support.http.served import Served

EXPLAIN = "/v1/profiles/agent-dev/route"


@flow("explainRoute")
async def test_an_explanation_names_every_backend_with_its_reason(served: Served) -> None:
    answer = await served.client.get(EXPLAIN)

    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "profile": "profile.agent-dev",
        "strategy": "explicit",
        "isolation": "container",
        "isolation_since": None,
        "considered": [
            {
                "backend": "ext.namespaces",
                "verdict": "chosen",
                "reason": "it is the one that is named",
                "rate_msats_per_s": 0,
                "latency_ms": None,
            }
        ],
    }


async def test_an_explanation_says_what_a_create_would_be_refused_for(served: Served) -> None:
    answer = await served.client.get(f"{EXPLAIN}?isolation=strong&region=eu&gpu=a100&capability=memory")
    (only,) = answer.json()["considered"]
    assert only["verdict"] == "refused"
    assert only["reason"] == (
        "it gives the isolation container, not strong, which is needed since the request asks for it; it"
        " cannot do this: memory; it is not in the region eu; it has no GPU a100"
    )

    refused = await served.client.post("/v1/sandboxes", {"route": {"region": "eu", "gpu": "a100"}})
    assert refused.status_code == 422, refused.text
    assert "it is not in the region eu; it has no GPU a100" in refused.text


async def test_a_sandbox_tells_how_its_backend_was_chosen(served: Served) -> None:
    path = await served.sandbox(route={"strategy": "lowest-latency", "capabilities": ["snapshot"]})

    route = (await served.client.get(path)).json()["route"]

    assert route["strategy"] == "lowest-latency"
    assert [one["verdict"] for one in route["considered"]] == ["chosen"]
    assert [(one["backend"], one["made"]) for one in route["attempts"]] == [("ext.namespaces", True)]
    measured = (await served.client.get(f"{EXPLAIN}?strategy=lowest-latency")).json()["considered"][0]
    assert measured["latency_ms"] == pytest.approx(route["attempts"][0]["took_ms"], abs=0.01)


@pytest.mark.parametrize(
    "route",
    [{"strategy": "cheapest"}, {"gpus": -1}, {"capabilities": ["fly"]}, {"keys": {"aws": "K"}}, {"more": 1}],
)
async def test_what_no_backend_could_be_is_refused_as_a_mistake(
    served: Served, route: dict[str, object]
) -> None:
    assert (await served.client.post("/v1/sandboxes", {"route": route})).status_code == 422
