"""What an agent does with answers and reports that were made to harm it: it names them, and never
pays twice or ends with a traceback for them.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxer.sdk.agent import line, loop, steps
from sandboxer.sdk.agent.acts import Surroundings, act
from sandboxer.sdk.agent.line import HeldUp, Line, Reply, refusal_of
from sandboxer.sdk.agent.progress import (
    Bill,
    Child,
    Order,
    Payment,
    Place,
    Platform,
    Price,
    Progress,
    Result,
    Step,
    Way,
    begin,
    read_report,
    to_json,
)
from sandboxer.sdk.agent.steps import Blocked, Blocker

NOW = 1_000_000.0


class Saying(Line):
    """A platform that gives one answer to everything."""

    def __init__(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        super().__init__("http://nowhere.invalid")
        self._reply = Reply(status, headers or {}, content)

    def _sent(self, *_: Any) -> Reply:
        return self._reply


def told(known: Progress, content: bytes, status: int = 200) -> Any:
    around = Surroundings(line=lambda _: Saying(status, content), archive=lambda: b"", now=lambda: NOW)
    return act(around, known)


def at(step: Step, **more: Any) -> Progress:
    order = Order(depth=2, task="true", url="http://nowhere.invalid", budget_sats=100)
    known = begin(order, now=NOW, run="r")
    platform = Platform(version="1", url="u", is_charged=True, takes_strangers=True)
    return replace(
        known, step=step, place=Place(), platform=platform, price=Price(layer_sats=5, total_sats=10), **more
    )


_DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "answer",
    [
        _DEEP,
        b'{"money": {"available": "much"}, "account": {"kind": "owner"}}',
        b'{"money": {"available": Infinity}, "account": {"kind": "owner"}}',
        b"\xff\xfe",
        b"3" * 10_000,
    ],
)
def test_an_answer_made_to_break_the_loop_is_asked_for_again(answer: bytes) -> None:
    said = told(at(Step.INSTALL_TOOLS), answer)
    assert isinstance(said, Blocked)
    assert said.blocker is Blocker.UNAVAILABLE


def test_an_id_that_no_request_can_carry_is_named() -> None:
    for id in ("ä/../x", "a b", "x\r\nhost: other"):
        around = Surroundings(line=lambda _: Line("http://127.0.0.1:9"), archive=lambda: b"", now=lambda: NOW)
        said = act(around, at(Step.CREATE_CHILD, child=Child(id=id)))
        assert isinstance(said, Blocked)
        assert said.blocker is Blocker.UNAVAILABLE


@pytest.mark.parametrize("said", ["9" * 400, "99999999999"])
def test_a_platform_does_not_make_an_agent_wait_for_ever(said: str) -> None:
    held = refusal_of(Reply(429, {"retry-after": said}, b"{}"), is_inside=False).blocked
    assert held.retry_after_s is not None
    assert held.retry_after_s <= 600


@pytest.mark.parametrize(
    "said", ["Infinity", "1e308", "-1e300", '"0001-01-01T00:00:00+23:00"', "NaN", "true"]
)
def test_a_time_of_the_platform_that_is_none_is_not_taken_over(said: str) -> None:
    content = f'{{"reason": "clock_skew", "server_time": {said}}}'.encode()
    held = refusal_of(Reply(401, {}, content), is_inside=False, now=lambda: NOW).blocked
    assert held.blocker is Blocker.CLOCK_SKEW
    assert not held.changes


def test_a_platform_that_lies_about_the_time_is_not_paid_twice() -> None:
    """What was signed can still be used until its end by our own clock as well."""
    paid = Payment(signed="e30=", valid_until=int(NOW) + 60)
    known = at(Step.SEND_PAYMENT, payment=paid, bill=Bill(sats=5, id="b", offers="e30="), clock_offset_s=1e8)
    known = replace(known, order=replace(known.order, way=Way.X402))
    said = told(known, b'{"detail": "no"}', status=402)
    assert isinstance(said, Blocked)
    assert said.blocker is Blocker.FAILED_BROADCAST


def report(**more: Any) -> dict[str, Any]:
    return {
        "state": "done",
        "exit_code": 0,
        "output": "o",
        "errors": "",
        "spent_sats": 1,
        "sandbox": "sbx_1",
        "blocked": None,
        "below": None,
    } | more


@pytest.mark.parametrize(
    "text",
    [
        _DEEP.decode(),
        '{"state": "done", "exit_code": Infinity, "output": "", "errors": "", "spent_sats": 0}',
        "[]",
        "7",
    ],
)
def test_a_report_made_to_break_the_loop_is_none(text: str) -> None:
    assert read_report(text) is None


def test_of_a_report_only_what_every_layer_says_is_kept(tmp_path: Path) -> None:
    nested: Any = "x"
    for _ in range(400):
        nested = {"below": nested, "more": [nested] if isinstance(nested, str) else []}
    below = report(below=nested, key="x" * 10_000, sandbox="s" * 10_000, exit_code=10**300)
    said = read_report(json.dumps(report(below=below, left=[1] * 1000, exit_code=512)))
    assert said is not None
    assert 0 < said["exit_code"] < 256
    known = at(Step.EXECUTE_IN_CHILD, result=Result(exit_code=0, below=said))
    assert len(json.dumps(to_json(known))) < 64 * 1024
    loop.StateFile(tmp_path / "run.json").write(known)


def test_the_cause_that_a_child_names_is_short() -> None:
    cause = {"sandbox": ["x"] * 9, "why": "w" * 100_000, "depth": {"a": 1}}
    said = read_report(json.dumps(report(state="gave_up", blocked={"cause": cause})))
    assert said is not None
    assert len(json.dumps(steps.deepest(said))) < 4096


@pytest.mark.parametrize("is_link_first", [True, False])
def test_one_run_under_two_names_is_held_once(tmp_path: Path, *, is_link_first: bool) -> None:
    path, link = tmp_path / "run.json", tmp_path / "link.json"
    loop.StateFile(path).write(at(Step.INSTALL_TOOLS))
    link.symlink_to(path)
    first, second = (link, path) if is_link_first else (path, link)
    with (
        loop.StateFile(first).alone(),
        pytest.raises(loop.HeldElsewhere),
        loop.StateFile(second).alone(),
    ):
        pass
    loop.StateFile(link).write(at(Step.CREATE_CHILD))
    assert link.is_symlink()
    known = loop.StateFile(path).read()
    assert known is not None
    assert known.step is Step.CREATE_CHILD


def test_secrets_are_written_to_no_file_that_was_laid_out_for_them(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / ".run.json.new").symlink_to(other)
    loop.StateFile(tmp_path / "run.json").write(at(Step.INSTALL_TOOLS))
    assert other.read_text() == "kept"
    assert not (tmp_path / "run.json").is_symlink()


def test_a_report_says_numbers_that_are_numbers() -> None:
    text = json.dumps(report(spent_sats=1e999, seconds=float("nan"), depth="9"))
    said = read_report(text)
    assert said is not None
    assert (said["spent_sats"], said["seconds"], said["depth"]) == (0, 0.0, 0)


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nx-more: "])
def test_an_answer_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch, begins: bytes) -> None:
    """A byte now and then keeps every single read alive, in the head as in the body."""
    monkeypatch.setattr(line, "PATIENCE_S", 0.5)
    asked = threading.Event()

    class Trickling(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.set()
            self.request.sendall(begins)
            with contextlib.suppress(OSError):
                while True:
                    self.request.sendall(b"x")
                    time.sleep(0.05)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Trickling) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        before = time.monotonic()
        with pytest.raises(HeldUp, match="did not answer"):
            Line(f"http://127.0.0.1:{server.server_address[1]}").ask("GET", "/")
        server.shutdown()
    assert asked.is_set()
    assert time.monotonic() - before < 10


class Willing:
    """A wallet that signs whatever it is shown."""

    def __init__(self) -> None:
        self.signed: list[str] = []

    def sign_payment(self, required: Any) -> str:
        raise AssertionError(required)

    def sign_text(self, text: str) -> str:
        self.signed.append(text)
        return "0x"


SIGN_IN = "Sign this message to authenticate with sandboxer."
HONEST = f"{SIGN_IN}\n\nDomain: nowhere.invalid\nNonce: {'a' * 64}\nExpires: {int(NOW) + 300}"


@pytest.mark.parametrize(
    "text",
    [
        HONEST.replace("nowhere", "elsewhere"),
        HONEST.replace("a" * 64, "b" * 64),
        HONEST.replace("authenticate with", "link this wallet to an account of"),
        HONEST.replace(str(int(NOW) + 300), str(int(NOW) + 90_000)),
        f"{HONEST}\nAnd: I owe you everything",
        HONEST.replace("\nNonce", "\r\nNonce"),
        "nowhere.invalid wants you to sign in with your Ethereum account:\n0x0\n\n",
        "I hand over all that I have.",
        "",
    ],
)
def test_a_wallet_signs_nothing_but_a_sign_in_at_the_platform_that_asks(text: str) -> None:
    def shown(message: str) -> tuple[Any, Willing]:
        wallet = Willing()
        body = {"nonce": "a" * 64, "message": message, "token": "t"}
        line = Saying(200, json.dumps(body).encode())
        around = Surroundings(line=lambda _: line, archive=lambda: b"", now=lambda: NOW, wallet=wallet)
        known = at(Step.RECEIVE_KEYS, tries={"lost_key": 1}, payment=Payment(is_sent=True))
        return act(around, replace(known, order=replace(known.order, way=Way.X402))), wallet

    outcome, wallet = shown(text)
    assert isinstance(outcome, Blocked)
    assert (outcome.blocker, wallet.signed) == (Blocker.LOCKED_WALLET, [])
    outcome, wallet = shown(HONEST)
    assert (outcome.what, wallet.signed) == ("the wallet signed in", [HONEST])
