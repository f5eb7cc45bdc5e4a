"""Flow 13 of the paper, inception: a sandbox makes one that makes one, within money, slots, depth and time.

All that is asked below is asked from inside, by the client that every sandbox has, without a key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.flows import Charging, settled

SMALL = {"ttl": "10m", "resources": {"memory_mb": 64, "disk_mb": 64}}
REFUSED = 4


@pytest.fixture
def agent(charging: Charging) -> Iterator[Sandboxer]:
    known = charging.key
    with Sandboxer(url=charging.up.url, public_key=known.public_key, secret_key=known.secret_key) as client:
        yield client


def ask(sandbox: Sandbox, method: str, path: str, body: object = None, *, code: int = 0) -> Any:
    words = ["sandboxer", "api", method, path, *(["-"] if body is not None else [])]
    done = sandbox.exec(words, stdin=json.dumps(body or ""))
    assert done.exit_code == code, done
    return json.loads(done.stdout) if done.stdout else None


def below(sandbox: Sandbox, child: str, command: str) -> dict[str, Any]:
    """Runs a command in a sandbox that the first one has made, asked for from inside the first."""
    ran: dict[str, Any] = ask(sandbox, "POST", f"/v1/sandboxes/{child}/exec", {"command": command})
    return ran


def until_gone(agent: Sandboxer, *ids: str) -> None:
    deadline = time.monotonic() + 30
    while {one.id for one in agent.tree() if one.state != "destroyed"} & set(ids):
        assert time.monotonic() < deadline, agent.tree()
        time.sleep(0.05)


def test_two_layers_down_code_runs_and_all_of_it_ends_with_the_first(agent: Sandboxer) -> None:
    before = agent.account.me().money.balance
    top = agent.create(**SMALL, inception={"slots": 2, "depth": 1, "budget_sats": 300})
    account = ask(top, "GET", "/v1/accounts/me")["account"]["id"]
    assert ask(top, "GET", "/v1/accounts/me")["money"]["balance"] == 300

    grant = {"slots": 1, "budget_sats": 100}
    child = ask(top, "POST", "/v1/sandboxes", {**SMALL, "inception": grant})["id"]
    made = below(top, child, f"sandboxer api POST /v1/sandboxes '{json.dumps(SMALL)}'")
    leaf = json.loads(made["stdout"])["id"]
    run = f"""sandboxer api POST /v1/sandboxes/{leaf}/exec '{{"command": "sandboxer discover --json"}}'"""
    seen = json.loads(json.loads(below(top, child, run)["stdout"])["stdout"])
    assert (seen["id"], seen["depth"], seen["api"], seen["trust"]) == (leaf, 2, None, "zero")
    depths = {one.id: (one.depth, one.parent) for one in agent.tree()}
    assert [depths[one] for one in (top.id, child, leaf)] == [(0, None), (1, top.id), (2, child)]

    top.destroy()
    until_gone(agent, child, leaf)
    node = settled(agent, account)
    assert node.given == 300 == node.returned + node.subtree_spent
    # The first one's own time is all that is missing besides.
    spent = before - agent.account.me().money.balance
    assert node.subtree_spent <= spent <= node.subtree_spent + 2


def test_every_bound_is_refused_by_its_name(agent: Sandboxer) -> None:
    with agent.create(**SMALL, inception={"slots": 2, "depth": 1, "budget_sats": 50}) as top:
        for wish, axis in (
            ({"inception": {"slots": 3}}, "slots"),
            ({"inception": {"slots": 1, "depth": 1}}, "depth"),
            ({"trust": "semi"}, "trust"),
        ):
            said = ask(top, "POST", "/v1/sandboxes", {**SMALL, **wish}, code=REFUSED)
            assert (said["code"], said["axis"]) == ("forbidden", axis), said
        rich = {"inception": {"slots": 1, "budget_sats": 51}}
        assert ask(top, "POST", "/v1/sandboxes", {**SMALL, **rich}, code=REFUSED)["status"] == 402
        late = ask(top, "POST", "/v1/sandboxes", {**SMALL, "ttl": "900d"}, code=REFUSED)
        assert late["status"] == 422
        for _ in range(2):
            ask(top, "POST", "/v1/sandboxes", SMALL)
        assert ask(top, "POST", "/v1/sandboxes", SMALL, code=REFUSED)["reason"] == "no_slots"


def test_a_child_that_is_adopted_goes_on_with_what_it_was_given(agent: Sandboxer) -> None:
    top = agent.create(**SMALL, inception={"slots": 1, "budget_sats": 50, "on_parent_end": "adopt"})
    account = ask(top, "GET", "/v1/accounts/me")["account"]["id"]
    child = ask(top, "POST", "/v1/sandboxes", SMALL)["id"]
    top.destroy()
    (line,) = (one for one in agent.tree() if one.id == child)
    assert line.state in ("ready", "active")
    (node,) = (one for one in agent.keys.tree().children if one.account == account)
    assert node.key is not None
    agent.keys.revoke(node.key.public_key)
    until_gone(agent, child)
    assert settled(agent, account).given == 50


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(13)
