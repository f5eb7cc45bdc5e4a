"""What things cost, for anyone to read, and what one sandbox would cost."""

from typing import Annotated

from pydantic import Field

from sandboxer.wire.sandboxes import WHOLE_PROFILE_ID, WantedResources
from sandboxer.wire.words import Answer, Duration, Moment, Request


class Rates(Answer):
    """Thousandths of a sat per second; egress per GB."""

    running_msats: int
    vcpu_msats: int
    memory_gb_msats: int
    disk_gb_msats: int
    frozen_memory_gb_msats: int
    stored_disk_gb_msats: int
    egress_gb_msats: int


class ProfilePrice(Answer):
    profile: str
    is_free: bool
    running_msats: Annotated[int, Field(description="Per second, at the profile's own resources.")]
    frozen_msats: int
    stored_msats: int


class TierPrice(Answer):
    tier: int
    months: int
    usd_cents: int
    discount_percent: float
    requests_per_minute: int
    slots: Annotated[int, Field(description="Sandboxes at once at rate zero.")]
    depth: Annotated[
        int | None, Field(description="Generations of delegated keys, and of sandboxes that make sandboxes.")
    ] = None


class PaymentNetwork(Answer):
    network: Annotated[str, Field(description="CAIP-2.", examples=["eip155:8453"])]
    is_on: bool
    reason: Annotated[str | None, Field(description="Why nothing can be paid there now.")] = None


class PaymentCoin(Answer):
    coin: Annotated[str, Field(examples=["LTC"])]
    is_on: bool
    reason: Annotated[str | None, Field(description="Why no invoice in it is given out now.")] = None


class Pricing(Answer):
    unit: Annotated[str, Field(description="What sandboxes spend.")] = "sat"
    rates: Rates
    profiles: list[ProfilePrice]
    tiers: list[TierPrice]
    is_charged: Annotated[
        bool, Field(description="False: these are only what would hold; nothing is charged.")
    ] = True
    networks: Annotated[list[PaymentNetwork], Field(description="Where one can pay by x402.")] = Field(
        default_factory=list
    )
    coins: Annotated[list[PaymentCoin], Field(description="What one can pay in by invoice.")] = Field(
        default_factory=list
    )


class AskQuote(Request):
    profile: Annotated[str, Field(max_length=100, pattern=r"^[a-z0-9._-]+$"), WHOLE_PROFILE_ID] | None = None
    resources: WantedResources = WantedResources()
    duration: Duration = "1h"


class Quote(Answer):
    id: Annotated[str, Field(description="Name it as quote_id in one create or extend, before expires_at.")]
    profile: str
    vcpus: float
    memory_mb: int
    disk_mb: int
    duration: str
    sats: Annotated[int, Field(description="If it runs all the time, rounded up.")]
    running_msats: int
    frozen_msats: int
    stored_msats: int
    egress_gb_msats: int
    quoted_at: Moment
    expires_at: Annotated[Moment, Field(description="Until then these rates hold.")]
    is_charged: Annotated[
        bool, Field(description="False: nothing is charged here, and it costs nothing.")
    ] = True
