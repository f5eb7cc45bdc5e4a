"""Nobody passes unsigned: attacks over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import time

import httpx
import pytest

from sandboxer.edges.http import authentication
from sandboxer.edges.http.app import all_bindings
from sandboxer.wire.operations.declaration import Access
from sandboxer.wire.operations.table import OPERATIONS
from tests.support.http.served import Served
from tests.support.http.signed import Credentials, target

UNSIGNED = {
    "/",
    "/llms.txt",
    "/.well-known/sandboxer.json",
    "/health",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/v1/capabilities",
    "/v1/pricing",
    "/v1/languages",
    "/v1/shells",
    "/pricing-for-agents.json",
}
# Where a caller proves itself by what it sends.
PROVING = {
    ("POST", "/v1/auth/challenge"),
    ("POST", "/v1/auth/session"),
    ("GET", "/v1/auth/siwx"),
    ("POST", "/v1/auth/siwx"),
    ("POST", "/v1/keys/validate"),
    ("POST", "/v1/keys/{public_key}/reveal"),
}
# For anyone, or for whoever knows an id, four words or a link that cannot be guessed.
OPEN = {
    # Asked by the TLS edge: is this name ours? Without a name it is not a question.
    ("GET", "/v1/edge/ask"),
    ("GET", "/.well-known/x402"),
    ("GET", "/discovery/resources"),
    ("GET", "/v1/rates"),
    ("GET", "/v1/languages/{name}"),
    ("GET", "/v1/payments/{payment_id}"),
    ("GET", "/v1/invoices/{invoice_id}"),
    ("GET", "/v1/invoices/{invoice_id}/qr.svg"),
    ("GET", "/v1/invoices/{invoice_id}/events"),
    ("GET", "/v1/gift-cards/pricing"),
    ("GET", "/v1/gift-cards/{card_id}"),
    ("GET", "/v1/gift-cards/redemptions/{redemption_id}"),
    ("POST", "/v1/gift-cards/balance"),
    ("GET", "/v1/gift-cards/approvals/{token}"),
    ("POST", "/v1/gift-cards/approvals/{token}/approve"),
    ("POST", "/v1/gift-cards/approvals/{token}/deny"),
}


def with_access(access: Access) -> set[str]:
    return {one.id for one in OPERATIONS if one.access is access}


async def test_the_unsigned_routes_are_exactly_the_documented_ones(served: Served) -> None:
    for binding in all_bindings():
        operation, method, path = binding.operation.id, binding.operation.method, binding.operation.path
        filled = path.replace("{sandbox_id}", "sbx_" + "0" * 26).replace("{card_id}", "gft_" + "0" * 26)
        for name in ("{process_id}", "{terminal_id}", "{public_key}", "{account_id}", "{address}"):
            filled = filled.replace(name, "x")
        answer = await served.client.http.request(method, filled)
        if path in UNSIGNED:
            assert answer.status_code == 200, operation
        elif (method, path) in PROVING:
            assert answer.status_code in (200, 422), operation
        elif (method, path) in OPEN:
            assert answer.status_code in (200, 404, 422), operation
        elif operation in with_access(Access.EITHER):
            # Without a body nothing is asked for; see test_gift_cards.
            assert answer.status_code == 422, operation
        elif operation in with_access(Access.PAYABLE):
            # Judged before it is asked for money, and this has no body; see test_paying.
            assert answer.status_code == 422, operation
        else:
            assert answer.status_code == 401, operation
            if method != "HEAD":
                assert answer.json()["code"] == "unauthenticated"
                assert answer.json()["reason"] == "missing"
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "path",
    ["/docs", "/redoc", "/v1", "/v1/none", "/health/", "/v1/capabilities/x", "/HEALTH"],
)
async def test_what_is_not_a_route_is_not_told_to_strangers_either(served: Served, path: str) -> None:
    answer = await served.client.http.get(path)
    assert answer.status_code == 401
    known = await served.client.get(path)
    assert known.status_code == 404
    assert known.json()["code"] == "no_such_route"
    assert known.headers["content-type"] == "application/problem+json"


async def test_unsigned_paths_take_no_other_method(served: Served) -> None:
    for path in UNSIGNED:
        assert (await served.client.http.post(path)).status_code == 401
        assert (await served.client.post(path)).status_code == 405


async def test_what_anybody_may_read_answers_head_as_get_without_a_body(served: Served) -> None:
    for path in UNSIGNED - {"/metrics"}:
        got, asked = await served.client.http.get(path), await served.client.http.head(path)
        assert (asked.status_code, asked.content) == (200, b""), path
        assert asked.headers["content-type"] == got.headers["content-type"]
    # The connection goes on: nothing of a body was sent that would be read as the next answer.
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(served.url).port)
    for method in (b"HEAD", b"HEAD", b"GET"):
        writer.write(method + b" /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 200 "), head
    writer.close()
    assert (await served.client.send("HEAD", "/v1/sandboxes")).status_code == 405


async def test_a_request_works_once(served: Served) -> None:
    request = served.client.request("GET", "/v1/sandboxes")
    assert (await served.client.http.send(request)).status_code == 200
    again = await served.client.http.send(request)
    assert again.status_code == 401
    assert again.json()["reason"] == "replayed"


async def test_a_replayed_create_makes_nothing(served: Served) -> None:
    request = served.client.request("POST", "/v1/sandboxes", body={})
    assert (await served.client.http.send(request)).status_code == 201
    assert (await served.client.http.send(request)).status_code == 401
    assert len(served.backend.boxes) == 1


async def test_a_signature_covers_method_path_and_query(served: Served) -> None:
    path = await served.sandbox()
    head = served.owner.head("GET", f"{path}/usage")
    for method, bent in (("GET", path), ("DELETE", f"{path}/usage"), ("GET", f"{path}/usage?x=1")):
        answer = await served.client.http.request(method, bent, headers=head)
        assert answer.status_code == 401, bent
        assert answer.json()["reason"] == "bad_signature"


async def test_a_wrong_body_has_no_effect(served: Served) -> None:
    digest = hashlib.sha256(b'{"name": "good"}').hexdigest()
    head = {**served.owner.head("POST", "/v1/sandboxes", digest), "content-type": "application/json"}
    answer = await served.client.http.post("/v1/sandboxes", content=b'{"name": "evil"}', headers=head)
    assert answer.status_code == 401
    assert answer.json()["reason"] == "body_mismatch"
    assert served.backend.boxes == {}


async def test_a_body_on_a_route_that_wants_none_is_checked_before_the_route_acts(served: Served) -> None:
    path = await served.sandbox()
    head = served.owner.head("DELETE", path)
    answer = await served.client.http.request("DELETE", path, content=b"not nothing", headers=head)
    assert answer.status_code == 401
    assert answer.json()["reason"] == "body_mismatch"
    assert (await served.client.get(path)).json()["state"] == "ready"


async def test_an_upload_whose_last_byte_is_wrong_leaves_the_old_file(served: Served) -> None:
    path = await served.sandbox()
    where = target(f"{path}/files/content", path="/workspace/f")
    assert (await served.client.put(where, b"old")).status_code == 200
    content = b"n" * 3_000_000
    head = served.owner.head("PUT", where, hashlib.sha256(content + b"!").hexdigest())
    answer = await served.client.http.put(where, content=content + b"?", headers=head)
    assert answer.status_code == 401
    assert answer.json()["reason"] == "body_mismatch"
    assert (await served.client.get(where)).content == b"old"


async def test_an_unknown_key_a_wrong_secret_and_a_wrong_clock_are_told_apart(served: Served) -> None:
    owner = served.owner
    cases = {
        "unknown_key": Credentials("sbx-pk-" + "0" * 26, owner.secret_key).head("GET", "/v1/keys"),
        "bad_signature": Credentials(owner.public_key, "sbx-sk-" + "0" * 52).head("GET", "/v1/keys"),
        "clock_skew": owner.head("GET", "/v1/keys", timestamp=str(int(time.time()) - 1000)),
        "bad_nonce": owner.head("GET", "/v1/keys", nonce="short"),
    }
    for reason, head in cases.items():
        answer = await served.client.http.get("/v1/keys", headers=head)
        assert answer.status_code == 401
        assert answer.json()["reason"] == reason
        assert answer.json()["next_step"]
    skewed = await served.client.http.get("/v1/keys", headers=cases["clock_skew"])
    assert abs(skewed.json()["server_time"] - time.time()) < 60


async def test_a_request_from_before_the_start_is_refused(served: Served) -> None:
    head = served.owner.head("GET", "/v1/keys", timestamp=str(int(time.time()) - 250))
    answer = await served.client.http.get("/v1/keys", headers=head)
    assert answer.status_code == 401
    assert answer.json()["reason"] == "before_start"


async def test_a_header_given_twice_is_refused(served: Served) -> None:
    for name in ("authorization", "x-nonce", "x-signature", "x-timestamp", "x-content-sha256"):
        head = list(served.owner.head("GET", "/v1/keys").items())
        head += [(name, dict(head)[name])]
        answer = await served.client.http.get("/v1/keys", headers=head)
        assert answer.status_code == 401, name


async def test_v1_works_for_the_owner_and_not_for_new_keys(served: Served) -> None:
    head = served.owner.head_v1("POST", "/v1/sandboxes", b"{}")
    head["content-type"] = "application/json"
    answer = await served.client.http.post("/v1/sandboxes", content=b"{}", headers=head)
    assert answer.status_code == 201, answer.text
    tampered = await served.client.http.post("/v1/sandboxes", content=b"{ }", headers=head)
    assert tampered.status_code == 401
    stranger = (await served.stranger()).credentials
    refused = await served.client.http.get("/v1/sandboxes", headers=stranger.head_v1("GET", "/v1/sandboxes"))
    assert refused.json()["reason"] == "v1_not_allowed"


async def test_v1_bodies_end_at_one_mebibyte(served: Served) -> None:
    path = await served.sandbox()
    where = target(f"{path}/files/content", path="/workspace/f")
    body = b"x" * (1024 * 1024 + 1)
    answer = await served.client.http.put(
        where, content=body, headers=served.owner.head_v1("PUT", where, body)
    )
    assert answer.status_code == 413
    fits = await served.client.http.put(
        where, content=body[:-1], headers=served.owner.head_v1("PUT", where, body[:-1])
    )
    assert fits.status_code == 200, fits.text


async def test_a_json_body_has_a_limit(served: Served) -> None:
    body = b" " * (authentication.MAX_BODY + 1)
    answer = await served.client.send("POST", "/v1/sandboxes", content=body)
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"


async def test_an_unsigned_body_is_not_even_read(served: Served) -> None:
    """Refused at the head: a stranger cannot make us take in its body."""
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"PUT /v1/sandboxes/x/files/content?path=/a HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n"
    )
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert b" 401 " in answer
    assert b"connection: close" in answer.lower()
    writer.close()


async def test_a_body_that_never_comes_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(authentication, "UPLOAD_PAUSE_S", 0.2)
    path = await served.sandbox()
    where = target(f"{path}/files/content", path="/workspace/f")
    for method, to in (("POST", "/v1/sandboxes"), ("PUT", where)):
        head = served.owner.head(method, to, hashlib.sha256(b"12345").hexdigest())
        answer = await _half_a_body(served, method, to, head)
        assert b" 408 " in answer, answer
    assert (await served.client.get(where)).status_code == 404
    assert len(served.backend.boxes) == 1


async def test_every_answer_has_an_id_and_safe_headers(served: Served) -> None:
    for answer in (
        await served.client.http.get("/health"),
        await served.client.http.get("/v1/sandboxes"),
        await served.client.get("/v1/nothing"),
        await served.client.post("/v1/sandboxes", {"name": 5}),
    ):
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    kept = await served.client.get("/v1/sandboxes", headers={"x-request-id": "my-own-id-1"})
    assert kept.headers["x-request-id"] == "my-own-id-1"
    replaced = await served.client.get("/v1/sandboxes", headers={"x-request-id": "no spaces; please"})
    assert replaced.headers["x-request-id"].startswith("req_")


async def test_an_error_of_ours_tells_nothing_else(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("kept-from-callers")

    monkeypatch.setattr(type(served.platform.keys), "list", broken)
    answer = await served.client.get("/v1/keys")
    assert answer.status_code == 500
    assert answer.json()["code"] == "broken"
    assert answer.json()["fault"] == "platform"
    assert "kept-from-callers" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


async def test_metrics_are_for_this_host_unless_set_otherwise(served: Served) -> None:
    assert (await served.client.http.get("/metrics")).status_code == 200
    forwarded = await served.client.http.get("/metrics", headers={"x-forwarded-for": "127.0.0.1"})
    assert forwarded.status_code == 403
    assert forwarded.json()["code"] == "forbidden"


async def test_broken_json_is_a_problem(served: Served) -> None:
    for body in (b"{", b"[]", b"\xff", b'{"name": "\\ud800"}', b"null", b"{" * 10_000):
        answer = await served.client.send(
            "POST", "/v1/sandboxes", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, body[:20]
        assert answer.json()["code"] == "invalid_request"


async def _half_a_body(served: Served, method: str, to: str, head: dict[str, str]) -> bytes:
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{method} {to} HTTP/1.1", "host: x", "content-length: 5", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in head.items()]
    writer.write("\r\n".join([*lines, "", "12"]).encode())
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize("signed", ["", "?"])
@pytest.mark.parametrize("sent", ["", "?"])
async def test_a_query_of_nothing_is_no_query_whichever_way_it_is_signed(
    served: Served, signed: str, sent: str
) -> None:
    """Clients, proxies and servers keep or drop a bare question mark as they like; it means the same."""
    head = served.owner.head("GET", "/v1/sandboxes" + signed)
    answer = await served.client.http.get("/v1/sandboxes" + sent, headers=head)
    assert answer.status_code == 200, answer.text
    # And it is one request all the same.
    again = await served.client.http.get("/v1/sandboxes" + sent, headers=head)
    assert again.json()["reason"] == "replayed"
    other = served.owner.head("GET", "/v1/sandboxes?limit=1")
    assert (await served.client.http.get("/v1/sandboxes" + sent, headers=other)).status_code == 401
    older = served.owner.head_v1("GET", "/v1/sandboxes" + signed)
    assert (await served.client.http.get("/v1/sandboxes" + sent, headers=older)).status_code == 200
