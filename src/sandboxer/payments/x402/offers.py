"""Offers: so many sats for so much of an asset, good for some minutes. Sealed, so that nothing is stored.

The payer's client echoes the whole requirement with its payment. Our seal in it says that we made this offer
and at which rate; a requirement that was changed on the way, or never made, does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from x402.schemas import PaymentRequirements

from sandboxer.identity.private_files import create_private_file
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NoRate
from sandboxer.payments.oracle.conversion import lock, needs_rate, sats_for_atomic
from sandboxer.payments.oracle.rates import Rate, Rates
from sandboxer.payments.x402.ways import Accepted, Way, Ways

SATS, EXPIRES, FOR, SEAL = "sats", "expiresAt", "for", "offer"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer of ours that came back."""

    way: Way
    accepted: Accepted
    sats: int
    expires_at: datetime
    # What it is for, where that has a price of its own; empty: credit.
    tag: str


class Offers:
    def __init__(self, ways: Ways, rates: Rates, clock: Clock, *, key: bytes, good_for: timedelta) -> None:
        self._ways = ways
        self._rates = rates
        self._clock = clock
        self._key = key
        self._good_for = good_for

    async def make(self, sats: int, *, tag: str = "") -> list[PaymentRequirements]:
        """One for each asset on each network; those without a rate are left out. Raises NoRate if all are."""
        now = self._clock.now()
        expires_at = now + self._good_for
        offers = []
        missing: NoRate | None = None
        for way in self._ways.open_ones:
            for accepted in way.accepts:
                try:
                    rate, btc = await self._known_rates(accepted)
                    price = lock(sats, accepted.asset, rate, btc, now=now, expires_at=expires_at)
                except NoRate as error:
                    missing = error
                    continue
                offers.append(self._offer(way, accepted, price.atomic, sats, expires_at, tag))
        if not offers and missing is not None:
            raise missing
        return offers

    def open(self, requirements: PaymentRequirements) -> Offer | None:
        """The offer, if we made it and it is still good."""
        way = self._ways.find(requirements.network, requirements.scheme)
        accepted = None if way is None else way.accepted(requirements.asset)
        if way is None or accepted is None:
            return None
        seal = requirements.extra.get(SEAL)
        if not isinstance(seal, str) or not hmac.compare_digest(seal.encode(), self._seal(requirements)):
            return None
        expires_at = datetime.fromtimestamp(requirements.extra[EXPIRES], UTC)
        if expires_at <= self._clock.now():
            return None
        return Offer(
            way=way,
            accepted=accepted,
            sats=int(requirements.extra[SATS]),
            expires_at=expires_at,
            tag=str(requirements.extra.get(FOR, "")),
        )

    async def worth(self, accepted: Accepted, amount: int) -> int:
        """What an amount buys at the present rate, rounded down: for version 1, which echoes no offer."""
        rate, btc = await self._known_rates(accepted)
        return sats_for_atomic(amount, accepted.asset, rate, btc)

    async def _known_rates(self, accepted: Accepted) -> tuple[Rate | None, Rate | None]:
        if not needs_rate(accepted.asset.code):
            return None, None
        return await self._rates.usd(accepted.asset.code), await self._rates.usd("BTC")

    def _offer(
        self, way: Way, accepted: Accepted, atomic: int, sats: int, expires_at: datetime, tag: str
    ) -> PaymentRequirements:
        requirements = PaymentRequirements(
            scheme=way.scheme,
            network=way.network,
            asset=accepted.id,
            amount=str(atomic),
            pay_to=way.pay_to,
            max_timeout_seconds=way.timeout_s,
            extra={
                **way.extra,
                **accepted.extra,
                SATS: str(sats),
                EXPIRES: int(expires_at.timestamp()),
                **({FOR: tag} if tag else {}),
            },
        )
        requirements.extra[SEAL] = self._seal(requirements).decode()
        return requirements

    def _seal(self, requirements: PaymentRequirements) -> bytes:
        extra = {name: value for name, value in requirements.extra.items() if name != SEAL}
        sealed = json.dumps(
            [
                requirements.scheme,
                requirements.network,
                requirements.asset,
                requirements.amount,
                requirements.pay_to,
                requirements.max_timeout_seconds,
                extra,
            ],
            sort_keys=True,
        )
        return hmac.new(self._key, sealed.encode(), hashlib.sha256).hexdigest().encode()


def part_of(requirements: PaymentRequirements, sats: int, most: int) -> tuple[PaymentRequirements, int]:
    """An offer's requirement and sats, cut to at most so many at its own rate; the asset is rounded up."""
    if sats <= most:
        return requirements, sats
    amount = -(-int(requirements.amount) * most // sats)
    return requirements.model_copy(update={"amount": str(amount)}), most


def open_offer_key(path: Path) -> bytes:
    """The key that seals offers; made where there is none. Losing it costs nothing but open offers."""
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        text = secrets.token_bytes(_KEY_BYTES).hex() + "\n"
        if not create_private_file(path, text):
            text = path.read_text("ascii")
    return bytes.fromhex(text.strip())
