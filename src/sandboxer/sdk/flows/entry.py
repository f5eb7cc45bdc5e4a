"""Flows 1, 2 and 4: an agent finds the platform, learns its prices, has keys, and signs its requests."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from sandboxer.sdk.errors import AuthenticationFailed
from sandboxer.sdk.flows.suite import (
    Bench,
    Flow,
    NotOffered,
    expect,
    expect_equal,
    nothing_is_left,
    refused,
    sh,
)
from sandboxer.wire.operations import accounts, payments, platform, sandboxes
from sandboxer.wire.platform import Discovery
from sandboxer.wire.pricing import Pricing

discovery = Flow(1, "Discovery: an address leads to everything else")
provision = Flow(2, "Provision: prices before money, and keys whose secrets are shown once")
authentication = Flow(4, "Authentication: signed requests")
# What is for GET; the others are shown with what they take.
FIRST_OPERATIONS = frozenset({"sandboxes", "execute", "mcp"})
_REQUEST = re.compile(r"```http\n([A-Z]+) (\S+)")
_NAME = re.compile(r"\{\w+\}")
HOUR_S = 3600
ME = accounts.SHOW_ME.path


@discovery.check("an agent begins with nothing but an address")
async def the_address_alone_leads_to_every_document(bench: Bench) -> None:
    answer = await bench.send("GET", platform.DISCOVER.path, signs=False)
    expect_equal(answer.status_code, 200, f"the status of {platform.DISCOVER.path}")
    found = Discovery.model_validate_json(answer.content)
    for name, address in found.links.items():
        expect(address.startswith(found.url), f"the link {name} leads elsewhere: {address}")
        if name not in FIRST_OPERATIONS:
            there = await bench.send("GET", urlsplit(address).path, signs=False)
            expect_equal(there.status_code, 200, f"the status of {address}")


@discovery.check("it is asked for often, and by strangers")
async def what_is_found_needs_no_key_and_may_be_kept(bench: Bench) -> None:
    for path in (platform.DISCOVER.path, platform.GET_LLMS_TEXT.path, platform.GET_OPENAPI.path):
        answer = await bench.send("GET", path, signs=False)
        expect_equal(answer.status_code, 200, f"the status of {path}")
        expect("public" in answer.headers.get("cache-control", ""), f"{path} may not be kept")


@discovery.check("a model that has read the text has to send requests that work")
async def the_text_for_agents_shows_requests_that_exist(bench: Bench) -> None:
    text = (await bench.send("GET", platform.GET_LLMS_TEXT.path, signs=False)).text
    shown = _REQUEST.findall(text)
    expect(len(shown) >= 3, "it does not show how a first sandbox is made, used and ended")
    known = (await bench.send("GET", platform.GET_OPENAPI.path, signs=False)).json()["paths"]
    paths = {_NAME.sub("{}", path): set(operations) for path, operations in known.items()}
    for method, address in shown:
        path = _NAME.sub("{}", urlsplit(address).path)
        expect(method.lower() in paths.get(path, ()), f"there is no {method} {path}, which the text shows")
    expect("X-Signature" in text or "payment-signature" in text, "it does not say how to be let in")


@discovery.check("an agent that does not know its limits runs into them")
async def a_sandbox_knows_from_inside_what_it_is_and_cannot_change_it(bench: Bench) -> None:
    sandbox = await bench.sandbox()
    seen = json.loads(await sh(sandbox, "cat /run/sandboxer/sandbox.json"))
    info = await sandbox.refresh()
    expect_equal(seen["id"], sandbox.id, "the id that is told inside")
    expect_equal(seen["trust"], info.trust, "the trust that is told inside")
    told = {name: seen["limits"][name] for name in ("vcpus", "memory_mb", "disk_mb", "pids")}
    expect_equal(told, info.resources.model_dump(), "what it is told of its limits")
    tried = await sandbox.exec("echo '{}' > /run/sandboxer/sandbox.json; rm -f /run/sandboxer/sandbox.json")
    expect(tried.exit_code != 0, "root inside can change its description")
    expect_equal(json.loads(await sh(sandbox, "cat /run/sandboxer/sandbox.json")), seen, "what it says then")


discovery.check("discovery changes nothing")(nothing_is_left)


@provision.check("an agent decides by the price before it pays")
async def prices_are_the_same_for_everybody(bench: Bench) -> None:
    own = await bench.client.account.pricing()
    answer = await bench.send("GET", payments.GET_PRICING.path, signs=False)
    expect_equal(answer.status_code, 200, "the status of the price list for strangers")
    strangers = Pricing.model_validate_json(answer.content)
    expect_equal(strangers.rates, own.rates, "what strangers are told of the rates")
    expect_equal(strangers.profiles, own.profiles, "what strangers are told of profiles")
    expect(strangers.tiers, "there are no tiers")
    for one in strangers.tiers:
        expect(one.usd_cents > 0 and one.slots > 0, f"tier {one.tier} for {one.months} months is no offer")


@provision.check("an offer that is not kept is none")
async def a_quote_is_what_the_rates_give(bench: Bench) -> None:
    pricing = await bench.client.account.pricing()
    for hours in (1, 3):
        quote = await bench.client.account.quote(duration=f"{hours}h")
        listed = next((one for one in pricing.profiles if one.profile == quote.profile), None)
        expect(listed is not None, f"{quote.profile} has no price")
        assert listed is not None
        rate = 0 if listed.is_free else listed.running_msats
        expect_equal(quote.running_msats, rate, "the rate of the quote")
        expect_equal(quote.sats, -(-rate * hours * HOUR_S // 1000), f"the price of {hours} h")


@provision.check("whoever has neither key nor money gets nothing, and hears what it costs")
async def a_stranger_is_told_what_to_do_and_gets_nothing(bench: Bench) -> None:
    found = await bench.discovered()
    answer = await bench.send("POST", sandboxes.CREATE_SANDBOX.path, {"ttl": "1h"}, signs=False)
    if not (found.is_charged and found.takes_strangers):
        expect_equal(answer.status_code, 401, "the status for a stranger")
        expect(answer.json().get("next_step"), "it does not say what to do")
        return
    expect_equal(answer.status_code, 402, "the status for a stranger")
    said = answer.json()
    quote = await bench.client.account.quote(profile=said["quote"]["profile"], duration="1h")
    expect_equal(said["sats"], quote.sats, "the price that a stranger is asked for")


@provision.check("a secret that is shown twice is known to others")
async def a_new_key_works_and_its_secret_is_shown_once(bench: Bench) -> None:
    key = await bench.child("account:read", "sandboxes:read")
    me = await bench.as_child(key).account.me()
    expect_equal(me.account.id, key.account, "the account of the new key")
    expect_equal(set(me.scopes), {"account:read", "sandboxes:read"}, "what the new key may do")
    shown = (await bench.client.keys.tree()).model_dump_json()
    expect(key.public_key in shown, "the key is not listed")
    expect(key.secret_key not in shown, "its secret is shown again")


@provision.check("the first limitation of the paper: a lost secret must not be the end")
async def a_new_secret_ends_the_old_one(bench: Bench) -> None:
    key = await bench.child("account:read", "account:manage")
    again = await bench.as_child(key).keys.regenerate(key.public_key)
    expect(again.secret_key != key.secret_key, "it is the same secret")
    old = bench.as_child(key)
    await refused(old.account.me(), 401, what="a call with the old secret")
    renewed = bench.as_child(key, public_key=again.public_key, secret_key=again.secret_key)
    expect_equal((await renewed.account.me()).account.id, key.account, "the account of the new secret")


@provision.check("a key that got away has to be ended")
async def a_key_that_is_ended_opens_nothing(bench: Bench) -> None:
    key = await bench.child("account:read")
    child = bench.as_child(key)
    await child.account.me()
    await bench.client.keys.revoke(key.public_key)
    await refused(child.account.me(), 401, what="a call with an ended key")


provision.check("keys of a check would go on opening the account")(nothing_is_left)


def _signed_by_hand(bench: Bench, method: str, target: str, body: bytes = b"") -> dict[str, str]:
    """The headers of a signature, made of nothing but the canonical text that discovery shows."""
    known = bench.client.credentials
    stamp, nonce = str(int(time.time())), secrets.token_hex(16)
    digest = hashlib.sha256(body).hexdigest()
    text = f"v2:{stamp}:{nonce}:{method}:{target}:{digest}"
    return {
        "Authorization": f"Bearer {known.public_key}",
        "X-Timestamp": stamp,
        "X-Nonce": nonce,
        "X-Content-SHA256": digest,
        "X-Signature": hmac.new(known.secret_key.encode(), text.encode(), "sha256").hexdigest(),
    }


async def _asked(bench: Bench, headers: Mapping[str, str], method: str = "GET", target: str = ME) -> int:
    return (await bench.http.request(method, target, headers=dict(headers))).status_code


@authentication.check("an agent has to sign with what any language brings")
async def a_request_signed_as_discovery_says_is_let_in(bench: Bench) -> None:
    bench.demand_key()
    found = await bench.discovered()
    canonical = next((one.canonical for one in found.signatures if one.name == "v2"), None)
    expect(canonical is not None, "discovery does not say what is signed")
    answer = await bench.http.get(ME, headers=_signed_by_hand(bench, "GET", ME))
    expect_equal(answer.status_code, 200, "the status of a signed request")
    expect_equal(answer.json(), (await bench.send("GET", ME)).json(), "what it is answered")


@authentication.check("whoever can change a request on its way can do anything")
async def one_changed_part_of_a_request_is_refused(bench: Bench) -> None:
    bench.demand_key()
    head = _signed_by_hand(bench, "GET", ME)
    late = str(int(head["X-Timestamp"]) + 1)
    for name, value in (
        ("X-Signature", _turned(head["X-Signature"])),
        ("X-Nonce", secrets.token_hex(16)),
        ("X-Timestamp", late),
        ("X-Content-SHA256", hashlib.sha256(b"other").hexdigest()),
        ("Authorization", "Bearer sbx-pk-" + "0" * 26),
    ):
        status = await _asked(bench, {**head, name: value})
        expect(status in (400, 401), f"with another {name} it is answered with {status}")
    for method, target in (("DELETE", ME), ("GET", f"{ME}?x=1"), ("GET", sandboxes.LIST_SANDBOXES.path)):
        status = await _asked(bench, head, method, target)
        expect(status in (400, 401, 404, 405), f"as {method} {target} it is answered with {status}")


@authentication.check("a body is a part of the request")
async def another_body_than_the_signed_one_is_refused(bench: Bench) -> None:
    bench.demand_key()
    path = payments.ASK_QUOTE.path
    head = _signed_by_hand(bench, "POST", path, b'{"duration":"1h"}')
    head["content-type"] = "application/json"
    answer = await bench.http.post(path, content=b'{"duration":"9h"}', headers=head)
    expect(answer.status_code in (400, 401), f"another body is answered with {answer.status_code}")


@authentication.check("whoever overhears a request must not be able to repeat it")
async def a_request_that_is_sent_again_is_refused(bench: Bench) -> None:
    bench.demand_key()
    head = _signed_by_hand(bench, "GET", ME)
    expect_equal(await _asked(bench, head), 200, "the status of the first")
    expect_equal(await _asked(bench, head), 401, "the status of the same once more")


@authentication.check("an agent whose clock is wrong has to learn by how much")
async def a_request_of_another_day_is_refused_with_the_right_time(bench: Bench) -> None:
    bench.demand_key()
    for ago_s in (86_400, -86_400):
        answer = await bench.http.get(ME, headers=bench.head("GET", ME, ago_s=ago_s))
        expect_equal(answer.status_code, 401, f"the status of a request of {ago_s} s ago")
        said = answer.json()
        expect_equal(said.get("reason"), "clock_skew", "its reason")
        told = float(said.get("server_time") or 0)
        expect(abs(told - time.time()) < 300, f"it is told that the time is {told:.0f}")


@authentication.check("a guess must open nothing")
async def without_a_key_with_another_or_a_wrong_secret_nothing_opens(bench: Bench) -> None:
    bench.demand_key()
    head = _signed_by_hand(bench, "GET", ME)
    nobody = {**head, "Authorization": "Bearer sbx-pk-" + "0" * 26}
    wrong = {**head, "X-Signature": hmac.new(b"guess", b"text", "sha256").hexdigest()}
    for what, headers in (("no key", {}), ("another key", nobody), ("a wrong secret", wrong)):
        answer = await bench.http.get(ME, headers=headers)
        expect_equal(answer.status_code, 401, f"the status with {what}")
        expect(bench.client.credentials.secret_key not in answer.text, "the answer shows the secret")


@authentication.check("some programs can only send one header")
async def a_bearer_token_stands_for_its_key_until_it_is_ended(bench: Bench) -> None:
    if not (await bench.discovered()).takes_bearer_tokens:
        raise NotOffered("bearer tokens are not taken here")
    key = await bench.child("account:read", "account:manage")
    token = (await bench.as_child(key).keys.issue_bearer(key.public_key)).bearer_token
    child = bench.as_child(key, api_key=token)
    expect_equal((await child.account.me()).account.id, key.account, "the account of the token")
    await bench.as_child(key).keys.end_bearer(key.public_key)
    error = await refused(child.account.me(), 401, what="a call with an ended token")
    expect(isinstance(error, AuthenticationFailed), "it is not told that it is not known")


authentication.check("keys of a check would go on opening the account")(nothing_is_left)


def _turned(signature: str) -> str:
    """The same with one bit changed."""
    return f"{int(signature[0], 16) ^ 1:x}{signature[1:]}"
