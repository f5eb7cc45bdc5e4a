"""Flows 13 and 14: sandboxes make sandboxes within bounds, and every kind of client does the same."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.flows.suite import (
    GONE,
    TTL,
    Bench,
    CheckFailed,
    Flow,
    NotOffered,
    NotTried,
    expect,
    expect_equal,
    nothing_is_left,
    until,
)
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import api_key_of

inception = Flow(13, "Inception: sandboxes make sandboxes, within bounds")
compatibility = Flow(14, "Compatibility: every kind of client does the same")
ENDED = GONE | {"destroying", "expired", "failed"}
BUDGET_SATS = 100
# How the client inside ends when the platform refused.
REFUSED = 4


async def _inside(
    sandbox: AsyncSandbox, method: str, path: str, body: object = None, *, code: int = 0
) -> Any:
    """Asks the platform as a program in the sandbox does; `code` is how its client ends."""
    words = ["sandboxer", "api", method, path]
    done = await sandbox.exec([*words, "-"] if body is not None else words, stdin=json.dumps(body or ""))
    if done.exit_code != code:
        why = f"{method} {path} from inside ended with {done.exit_code}, not {code}"
        raise CheckFailed(f"{why}: {done.stderr or done.stdout}")
    return json.loads(done.stdout) if done.stdout else None


def _small(bench: Bench, word: str, **more: object) -> dict[str, object]:
    return {"ttl": TTL, "name": bench.name(word), "labels": bench.labels, **more}


async def _granted(bench: Bench, **bounds: object) -> AsyncSandbox:
    """A sandbox that may make others; with a budget where they cost something."""
    if (await bench.discovered()).is_charged and "budget_sats" not in bounds:
        await bench.demand_sats(BUDGET_SATS, "what its sandboxes spend")
        bounds["budget_sats"] = BUDGET_SATS
    me = await bench.client.account.me()
    if me.depth < 1:
        raise NotTried("this key may let no sandbox make others")
    limits = await bench.client.status.limits()
    wanted = int(str(bounds.get("slots", 1))) + 1
    if limits.slots is not None and limits.slots - limits.slots_in_use < wanted:
        raise NotTried(f"the account has fewer than {wanted} slots free")
    return await bench.sandbox(inception=bounds)


async def _two_layers(bench: Bench) -> tuple[AsyncSandbox, dict[str, Any]]:
    """A sandbox, and what it made, which may make one more."""
    top = await _granted(bench, slots=2, depth=1)
    half = BUDGET_SATS // 2 if (await bench.discovered()).is_charged else 0
    grant = {"slots": 1, "budget_sats": half}
    return top, await _inside(top, "POST", "/v1/sandboxes", _small(bench, "child", inception=grant))


async def _states(bench: Bench, *ids: str) -> list[str]:
    """How they stand in the tree; what is not in it any more is gone."""
    tree = {one.id: one.state for one in await bench.client.tree()}
    return [tree.get(one, "destroyed") for one in ids]


@inception.check("the fifth thing that an agent needs, after discovery, payment, keys and tools")
async def a_sandbox_makes_another_that_makes_a_third(bench: Bench) -> None:
    top, child = await _two_layers(bench)
    ask = f"sandboxer api POST /v1/sandboxes '{json.dumps(_small(bench, 'grandchild'))}'"
    path = f"/v1/sandboxes/{child['id']}/exec"
    ran = await _inside(top, "POST", path, {"command": ask})
    leaf = json.loads(ran["stdout"])
    expect_equal(leaf.get("state"), "ready", "what the third is")
    tree = [(one.id, one.depth, one.parent) for one in await bench.client.tree()]
    for line in ((top.id, 0, None), (child["id"], 1, top.id), (leaf["id"], 2, child["id"])):
        expect(line in tree, f"the tree does not show {line[0]} at depth {line[1]} below {line[2]}")


@inception.check("what is inside must not be more than what it was given")
async def what_is_inside_is_another_caller_and_sees_nothing_of_its_maker(bench: Bench) -> None:
    me = await bench.client.account.me()
    secret = await bench.sandbox()
    top = await _granted(bench, slots=1)
    seen = await _inside(top, "GET", "/v1/accounts/me")
    expect(seen["account"]["id"] != me.account.id, "it acts as the account that made it")
    expect("keys:delegate" not in seen["scopes"], "it may give keys away")
    found = await _inside(top, "GET", f"/v1/sandboxes/{secret.id}", code=REFUSED)
    expect_equal(found["status"], 404, "the status of its maker's other sandbox")
    env = await top.exec("env; cat /run/sandboxer/sandbox.json")
    expect(not [mark for mark in ("sbx-sk-", "sbx-pk-", '"sk_') if mark in env.stdout], "a key is inside")


@inception.check("turtles that stop: slots, depth and trust")
async def what_is_beyond_a_grant_is_refused_and_the_bound_is_named(bench: Bench) -> None:
    top = await _granted(bench, slots=2, depth=1)
    body = _small(bench, "greedy", inception={"slots": 9})
    said = await _inside(top, "POST", "/v1/sandboxes", body, code=REFUSED)
    expect_equal((said["status"], said.get("axis")), (403, "slots"), "why too many slots are refused")
    body = _small(bench, "deep", inception={"slots": 1, "depth": 5})
    said = await _inside(top, "POST", "/v1/sandboxes", body, code=REFUSED)
    expect_equal((said["status"], said.get("axis")), (403, "depth"), "why too great a depth is refused")
    info = await top.refresh()
    if info.trust == "zero" and "semi" in (await bench.client.capabilities()).trust_levels:
        body = _small(bench, "open", trust="semi")
        said = await _inside(top, "POST", "/v1/sandboxes", body, code=REFUSED)
        expect_equal((said["status"], said.get("axis")), (403, "trust"), "why a network is refused")
    for number in range(2):
        await _inside(top, "POST", "/v1/sandboxes", _small(bench, f"child{number}"))
    said = await _inside(top, "POST", "/v1/sandboxes", _small(bench, "third"), code=REFUSED)
    expect_equal(said.get("reason"), "no_slots", "why a third sandbox is refused")


@inception.check("an orphan would go on and cost")
async def with_a_parent_ends_all_that_was_made_below_it(bench: Bench) -> None:
    top, child = await _two_layers(bench)
    ask = f"sandboxer api POST /v1/sandboxes '{json.dumps(_small(bench, 'grandchild'))}'"
    ran = await _inside(top, "POST", f"/v1/sandboxes/{child['id']}/exec", {"command": ask})
    below = (child["id"], json.loads(ran["stdout"])["id"])
    expect(not ENDED & set(await _states(bench, *below)), "something is gone before the end")
    await top.destroy()

    async def all_gone() -> bool:
        return set(await _states(bench, *below)) <= ENDED

    await until(all_gone, "a child outlives its parent", within_s=30)


@inception.check("each layer costs, and what it does not spend comes back")
async def a_budget_is_cut_from_its_maker_and_returns_to_the_sat(bench: Bench) -> None:
    await bench.demand_charged("budget")
    await bench.demand_sats(2 * BUDGET_SATS, "a budget of its own")
    top = await _granted(bench, slots=1, budget_sats=BUDGET_SATS)
    account = await _inside(top, "GET", "/v1/accounts/me")
    expect_equal(account["money"]["balance"], BUDGET_SATS, "what it has of its own")
    own = account["account"]["id"]
    child = await _inside(top, "POST", "/v1/sandboxes", _small(bench, "child"))
    await _inside(top, "DELETE", f"/v1/sandboxes/{child['id']}")
    await top.destroy()

    async def is_settled() -> object:
        nodes = [one for one in (await bench.client.keys.tree()).children if one.account == own]
        return next((one for one in nodes if one.balance == 0 and one.given), None)

    node: Any = await until(is_settled, "what is left has not come back", within_s=30)
    expect_equal(node.given, BUDGET_SATS, "what it was given")
    expect_equal(node.returned + node.subtree_spent, node.given, "what came back and what was spent")


@inception.check("money is the bound that holds in the end")
async def nobody_gives_more_than_it_has(bench: Bench) -> None:
    await bench.demand_charged("budget")
    have = (await bench.client.account.me()).money.available
    try:
        made = await bench.sandbox(inception={"slots": 1, "budget_sats": have + 1_000_000})
    except ApiError as error:
        expect_equal(error.status, 402, "the status of a budget that nobody has")
        return
    expect(False, f"{made} was given what the account does not have")


inception.check("a child that stays costs")(nothing_is_left)

Ask = Callable[[str, str, object], Awaitable[Any]]
SCRIPT = "echo hello $((6 * 7)); echo kept > /workspace/kept; echo bad >&2; exit 3"
SAME = {
    "state": "ready",
    "ran": ("hello 42\n", "bad\n", 3),
    "snapshot": "kept",
    "fork": "kept\n",
    "end": ("destroyed", "destroyed", "dropped"),
}


async def _loop(bench: Bench, ask: Ask) -> dict[str, object]:
    """Makes a sandbox, runs, keeps its disk, forks it, and ends all of it; returns what came of each."""
    word = bench.name("loop")
    body = {"ttl": TTL, "name": word, "labels": bench.labels}
    made = await ask("POST", "/v1/sandboxes", body)
    path = f"/v1/sandboxes/{made['id']}"
    ran = await ask("POST", f"{path}/exec", {"command": SCRIPT})
    kept = await ask("POST", f"{path}/snapshots", {"labels": bench.labels})
    fork = await ask("POST", "/v1/sandboxes", {**body, "name": f"{word}-fork", "snapshot": kept["id"]})
    forked = f"/v1/sandboxes/{fork['id']}"
    read = await ask("POST", f"{forked}/exec", {"command": "cat /workspace/kept"})
    ends = [await ask("DELETE", each, None) for each in (forked, path, f"/v1/snapshots/{kept['id']}")]
    return {
        "state": made["state"],
        "ran": (ran["stdout"], ran["stderr"], ran["exit_code"]),
        "snapshot": kept["state"],
        "fork": read["stdout"],
        "end": tuple(one["state"] for one in ends),
    }


async def _expect_the_same(bench: Bench, ask: Ask) -> None:
    await bench.demand_capability("snapshot")
    await bench.demand_means()
    bench.takes_back(_sweep, bench)
    seen = await _loop(bench, ask)
    for name, wanted in SAME.items():
        expect_equal(seen[name], wanted, f"what it sees of `{name}`")


async def _sweep(bench: Bench) -> None:
    """Ends what a loop left that broke off, whoever had begun it."""
    async for one in bench.client.list(labels=bench.labels):
        if one.state not in GONE:
            await bench.client.sandbox(one.id).destroy()
    async for kept in bench.client.snapshots.list(labels=bench.labels):
        if kept.state == "kept":
            await bench.client.snapshots.remove(kept.id)


def _by_standard_library(bench: Bench, head: Callable[[str, str, bytes], Mapping[str, str]]) -> Ask:
    """Asks with nothing but what Python brings; in a thread, since that blocks."""
    parts = urlsplit(bench.client.credentials.url)
    if parts.scheme not in ("http", "https"):
        raise NotTried("the platform is asked by a socket")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection

    def send(method: str, path: str, content: bytes) -> Any:
        line = kind(str(parts.hostname), parts.port, timeout=60)
        try:
            headers = {"Content-Type": "application/json", **head(method, path, content)}
            line.request(method, path, content or None, headers)
            answer = line.getresponse()
            said = answer.read()
        finally:
            line.close()
        if answer.status >= 300:
            raise CheckFailed(f"{method} {path} was answered with {answer.status}: {said[:300]!r}")
        return json.loads(said)

    async def ask(method: str, path: str, body: object) -> Any:
        return await asyncio.to_thread(send, method, path, b"" if body is None else json.dumps(body).encode())

    return ask


@compatibility.check("custom HTTP, signed: the paper's fifth framework, and what the others stand on")
async def the_standard_library_and_a_signature_are_enough(bench: Bench) -> None:
    bench.demand_key()
    known = bench.client.credentials

    def head(method: str, path: str, content: bytes) -> Mapping[str, str]:
        stamp, nonce = str(int(time.time())), secrets.token_hex(16)
        digest = hashlib.sha256(content).hexdigest()
        text = f"v2:{stamp}:{nonce}:{method}:{path}:{digest}".encode()
        return {
            "Authorization": f"Bearer {known.public_key}",
            "X-Timestamp": stamp,
            "X-Nonce": nonce,
            "X-Content-SHA256": digest,
            "X-Signature": hmac.new(known.secret_key.encode(), text, "sha256").hexdigest(),
        }

    await _expect_the_same(bench, _by_standard_library(bench, head))


@compatibility.check("one header, for what can send no more")
async def a_bearer_token_does_the_same(bench: Bench) -> None:
    token = await _token(bench)
    await _expect_the_same(
        bench, _by_standard_library(bench, lambda *_: {"Authorization": f"Bearer {token}"})
    )


async def _token(bench: Bench) -> str:
    """A bearer token of an account below this one."""
    found = await bench.discovered()
    if not found.takes_bearer_tokens:
        raise NotOffered("bearer tokens are not taken here")
    sats = 0
    if found.is_charged and (await bench.client.account.me()).account.kind != "owner":
        await bench.demand_sats(BUDGET_SATS, "what a key of its own spends")
        sats = BUDGET_SATS
    elif found.is_charged:
        raise NotTried("the operator's own account has no sats to give to a key of its own")
    scopes = ("sandboxes:create", "sandboxes:read", "sandboxes:manage", "sandboxes:destroy", "exec")
    key = await bench.child(*scopes, "account:manage", budget_sats=sats, slots=2)
    # Made by itself: a token of a key of one's own would end the one that the account has.
    return (await bench.as_child(key).keys.issue_bearer(key.public_key)).bearer_token


@compatibility.check("programs that wait for each answer")
async def the_blocking_client_does_the_same(bench: Bench) -> None:
    known = bench.client.credentials
    await bench.demand_capability("snapshot")
    await bench.demand_means()
    bench.takes_back(_sweep, bench)
    word = bench.name("loop")

    def loop() -> dict[str, object]:
        with Sandboxer(
            url=known.url,
            public_key=known.public_key,
            secret_key=known.secret_key,
            api_key=known.bearer_token,
        ) as client:
            made = client.create(ttl=TTL, name=word, labels=bench.labels)
            ran = made.exec(SCRIPT)
            kept = client.snapshots.take(made.id, labels=bench.labels)
            fork = client.create(ttl=TTL, name=f"{word}-fork", labels=bench.labels, snapshot=kept.id)
            return {
                "state": made.info.state,
                "ran": (ran.stdout, ran.stderr, ran.exit_code),
                "snapshot": kept.state,
                "fork": fork.exec("cat /workspace/kept").stdout,
                "end": (fork.destroy().state, made.destroy().state, client.snapshots.remove(kept.id).state),
            }

    expect_equal(await asyncio.to_thread(loop), SAME, "what it sees")


@compatibility.check("programs that do much at once")
async def the_client_of_asyncio_does_the_same(bench: Bench) -> None:
    await bench.demand_capability("snapshot")
    await bench.demand_means()
    bench.takes_back(_sweep, bench)
    client = bench.client
    made = await bench.sandbox()
    state = made.info.state if made.info is not None else None
    ran = await made.exec(SCRIPT)
    kept = await client.snapshots.take(made.id, labels=bench.labels)
    fork = await bench.sandbox(snapshot=kept.id)
    read = await fork.exec("cat /workspace/kept")
    ends = (await fork.destroy()).state, (await made.destroy()).state
    seen = {
        "state": state,
        "ran": (ran.stdout, ran.stderr, ran.exit_code),
        "snapshot": kept.state,
        "fork": read.stdout,
        "end": (*ends, (await client.snapshots.remove(kept.id)).state),
    }
    expect_equal(seen, SAME, "what it sees")


@compatibility.check("what an agent inside has, without a key and without a network")
async def the_client_inside_does_the_same(bench: Bench) -> None:
    top = await _granted(bench, slots=2)
    await _expect_the_same(bench, lambda method, path, body: _inside(top, method, path, body))


@compatibility.check("programs that were written for another platform")
async def the_api_of_e2b_makes_sandboxes_of_the_same_kind(bench: Bench) -> None:
    found = await bench.discovered()
    door = urlsplit(found.e2b_url).path
    token = await _token(bench)
    head = {"x-api-key": api_key_of(token)}
    wish = {"templateID": "base", "timeout": 300, "metadata": bench.labels}
    answer = await bench.send("POST", f"{door}/sandboxes", wish, headers=head, signs=False)
    expect_equal(answer.status_code, 201, f"the status of a create ({answer.text[:200]})")
    sandbox_id = answer.json()["sandboxID"]
    target = f"{door}/sandboxes/{sandbox_id}"
    try:
        listed = await bench.send("GET", f"{door}/v2/sandboxes", headers=head, signs=False)
        expect(sandbox_id in listed.text, "what was made is not listed")
    finally:
        ended = await bench.send("DELETE", target, headers=head, signs=False)
    expect_equal(ended.status_code, 204, "the status of its end")
    gone = await bench.send("GET", target, headers=head, signs=False)
    expect_equal(gone.status_code, 404, "the status of what is ended")


compatibility.check("whichever client made it, it costs as long as it is there")(nothing_is_left)
