"""An attacker's suite over real sockets: nobody gets in, nothing of another tenant is visible."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.identity.authenticate import matches, sign
from sandboxer.identity.tables import wallet_sessions
from sandboxer.kernel.clock import SystemClock
from sandboxer.settings import Settings
from sandboxer.wire.operations.declaration import Access
from sandboxer.wire.operations.table import OPERATIONS
from tests.support.http.accounts import cut, funded
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client, Credentials
from tests.support.http.wallets import sign_in

NOBODY = "sbx-pk-" + "0" * 26


async def test_ids_of_others_look_like_ids_of_nothing(served: Served) -> None:
    mine, other = await funded(served, "mine"), await served.stranger("other")
    child = await cut(served, mine, budget_sats=10)
    theirs = mine.credentials.public_key
    box = (await mine.post("/v1/sandboxes", {})).json()["id"]
    for method, path, body in (
        ("GET", f"/v1/sandboxes/{box}", None),
        ("DELETE", f"/v1/sandboxes/{box}", None),
        ("POST", f"/v1/sandboxes/{box}/exec", {"argv": ["id"]}),
        ("GET", f"/v1/sandboxes/{box}/files?path=/", None),
        ("DELETE", f"/v1/keys/{theirs}", None),
        ("POST", f"/v1/keys/{theirs}/regenerate", None),
        ("DELETE", f"/v1/keys/{child.credentials.public_key}", None),
        ("POST", f"/v1/keys/{child.credentials.public_key}/top-up", {"sats": 1, "id": "x"}),
    ):
        answer = await other.send(method, path, body=body)
        guessed = await other.send(
            method,
            path.replace(box, "sbx_" + "0" * 26)
            .replace(theirs, NOBODY)
            .replace(child.credentials.public_key, NOBODY),
            body=body,
        )
        assert (answer.status_code, guessed.status_code) == (404, 404), path
        assert answer.json()["code"] == guessed.json()["code"]


async def test_no_list_shows_anything_of_another_tenant(served: Served) -> None:
    mine, other = await funded(served, "mine"), await served.stranger("other")
    child = await cut(served, mine, budget_sats=10)
    box = (await mine.post("/v1/sandboxes", {"name": "secret-name"})).json()["id"]
    session = await sign_in(served.client.http, "alice")
    marks = ("secret-name", box, '"mine', "bucket:mine", mine.credentials.public_key)
    marks += (child.credentials.public_key,)
    lists = ("/v1/sandboxes", "/v1/keys", "/v1/keys/tree", "/v1/transfers", "/v1/usage", "/v1/auth/wallets")
    for path in (*lists, "/v1/transfers?format=csv", "/v1/usage?format=csv", "/v1/accounts/me"):
        for seen in (await other.get(path), await session.send("GET", path)):
            assert seen.status_code == 200, path
            assert not [mark for mark in marks if mark in seen.text], path
    for path in ("/v1/transfers?of=mine", "/v1/usage?of=mine", "/v1/transfers?of=nobody"):
        assert (await other.get(path)).status_code == 403


async def test_only_the_operator_reaches_the_operators_routes(served: Served) -> None:
    other, session = await funded(served, "other"), await sign_in(served.client.http, "alice")
    why = {"reason": "attack"}
    for method, path, body in (
        ("GET", "/v1/accounts", None),
        ("POST", "/v1/accounts", why),
        ("GET", "/v1/accounts/owner", None),
        ("POST", "/v1/accounts/other/adjust", {**why, "sats": 10**6, "id": "x"}),
        ("POST", "/v1/accounts/other/entitle", {**why, "tier": 32, "until": "2100-01-01T00:00:00Z"}),
        ("POST", "/v1/accounts/owner/suspend", why),
        ("POST", "/v1/accounts/other/close", why),
        ("PUT", "/v1/accounts/other/caps", {**why, "caps": {}}),
        ("POST", "/v1/payouts", {**why, "sats": 1, "id": "x"}),
        ("GET", "/v1/ledger/verify", None),
        ("GET", "/v1/ledger/totals", None),
        ("GET", "/v1/audit", None),
        ("GET", "/v1/audit/export", None),
        ("GET", "/v1/audit/verify", None),
        ("POST", f"/v1/keys/{other.credentials.public_key}/unsuspend", None),
        ("PUT", f"/v1/keys/{other.credentials.public_key}/expiry", {}),
    ):
        for answer in (await other.send(method, path, body=body), await session.send(method, path, body)):
            assert answer.status_code == 403, (path, answer.text)


async def test_a_delegated_key_grows_on_no_axis(served: Served) -> None:
    root = await funded(served, "root")
    child = await cut(
        served,
        root,
        budget_sats=100,
        depth=1,
        slots=2,
        expires_at="2100-01-01T00:00:00Z",
        caps={"per_day_sats": 50},
    )
    base = {"name": "grandchild", "scopes": ["account:read"], "slots": 1}
    for grown, status in (
        ({"scopes": ["exec"]}, 403),
        ({"scopes": ["account:manage"]}, 403),
        ({"scopes": ["no:such"]}, 422),
        ({"depth": 1}, 403),
        ({"slots": 3}, 403),
        ({"slots": None}, 403),
        ({"expires_at": "2100-01-01T00:00:01Z"}, 403),
        ({"budget_sats": 51}, 403),
        ({"budget_sats": 10**9}, 403),
        ({"budget_sats": -1}, 422),
    ):
        answer = await child.post("/v1/keys/delegated", {**base, **grown})
        assert answer.status_code == status, (grown, answer.text)
    assert (await child.post("/v1/keys", {"name": "sibling"})).status_code == 403
    to = (await root.get("/v1/accounts/me")).json()["account"]["public_id"]
    gift = {"to": to, "sats": 1, "id": "x", "reason": "out"}
    assert (await child.post("/v1/transfers", gift)).status_code == 403
    assert (await child.delete(f"/v1/keys/{root.credentials.public_key}")).status_code == 404
    assert (await child.delete(f"/v1/keys/{child.credentials.public_key}")).status_code != 403


async def test_what_a_key_cut_acts_no_longer_than_the_key_itself(served: Served) -> None:
    root = await funded(served, "root")
    child = await cut(served, root, budget_sats=100, depth=1)
    grandchild = await cut(served, child, budget_sats=10, scopes=["account:read"])
    key = f"/v1/keys/{root.credentials.public_key}"
    expired = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()

    async def seen() -> list[int]:
        return [(await one.get("/v1/accounts/me")).status_code for one in (child, grandchild)]

    for method, path, body, statuses in (
        ("POST", f"{key}/suspend", {"why": "lost"}, [403, 403]),
        ("POST", f"{key}/unsuspend", None, [200, 200]),
        ("PUT", f"{key}/expiry", {"expires_at": expired}, [403, 403]),
        ("PUT", f"{key}/expiry", {}, [200, 200]),
    ):
        assert (await served.client.send(method, path, body=body)).status_code == 204
        assert await seen() == statuses, path


async def test_a_delegated_key_without_a_scope_is_refused_by_the_name_of_the_scope(served: Served) -> None:
    root = await funded(served, "root")
    child = await cut(served, root, scopes=["account:read"])
    for method, path, scope in (
        ("GET", "/v1/sandboxes", "sandboxes:read"),
        ("POST", "/v1/sandboxes", "sandboxes:create"),
        ("POST", "/v1/sandboxes/sbx_x/exec", "exec"),
        ("PUT", "/v1/sandboxes/sbx_x/files/content?path=/x", "files:write"),
        ("POST", "/v1/keys/delegated", "keys:delegate"),
    ):
        answer = await child.send(method, path)
        assert (answer.status_code, answer.json().get("scope")) == (403, scope), path
    assert (await child.get("/v1/accounts/me")).json()["scopes"] == ["account:read"]


def test_what_gives_or_takes_for_others_is_closed_to_delegated_keys() -> None:
    signed = [one for one in OPERATIONS if one.access not in (Access.UNSIGNED, Access.LOOPBACK)]
    closed = {one.id for one in signed if one.needs.is_never_delegated}
    assert {"createAccount", "adjustAccount", "payOut", "exportAudit", "inspectHost"} <= closed
    assert not closed & {"runCommand", "createSandbox", "listFiles", "showMe", "cutKey", "askQuote"}


async def test_a_suspended_parent_silences_its_children(served: Served) -> None:
    root = await funded(served, "root")
    child = await cut(served, root, budget_sats=10)
    assert (await child.get("/v1/accounts/me")).status_code == 200
    await served.client.post("/v1/accounts/root/suspend", {"reason": "abuse"})
    refused = await child.get("/v1/accounts/me")
    assert refused.status_code == 403
    assert "abuse" not in refused.text


async def test_concurrent_cuts_never_give_more_than_there_is(served: Served) -> None:
    root = await funded(served, "root", 1_000)
    body = {"name": "c", "scopes": ["account:read"], "budget_sats": 300}
    async with asyncio.TaskGroup() as group:
        cuts = [group.create_task(root.post("/v1/keys/delegated", body)) for _ in range(8)]
    codes = sorted(one.result().status_code for one in cuts)
    assert codes == [201] * 3 + [402] * 5
    assert (await served.client.get("/v1/ledger/verify")).json()["is_whole"]


async def test_slots_hold_for_creates_and_cuts_at_once(served: Served) -> None:
    root = await funded(served, "root")
    child = await cut(served, root, slots=3, depth=1, budget_sats=100)
    grandchild = {"name": "g", "scopes": ["account:read"], "slots": 1}
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(child.post("/v1/sandboxes", {})) for _ in range(4)]
        tries += [group.create_task(child.post("/v1/keys/delegated", grandchild)) for _ in range(4)]
    codes = sorted(one.result().status_code for one in tries)
    assert codes == [201] * 3 + [403] * 5
    refused = await child.post("/v1/sandboxes", {})
    assert refused.json()["reason"] == "no_slots"


async def test_a_v2_request_is_not_accepted_as_v1(served: Served) -> None:
    body = json.dumps({"name": "k", "account": "old", "accepts_v1": True}).encode()
    old = (await served.client.send("POST", "/v1/keys", body=json.loads(body))).json()
    new = (await served.stranger("new")).credentials
    for secret, accepted in ((old["secret_key"], True), (new.secret_key, False)):
        public = old["public_key"] if accepted else new.public_key
        stamp = str(int(time.time()))
        line = f"{stamp}:GET:/v1/sandboxes:".encode()
        head = {
            "authorization": f"Bearer {public}",
            "x-timestamp": stamp,
            "x-signature": hmac.new(secret.encode(), line, "sha256").hexdigest(),
        }
        answer = await served.client.http.get("/v1/sandboxes", headers=head)
        assert (answer.status_code == 200) is accepted
    # A v2 signature with the nonce and hash taken away, for a key that takes both.
    request = Client(served.client.http, type(served.owner)(old["public_key"], old["secret_key"])).request(
        "GET", "/v1/sandboxes"
    )
    for name in ("x-nonce", "x-content-sha256"):
        del request.headers[name]
    assert (await served.client.http.send(request)).status_code == 401


@pytest.mark.parametrize(
    "bend", ["truncate", "append", "reencode", "reorder_query", "swap_nonce", "repeat_header"]
)
async def test_a_bent_request_is_refused(served: Served, bend: str) -> None:
    path = "/v1/transfers?limit=5&format=json"
    http = served.client.http
    body = b'{"duration":"1h"}'
    digest = hashlib.sha256(body).hexdigest()
    if bend in ("truncate", "append"):
        head = served.owner.head("POST", "/v1/quotes", digest) | {"content-type": "application/json"}
        sent = body[:-1] if bend == "truncate" else body + b" "
        answer = await http.post("/v1/quotes", content=sent, headers=head)
    elif bend == "reencode":
        answer = await http.get(path.replace("json", "%6Ason"), headers=served.owner.head("GET", path))
    elif bend == "reorder_query":
        answer = await http.get("/v1/transfers?format=json&limit=5", headers=served.owner.head("GET", path))
    elif bend == "swap_nonce":
        head = served.owner.head("GET", path) | {"x-nonce": "another-nonce-0123456789"}
        answer = await http.get(path, headers=head)
    else:
        twice = [*served.owner.head("GET", path).items(), ("x-nonce", "another-nonce-0123456789")]
        answer = await http.get(path, headers=twice)
    assert answer.status_code == 401, answer.text


async def test_one_nonce_passes_once_also_for_many_at_once(served: Served) -> None:
    head = served.owner.head("GET", "/v1/sandboxes", nonce="one-nonce-for-all-of-them")
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(served.client.http.get("/v1/sandboxes", headers=head)) for _ in range(10)]
    assert sorted(one.result().status_code for one in tries) == [200] + [401] * 9


async def test_forged_and_foreign_tokens_open_nothing(
    served: Served, tmp_path_factory: pytest.TempPathFactory
) -> None:
    session = await sign_in(served.client.http, "alice")
    elsewhere = Settings(state_dir=tmp_path_factory.mktemp("elsewhere") / "state", port=0)
    async with serving(elsewhere, {"ext.namespaces": Scripted(name="ext.namespaces")}) as other:
        foreign = (await sign_in(other.client.http, "alice")).token
    token = session.token
    middle = len(token) // 2
    flipped = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    for forged in (
        foreign,
        flipped,
        token[:-4],
        token + "AAAA",
        "v4.local.",
        token.replace("v4.local", "v4.public"),
        token.replace("v4.local", "v3.local"),
    ):
        answer = await served.client.http.get("/v1/sandboxes", headers={"authorization": f"Bearer {forged}"})
        assert answer.status_code == 401, forged
    assert (await session.send("GET", "/v1/sandboxes")).status_code == 200


async def test_an_expired_session_opens_nothing(served: Served) -> None:
    """A token whose time is over, rightly sealed: by its row, by its claims, and from the cache."""
    session = await sign_in(served.client.http, "alice")
    assert (await session.send("GET", "/v1/sandboxes")).status_code == 200
    sessions = served.platform.wallets.sessions
    past = served.platform.clock.now() - timedelta(seconds=1)
    # The row says that it is over, whatever the token says; nothing may be answered from memory.
    await served.platform.store.write(
        lambda conn: conn.execute(update(wallet_sessions).values(expires_at=past))
    )
    served.platform.wallets.wallets.epoch += 1
    assert (await session.send("GET", "/v1/sandboxes")).status_code == 401
    # And the token says so, whatever the row says.
    brief = await sign_in(served.client.http, "alice")
    monkey = sessions.clock
    try:
        sessions.clock = _Ahead(timedelta(seconds=3601))
        refused = await brief.send("GET", "/v1/sandboxes")
    finally:
        sessions.clock = monkey
    assert (refused.status_code, refused.json()["reason"]) == (401, "session_expired")
    assert (await brief.send("GET", "/v1/sandboxes")).status_code == 200


class _Ahead(SystemClock):
    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


async def test_a_stranger_learns_nothing_from_how_long_a_refusal_takes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: an unknown key costs the same HMAC and the same comparison as a wrong signature."""
    team = await served.stranger("team")
    work: list[str] = []

    def counted_sign(secret: bytes, message: bytes) -> str:
        work.append(f"hmac of {len(message)} bytes with {len(secret)}")
        return sign(secret, message)

    def counted_matches(expected: str, given: str) -> bool:
        work.append(f"compare {len(expected)} with {len(given)}")
        return matches(expected, given)

    monkeypatch.setattr("sandboxer.identity.authenticate.sign", counted_sign)
    monkeypatch.setattr("sandboxer.identity.authenticate.matches", counted_matches)
    done = {}
    for public_key in (team.credentials.public_key, NOBODY):
        head = Credentials(public_key, "sbx-sk-" + "1" * 52).head("GET", "/v1/sandboxes")
        work.clear()
        assert (await served.client.http.get("/v1/sandboxes", headers=head)).status_code == 401
        done[public_key] = list(work)
    assert done[NOBODY] == done[team.credentials.public_key]
    # With and without a bare question mark, which are the same request.
    assert len(done[NOBODY]) == 4
    assert "compare_digest" in matches.__code__.co_names


@pytest.fixture
def tight(settings: Settings) -> Settings:
    return settings.model_copy(update={"limit_auth": 3, "limit_address": 40, "limit_bucket_only": 5})


async def test_too_many_requests_are_told_when_to_come_back(tight: Settings) -> None:
    async with serving(tight, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        team, http = await served.stranger("team"), served.client.http
        codes = [(await team.get("/v1/sandboxes")).status_code for _ in range(7)]
        assert codes == [200] * 5 + [429] * 2
        refused = await team.get("/v1/sandboxes")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["retry_after_s"] == int(refused.headers["retry-after"])
        # The sibling key shares the account's allowance; guessing and auth routes are counted by address.
        challenges = [(await http.post("/v1/auth/challenge")).status_code for _ in range(5)]
        assert challenges == [200] * 3 + [429] * 2
        spoofed = await http.post("/v1/auth/challenge", headers={"x-forwarded-for": "203.0.113.9"})
        assert spoofed.status_code == 429
        guesses = [(await http.get("/v1/sandboxes")).status_code for _ in range(40)]
        assert guesses[0] == 401
        assert guesses[-1] == 429
        assert (await http.get("/health")).status_code == 200
        assert (await served.client.get("/v1/sandboxes")).status_code == 200


async def test_a_trusted_proxy_is_believed_about_addresses(tight: Settings) -> None:
    proxied = tight.model_copy(update={"trusted_proxies": ("127.0.0.1",)})
    async with serving(proxied, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        for address in ("203.0.113.9", "203.0.113.10"):
            head = {"x-forwarded-for": f"198.51.100.1, {address}"}
            codes = [
                (await served.client.http.post("/v1/auth/challenge", headers=head)).status_code
                for _ in range(4)
            ]
            assert codes == [200] * 3 + [429]


@pytest.mark.parametrize(
    "text", ["safe\u202egnp.exe", "a\u2066b", "a\u200bb", "a\x1b[2Jb", "a\nb", "a\ufeffb"]
)
async def test_no_label_shows_people_something_else_than_it_says(served: Served, text: str) -> None:
    refused = await served.client.post("/v1/sandboxes", {"labels": {"team": text}})
    assert refused.status_code == 422, refused.text
    made = await served.client.post("/v1/sandboxes", {"labels": {"team": "café 👩‍💻 مرحبا"}})
    assert made.status_code == 201, made.text
