"""What a client of E2B could try: links that open more than a file, bodies that cost more than they say."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import pytest

from sandboxer.edges.e2b.code import _part
from sandboxer.edges.e2b.connect import END, envelope
from sandboxer.edges.e2b.multipart import unpacked
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import Keys
from sandboxer.identity.sandbox_tokens import MOST_SIGNERS, SandboxTokens
from sandboxer.identity.seal import Seal
from sandboxer.kernel.budget import MAX_MARKS
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import InvalidRequest, Unauthenticated
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.store.engine import Store
from sandboxer.wire.e2b import api_key_of
from sandboxer.work.sessions.cells import Result
from sandboxer.work.watchers import MOST_BYTES, MOST_OF_A_SANDBOX
from tests.support.e2b import new_api_key
from tests.support.platforms import Up

STREAM = "application/connect+json"


@dataclass(frozen=True)
class Box:
    """A sandbox, and raw requests to its daemon."""

    http: httpx.Client
    key: str
    id: str
    token: str

    def ask(self, method: str, path: str, **more: object) -> httpx.Response:
        headers = {"E2b-Sandbox-Id": self.id, "X-Access-Token": self.token, **more.pop("headers", {})}  # type: ignore[dict-item]
        return self.http.request(method, f"/e2b/envd{path}", headers=headers, **more)  # type: ignore[arg-type]

    def by_link(self, method: str, path: str, query: str, **more: object) -> httpx.Response:
        headers = {"E2b-Sandbox-Id": self.id, **more.pop("headers", {})}  # type: ignore[dict-item]
        return self.http.request(method, f"/e2b/envd{path}?{query}", headers=headers, **more)  # type: ignore[arg-type]

    def call(self, method: str, **body: object) -> httpx.Response:
        return self.ask("POST", f"/filesystem.Filesystem/{method}", json=body)

    def link(self, does: str, path: str, **more: str) -> str:
        """The query of an address that the token signed."""
        said = f"{path}:{does}::{self.token}"
        signature = base64.b64encode(hashlib.sha256(said.encode()).digest()).decode().rstrip("=")
        return urlencode({"path": path, "signature": f"v1_{signature}", **more})

    def exists(self, path: str) -> bool:
        return self.call("Stat", path=path).status_code == 200


@pytest.fixture(scope="module")
def http(up: Up) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=up.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def box(up: Up, http: httpx.Client) -> Box:
    key = new_api_key(up, "attacked")
    made = http.post("/e2b/sandboxes", headers={"X-API-Key": key}, json={"templateID": "base"}).json()
    return Box(http, key, made["sandboxID"], made["envdAccessToken"])


def test_a_link_to_a_file_opens_that_file_and_nothing_else(box: Box) -> None:
    write, read = box.link("write", "/home/user/mine"), box.link("read", "/home/user/mine")
    assert box.by_link("POST", "/files", write, content=b"by link").status_code == 200
    assert box.by_link("GET", "/files", read).text == "by link"
    start = envelope(json.dumps({"process": {"cmd": "/bin/true"}}).encode())
    for path, more in (
        ("/process.Process/Start", {"content": start, "headers": {"Content-Type": STREAM}}),
        ("/process.Process/List", {"json": {}}),
        ("/filesystem.Filesystem/Remove", {"json": {"path": "/home/user/mine"}}),
        ("/filesystem.Filesystem/ListDir", {"json": {"path": "/"}}),
        ("/execute", {"json": {"code": "1"}}),
    ):
        assert box.by_link("POST", path, write, **more).status_code == 401, path
    for path in ("/health", "/contexts"):
        assert box.by_link("GET", path, read).status_code == 401, path
    assert box.exists("/home/user/mine")


def test_a_link_to_one_file_writes_no_other_by_the_names_in_a_form(box: Box) -> None:
    files = [("file", ("a", b"first")), ("file", ("/home/user/.profile", b"evil"))]
    sent = box.by_link("POST", "/files", box.link("write", "/home/user/named"), files=files)
    assert sent.status_code == 400, sent.text
    assert not box.exists("/home/user/.profile")


def test_a_link_is_for_the_user_it_was_signed_for(box: Box) -> None:
    box.ask("POST", "/files?path=/home/user/notes", content=b"of user")
    box.ask("POST", "/files?path=/root/notes", content=b"of root")
    as_root = {"Authorization": "Basic " + base64.b64encode(b"root:").decode()}
    assert box.by_link("GET", "/files", box.link("read", "notes"), headers=as_root).text == "of user"


def test_numbers_without_end_are_refused_and_not_our_fault(box: Box) -> None:
    many = "9" * 5000
    link = box.link("read", "/home/user/mine", signature_expiration=many)
    assert box.by_link("GET", "/files", link).status_code == 401
    start = envelope(json.dumps({"process": {"cmd": "/bin/true"}}).encode())
    headers = {"Content-Type": STREAM, "Connect-Timeout-Ms": many, "Keepalive-Ping-Interval": many}
    began = box.ask("POST", "/process.Process/Start", content=start, headers=headers)
    assert (began.status_code, b'"pid"' in began.content) == (200, True), began.text


def test_a_message_of_a_stream_has_no_more_structure_than_a_body(box: Box) -> None:
    many = b'{"x":[' + b"0," * 3 * MAX_MARKS + b"0]}"
    body = envelope(many) + envelope(b"{}", END)
    told = box.ask("POST", "/process.Process/StreamInput", content=body, headers={"Content-Type": STREAM})
    assert b"resource_exhausted" in told.content, told.text


def test_a_stream_that_goes_on_after_its_end_is_refused(box: Box) -> None:
    """Thousands of ends in each piece of it, passed over, kept everybody else waiting for seconds."""
    body, headers = envelope(b"", END), {"Content-Type": STREAM}
    told = box.ask("POST", "/process.Process/StreamInput", content=body * 20_000, headers=headers)
    assert "goes on after its end" in told.text
    told = box.ask("POST", "/process.Process/StreamInput", content=body, headers=headers)
    assert "error" not in told.text


def test_input_that_ends_in_the_middle_of_a_message_is_not_answered_for(box: Box) -> None:
    for body in (b"not", envelope(b"{}") + envelope(b"{}")[:-1]):
        headers = {"Content-Type": STREAM}
        told = box.ask("POST", "/process.Process/StreamInput", content=body, headers=headers)
        assert b"invalid_argument" in told.content, told.text


def test_no_more_watchers_are_opened_at_once_than_one_after_the_other(box: Box) -> None:
    with ThreadPoolExecutor(MOST_OF_A_SANDBOX * 2) as crowd:
        opened = [*crowd.map(lambda _: box.call("CreateWatcher", path="/home"), range(MOST_OF_A_SANDBOX * 2))]
    ids = [one.json()["watcherId"] for one in opened if one.status_code == 200]
    for one in ids:
        assert box.call("RemoveWatcher", watcherId=one).status_code == 200
    assert len(ids) == MOST_OF_A_SANDBOX


def test_a_watcher_keeps_a_bounded_part_of_what_it_saw(box: Box) -> None:
    folder = "/home/user/" + "/".join("d" * 250 for _ in range(4))
    assert box.call("MakeDir", path=folder).status_code == 200
    watcher = box.call("CreateWatcher", path=folder).json()["watcherId"]
    for start in range(0, 600, 100):
        files = [("file", (f"{folder}/{no:0240}", b"")) for no in range(start, start + 100)]
        assert box.ask("POST", "/files", files=files).status_code == 200
    seen = box.call("GetWatcherEvents", watcherId=watcher).json()["events"]
    assert seen[-1]["name"].endswith("599")
    assert len(seen) * 1200 < MOST_BYTES * 1.2
    box.call("RemoveWatcher", watcherId=watcher)


def test_a_repeated_create_answers_each_key_with_its_own_token(up: Up, http: httpx.Client) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        pairs = [owner.keys.create(name, "twice") for name in ("first", "second")]
        first, second = (api_key_of(owner.keys.issue_bearer(one.public_key).bearer_token) for one in pairs)

        def create(key: str) -> dict[str, str]:
            headers = {"X-API-Key": key, "Idempotency-Key": "both"}
            made = http.post("/e2b/sandboxes", headers=headers, json={"templateID": "base"})
            assert made.status_code == 201, made.text
            return dict(made.json())

        mine, theirs, again = create(first), create(second), create(first)
        assert mine["sandboxID"] == theirs["sandboxID"]
        assert mine["envdAccessToken"] == again["envdAccessToken"] != theirs["envdAccessToken"]
        owner.keys.revoke(pairs[0].public_key)
    for made, status in ((mine, 401), (theirs, 204)):
        headers = {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}
        assert http.get("/e2b/envd/health", headers=headers).status_code == status


async def test_who_signed_is_found_among_a_bounded_number_of_keys(store: Store) -> None:
    keys = Keys(store, Seal(b"k" * 32))
    tokens, life = SandboxTokens(keys, store, b"secret"), KeyLife(keys, store, SystemClock())
    made = [await keys.create("acc", str(no)) for no in range(MOST_SIGNERS + 2)]
    for one in made:
        await life.issue_bearer(one.public_key, account=None, actor="test")
    callers = [found.caller for one in made if (found := await keys.find(one.public_key)) is not None]
    maker, second, newest = callers[0], callers[1], callers[-1]
    tried: list[str] = []

    async def signer(token: str) -> str:
        tried.clear()

        def is_signed(given: str) -> bool:
            tried.append(given)
            return given == token

        return (await tokens.signer("sbx_1", "acc", maker.public_key, is_signed)).public_key

    assert await signer(tokens.of(maker, "sbx_1")) == maker.public_key
    assert len(tried) == 1
    assert await signer(tokens.of(newest, "sbx_1")) == newest.public_key
    with pytest.raises(Unauthenticated):
        await signer(tokens.of(second, "sbx_1"))
    assert len(tried) == MOST_SIGNERS
    await keys.revoke(newest.public_key)
    with pytest.raises(Unauthenticated):
        await signer(tokens.of(newest, "sbx_1"))


async def _pieces(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def test_what_follows_a_packed_body_is_not_gathered() -> None:
    packed = gzip.compress(b"a" * 300_000)
    assert b"".join([one async for one in unpacked(_pieces(packed[:50], packed[50:]))]) == b"a" * 300_000
    for rest in ((packed, os.urandom(65_536)), (packed + b"more",)):
        with pytest.raises(InvalidRequest, match="after its end"):
            async for _ in unpacked(_pieces(*rest)):
                pass


def test_json_that_code_shows_is_left_out_when_reading_it_would_cost_too_much() -> None:
    def shown(text: str) -> dict[str, object]:
        line = _part(Result({"text/plain": "t", "application/json": text}, is_main=True), {}, "python")
        assert line is not None
        return dict(json.loads(line.text))

    assert shown('{"a": [1]}')["json"] == {"a": [1]}
    for hostile in ("[" * 100_000, "[" + "0," * 3 * MAX_MARKS + "0]", "no json"):
        assert shown(hostile).keys() == {"type", "is_main_result", "text"}
