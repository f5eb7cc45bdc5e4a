"""The answer matrix: what every operation answers to every kind of caller, without what differs each time.

A cell holds the status, the headers, the shape of the body, the audit rows that it wrote and the counters of
requests that it was counted in.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from sqlalchemy import func, select

from sandboxer.accounts.records import audit_log
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.release.examples import BODIES, QUERIES, RAW
from tests.release.things import Things
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client, Credentials

SCOPES = [
    "sandboxes:read", "sandboxes:create", "sandboxes:manage", "sandboxes:destroy", "exec", "files:read",
    "files:write", "account:read", "account:manage", "keys:delegate",
]  # fmt: skip
# They answer for as long as somebody listens: only their heads are looked at.
HEAD_S = 10.0
_SHOWN = frozenset(
    {"content-type", "allow", "cache-control", "www-authenticate", "connection", "accept-ranges"}
)
_PASSED_OVER = frozenset({"date", "content-length", "transfer-encoding"})
Cell = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One operation, as the document has it."""

    id: str
    method: str
    path: str
    has_body: bool


@dataclass
class People:
    """Who asks. `mine` makes things for all of them: they are of Alice's."""

    served: Served
    alice: Client
    bob: Client
    broad: Client
    narrow: Client
    mine: Things

    @property
    def nobody(self) -> Client:
        return self.served.as_(Credentials("sbx-pk-" + "0" * 26, "sbx-sk-" + "0" * 43))


def operations(document: dict[str, Any]) -> list[Asked]:
    return [
        Asked(operation["operationId"], method.upper(), path, "requestBody" in operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


async def recorded(served: Served, document: dict[str, Any]) -> dict[str, dict[str, Cell]]:
    receiver = await asyncio.start_server(_receive, "127.0.0.1", 0)
    async with receiver:
        people = await _people(served, f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/x")
        return {asked.id: await _row(people, asked) for asked in operations(document)}


async def _receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes every webhook."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


@asynccontextmanager
async def opened(state: Any, *, database: str | None = None) -> AsyncIterator[Served]:
    settings = Settings(
        state_dir=state,
        database=database,
        host="127.0.0.1",
        port=0,
        limit_auth=10**6,
        limit_bucket_only=10**6,
        limit_address=10**6,
        webhook_allow_private=True,
        fixed_rates={"BTC": "60000"},
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


async def _people(served: Served, receiver: str) -> People:
    alice, bob = await served.stranger("alice"), await served.stranger("bob")
    for account in ("alice", "bob"):
        funds = {"sats": 10**9, "id": f"fund-{account}", "reason": "a test"}
        assert (await served.client.post(f"/v1/accounts/{account}/adjust", funds)).is_success
    broad, narrow = await _child(served, alice, SCOPES), await _child(served, alice, ["account:read"])
    return People(served, alice, bob, broad, narrow, Things(alice, served.client, receiver))


async def _child(served: Served, parent: Client, scopes: list[str]) -> Client:
    cut = await parent.post("/v1/keys/delegated", {"name": "child", "scopes": scopes, "budget_sats": 10**6})
    assert cut.status_code == 201, cut.text
    return served.as_(Credentials(cut.json()["public_key"], cut.json()["secret_key"]))


async def _row(people: People, asked: Asked) -> dict[str, Cell]:
    """Who may do nothing asks first, of one thing; who may do it asks for a thing made for that."""
    if asked.id == "listJobs":
        await _jobs_end(people)
    shared = await _ids(people, asked)
    cells = {
        "stranger": await _cell(people, asked, None, shared),
        "bad key": await _cell(people, asked, people.nobody, shared),
        "delegated without the scope": await _cell(people, asked, people.narrow, shared),
        "foreign": await _cell(people, asked, people.bob, shared),
        "bad body": await _cell(people, asked, people.alice, shared, content=b'{"no such field": [}'),
        "head": await _cell(people, asked, people.alice, shared, method="HEAD"),
    }
    for name, client in (
        ("account", people.alice),
        ("delegated", people.broad),
        ("owner", people.served.client),
    ):
        ids = await _ids(people, asked)
        cells[name] = await _cell(people, asked, client, ids)
    return cells


async def _jobs_end(people: People) -> None:
    """Waits for every job that was asked for before: a list shows each as far as it has come."""
    for client in (people.alice, people.bob, people.broad, people.served.client):
        for job in (await client.get("/v1/jobs")).json()["jobs"]:
            ended = await client.get(f"/v1/jobs/{job['id']}?wait_s=30")
            assert ended.json()["ended_at"] is not None, ended.text


async def _ids(people: People, asked: Asked) -> dict[str, str]:
    known: dict[str, str] = {}
    wanted = re.findall(r"{(\w+)}", asked.path + json.dumps(BODIES.get(asked.id, "")))
    for name in wanted:
        if name != "fresh" and name not in known:
            known[name] = await people.mine.made(name, known)
    return known


async def _cell(
    people: People,
    asked: Asked,
    client: Client | None,
    ids: dict[str, str],
    *,
    method: str | None = None,
    content: bytes | None = None,
) -> Cell:
    served = people.served
    target = re.sub(r"{(\w+)}", lambda found: ids[found[1]], asked.path)
    if query := QUERIES.get(asked.id):
        target += f"?{query}"
    method = method or asked.method
    kind, body = _body(asked, ids, people.mine)
    if method == "HEAD":
        body = b""
    elif content is not None:
        body, kind = content, "application/json"
    headers = {"content-type": kind} if body else {}
    before = await _audit_end(served)
    with _counted(served) as counters:
        answer = await _sent(served, client, method, target, body, headers)
    return {**answer, "audit": await _audit_since(served, before), "counted": counters}


def _body(asked: Asked, ids: dict[str, str], things: Things) -> tuple[str, bytes]:
    if asked.id in RAW:
        return RAW[asked.id]
    if not asked.has_body:
        return "", b""
    text = json.dumps(BODIES[asked.id])
    text = re.sub(r"{(\w+)}", lambda found: things.fresh() if found[1] == "fresh" else ids[found[1]], text)
    return "application/json", text.encode()


async def _sent(
    served: Served, client: Client | None, method: str, target: str, body: bytes, headers: dict[str, str]
) -> Cell:
    http = served.client.http
    if client is None:
        request = http.build_request(method, target, content=body, headers=headers)
    else:
        request = client.request(method, target, content=body, headers=headers)
    try:
        answer = await http.send(request, stream=True)
    except httpx.HTTPError as error:
        raise AssertionError(f"{method} {target}: {type(error).__name__}") from error
    try:
        kind = answer.headers.get("content-type", "")
        if answer.is_success and kind.startswith("text/event-stream"):
            shown: Any = "events"
        else:
            async with asyncio.timeout(HEAD_S):
                shown = _shape_of(kind, await answer.aread())
    finally:
        await answer.aclose()
    return {"status": answer.status_code, "headers": _headers(answer), "body": shown}


def _headers(answer: httpx.Response) -> list[str]:
    found = set()
    for name, value in answer.headers.items():
        if name in _SHOWN:
            found.add(f"{name}: {value}")
        elif name not in _PASSED_OVER:
            found.add(name)
    return sorted(found)


def _shape_of(kind: str, content: bytes) -> Any:
    if not content:
        return "nothing"
    if "json" not in kind or "jsonl" in kind or "ndjson" in kind:
        return "bytes"
    value = json.loads(content)
    if "openapi" in value:
        return "the document"
    if "problem" in kind:
        known = {name: value[name] for name in ("code", "reason", "fault") if name in value}
        return {"problem": known, "fields": sorted(value)}
    return shape(value)


def shape(value: Any) -> Any:
    """Names and types. A list has one shape: what any of its elements may be."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return [functools.reduce(merged, map(shape, value))] if value else []
        case dict():
            return {name: shape(one) for name, one in sorted(value.items())}
    raise TypeError(type(value))


def merged(one: Any, other: Any) -> Any:
    """What is either of two shapes."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return {name: merged(one.get(name, "absent"), other.get(name, "absent")) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [functools.reduce(merged, [*one, *other])] if one or other else []
    if one == other:
        return one
    return " | ".join(sorted({*_words(one), *_words(other)}))


def _words(shown: Any) -> list[str]:
    if isinstance(shown, str):
        return shown.split(" | ")
    return ["object" if isinstance(shown, dict) else "list"]


class _counted:
    """The kinds of counters that requests were counted in meanwhile: by address, key, account."""

    def __init__(self, served: Served) -> None:
        self._limiter = served.platform.limiter
        self._admit = self._limiter.admit
        self._kinds: list[str] = []

    def __enter__(self) -> list[str]:
        def admit(quotas: Any, **words: Any) -> None:
            self._kinds.extend(one.name.partition(":")[0] for one in quotas)
            self._admit(quotas, **words)

        self._limiter.admit = admit  # type: ignore[method-assign]
        return self._kinds

    def __exit__(self, *_: object) -> None:
        del self._limiter.admit  # type: ignore[method-assign]


async def _audit_end(served: Served) -> int:
    found = await served.platform.store.read(
        lambda conn: conn.execute(select(func.max(audit_log.c.seq))).scalar()
    )
    return int(found or 0)


async def _audit_since(served: Served, seq: int) -> list[str]:
    wanted = select(audit_log.c.action).where(audit_log.c.seq > seq).order_by(audit_log.c.seq)
    return await served.platform.store.read(lambda conn: list(conn.execute(wanted).scalars()))
