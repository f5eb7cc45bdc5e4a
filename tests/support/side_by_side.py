"""Who runs beside whom when several processes test (`pytest -n`): whole files, and the long ones first.

Walls, command lines and everything else with a fixture for the whole run stay together, so that one process
makes it; the schema's tests need nothing of each other and take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/walls/", "tests/cli/", "tests/e2b/", "tests/payments/stacks/")
# Half a minute until its node is up, and a gigabyte: one process has it.
MONERO = (
    "tests/payments/chains/test_checks.py",
    "tests/payments/chains/test_monero.py",
    "tests/payments/invoices/test_chains.py",
    "tests/payments/refunding/test_chains.py",
    "tests/payments/wallet/test_spending.py",
)
APART = ("tests/http/test_schema.py",)
# As measured; what is not named comes after, by the number of its tests.
LONG_FIRST = (
    "tests/http/test_schema.py",
    "tests/cli/",
    "tests/sandboxes/test_charging_schedules.py",
    "tests/money/test_properties.py",
    "tests/walls/",
    "tests/e2b/",
    "tests/http/test_webhooks_killed.py",
    "tests/faults/test_disks.py",
    "tests/crash/test_crashes.py",
    "tests/money/model/",
    "tests/http/test_real.py",
    "tests/http/test_x402_stacks.py",
    "monero",
    "tests/images/",
    "tests/access/",
    "tests/flows/",
    "tests/work/",
    "tests/crash/",
)


class ByRoom(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    file = nodeid.split("::", 1)[0]
    if file in APART:
        return nodeid
    if file in MONERO:
        return "monero"
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The order in which processes should take them: a long file begun last leaves the others idle."""
    sizes: dict[str, int] = {}
    for item in items:
        scope = scope_of(item.nodeid)
        sizes[scope] = sizes.get(scope, 0) + 1

    def place(item: pytest.Item) -> tuple[int, int, str]:
        scope = scope_of(item.nodeid)
        rank = next((i for i, name in enumerate(LONG_FIRST) if scope.startswith(name)), len(LONG_FIRST))
        return rank, -sizes[scope], scope

    return sorted(items, key=place)
