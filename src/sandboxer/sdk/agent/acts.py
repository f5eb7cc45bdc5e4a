"""What the loop does in each step but those of payment: one question to the platform at a time, whose answer
is written down before the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandboxer.sdk.agent import payment
from sandboxer.sdk.agent.line import HeldUp, Line
from sandboxer.sdk.agent.progress import (
    KEPT_OUTPUT,
    Child,
    Order,
    Place,
    Platform,
    Price,
    Progress,
    Result,
    Step,
    Tools,
    Way,
    after_end,
    below,
    read_report,
    to_json,
)
from sandboxer.sdk.agent.steps import Blocked, Blocker, Done, Kept, Outcome, deepest, paid_for

DESCRIPTION = Path("/run/sandboxer/sandbox.json")
# Where a child keeps what belongs to the loop.
FOLDER = "/var/lib/sandboxer-agent"
ARCHIVE, STATE = f"{FOLDER}/loop.pyz", f"{FOLDER}/progress.json"
OUTPUT, ERRORS = f"{FOLDER}/output", f"{FOLDER}/errors"
# For so long one question waits for the end of what runs in the child.
WAIT_S = 10
MOST_REPORT = 1024 * 1024
MOST_RESTARTS = 5
_LEAF = f'exec >{OUTPUT} 2>{ERRORS} </dev/null; exec /bin/sh -c "$1"'
_HAS_PYTHON = "import sys; sys.exit(sys.version_info < (3, 11))"
_OVER = ("expired", "destroying", "destroyed")
_UNPAID = ("grace", "reaped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a run has besides its file: ways to the platform, wallets, the packed loop, and the time."""

    line: Callable[[Progress], Line]
    archive: Callable[[], bytes]
    now: Callable[[], float]
    wallet: payment.X402Wallet | None = None
    coins: payment.CoinWallet | None = None
    description: Path = DESCRIPTION


def act(around: Surroundings, progress: Progress) -> Outcome:
    """Does the next thing of the step that the run is in."""
    try:
        if progress.leftovers:
            return _end_leftover(around.line(progress), progress)
        return _ACTS[progress.step](around, progress)
    except HeldUp as held:
        return held.blocked
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        # Of an answer that lacks what every platform says, or says it in another form.
        return Blocked(Blocker.UNAVAILABLE, f"an answer is not understood: {error!r}")


def _end_leftover(line: Line, progress: Progress) -> Outcome:
    first = progress.leftovers[0]
    reply = line.ask("DELETE", f"/v1/sandboxes/{first}", also=(404,))
    known = after_end(progress, first, reply.json.get("spent_sats") if reply.status < 400 else None)
    return Kept({"leftovers": known.leftovers, "lost": known.lost}, f"ended {first}")


def _look_around(around: Surroundings, progress: Progress) -> Outcome:
    try:
        said = json.loads(around.description.read_text())
    except (OSError, ValueError):
        return Done({"place": Place()}, "not in a sandbox")
    api = said.get("api") or {}
    place = Place(
        sandbox=said.get("id"),
        # Who was given a key of his own, or a way to pay, asks with that.
        socket=api.get("socket") if progress.order.way is Way.KEY and not progress.order.url else None,
        depth=int(said.get("depth") or 0),
        ends_at=said.get("ends_at"),
    )
    if place.socket is None and not progress.order.url:
        why = "this sandbox was not granted anything, and no address of a platform was given"
        return Blocked(Blocker.REFUSED, why, changes={"place": place})
    return Done({"place": place}, f"in {place.sandbox}")


def _discover(around: Surroundings, progress: Progress) -> Outcome:
    said = around.line(progress).ask("GET", "/.well-known/sandboxer.json", is_signed=False).json
    found = Platform(
        version=str(said["version"]),
        url=str(said["url"]),
        is_charged=bool(said["is_charged"]),
        takes_strangers=bool(said["takes_strangers"]),
    )
    if paid_for(progress) is None and not found.takes_strangers:
        return Blocked(Blocker.NO_WAY_TO_PAY, "the platform serves only accounts that its operator opened")
    return Done({"platform": found}, f"{said['name']} {found.version}")


def _price(around: Surroundings, progress: Progress) -> Outcome:
    said = around.line(progress).ask("GET", "/pricing-for-agents.json", is_signed=False).json
    layer = layer_sats(said, progress.order) if progress.platform and progress.platform.is_charged else 0
    price = Price(
        layer_sats=layer,
        total_sats=layer * progress.order.depth,
        memory_sats=max(layer_sats(said, more_memory(progress.order)) - layer, 0) if layer else 0,
        networks=tuple(each["network"] for each in said.get("networks", ()) if each["is_on"]),
        coins=tuple(each["coin"] for each in said.get("coins", ()) if each["is_on"]),
    )
    if price.total_sats > progress.order.budget_sats:
        why = (
            f"{progress.order.depth} layers of {progress.order.ttl_s} s cost {price.total_sats} sats, and the"
            f" budget is {progress.order.budget_sats}"
        )
        return Blocked(Blocker.NO_MONEY, why)
    if (unsold := payment.why_not_sold(progress, price)) is not None:
        return Blocked(Blocker.NO_WAY_TO_PAY, unsold)
    payment.demand_possible(around.line(progress), progress, child_body(replace(progress, price=price)))
    return Done({"price": price}, f"{price.layer_sats} sats a layer")


def layer_sats(pricing: Mapping[str, Any], order: Order) -> int:
    """Returns what a layer costs for its whole time, rounded up."""
    rates = pricing["rates"]
    msats = float(
        rates["running_msats"]
        + rates["vcpu_msats"] * order.vcpus
        + rates["memory_gb_msats"] * order.memory_mb / 1024
        + rates["disk_gb_msats"] * order.disk_mb / 1024
    )
    # A quarter more: what rounds up by the second, and time that it may have to be given besides.
    return math.ceil(msats * order.ttl_s * 1.25 / 1000) + 1


def more_memory(order: Order) -> Order:
    """Returns the order of a layer with once more the memory."""
    return replace(order, memory_mb=2 * order.memory_mb)


def _prepare(around: Surroundings, progress: Progress) -> Outcome:
    me = around.line(progress).ask("GET", "/v1/accounts/me").json
    available = int(me["money"]["available"])
    assert progress.price is not None
    if progress.price.total_sats > available and me["account"]["kind"] != "owner":
        why = f"{progress.price.total_sats} sats are needed, and the account has {available}"
        return payment.lost_again(around.line(progress), progress) or Blocked(Blocker.NO_MONEY, why)
    packed = around.archive()
    tools = Tools(sha256=payment.sha256(packed), size=len(packed), available_sats=available)
    return Done({"tools": tools}, f"the loop, {len(packed)} bytes")


def child_body(progress: Progress) -> dict[str, Any]:
    """Returns what the child is created with: what it is given never depends on when it is asked for."""
    order, price = progress.order, progress.price
    assert price is not None
    body: dict[str, Any] = {
        "ttl": f"{order.ttl_s}s",
        "trust": "zero",
        "resources": {
            "vcpus": order.vcpus,
            "memory_mb": progress.memory_mb,
            "disk_mb": order.disk_mb,
            "pids": order.pids,
        },
        "labels": {"agent-run": progress.run},
    }
    if order.image is not None:
        body["image"] = order.image
    if order.depth > 1:
        body["inception"] = {
            "budget_sats": budget_below(progress),
            "slots": order.depth - 1,
            "depth": order.depth - 2,
        }
    return body


def budget_below(progress: Progress) -> int:
    """Returns what the child may spend in turn. Each layer keeps an equal share, for its child, more time and
    another child.
    """
    assert progress.platform is not None
    left, layers = progress.left_sats, progress.order.depth
    if not progress.platform.is_charged or layers <= 1:
        return 0
    return max(left - max(left // layers, progress.child_sats), 0)


def _beyond_budget(progress: Progress) -> Blocked | None:
    """Says why the budget does not suffice for one more child, with all that are to come below it."""
    assert progress.price is not None
    needed = progress.child_sats + progress.price.layer_sats * (progress.order.depth - 1)
    if needed <= progress.left_sats:
        return None
    budget, left = progress.order.budget_sats, progress.left_sats
    return Blocked(Blocker.BUDGET, f"{needed} sats are needed, and the budget of {budget} leaves {left}")


def _create(around: Surroundings, progress: Progress) -> Outcome:
    line = around.line(progress)
    if progress.child is None:
        if (beyond := _beyond_budget(progress)) is not None:
            return beyond
        key = progress.id_for("child", Step.CREATE_CHILD)
        try:
            made = line.ask(
                "POST", "/v1/sandboxes", child_body(progress), headers={"idempotency-key": key}, waits_s=120
            ).json
        except HeldUp as held:
            if held.blocked.blocker is Blocker.NO_MONEY and (lost := payment.lost_again(line, progress)):
                return lost
            raise
        if made["state"] in _OVER or made["state"] in ("failed", "stopped"):
            child = Child(id=made["id"])
            return Blocked(Blocker.CHILD_LOST, f"{child.id} is {made['state']}", changes={"child": child})
        child = Child(
            id=made["id"],
            ends_at=made["expires_at"],
            cost_sats=progress.child_sats,
            granted_sats=budget_below(progress),
        )
        return Kept({"child": child}, f"made {child.id}")
    return _install(around, line, progress, progress.child)


def _install(around: Surroundings, line: Line, progress: Progress, child: Child) -> Outcome:
    """Puts the loop into the child, and the file from which it begins. Nothing of it runs yet."""
    try:
        first = below(progress, budget_sats=child.granted_sats, now=around.now())
        _write(line, child, STATE, json.dumps(to_json(first)).encode())
        if progress.order.depth > 1:
            packed = around.archive()
            _write(line, child, ARCHIVE, packed)
            ran = line.ask(
                "POST",
                f"/v1/sandboxes/{child.id}/exec",
                {"command": f"python3 -I -c '{_HAS_PYTHON}'", "timeout_s": 30},
                waits_s=30,
            ).json
            if ran["exit_code"] in (1, 126, 127):
                why = (
                    f"python3 in the image of {child.id} ends with {ran['exit_code']}: {ran['stderr'][:200]}"
                )
                return Blocked(Blocker.NO_PYTHON, why)
            if ran["exit_code"] != 0:
                return _ran_out(ran) or Blocked(Blocker.UNAVAILABLE, f"python3 ended with {ran['exit_code']}")
    except HeldUp as held:
        return _of_child(line, child, held)
    return Done({"child": replace(child, is_installed=True)}, f"installed in {child.id}")


def _write(line: Line, child: Child, path: str, content: bytes) -> None:
    target = f"/v1/sandboxes/{child.id}/files/content?path={quote(path, safe='')}&mode={0o600}"
    line.ask("PUT", target, content=content, headers={"content-type": "application/octet-stream"})


def _execute(around: Surroundings, progress: Progress) -> Outcome:
    line, child = around.line(progress), progress.child
    assert child is not None
    if progress.result is not None:
        return _end_child(line, progress, progress.result)
    try:
        if child.process is None:
            return _start(line, progress, child)
        # Not longer, so that there is time left to extend.
        wait_s = min(WAIT_S, progress.order.ttl_s / 6)
        seen = line.ask(
            "GET",
            f"/v1/sandboxes/{child.id}/processes/{child.process}/wait?timeout_s={wait_s:g}",
            waits_s=wait_s,
        ).json
        if not seen["running"]:
            return _collect(line, progress, child, seen)
        return _extended(line, progress, child, around.now() + progress.clock_offset_s)
    except HeldUp as held:
        return _of_child(line, child, held)


def _start(line: Line, progress: Progress, child: Child) -> Outcome:
    """Starts what runs in the child, or finds it: it may run already, and its answer was lost."""
    tag = progress.id_for(f"process-{child.restarts}", Step.CREATE_CHILD)
    known = line.ask("GET", f"/v1/sandboxes/{child.id}/processes").json["processes"]
    found = next((one for one in known if one["tag"] == tag), None)
    if found is None:
        argv: Sequence[str] = (
            ["python3", "-I", ARCHIVE, STATE]
            if progress.order.depth > 1
            else ["/bin/sh", "-c", _LEAF, "sh", progress.order.task]
        )
        body = {"argv": argv, "tag": tag}
        found = line.ask(
            "POST", f"/v1/sandboxes/{child.id}/processes", body, headers={"idempotency-key": tag}
        ).json
    started = replace(child, process=found["process_id"])
    return Kept({"child": started}, f"started {started.process}")


def _extended(line: Line, progress: Progress, child: Child, now: float) -> Outcome:
    """Gives the child more time when less than a third of it is left, within the budget. A refusal changes
    nothing.
    """
    left = payment.seconds_until(child.ends_at, now)
    if left is None or left > progress.order.ttl_s / 3:
        return Kept()
    if (more := progress.child_sats) > progress.left_sats:
        why = f"{more} sats are needed, and the budget leaves {progress.left_sats}"
        return Kept({"child": replace(child, ends_at=None)}, f"no more time: {why}")
    number = child.extensions + 1
    key = progress.id_for(f"ttl-{number}", Step.CREATE_CHILD)
    try:
        seen = line.ask(
            "PATCH",
            f"/v1/sandboxes/{child.id}/ttl",
            {"duration": f"{progress.order.ttl_s}s"},
            headers={"idempotency-key": key},
        ).json
    except HeldUp as held:
        if held.status not in (402, 403, 409, 422):
            raise
        return Kept({"child": replace(child, ends_at=None)}, f"no more time: {held.blocked.why}")
    cost = child.cost_sats + more
    longer = replace(child, ends_at=seen["expires_at"], extensions=number, cost_sats=cost)
    return Kept({"child": longer}, f"until {longer.ends_at}")


def _collect(line: Line, progress: Progress, child: Child, ended: Mapping[str, Any]) -> Outcome:
    if (ran_out := _ran_out(ended)) is not None:
        return ran_out
    code = ended["exit_code"] if ended["exit_code"] is not None else 128 + (ended["signal"] or 0)
    if progress.order.depth <= 1:
        output, errors = (_read(line, child, path) for path in (OUTPUT, ERRORS))
        return Kept({"result": Result(exit_code=code, output=output, errors=errors)}, f"exit code {code}")
    said = read_report(_read(line, child, f"{STATE}.report", MOST_REPORT))
    if said is None and ended["signal"] is not None and child.restarts < MOST_RESTARTS:
        # Its file is still there: it goes on where it was.
        again = replace(child, process=None, restarts=child.restarts + 1)
        return Kept({"child": again}, f"the loop in {child.id} was killed, and goes on")
    if said is None or said["state"] != "done":
        cause = deepest(said or {"sandbox": child.id, "step": "execute_in_child"})
        why = f"{cause['sandbox']} gave up: {cause['why'] or f'its loop ended with {code}'}"
        return Blocked(Blocker.CASCADING_FAILURE, why, cause=cause)
    result = Result(
        exit_code=said["exit_code"],
        output=said.pop("output"),
        errors=said.pop("errors"),
        # What it printed has come up already.
        below=said,
    )
    return Kept({"result": result}, f"exit code {result.exit_code}")


def _ran_out(ended: Mapping[str, Any]) -> Blocked | None:
    if ended.get("reason") == "oom_killed":
        return Blocked(Blocker.MEMORY, "what ran in the child needed more memory than it has")
    return None


def _read(line: Line, child: Child, path: str, most: int = KEPT_OUTPUT) -> str:
    """Returns the end of a file; nothing if there is none."""
    target = f"/v1/sandboxes/{child.id}/files/content?path={quote(path, safe='')}"
    reply = line.ask("GET", target, headers={"range": f"bytes=-{most}"}, also=(404, 416))
    return reply.content.decode(errors="replace") if reply.status < 400 else ""


def _end_child(line: Line, progress: Progress, result: Result) -> Outcome:
    assert progress.child is not None
    if progress.order.keep:
        return Done({}, "the child stays")
    ended = line.ask("DELETE", f"/v1/sandboxes/{progress.child.id}", also=(404,))
    spent = int(ended.json.get("spent_sats") or 0) if ended.status < 400 else 0
    return Done({"result": replace(result, spent_sats=spent)}, f"ended {progress.child.id}")


def _of_child(line: Line, child: Child, held: HeldUp) -> Outcome:
    """Finds out what it means that a child does not do what it is asked."""
    if held.status not in (404, 409, 410, 502) or held.blocked.blocker is Blocker.RACE:
        return held.blocked
    seen = line.ask("GET", f"/v1/sandboxes/{child.id}", also=(404,))
    state = seen.json["state"] if seen.status < 400 else "destroyed"
    if state in _UNPAID:
        return Blocked(Blocker.NO_MONEY, f"{child.id} is {state}: its account has no credit left")
    if state in _OVER and seen.status < 400 and seen.json["reason"] == "ttl":
        return Blocked(Blocker.TTL, f"the time of {child.id} was over at {seen.json['ended_at']}")
    if state in (*_OVER, "failed", "stopped"):
        why = seen.json.get("reason") if seen.status < 400 else "nothing is known of it"
        return Blocked(Blocker.CHILD_LOST, f"{child.id} is {state}: {why}")
    if held.status == 404 and child.process is not None:
        # Its processes ended with a stop, and it was started again.
        return Blocked(Blocker.CHILD_LOST, f"what ran in {child.id} is gone: {held.blocked.why}")
    return Blocked(Blocker.UNAVAILABLE, held.blocked.why, held.blocked.retry_after_s)


_ACTS: Mapping[Step, Callable[[Surroundings, Progress], Outcome]] = {
    Step.INSIDE_SANDBOX: _look_around,
    Step.DISCOVER_TOOLS: _discover,
    Step.FETCH_PRICING: _price,
    Step.CREATE_INVOICE: lambda around, progress: payment.bill(around.line(progress), progress),
    Step.SEND_PAYMENT: lambda around, progress: payment.send(
        around.line(progress), progress, around.wallet, around.coins, around.now()
    ),
    Step.POLL_CONFIRMATION: lambda around, progress: payment.poll(around.line(progress), progress),
    Step.RECEIVE_KEYS: lambda around, progress: payment.receive(
        around.line(progress), progress, around.wallet, around.now() + progress.clock_offset_s
    ),
    Step.INSTALL_TOOLS: _prepare,
    Step.CREATE_CHILD: _create,
    Step.EXECUTE_IN_CHILD: _execute,
}
