"""The client's signature, its bodies and its second tries, without a server."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import re
from pathlib import Path

import pytest

from sandboxer import sdk
from sandboxer.sdk import models
from sandboxer.sdk.bodies import CHUNK, body_of
from sandboxer.sdk.call import NOTHING, Call, target_of
from sandboxer.sdk.commands import MOST_EVENT, EventParser, ServerEvent
from sandboxer.sdk.credentials import EMPTY_SHA256, Credentials, find_credentials, new_nonce, signed_headers
from sandboxer.sdk.errors import (
    AuthenticationFailed,
    BrokenAnswer,
    Conflict,
    MissingCredentials,
    Unavailable,
    api_error,
)
from sandboxer.sdk.exchange import Signer, Tries, after_failure, after_refusal

KEY = Credentials("sbx-pk-1", "sbx-sk-1", "http://127.0.0.1:1")


def call(method: str = "GET", *, is_repeatable: bool = False) -> Call[None]:
    return Call(operation="x", method=method, target="/x", answer=NOTHING, is_repeatable=is_repeatable)


def test_the_signature_is_the_hmac_of_the_documented_line() -> None:
    headers = signed_headers(KEY, "POST", "/v1/x?a=1", "ab" * 32, timestamp=1700000000, nonce="n" * 16)
    line = f"v2:1700000000:{'n' * 16}:POST:/v1/x?a=1:{'ab' * 32}"
    assert headers["x-signature"] == hmac.new(b"sbx-sk-1", line.encode(), hashlib.sha256).hexdigest()
    assert headers["authorization"] == "Bearer sbx-pk-1"
    assert headers["x-timestamp"] == "1700000000"


def test_a_nonce_is_new_each_time_and_of_the_allowed_letters() -> None:
    nonces = {new_nonce() for _ in range(1000)}
    assert len(nonces) == 1000
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{16,128}", nonce) for nonce in nonces)


def test_the_secret_is_not_printed_with_the_credentials() -> None:
    assert "sbx-sk-1" not in repr(KEY)


def test_bodies_of_every_kind_know_their_hash_and_can_be_read_twice(tmp_path: Path) -> None:
    data = b"x" * (CHUNK + 17)
    path = tmp_path / "file"
    path.write_bytes(data)
    for content in (data, path, io.BytesIO(data), iter([data[:5], data[5:]])):
        body = body_of(content)
        assert body.sha256 == hashlib.sha256(data).hexdigest()
        assert body.length == len(data)
        assert b"".join(body.open()) == data
        assert b"".join(body.open()) == data


def test_a_file_that_grows_after_hashing_sends_only_what_was_hashed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one")
    body = body_of(path)
    path.write_bytes(b"one and more")
    assert b"".join(body.open()) == b"one"


def test_an_empty_body_has_the_hash_of_nothing() -> None:
    assert body_of(b"").sha256 == EMPTY_SHA256


def test_targets_quote_segments_and_queries_and_leave_out_what_is_absent() -> None:
    made = target_of(
        "/v1/sandboxes/{}/files", "a/b", path="/x y\udcff&", depth=None, follow=True, label=["a=1", "b=2"]
    )
    assert made == "/v1/sandboxes/a%2Fb/files?path=/x%20y%FF%26&follow=true&label=a%3D1&label=b%3D2"


def test_clock_skew_is_learnt_from_the_server_and_tried_once() -> None:
    signer = Signer(KEY, wall_clock=lambda: 1000.0)
    error = api_error(401, {"code": "unauthenticated", "reason": "clock_skew", "server_time": 5000})
    assert isinstance(error, AuthenticationFailed)
    assert after_refusal(signer, error, has_resigned=False) == 0.0
    assert signer.head("GET", "/", EMPTY_SHA256)["x-timestamp"] == "5000"
    assert after_refusal(signer, error, has_resigned=True) is None


def test_a_request_of_the_second_of_the_start_waits_a_second_and_is_signed_again() -> None:
    error = api_error(401, {"code": "unauthenticated", "facts": {"reason": "before_start"}})
    assert after_refusal(Signer(KEY), error, has_resigned=False) == 1.0


def test_a_wrong_key_is_not_tried_again() -> None:
    error = api_error(401, {"code": "unauthenticated", "reason": "unknown_key"})
    assert after_refusal(Signer(KEY), error, has_resigned=False) is None


def test_lost_connections_are_retried_only_where_repeating_is_safe() -> None:
    assert after_failure(call("GET"), 0, status=None) is not None
    assert after_failure(call("POST"), 0, status=None) is None
    assert after_failure(call("POST", is_repeatable=True), 0, status=None) is not None
    assert after_failure(call("GET"), 9, status=None) is None
    assert after_failure(call("GET"), 0, status=503) is None


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_platform_is_asked_again_when_it_says_and_only_what_may_be_repeated(status: int) -> None:
    keyed = call("POST", is_repeatable=True)
    assert after_failure(call("GET"), 0, status=status, retry_after="3") == 3.0
    assert after_failure(keyed, 1, status=status, retry_after="1") == 1.0
    assert after_failure(call("POST"), 0, status=status, retry_after="1") is None
    assert after_failure(keyed, 2, status=status, retry_after="1") is None
    assert after_failure(keyed, 0, status=status, retry_after="3600") is None
    assert after_failure(keyed, 0, status=status, retry_after="soon") is None
    assert after_failure(keyed, 0, status=500, retry_after="1") is None


def test_a_refusal_becomes_a_typed_error_with_code_fault_and_next_step() -> None:
    problem = {"code": "illegal_transition", "detail": "no", "fault": "caller", "next_step": "thaw it"}
    with pytest.raises(Conflict) as caught:
        Tries(Signer(KEY), call()).after_answer(409, {"x-request-id": "r1"}, json.dumps(problem).encode())
    assert (caught.value.code, caught.value.fault, caught.value.next_step) == (
        "illegal_transition",
        "caller",
        "thaw it",
    )
    assert caught.value.request_id == "r1"


def test_an_answer_that_is_no_problem_document_still_becomes_a_typed_error() -> None:
    with pytest.raises(Unavailable) as caught:
        Tries(Signer(KEY), call("POST")).after_answer(502, {}, b"<html>bad gateway</html>")
    assert caught.value.fault == "platform"


def test_credentials_come_from_arguments_then_environment_then_owner_file(tmp_path: Path) -> None:
    owner = tmp_path / "owner.json"
    owner.write_text(json.dumps({"public_key": "o", "secret_key": "s", "url": "http://o"}))
    env = {"SANDBOXER_PUBLIC_KEY": "e", "SANDBOXER_SECRET_KEY": "s", "SANDBOXER_URL": "http://e"}
    assert find_credentials(public_key="a", secret_key="s", environ=env).public_key == "a"
    assert find_credentials(environ=env) == Credentials("e", "s", "http://e")
    assert find_credentials(owner_file=owner, environ={}) == Credentials("o", "s", "http://o")
    assert find_credentials(environ={"SANDBOXER_CREDENTIALS": str(owner)}).public_key == "o"
    # A key of one's own beside the server's folder: the address is still to be found there.
    del env["SANDBOXER_URL"]
    mine = find_credentials(environ={**env, "SANDBOXER_STATE_DIR": str(tmp_path)})
    assert mine == Credentials("e", "s", "http://o")
    assert find_credentials(environ={**env, "SANDBOXER_STATE_DIR": "/none"}).url == "http://127.0.0.1:7777"


@pytest.mark.parametrize(
    "half",
    [
        {"SANDBOXER_PUBLIC_KEY": "e"},
        {"SANDBOXER_SECRET_KEY": "s"},
        {"SANDBOXER_PUBLIC_KEY": "e", "SANDBOXER_SECRET_KEY": "s", "SANDBOXER_API_KEY": "sk_1"},
    ],
)
def test_half_a_key_never_becomes_the_owners(tmp_path: Path, half: dict[str, str]) -> None:
    (tmp_path / "owner.json").write_text(json.dumps({"public_key": "o", "secret_key": "s"}))
    with pytest.raises(MissingCredentials, match="given"):
        find_credentials(environ={**half, "SANDBOXER_STATE_DIR": str(tmp_path)})


@pytest.mark.parametrize("url", ["http://192.0.2.7:7777", "http://sandboxes.invalid", "http://[2001:db8::1]"])
def test_a_bearer_token_is_not_sent_where_others_could_read_it(url: str) -> None:
    with pytest.raises(MissingCredentials, match="read"):
        sdk.Sandboxer(url=url, api_key="sk_1")
    for fine in (
        url.replace("http:", "https:"),
        "http://127.0.0.1:7777",
        "http://localhost",
        "http://[::1]:80",
    ):
        sdk.Sandboxer(url=fine, api_key="sk_1").close()
    sdk.Sandboxer(url=url, public_key="pk", secret_key="sk").close()


def test_a_bearer_token_is_sent_instead_of_a_signature() -> None:
    found = find_credentials(environ={"SANDBOXER_API_KEY": "sk_1", "SANDBOXER_STATE_DIR": "/none"})
    assert "sk_1" not in repr(found)
    assert Signer(found).head("GET", "/v1/x", EMPTY_SHA256) == {"authorization": "Bearer sk_1"}
    assert find_credentials(api_key="sk_2", environ={"SANDBOXER_PUBLIC_KEY": "e"}).bearer_token == "sk_2"


def test_missing_and_broken_owner_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MissingCredentials, match="does not exist"):
        find_credentials(owner_file=tmp_path / "none", environ={})
    (tmp_path / "bad").write_text("[]")
    with pytest.raises(MissingCredentials, match=r"not an owner\.json"):
        find_credentials(owner_file=tmp_path / "bad", environ={})


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_server_sent_events_are_put_together_from_pieces(size: int) -> None:
    parser = EventParser()
    text = ": ping\n\nid: 7\nevent: stdout\ndata: a\u2028ü\x85\r\ndata: b\n\n".encode()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    events = [event for piece in pieces for event in parser.feed(piece)]
    assert events == [ServerEvent("stdout", "a\u2028ü\x85\nb", "7")]


def test_an_event_without_an_end_is_given_up() -> None:
    for piece in (b"x" * 2**20, b"data: " + b"x" * 2**20 + b"\n"):
        parser = EventParser()
        for _ in range(MOST_EVENT // len(piece)):
            assert not [*parser.feed(piece)]
        with pytest.raises(BrokenAnswer, match="longer"):
            _ = [*parser.feed(piece), *parser.feed(piece)]


def test_everything_that_the_client_exports_is_there() -> None:
    assert all(getattr(sdk, name) for name in sdk.__all__)
    assert all(getattr(models, name) for name in models.__all__)
    assert models.WalletSession is not models.Session
