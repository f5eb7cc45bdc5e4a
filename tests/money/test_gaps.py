"""Time that nobody saw, on both databases: what begins at the last sign of life begins after it."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from sandboxer.money.buckets import settle_account
from sandboxer.money.heartbeat import record_gap
from sandboxer.money.metering import change_rate, find_meter, open_meter
from sandboxer.money.policy import Use
from sandboxer.money.records import Gap, GapKind
from sandboxer.money.verification import verify
from tests.support.money import ALICE, NOW, fund, later

DIED, REBOOTED = later(100), later(1100)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_free_sandboxes_found_stopped_after_a_reboot_pay_for_their_disks_from_then_on(
    conn: Connection, number: int
) -> None:
    """Those in slots of a tier cost nothing, and all of them were alive when they were last seen."""
    fund(conn, ALICE, 1000)
    for one in range(number):
        open_meter(conn, ALICE, id=f"mtr_{one}", subject=f"sbx_{one}", use=Use.RUNNING, rate=0, now=NOW)
    record_gap(conn, Gap(kind=GapKind.UNWITNESSED, began_at=DIED, ended_at=REBOOTED))
    for one in range(number):
        change_rate(conn, f"mtr_{one}", use=Use.STORED, rate=1000, now=REBOOTED, at=DIED)
    assert settle_account(conn, ALICE, now=REBOOTED).posted == 1000
    bucket = settle_account(conn, ALICE, now=later(1110))
    assert bucket.posted == 1000 - 10 * number
    for one in range(number):
        meter = find_meter(conn, f"mtr_{one}")
        assert meter is not None
        assert meter.began_at == REBOOTED
    assert verify(conn).is_whole
