"""Checks that a backend keeps the contract. The suite ships with the product.

Tests run it for our backends; `sandboxer backend check NAME` runs it on an operator's host. A deviation needs
a reason, and one that starts to pass is a failure: declarations must stay true.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from sandboxer.backends.checks import commands, disks, files, lifecycle
from sandboxer.backends.checks.suite import (
    Bench,
    Check,
    CheckResult,
    FullBackend,
    MakeOrder,
    Reopen,
    Verdict,
    run_check,
)
from sandboxer.backends.contract import Backend
from sandboxer.kernel.errors import InvalidRequest

CHECKS: Sequence[Check] = (
    *lifecycle.suite.checks,
    *commands.suite.checks,
    *files.suite.checks,
    *disks.suite.checks,
)


async def run_checks(
    backend: Backend,
    make_order: MakeOrder,
    deviations: Mapping[str, str],
    *,
    reopen: Reopen | None = None,
) -> list[CheckResult]:
    """Runs every check in turn, each with sandboxes of its own. `make_order` gives a fresh id on every
    call.
    """
    return [result async for result in iterate_checks(backend, make_order, deviations, reopen=reopen)]


async def iterate_checks(
    backend: Backend,
    make_order: MakeOrder,
    deviations: Mapping[str, str],
    *,
    reopen: Reopen | None = None,
) -> AsyncIterator[CheckResult]:
    """Does the same as `run_checks` and yields each result as it comes, to show progress."""
    if unknown := set(deviations) - {check.name for check in CHECKS}:
        raise InvalidRequest(field="deviations", why=f"there is no check {', '.join(sorted(unknown))}")
    bench = Bench(cast(FullBackend, backend), make_order, reopen)
    for check in CHECKS:
        yield await run_check(check, bench, deviation=deviations.get(check.name))


__all__ = [
    "CHECKS",
    "Bench",
    "Check",
    "CheckResult",
    "MakeOrder",
    "Reopen",
    "Verdict",
    "iterate_checks",
    "run_check",
    "run_checks",
]
