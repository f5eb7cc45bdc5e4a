"""The shipped fake passes the contract suite, save what it says it cannot."""

from __future__ import annotations

import pytest

from sandboxer.backends.checks import CHECKS, Bench, Check, Verdict, run_check, run_checks
from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.backends.scripted import DEVIATIONS, Scripted
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import new_id


def make_order() -> Order:
    return Order(
        sandbox_id=new_id("sbx"),
        image="base",
        resources=Resources(vcpus=1, memory_mb=128, disk_mb=128, pids=64),
        trust=Trust.ZERO,
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_fake_keeps_the_contract(check: Check) -> None:
    backend = Scripted()
    result = await run_check(check, Bench(backend, make_order), deviation=DEVIATIONS.get(check.name))
    assert result.is_fine, result.detail
    assert not backend.boxes


def test_the_suite_is_as_large_as_promised_and_names_are_unique() -> None:
    assert len(CHECKS) >= 35
    assert len({check.name for check in CHECKS}) == len(CHECKS)


async def test_a_deviation_that_starts_to_pass_is_a_failure() -> None:
    check = next(check for check in CHECKS if check.name == "exit_codes_are_the_command_s_own")
    result = await run_check(check, Bench(Scripted(), make_order), deviation="we once thought so")
    assert result.verdict is Verdict.NO_LONGER_DEVIATES
    assert not result.is_fine


async def test_a_backend_that_breaks_the_contract_is_told_how() -> None:
    class Forgetful(Scripted):
        async def teardown(self, sandbox_id: str) -> None:
            pass

    check = next(check for check in CHECKS if check.name == "the_inventory_lists_what_exists")
    result = await run_check(check, Bench(Forgetful(), make_order))
    assert result.verdict is Verdict.FAILED
    assert "a removed sandbox is listed" in result.detail


async def test_a_deviation_for_a_check_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        await run_checks(Scripted(), make_order, {"no_such_check": "because"})
