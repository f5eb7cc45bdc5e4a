"""The paper's canonical form, and keys that are suspended or over: who is told what, and when."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.identity.authenticate import canonical_paper, canonical_v1, canonical_v2, sign
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import NewKey
from sandboxer.kernel.errors import Unauthenticated
from tests.support.identity import Gate, Signed


def paper(key: NewKey, **parts: object) -> Signed:
    request = Signed(key=key, **parts)  # type: ignore[arg-type]
    canonical = canonical_paper(request.timestamp, request.method, request.path, request.body)
    request.headers = {
        "x-api-key": key.public_key,
        "x-timestamp": request.timestamp,
        "x-signature": sign(key.secret_key.encode(), canonical),
    }
    return request


async def refused(gate: Gate, request: Signed, *extra: tuple[bytes, bytes]) -> object:
    with pytest.raises(Unauthenticated) as caught:
        await gate.check(request, extra)
    assert caught.value.facts["hint"]
    return caught.value.facts["reason"]


async def test_the_papers_form_is_let_in_where_the_key_allows(gate: Gate) -> None:
    assert (await gate.check(paper(gate.alice))).caller.account == "alice"
    assert (await gate.check(paper(gate.alice, body=b"", method="GET"))).caller.account == "alice"
    # A colon is no trouble here.
    await gate.check(paper(gate.alice, path="/v1/x:y"))
    assert await refused(gate, paper(gate.bob)) == "v1_not_allowed"


def test_the_form_is_the_papers_word_for_word() -> None:
    digest = hashlib.sha256(b"{}").hexdigest()
    assert canonical_paper("1700000000", "POST", "/a", b"{}") == f"POST/a1700000000{digest}".encode()


@pytest.mark.parametrize(
    ("part", "value"),
    [("method", "PUT"), ("path", "/v1/keys"), ("body", b"other"), ("body", b"")],
)
async def test_a_changed_request_is_refused(gate: Gate, part: str, value: object) -> None:
    request = paper(gate.alice)
    setattr(request, part, value)
    assert await refused(gate, request) == "bad_signature"


async def test_a_digit_cannot_move_between_path_and_timestamp(gate: Gate) -> None:
    request = paper(gate.alice, path="/v1/x1")
    request.path = "/v1/x"
    request.headers["x-timestamp"] = "1" + request.timestamp
    assert await refused(gate, request) in ("clock_skew", "missing")


async def test_other_versions_signatures_are_worth_nothing_in_this_form(gate: Gate) -> None:
    for version in ("v1", "v2"):
        request = getattr(Signed(key=gate.alice), version)()
        request.headers = {
            "x-api-key": gate.alice.public_key,
            "x-timestamp": request.headers["x-timestamp"],
            "x-signature": request.headers["x-signature"],
        }
        assert await refused(gate, request) == "bad_signature"
    request = paper(gate.alice)
    request.headers["authorization"] = "Bearer " + request.headers.pop("x-api-key")
    assert await refused(gate, request) == "bad_signature"


async def test_two_names_for_the_caller_are_refused(gate: Gate) -> None:
    request = paper(gate.alice)
    both = (b"authorization", f"Bearer {gate.alice.public_key}".encode())
    assert await refused(gate, request, both) == "missing"
    again = (b"x-api-key", gate.alice.public_key.encode())
    assert await refused(gate, request, again) == "missing"


async def test_an_unknown_or_malformed_key_is_refused(gate: Gate) -> None:
    for value, reason in (("", "missing"), ("a b", "missing"), ("nobody", "unknown_key")):
        request = paper(gate.alice)
        request.headers["x-api-key"] = value
        assert await refused(gate, request) == reason


parts = st.text(st.sampled_from("0123456789/:abv2GETPOST"), max_size=12)


@given(parts, parts, st.binary(max_size=20), parts, parts, st.binary(max_size=20))
def test_no_two_requests_share_a_canonical_text(
    path: str, nonce: str, body: bytes, path2: str, nonce2: str, body2: bytes
) -> None:
    def forms(path: str, nonce: str, body: bytes) -> dict[str, bytes]:
        digest = hashlib.sha256(body).hexdigest()
        return {
            "paper": canonical_paper("1700000000", "POST", "/" + path, body),
            "v1": canonical_v1("1700000000", "POST", "/" + path.replace(":", ""), body),
            "v2": canonical_v2("1700000000", nonce.replace(":", ""), "POST", "/" + path, digest),
        }

    one, two = forms(path, nonce, body), forms(path2, nonce2, body2)
    for name, text in one.items():
        for other, text2 in two.items():
            if name != other:
                assert text != text2
    if (path, body) != (path2, body2):
        assert one["paper"] != two["paper"]


@pytest.mark.parametrize("version", ["v1", "v2", "paper"])
async def test_only_who_holds_the_secret_learns_that_a_key_is_suspended_or_over(
    gate: Gate, version: str
) -> None:
    def request() -> Signed:
        if version == "paper":
            return paper(gate.alice)
        return getattr(Signed(key=gate.alice), version)()  # type: ignore[no-any-return]

    life = KeyLife(gate.keys, gate.keys._store, gate.clock)
    await life.suspend(gate.alice.public_key, why="abuse", actor="op")
    assert await refused(gate, request()) == "suspended"
    forged = request()
    forged.headers["x-signature"] = "0" * 64
    assert await refused(gate, forged) == "bad_signature"
    await life.unsuspend(gate.alice.public_key, actor="op")
    await life.set_expiry(gate.alice.public_key, gate.clock.now(), actor="op")
    assert await refused(gate, request()) == "expired"
    # None of the refusals used up the nonce.
    await life.set_expiry(gate.alice.public_key, gate.clock.now() + timedelta(days=1), actor="op")
    await gate.check(request())


async def test_a_regenerated_secret_ends_what_the_old_one_signs(gate: Gate) -> None:
    old = Signed(key=gate.bob).v2()
    life = KeyLife(gate.keys, gate.keys._store, gate.clock)
    new = await life.regenerate(gate.bob.public_key, account="bob", actor="x")
    assert await refused(gate, old) == "bad_signature"
    await gate.check(Signed(key=new).v2())
