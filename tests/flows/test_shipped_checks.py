"""The shipped checks of the flows can fail: a platform that lies in one thing is found out in that thing.

Each lie is told by a proxy before a real platform that is otherwise the honest one of the other tests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxer.sdk.flows import FLOWS
from tests.support.flows import Charging
from tests.support.lying import (
    Asked,
    Liar,
    Lie,
    Told,
    and_then,
    changed,
    instead,
    lying,
    on,
    only_said,
    unchecked,
)

BOX = r"/v1/sandboxes/(?P<id>[^/]+)"
SNAPSHOT = r"/v1/snapshots/(?P<snapshot>[^/]+)"
IMAGE = r"/v1/images/(?P<image>[^/]+)"
SERVICE = r"/v1/services/(?P<service>[^/]+)"


def set_to(**fields: Any) -> Lie:
    return changed(lambda said: said.update(fields))


def half(said: Any) -> None:
    said["resources"]["memory_mb"] //= 2


def shows_secrets(said: Any) -> None:
    """Only the tree of keys, which names a child."""
    for child in said["children"]:
        child["account"] += SECRETS.get(child["key"]["public_key"], "")


SECRETS: dict[str, str] = {}


async def remembers(liar: Liar, asked: Asked) -> Told:
    answer = await liar.honest(asked)
    SECRETS[answer.json["public_key"]] = answer.json["secret_key"]
    return answer


async def tells_secrets(liar: Liar, asked: Asked) -> Told:
    if asked.method == "POST" and asked.path == "/v1/keys/delegated":
        return await remembers(liar, asked)
    return await on("GET", "/v1/keys/tree", changed(shows_secrets))(liar, asked)


async def old_secrets_stay(liar: Liar, asked: Asked) -> Told:
    """Whoever signs for a key is believed once the key has another secret."""
    if asked.method == "GET" and "renewed" in liar.kept and asked.headers.get("authorization"):
        return liar.kept["me"] if asked.path == "/v1/accounts/me" else await liar.honest(asked)
    answer = await liar.honest(asked)
    if asked.path.endswith("/regenerate") and answer.status == 200:
        liar.kept["renewed"] = True
        liar.kept["me"] = await liar.as_account("GET", "/v1/accounts/me")
    return answer


async def one_address_for_all(liar: Liar, asked: Asked) -> Told:
    answer = await liar.honest(asked)
    said = answer.json
    first = liar.kept.setdefault("address", said["address"])
    said["payment_uri"] = said["payment_uri"].replace(said["address"], first)
    return answer.saying(said | {"address": first})


async def one_more_each_time(liar: Liar, asked: Asked) -> Told:
    """The key of a repetition is not looked at: each is another invoice."""
    headers = {name: value for name, value in asked.headers.items() if name != "idempotency-key"}
    return await liar.honest(Asked(asked.method, asked.target, headers, asked.content))


async def open_instead_of_zero(liar: Liar, asked: Asked) -> Told:
    """Makes a sandbox with a network where one without was asked for, and says that it has none."""
    if asked.method == "POST" and asked.path == "/v1/sandboxes":
        bent = asked.content.replace(b'"zero"', b'"semi"')
        answer = await liar.signed(Asked("POST", asked.target, asked.headers, bent))
    else:
        answer = await liar.honest(asked)
    return Told(answer.status, answer.headers, answer.content.replace(b'"semi"', b'"zero"'))


async def only_bearers_are_cheated(liar: Liar, asked: Asked) -> Told:
    answer = await liar.honest(asked)
    if asked.path.endswith("/exec") and asked.headers.get("authorization", "").startswith("Bearer sk_"):
        return answer.saying(answer.json | {"exit_code": 0})
    return answer


async def strangers_may_look(liar: Liar, asked: Asked) -> Told:
    return await (liar.signed if "authorization" not in asked.headers else liar.honest)(asked)


async def frees_inside(liar: Liar, asked: Asked) -> Told:
    """What is told of commands inside is bent: a bound that is not named."""
    answer = await liar.honest(asked)
    return Told(answer.status, answer.headers, answer.content.replace(rb"\"axis\"", rb"\"bound\""))


async def miscounts_inside(liar: Liar, asked: Asked) -> Told:
    answer = await liar.honest(asked)
    return Told(answer.status, answer.headers, answer.content.replace(b"hello 42", b"hello 41"))


def without(path: str) -> Lie:
    return changed(lambda said: said["paths"].pop(path))


def spent_for_nothing(said: Any) -> None:
    for child in said["children"]:
        child["returned"] = max(0, child["returned"] - 1)


def gone_first(said: Any) -> None:
    said["lines"].reverse()
    for line in said["lines"]:
        line["parent_id"] = None


def about(word: bytes, lie: Lie) -> Lie:
    """Lies to requests that have this word in them."""

    async def told(liar: Liar, asked: Asked) -> Told:
        return await (lie if word in asked.content else Liar.honest)(liar, asked)

    return told


async def never_kept(liar: Liar, asked: Asked) -> Told:
    answer = await liar.honest(asked)
    return Told(answer.status, answer.headers | {"cache-control": "no-store"}, answer.content)


async def strangers_see_less(liar: Liar, asked: Asked) -> Told:
    lie = Liar.honest if "authorization" in asked.headers else changed(lambda said: said["profiles"].pop())
    return await lie(liar, asked)


async def publishes_what_it_should_not(liar: Liar, asked: Asked) -> Told:
    bent = asked.content.replace(b'"unlisted"', b'"private"')
    answer = await liar.signed(Asked("POST", asked.target, asked.headers, bent))
    return answer.saying(answer.json | {"visibility": "unlisted"})


async def gives_what_nobody_has(liar: Liar, asked: Asked) -> Told:
    wish = json.loads(asked.content)
    wish["inception"]["budget_sats"] = 1
    return await liar.signed(Asked("POST", asked.target, asked.headers, json.dumps(wish).encode()))


DESTROYED = only_said(lambda said: said.update(state="destroyed"), "/v1/sandboxes/{id}")
# Of each flow: which check has to notice which lie.
LIES: dict[int, dict[str, Lie]] = {
    1: {
        "what is found needs no key and may be kept": on("GET", r"/llms\.txt", never_kept),
        "the address alone leads to every document": on(
            "GET",
            r"/\.well-known/sandboxer\.json",
            changed(lambda said: said["links"].update(health=said["url"] + "/nowhere")),
        ),
        "the text for agents shows requests that exist": on(
            "GET", r"/openapi\.json", without("/v1/sandboxes/{sandbox_id}/exec")
        ),
        "a sandbox knows from inside what it is and cannot change it": on("GET", BOX, changed(half)),
    },
    2: {
        "prices are the same for everybody": on("GET", "/v1/pricing", strangers_see_less),
        "a stranger is told what to do and gets nothing": on("POST", "/v1/sandboxes", instead({}, 201)),
        "a quote is what the rates give": on("POST", "/v1/quotes", changed(lambda said: said.update(sats=1))),
        "a new key works and its secret is shown once": tells_secrets,
        "a new secret ends the old one": old_secrets_stay,
        "a key that is ended opens nothing": on("DELETE", "/v1/keys/[^/]+", instead(None, 204)),
    },
    4: {
        "a request signed as discovery says is let in": on(
            "GET", r"/\.well-known/sandboxer\.json", changed(lambda said: said["signatures"].clear())
        ),
        "one changed part of a request is refused": unchecked,
        "another body than the signed one is refused": unchecked,
        "a request that is sent again is refused": unchecked,
        "a request of another day is refused with the right time": unchecked,
        "without a key with another or a wrong secret nothing opens": unchecked,
        "a bearer token stands for its key until it is ended": on(
            "DELETE", "/v1/keys/[^/]+/bearer", instead(None, 204)
        ),
    },
    5: {
        "a sandbox has the client inside and needs no key for it": on(
            "POST", f"{BOX}/exec", about(b"discover", set_to(exit_code=127))
        ),
        "every call of this client is an operation of the platform": on(
            "GET", r"/openapi\.json", without("/v1/tree")
        ),
        "a tool that was installed outlives a stop": on(
            "POST", f"{BOX}/stop", and_then("POST", "/v1/sandboxes/{id}/recreate")
        ),
        "packages come from registries and nothing from elsewhere": on(
            "POST", f"{BOX}/egress/explain", set_to(allowed=True)
        ),
    },
    6: {
        "the sandbox of a run is gone with it": on("GET", BOX, set_to(state="ready")),
        "code tells what it printed and how it ended": on("POST", "/v1/execute", set_to(exit_code=0)),
        "code has its input and gives files back": on("POST", "/v1/execute", set_to(artifacts=[])),
        "code that runs too long is ended": on("POST", "/v1/execute", set_to(timed_out=False)),
        "a job runs later and one that is cancelled ends": on(
            "DELETE", "/v1/jobs/(?P<job>[^/]+)", only_said(lambda said: None, "/v1/jobs/{job}")
        ),
    },
    7: {
        "a restarted session has forgotten and kept its files": on(
            "POST",
            "/v1/sessions/(?P<s>[^/]+)/restart",
            only_said(lambda said: said.update(generation=2), "/v1/sessions/{s}"),
        ),
        "what one cell sets the next one finds": on(
            "POST", "/v1/sessions/(?P<s>[^/]+)/cells", and_then("POST", "/v1/sessions/{s}/restart")
        ),
        "a frozen session goes on where it was": on(
            "POST", "/v1/sessions/(?P<s>[^/]+)/thaw", and_then("POST", "/v1/sessions/{s}/restart")
        ),
        "an ended session takes its sandbox with it": on(
            "DELETE",
            "/v1/sessions/(?P<s>[^/]+)",
            only_said(lambda said: said.update(state="ended"), "/v1/sessions/{s}"),
        ),
    },
    8: {
        "a service runs and answers": on("GET", f"{BOX}/ports/.*", instead("hello")),
        "a service that dies is started again": on("GET", SERVICE, set_to(run=0)),
        "a redeploy keeps what was written and a bad one changes nothing": on(
            "POST",
            f"{SERVICE}/redeploy",
            and_then("POST", "/v1/sandboxes/{sandbox_id}/exec", {"command": "rm -f /workspace/visits"}),
        ),
        "a frozen service is the same process when it wakes": on(
            "POST", f"{SERVICE}/thaw", and_then("POST", "/v1/services/{service}/redeploy", {})
        ),
        "a removed service is gone with its sandbox": on(
            "DELETE", SERVICE, only_said(lambda said: said.update(state="removed"), "/v1/services/{service}")
        ),
    },
    9: {
        "a snapshot outlives its sandbox": on(
            "POST",
            f"{SNAPSHOT}/clone",
            and_then("POST", "/v1/sandboxes/{sandboxes[0][id]}/exec", {"command": "rm /workspace/x"}),
        ),
        "forks begin as it was and go their own ways": on(
            "POST",
            f"{SNAPSHOT}/clone",
            and_then("POST", "/v1/sandboxes/{sandboxes[0][id]}/exec", {"command": "rm -r /workspace/app"}),
        ),
        "a restored disk is what it was and nothing more": on(
            "POST",
            f"{SNAPSHOT}/restore",
            and_then("POST", "/v1/sandboxes/{id}/exec", {"command": "rm -f /workspace/*"}),
        ),
        "a removed snapshot makes nothing and its forks stay": on(
            "DELETE",
            SNAPSHOT,
            only_said(lambda said: said.update(state="dropped"), "/v1/snapshots/{snapshot}"),
        ),
        "the lineage says what came from what": on("GET", "/v1/snapshots/tree", changed(gone_first)),
    },
    10: {
        "a published image outlives its sandbox and others begin as it": on(
            "POST",
            f"{IMAGE}/spawn",
            and_then("POST", "/v1/sandboxes/{sandboxes[0][id]}/exec", {"command": "rm -r /opt/tool"}),
        ),
        "nothing with a secret becomes public": on("POST", "/v1/images", publishes_what_it_should_not),
        "its digest names its content": on("POST", "/v1/images", set_to(digest="sha256:" + "0" * 64)),
        "a private image is not there for others": strangers_may_look,
        "a removed image makes nothing and what came from it stays": on(
            "DELETE", IMAGE, only_said(lambda said: said.update(state="dropped"), "/v1/images/{image}")
        ),
    },
    11: {
        "the platform is well and says so": on("GET", "/health", set_to(status="degraded")),
        "it names its languages and shells": on(
            "GET", "/v1/shells", changed(lambda said: said["shells"].pop(0))
        ),
        "what is said to run here runs": on("POST", "/v1/execute", set_to(stdout="")),
        "its counts follow what is made": on("GET", "/v1/limits", set_to(slots_in_use=0)),
    },
    12: {
        "a rule opens what it names and no inner address": on(
            "POST", f"{BOX}/egress/explain", set_to(allowed=False)
        ),
        "what listens inside is reached from outside": on("GET", f"{BOX}/ports/.*", instead("inside")),
        "at trust zero nothing leads out": open_instead_of_zero,
        "trust is chosen once and from outside": on("PATCH", BOX, instead({}, 200)),
        "at trust semi what no rule allows is refused and noted": on(
            "GET", f"{BOX}/egress/denials", set_to(denials=[])
        ),
    },
    13: {
        "what is inside is another caller and sees nothing of its maker": on(
            "POST",
            f"{BOX}/exec",
            about(b"env;", changed(lambda said: said.update(stdout=said["stdout"] + "KEY=sbx-sk-0"))),
        ),
        "nobody gives more than it has": on(
            "POST", "/v1/sandboxes", about(b"budget_sats", gives_what_nobody_has)
        ),
        "a sandbox makes another that makes a third": on(
            "GET", "/v1/tree", changed(lambda said: [one.update(depth=0) for one in said["sandboxes"]])
        ),
        "what is beyond a grant is refused and the bound is named": on("POST", f"{BOX}/exec", frees_inside),
        "with a parent ends all that was made below it": on("DELETE", BOX, DESTROYED),
        "a budget is cut from its maker and returns to the sat": on(
            "GET", "/v1/keys/tree", changed(spent_for_nothing)
        ),
    },
    14: {
        "the standard library and a signature are enough": on("POST", f"{BOX}/exec", set_to(exit_code=0)),
        "the client of asyncio does the same": on("POST", f"{BOX}/snapshots", set_to(state="taking")),
        "a bearer token does the same": only_bearers_are_cheated,
        "the blocking client does the same": on("POST", f"{BOX}/snapshots", set_to(state="taking")),
        "the client inside does the same": on("POST", f"{BOX}/exec", miscounts_inside),
        "the api of e2b makes sandboxes of the same kind": on(
            "DELETE", "/e2b/sandboxes/[^/]+", instead(None, 204)
        ),
    },
}
LIES_ABOUT_MONEY: dict[str, Lie] = {
    "a 402 offers ways to pay and takes nothing": on(
        "GET", "/v1/pricing", changed(lambda said: said["networks"][0].update(network="eip155:1"))
    ),
    "an invoice asks for its price exactly at an address of its own": on(
        "POST", "/v1/invoices", one_address_for_all
    ),
    "an invoice that is asked for again is the same": on("POST", "/v1/invoices", one_more_each_time),
    "an unpaid invoice waits and says when to ask again": on(
        "GET", "/v1/invoices/[^/]+", set_to(state="paid")
    ),
    "a gift card is redeemed in parts and the rest comes back": on(
        "POST", "/v1/gift-cards/balance", changed(lambda said: said.update(left_cents=said["cents"]))
    ),
}


def is_about_the_lie(detail: str) -> bool:
    """And not about the liar, which has broken down."""
    return detail != "" and "Internal Server Error" not in detail and "HTTP 500" not in detail


async def verdict_of(platform: Charging, flow: int, says: str, lie: Lie | None) -> tuple[str, str]:
    async with lying(platform.up.url, platform.key, lie) as url:
        found = await platform.result(flow, says, url=url)
    return found.verdict.value, found.detail


# They wait for what the lie keeps from coming.
PATIENT = frozenset(
    {
        "with a parent ends all that was made below it",
        "at trust semi what no rule allows is refused and noted",
        "the sandbox of a run is gone with it",
        "a service that dies is started again",
        "what listens inside is reached from outside",
    }
)


def each_lie() -> Iterator[Any]:
    for flow, lies in LIES.items():
        for says in lies:
            yield pytest.param(flow, says, marks=[pytest.mark.slow] if says in PATIENT else [])


@pytest.mark.parametrize(("flow", "says"), list(each_lie()))
async def test_a_lie_is_found_out(charging: Charging, flow: int, says: str) -> None:
    verdict, detail = await verdict_of(charging, flow, says, LIES[flow][says])
    assert verdict == "failed", detail
    assert is_about_the_lie(detail)


@pytest.mark.parametrize("says", LIES_ABOUT_MONEY)
async def test_a_lie_about_money_is_found_out(selling: Charging, says: str) -> None:
    verdict, detail = await verdict_of(selling, 3, says, LIES_ABOUT_MONEY[says])
    assert verdict == "failed", detail
    assert is_about_the_lie(detail)


@pytest.mark.slow
async def test_through_an_honest_proxy_nothing_fails(charging: Charging) -> None:
    """Else a check could fail for the proxy, and not for the lie."""
    async with lying(charging.up.url, charging.key, None) as url:
        results = await charging.results(url=url)
    assert {one.flow for one in results} == set(range(1, 15))
    assert [(one.check, one.detail) for one in results if one.verdict == "failed"] == []


async def there(platform: Charging) -> set[str]:
    """What the account has on it now."""
    async with platform.client() as client:
        found = {one.id async for one in client.list() if one.state not in ("destroying", "destroyed")}
        return found | {one.id async for one in client.snapshots.list() if one.state == "kept"}


async def test_a_check_that_fails_or_is_interrupted_takes_back_what_it_made(charging: Charging) -> None:
    before = await there(charging)
    says = "forks begin as it was and go their own ways"
    assert (await verdict_of(charging, 9, says, LIES[9][says]))[0] == "failed"
    assert await there(charging) == before

    says = "a redeploy keeps what was written and a bad one changes nothing"
    going = asyncio.create_task(charging.result(8, says))
    async with asyncio.timeout(30):
        while await there(charging) == before:
            continue
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert await there(charging) == before


def test_there_is_a_lie_for_each_flow_and_each_is_about_a_check_that_exists() -> None:
    assert [flow.number for flow in FLOWS] == list(range(1, 15))
    for flow in FLOWS:
        lies = LIES_ABOUT_MONEY if flow.number == 3 else LIES[flow.number]
        assert lies
        assert set(lies) <= {check.says for check in flow.checks}
