"""`sandboxer pay demo` as a user runs it: real chains, a real platform, a wallet, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from testchains import litecoin, monero
from testchains.evm import why_no_anvil
from testchains.stacks import local as stacks
from tests.support.cli import PROGRAM
from tests.support.platforms import why_not_real

FOLDER = Path("/var/tmp")
WHY_NOT = {"evm": why_no_anvil, "stacks": stacks.why_not, "ltc": litecoin.why_not, "xmr": monero.why_not}
needs_walls = pytest.mark.skipif(why_not_real() is not None, reason=str(why_not_real()))


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    return plain | more


def folders() -> set[Path]:
    return set(FOLDER.glob("sandboxer-pay-*"))


@contextmanager
def demo(*words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, "pay", "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def shown(*chains: str) -> Any:
    """What the demo says of these chains, all of which must have worked."""
    for chain in chains:
        if why := WHY_NOT[chain]():
            pytest.skip(why)
    with demo("--only", ",".join(chains), "--json") as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    answer = json.loads(out)
    assert [one["chain"] for one in answer["chains"]] == list(chains)
    for one in answer["chains"]:
        check(one)
    assert answer["books"]["is_whole"]
    assert "What moved" in err
    return answer


def check(one: dict[str, Any]) -> None:
    """402, paid, used, receipt; and every sat and coin is where the story says."""
    names = [step["name"] for step in one["steps"]]
    assert [name for name in names[:3] if name != "chain"][:2] == ["wallet", "ask"]
    assert names[-4:] == ["run", "destroy", "receipt", "books"]
    assert all(step["is_done"] for step in one["steps"])
    assert "primes below" in one["output"]
    assert one["receipt"].startswith(("pay_", "inv_"))
    assert one["credited"] == one["asked"] == one["spent"] + one["left"]
    assert one["spent"] > 0
    paid = Decimal(one["paid"].split()[0])
    assert Decimal(one["shop_after"]) - Decimal(one["shop_before"]) == paid
    # The payer's own fee, where there is one, goes to nobody we know.
    fee = Decimal(one["payer_before"]) - Decimal(one["payer_after"]) - paid
    assert 0 <= fee < paid


@needs_walls
@pytest.mark.timeout(400)
def test_an_agent_with_a_wallet_buys_a_sandbox_with_dollars_and_with_litecoin() -> None:
    before = folders()
    shown("evm", "ltc")
    assert folders() <= before


@needs_walls
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_agent_pays_on_every_chain_there_is() -> None:
    shown("evm", "stacks", "ltc", "xmr")


@needs_walls
@pytest.mark.timeout(200)
def test_ctrl_c_stops_everything_and_leaves_nothing() -> None:
    if why := why_no_anvil():
        pytest.skip(why)
    before = folders()
    with demo("--only", "evm", "--keep", "--json") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "kept" in line:
                break
        (folder,) = folders() - before
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)  # an impatient user
        assert process.wait(60) == 130
    assert not folder.exists()
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


@needs_walls
def test_a_chain_that_cannot_start_is_told_with_what_to_install(tmp_path: Path) -> None:
    with demo("--only", "evm", PATH=str(tmp_path)) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "node and npm not installed: scripts/system-packages test" in out


def test_an_unknown_chain_is_a_slip_of_the_command_line() -> None:
    with demo("--only", "gold") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "evm, stacks, ltc, xmr" in err
