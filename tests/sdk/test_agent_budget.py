"""The budget of a run: whatever it extends and makes anew, no more can be spent by it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandboxer.sdk.agent.acts import Surroundings, act
from sandboxer.sdk.agent.line import Line, Reply
from sandboxer.sdk.agent.progress import (
    Order,
    Place,
    Platform,
    Price,
    Progress,
    Step,
    Tools,
    Way,
    begin,
    spent,
)
from sandboxer.sdk.agent.steps import advance

NOW = 1_000_000.0
TTL = 600


@dataclass
class Selling:
    """A platform on which no task ends. It counts what a run could cost at most, by its own prices."""

    layer_sats: int
    loses: str = ""
    most: int = 0
    made: int = 0
    extended: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    def answer(self, method: str, target: str, raw: bytes) -> tuple[int, dict[str, Any]]:
        body = json.loads(raw) if raw[:1] == b"{" else {}
        match method, target.partition("?")[0].split("/")[3:]:
            case "POST", []:
                pass
            case "PATCH", [child, "ttl"]:
                self.extended += 1
                self.most += self.layer_sats
                self.ends[child] += TTL
                return 200, {"expires_at": self.moment(child)}
            case "DELETE", [child]:
                return 200, {"spent_sats": None}
            case "GET", [child, "processes"]:
                return 200, {"processes": []}
            case "POST", [child, "processes"]:
                return 200, {"process_id": "p"}
            case "GET", [child, "processes", "p", "wait"]:
                self.ends[child] -= TTL // 8
                if self.ends[child] > 0 and not self.loses:
                    return 200, {"running": True}
                if self.loses == "memory":
                    ended = {"running": False, "exit_code": None, "signal": 9, "reason": "oom_killed"}
                    return 200, ended
                return 409, {"detail": "it has ended"}
            case "GET", [child]:
                over = {"state": "destroyed", "reason": self.loses or "ttl", "ended_at": "now"}
                return 200, over
            case _:
                return 200, {"exit_code": 0}
        self.made += 1
        child = f"sbx_{self.made}"
        share = body["resources"]["memory_mb"] // 128
        self.most += self.layer_sats * share + (body.get("inception") or {}).get("budget_sats", 0)
        self.ends[child] = TTL
        return 201, {"id": child, "state": "ready", "expires_at": self.moment(child)}

    def moment(self, child: str) -> str:
        return (datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=self.ends[child])).isoformat()


class ToIt(Line):
    def __init__(self, platform: Selling) -> None:
        super().__init__("http://nowhere.invalid")
        self._platform = platform

    def _sent(self, method: str, target: str, raw: bytes, *_: Any) -> Reply:
        status, body = self._platform.answer(method, target, raw)
        return Reply(status, {}, json.dumps(body).encode())


def run_to_its_end(platform: Selling, *, depth: int, budget: int, way: Way = Way.KEY) -> Progress:
    order = Order(depth=depth, task="sleep", url="http://nowhere.invalid", budget_sats=budget, way=way)
    price = Price(
        layer_sats=platform.layer_sats,
        total_sats=platform.layer_sats * depth,
        memory_sats=platform.layer_sats,
    )
    known = replace(
        begin(order, now=NOW, run="r"),
        step=Step.CREATE_CHILD,
        place=Place(),
        platform=Platform(version="1", url="u", is_charged=True, takes_strangers=True),
        price=price,
        tools=Tools(sha256="", size=0, available_sats=10**6),
    )
    around = Surroundings(line=lambda _: ToIt(platform), archive=lambda: b"loop", now=lambda: NOW)
    for _ in range(1_000):
        if known.end is not None:
            return known
        # As a clock that goes on: what is left of the time is what the platform says at the next look.
        if known.child is not None and known.child.ends_at is not None:
            seen = platform.moment(known.child.id)
            known = replace(known, child=replace(known.child, ends_at=seen))
        known = advance(known, act(around, known), now=NOW)
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("way", [Way.KEY, Way.X402])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("budget", [30, 31, 50, 100, 500])
@pytest.mark.parametrize("loses", ["", "memory", "removed"])
def test_whatever_becomes_of_its_children_no_more_can_be_spent(
    loses: str, budget: int, depth: int, way: Way
) -> None:
    platform = Selling(layer_sats=10, loses=loses)
    ended = run_to_its_end(platform, depth=depth, budget=budget, way=way)
    assert platform.most <= budget
    assert spent(ended) <= budget
    assert ended.trouble is not None


def test_what_the_budget_has_room_for_is_done() -> None:
    platform = Selling(layer_sats=10)
    ended = run_to_its_end(platform, depth=3, budget=300)
    # A third is this layer's own.
    assert (platform.made, platform.extended, platform.most) == (1, 9, 300)
    platform = Selling(layer_sats=10, loses="memory")
    ended = run_to_its_end(platform, depth=1, budget=70)
    assert ended.trouble is not None
    assert (platform.made, platform.most, ended.trouble.blocker) == (3, 70, "memory")


def test_it_ends_by_name_before_it_would_go_beyond() -> None:
    ended = run_to_its_end(Selling(layer_sats=10, loses="memory"), depth=1, budget=69)
    assert ended.trouble is not None
    assert ended.trouble.blocker == "budget"
    assert "40 sats are needed, and the budget of 69 leaves 39" in ended.trouble.why
