"""The OpenAPI document against the server: no answer that the document does not name."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.auth import AuthBase
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    allow_header_conformance,
    negative_data_rejection,
]
# They answer for as long as someone listens; tests of their own read them.
ENDLESS = {"watchFiles", "attachProcess"}
# Good ones would make the server look up and call hosts that chance names.
OUTGOING = {"createWebhook", "changeWebhook", "executeLater", "verifyServiceDomain"}


ALL = slice(None)
PARTS = 3


class Signed(AuthBase):
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        parts = urlsplit(request.url or "")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        body = request.body or b""
        raw = body.encode() if isinstance(body, str) else bytes(body)
        head = self._credentials.head(request.method or "", target, hashlib.sha256(raw).hexdigest())
        request.headers.update(head)
        return request


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on a thread of its own: schemathesis does not await."""
    started: list[Served] = []
    up = threading.Event()
    down: list[Any] = []

    async def serve(state: Path) -> None:
        backend = Scripted(name="ext.namespaces")
        done = asyncio.Event()
        async with serving(
            Settings(
                state_dir=state,
                port=0,
                limit_auth=10**6,
                limit_address=10**6,
                # Nobody outside is asked what a coin is worth.
                fixed_rates={"BTC": "60000"},
            ),
            {"ext.namespaces": backend},
        ) as running:
            started.append(running)
            down.extend([asyncio.get_running_loop(), done])
            up.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve(tmp_path_factory.mktemp("live"))))
    thread.start()
    assert up.wait(30)
    yield started[0]
    down[0].call_soon_threadsafe(down[1].set)
    thread.join(30)


@schemathesis.serializer("application/x-tar")
def as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def operations(url: str) -> list[Any]:
    document = requests.get(f"{url}/openapi.json", timeout=30).json()
    # We sign every case ourselves: a case "without a signature" would not be one.
    del document["security"], document["components"]["securitySchemes"]
    _shorten(document)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    return [result.ok() for result in schema.get_all_operations()]


def _shorten(schema: Any) -> None:
    """Large bounds are tested elsewhere; here they only make every case a megabyte."""
    if isinstance(schema, list):
        for item in schema:
            _shorten(item)
    if isinstance(schema, dict):
        for bound in ("maxLength", "maxItems", "maxProperties"):
            if isinstance(schema.get(bound), int) and schema[bound] > 300:
                del schema[bound]
        for item in schema.values():
            _shorten(item)


def a_sandbox(live: Served, auth: Signed) -> tuple[str, str]:
    answer = requests.post(f"{live.url}/v1/sandboxes", json={}, auth=auth, timeout=30)
    assert answer.status_code == 201, answer.text
    sandbox_id = answer.json()["id"]
    started = requests.post(
        f"{live.url}/v1/sandboxes/{sandbox_id}/processes",
        json={"argv": ["cat"], "has_stdin": True},
        auth=auth,
        timeout=30,
    )
    return sandbox_id, started.json()["process_id"]


def examine(live: Served, examples: int, mode: GenerationMode, part: slice = ALL) -> int:
    auth = Signed(live.owner)
    asked = 0
    with requests.Session() as session:
        for operation in operations(live.url)[part]:
            name = operation.definition.raw["operationId"]
            if name in ENDLESS or (name in OUTGOING and mode is GenerationMode.POSITIVE):
                continue
            asked += _examine_one(live, operation, examples, mode, auth, session)
    return asked


def _examine_one(
    live: Served, operation: Any, examples: int, mode: GenerationMode, auth: Signed, session: requests.Session
) -> int:
    sandbox_id, process_id = a_sandbox(live, auth)
    asked = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_real=st.booleans())
    def ask(case: Any, is_real: bool) -> None:
        nonlocal asked
        asked += 1
        _wait_for_nothing(case)
        if is_real and mode is GenerationMode.POSITIVE:
            _aim(case, sandbox_id, process_id)
        case.call_and_validate(checks=CHECKS, auth=auth, session=session, timeout=30)

    # A route without parameters has nothing that could be wrong.
    with contextlib.suppress(Unsatisfiable):
        ask()
    return asked


def _wait_for_nothing(case: Any) -> None:
    """What chance wrote as a service never gets well: who waits for it waits for a minute. A value that is
    refused stays.
    """
    given = str((case.query or {}).get("wait", "true")).lower()
    may_wait = any(parameter.name == "wait" for parameter in case.operation.query)
    if may_wait and given in ("true", "1", "yes", "on", "t", "y"):
        case.query = {**(case.query or {}), "wait": "false"}


def _aim(case: Any, sandbox_id: str, process_id: str) -> None:
    """At a sandbox and a process that exist, so that more than the refusal is seen."""
    if "sandbox_id" in (case.path_parameters or {}):
        case.path_parameters["sandbox_id"] = sandbox_id
    if "process_id" in (case.path_parameters or {}):
        case.path_parameters["process_id"] = process_id
    quick = {
        "followEvents": {"follow": "false"},
        "followAccountEvents": {"follow": "false"},
        "waitProcess": {"timeout_s": "0"},
    }
    name = case.operation.definition.raw["operationId"]
    case.query = {**(case.query or {}), **quick.get(name, {})}
    if name in ("runCommand", "startProcess") and isinstance(case.body, dict):
        case.body["timeout_s"] = 0.2


# In parts, for processes side by side. `make test-slow` asks seven times as much, `make test-long` twenty.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("mode", "examples", "least"), [("positive", 3, 120), ("negative", 2, 60)])
def test_no_answer_is_undocumented(live: Served, mode: str, examples: int, least: int, part: int) -> None:
    assert examine(live, examples, GenerationMode(mode), slice(part, None, PARTS)) > least / PARTS


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_answer_is_undocumented_in_a_longer_run(live: Served, part: int) -> None:
    examine(live, 20, GenerationMode.POSITIVE, slice(part, None, PARTS))
    examine(live, 15, GenerationMode.NEGATIVE, slice(part, None, PARTS))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_answer_is_undocumented_in_a_long_run(live: Served, part: int) -> None:
    examine(live, 60, GenerationMode.POSITIVE, slice(part, None, PARTS))
    examine(live, 40, GenerationMode.NEGATIVE, slice(part, None, PARTS))
