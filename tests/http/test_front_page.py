"""The front page: for people in a browser, and for agents as text."""

from __future__ import annotations

import asyncio
import re
import time

from sandboxer.edges.http.app import all_bindings
from sandboxer.edges.http.routes.front import build_document
from sandboxer.wire.operations.declaration import Relay
from sandboxer.wire.operations.table import OPERATIONS
from tests.support.http.flows import flow
from tests.support.http.served import Served


@flow("showFrontPage")
async def test_a_browser_gets_a_page_that_is_whole_in_itself(served: Served) -> None:
    answer = await served.client.http.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policies = answer.headers.get_list("content-security-policy")
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policies[0]
    assert not re.search(r"<script|<img|<link|@import|url\(|src=", answer.text)
    assert all(found.startswith("/") for found in re.findall(r'href="([^"]*)"', answer.text))
    assert served.platform.settings.url in answer.text
    assert "healthy" in answer.text
    assert served.client.credentials.secret_key not in answer.text


async def test_what_a_caller_says_of_himself_is_not_on_the_page(served: Served) -> None:
    headers = {"accept": "text/html", "host": "evil.example", "x-forwarded-host": "<b>evil</b>"}
    assert "evil" not in (await served.client.http.get("/?x=<b>evil", headers=headers)).text


@flow("getLlmsText")
async def test_an_agent_gets_every_operation_in_a_line(served: Served) -> None:
    answer = await served.client.http.get("/llms.txt")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert (await served.client.http.get("/", headers={"accept": "*/*"})).text == answer.text
    for one in OPERATIONS:
        if not isinstance(one.answer, Relay):
            assert f"- {one.method} {one.path}: {one.summary}" in answer.text
    assert "/openapi.json" in answer.text
    assert "Bearer sk_" in answer.text


@flow("discover")
async def test_a_program_gets_where_everything_is_and_how_to_sign(served: Served) -> None:
    answer = await served.client.http.get("/.well-known/sandboxer.json")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=300")
    found = answer.json()
    assert found["url"] == served.platform.settings.url
    assert found["links"]["openapi"] == f"{found['url']}/openapi.json"
    assert [one["name"] for one in found["signatures"]] == ["v2", "v1"]
    assert found["is_charged"] is served.platform.settings.is_charged


async def test_no_other_answer_has_a_policy_of_its_own(served: Served) -> None:
    answer = await served.client.http.get("/health")
    assert answer.headers.get_list("content-security-policy") == [
        "default-src 'none'; frame-ancestors 'none'"
    ]


async def test_strangers_who_want_the_document_first_keep_nobody_waiting(served: Served) -> None:
    began = time.process_time()
    build_document(all_bindings())
    takes_s = time.process_time() - began
    lags = [0.0]
    lag = asyncio.create_task(_longest_lag(lags))
    began = time.process_time()
    answers = await asyncio.gather(*(served.client.http.get("/openapi.json") for _ in range(6)))
    spent_s = time.process_time() - began
    lag.cancel()
    assert [one.status_code for one in answers] == [200] * 6
    assert max(lags) < takes_s / 4, f"nobody was served for {max(lags):.2f} s"
    assert spent_s < 3 * takes_s, "it was built more than once"


async def _longest_lag(lags: list[float]) -> None:
    while True:
        # Of the loop's own time: another thread or process may have the processor meanwhile.
        began = time.thread_time()
        await asyncio.sleep(0.01)
        lags.append(time.thread_time() - began)
