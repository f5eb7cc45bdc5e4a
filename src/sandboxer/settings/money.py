"""Settings of prices, holds and grace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from sandboxer.accounts.storage import StoragePolicy
from sandboxer.kernel.clock import parse_duration
from sandboxer.money.dryness import GracePolicy
from sandboxer.money.holds import HoldPolicy
from sandboxer.money.pricing import Pricing, pricing_from_json


class MoneySettings(BaseModel):
    charging: Annotated[
        bool, Field(description="Sandboxes of all but the owner pay while they live; off: nobody pays.")
    ] = True
    pricing: Annotated[
        dict[str, dict[str, Any]],
        Field(
            description='Prices that differ from the defaults, as JSON: {"rates": {"running_msats": 10},'
            ' "profiles": {"profile.agent-dev": {"vcpu_msats": 20}}, "tiers": {"cents_per_month": 700,'
            ' "discounts": {"1": 0, "3": 70, "6": 100, "12": 150, "24": 200}},'
            ' "quotes": {"lifetime": "10m"}}. Discounts are thousandths by months.'
        ),
    ] = Field(default_factory=dict)
    free_profiles: Annotated[
        tuple[str, ...], Field(description="Profiles that cost nothing; comma-separated.")
    ] = ()
    hold_slice: Annotated[str, Field(description="How much of its rate a create sets aside.")] = "10m"
    storage_deposit: Annotated[
        str,
        Field(
            description="For how long an account must be able to pay for all that it keeps (volumes,"
            " snapshots, images) before it may keep more; so much it cannot give away."
        ),
    ] = "1d"
    unpaid_storage_mb: Annotated[
        int, Field(ge=0, description="What an account may keep in all without such a deposit.")
    ] = 0
    unpaid_kept: Annotated[
        str,
        Field(
            description="How long the disk of a sandbox stays at least that ran out of sats; it stays as long"
            " as what it paid would have kept it, at most `retention`."
        ),
    ] = "10m"
    grace_window: Annotated[
        str, Field(description="How long sandboxes run on when their account is out of sats.")
    ] = "60s"
    grace_cap: Annotated[str, Field(description="The longest grace, however many receipts come.")] = "10m"

    @property
    def prices(self) -> Pricing:
        return pricing_from_json(self.pricing, free_profiles=self.free_profiles)

    @property
    def holds(self) -> HoldPolicy:
        return HoldPolicy(slice=parse_duration(self.hold_slice, field="hold_slice"))

    @property
    def storage_policy(self) -> StoragePolicy:
        return StoragePolicy(
            deposit=parse_duration(self.storage_deposit, field="storage_deposit"),
            unpaid_mb=self.unpaid_storage_mb,
            least=parse_duration(self.unpaid_kept, field="unpaid_kept"),
        )

    @property
    def grace(self) -> GracePolicy:
        return GracePolicy(
            window=parse_duration(self.grace_window, field="grace_window"),
            hard_cap=parse_duration(self.grace_cap, field="grace_cap"),
        )
