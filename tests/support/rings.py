"""Which tests a ring runs, and which may be left out on a machine that should run them all.

`--unit` is the ring people live in: no root, no server of another program, no whole platform, nothing that
takes seconds.
A skip hides a promise, so in CI (`CI=true`) one whose reason nobody has reviewed fails the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

# Whoever asks for one of these, however indirectly, needs root or another program.
HEAVY = {
    "bitcoin",
    "cluster",
    "dogecoin",
    "evm",
    "house",
    "litecoin",
    "monero",
    "postgres_url",
    "real",
    "real_up",
    "stacks",
}
# They open a whole platform, sixty transactions each time, and often again; `make test` runs them.
WHOLE = {"open_one", "shared_platform"}
# Words of a fixture's parameters by which it asks for one of them only when it runs.
HEAVY_PARAMETERS = {"bitcoin", "dogecoin", "esplora", "litecoin", "monero", "postgresql"}
# They try schedules for seconds, start and kill servers, or wait for slow ones; `make test` runs them.
NOT_UNIT = (
    re.compile(r"_killed\.py"),
    re.compile(r"_schedules\.py"),
    re.compile(r"money/(model/|test_concurrency|test_properties)"),
    re.compile(r"payments/invoices/test_histories\.py|_whatever_receivers_do_|_ten_thousand_"),
    re.compile(r"sandboxes/test_stateful\.py"),
    re.compile(r"_under_attack\.py|_any_schedule_|_migrated_schema_is_|_registry_server_runs_"),
    re.compile(r"webhooks/test_delivery_worker\.py|work/test_hung_guests\.py"),
    re.compile(r"store/(test_crash|test_postgres_server)\.py"),
)
# Facts of a host that no set-up changes.
REVIEWED_SKIPS = (
    re.compile(r"this kernel has no (/proc/|time namespaces|Landlock)"),
    re.compile(r"this processor has no such marks"),
    re.compile(r"no (cgroup v2 is mounted|pids controller) on this host"),
    re.compile(r"this host allows fewer than \d+ descriptors"),
    re.compile(r"this host has no btrfs, so nothing is copied ahead"),
    # One image has them all and is proven by the slow ring; tiers are images of a part each.
    re.compile(r"no image [a-z-]+ in .*: make test-tiers"),
    re.compile(r"Go is in .* already"),
)


def is_unit(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    return not (
        (HEAVY | WHOLE) & set(getattr(item, "fixturenames", ()))
        or (given is not None and not HEAVY_PARAMETERS.isdisjoint(map(str, given.params.values())))
        or any(pattern.search(item.nodeid) for pattern in NOT_UNIT)
    )


def has_no_unit(path: Path) -> bool:
    """Whether no test of a file or folder is in the ring, to be seen from its name."""
    return any(pattern.search(f"{path.as_posix()}/") for pattern in NOT_UNIT)


def unreviewed(reasons: Sequence[tuple[str, str]]) -> list[str]:
    """Of skipped tests and their reasons: those that no set-up should leave out."""
    return [
        f"{test}: {why}" for test, why in reasons if not any(known.search(why) for known in REVIEWED_SKIPS)
    ]
