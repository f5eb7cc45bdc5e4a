"""What bytes outwards cost: charged in batches, in the transaction that counts them; each is paid once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.access.egress.records import KeptOutlet
from sandboxer.kernel.errors import NotFound
from sandboxer.money import quotes
from sandboxer.money.metering import charge_once
from sandboxer.money.meters import Use
from sandboxer.money.pricing import Pricing, egress_msats
from sandboxer.sandboxes.records import Sandbox

_GB = 1 << 30


@dataclass(frozen=True, slots=True)
class EgressCharges:
    pricing: Pricing

    def charge(self, conn: Connection, sandbox: Sandbox, kept: KeptOutlet, *, now: datetime) -> KeptOutlet:
        """The record with everything sent so far paid for. Free profiles and slots of a tier pay none."""
        if kept.sent == kept.charged:
            return kept
        paid = replace(kept, charged=kept.sent)
        if sandbox.terms.is_free or sandbox.terms.is_entitled:
            return paid
        # By the sum, not by the batch: rounding up is paid once.
        msats = self._msats(conn, sandbox, kept.sent) - self._msats(conn, sandbox, kept.charged)
        if msats <= 0:
            return paid
        charge_once(
            conn,
            sandbox.account,
            id=f"egress:{sandbox.id}:{kept.charges + 1}",
            subject=sandbox.id,
            use=Use.EGRESS,
            msats=msats,
            now=now,
        )
        return replace(paid, charges=kept.charges + 1)

    def _msats(self, conn: Connection, sandbox: Sandbox, count: int) -> int:
        if sandbox.terms.quote_id is None:
            return egress_msats(sandbox.profile, count, self.pricing)
        try:
            price = quotes.find(conn, sandbox.terms.quote_id, sandbox.account).quote.egress_gb_msats
        except NotFound:
            # Old quotes are pruned; what is charged by them goes on at the prices of now.
            return egress_msats(sandbox.profile, count, self.pricing)
        return -(-price * count // _GB)
