from __future__ import annotations

import hashlib
import hmac

from hypothesis import given
from hypothesis import strategies as st

from sandboxer.identity.authenticate import EMPTY_SHA256, canonical_v1, canonical_v2, matches, sign

timestamps = st.integers(1, 10**11).map(str)
nonces = st.text("ABCdef019_-", min_size=16, max_size=128)
methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"])
# Colons, percent signs and separators on purpose.
paths = st.text("abc:/?&=%25.", max_size=30).map(lambda rest: "/" + rest)
hashes = st.binary(max_size=5).map(lambda body: hashlib.sha256(body).hexdigest())
v2_parts = st.tuples(timestamps, nonces, methods, paths, hashes)


def test_the_v2_form_is_the_published_one() -> None:
    assert canonical_v2("1700000000", "n" * 16, "POST", "/v1/x?y=1", EMPTY_SHA256) == (
        b"v2:1700000000:nnnnnnnnnnnnnnnn:POST:/v1/x?y=1:"
        b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def test_the_v1_form_is_the_one_existing_clients_use() -> None:
    assert canonical_v1("1700000000", "POST", "/v1/x?y=1", b'{"a":1}') == b'1700000000:POST:/v1/x?y=1:{"a":1}'


def test_a_signature_is_lower_case_hex_hmac_sha256() -> None:
    expected = hmac.new(b"secret", b"text", hashlib.sha256).hexdigest()
    assert sign(b"secret", b"text") == expected == expected.lower()


@given(v2_parts, v2_parts)
def test_two_different_requests_never_share_a_v2_form(
    one: tuple[str, str, str, str, str], other: tuple[str, str, str, str, str]
) -> None:
    assert (canonical_v2(*one) == canonical_v2(*other)) == (one == other)


@given(v2_parts, timestamps, methods, paths, st.binary(max_size=200))
def test_no_v1_form_is_ever_a_v2_form(
    v2: tuple[str, str, str, str, str], timestamp: str, method: str, path: str, body: bytes
) -> None:
    assert canonical_v1(timestamp, method, path, body) != canonical_v2(*v2)


@given(timestamps, methods, paths, st.binary(max_size=50), paths, st.binary(max_size=50))
def test_without_colons_in_the_path_a_v1_form_names_one_request(
    timestamp: str, method: str, path: str, body: bytes, other_path: str, other_body: bytes
) -> None:
    path, other_path = path.replace(":", "%3A"), other_path.replace(":", "%3A")
    same = canonical_v1(timestamp, method, path, body) == canonical_v1(
        timestamp, method, other_path, other_body
    )
    assert same == ((path, body) == (other_path, other_body))


@given(st.text(max_size=70), st.text(max_size=70))
def test_matching_is_equality_and_never_raises(one: str, other: str) -> None:
    assert matches(one, other) == (one == other)
    assert matches(one, one)
