"""Offers: so many sats for so much of an asset, good for some minutes. Sealed, so that nothing is stored.

The payer's client echoes the whole requirement with its payment. Our seal in it says that we made this offer
and at which rate; a requirement that was changed on the way, or never made, does not open.

How a 402 asks for money: the offers in the header and body that x402 names, and what else a client may do.

Also what is for sale in general, for those who look before they ask.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxer.accounts.offers import Offer as OfferInProblem
from sandboxer.accounts.offers import Payable
from sandboxer.identity.seal import create_private_file
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NoRate, SandboxerError
from sandboxer.kernel.late import late
from sandboxer.payments.oracle.rates import Rate, Rates, lock, needs_rate, sats_for_atomic
from sandboxer.payments.x402.config import X402Settings
from sandboxer.payments.x402.ways import Accepted, Way, Ways

if TYPE_CHECKING:
    from x402 import schemas
    from x402.extensions import bazaar, payment_identifier
    from x402.extensions.bazaar import resource_service
    from x402.http import utils as headers
    from x402.schemas import PaymentRequired, PaymentRequirements
else:
    schemas = late("x402.schemas")
    schemas, headers = late("x402.schemas"), late("x402.http.utils")
    bazaar, resource_service = late("x402.extensions.bazaar"), late("x402.extensions.bazaar.resource_service")
    payment_identifier = late("x402.extensions.payment_identifier")

SATS, EXPIRES, FOR, SEAL = "sats", "expiresAt", "for", "offer"
_KEY_BYTES = 32
log = logging.getLogger(__name__)
PAYMENT_REQUIRED = "PAYMENT-REQUIRED"
SIGN_IN_WITH_X = "sign-in-with-x"
_JSON = "application/json"
# What each payable operation takes and gives, in the words of the bazaar extension.
_GOODS: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "createSandbox": (
        "/v1/sandboxes",
        {"profile": "profile.agent-dev", "ttl": "10m"},
        {"id": "sbx_…", "state": "ready"},
    ),
    "extendTtl": ("/v1/sandboxes/{sandbox_id}/ttl", {"duration": "10m"}, {"id": "sbx_…", "state": "ready"}),
    "topUp": ("/v1/topups", {"sats": 10_000}, {"payment": {"id": "pay_…", "state": "confirmed"}}),
    "buyKey": ("/v1/keys/purchase", {"tier": 1, "months": 1}, {"key": {"public_key": "sbx-pk-…"}}),
}


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
        requirements = schemas.PaymentRequirements(
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


class X402Asking:
    """The answer of the payments package to `PaymentOffers`."""

    def __init__(self, offers: Offers, ways: Ways, settings: X402Settings, siwx: Siwx, *, url: str) -> None:
        self._offers = offers
        self._ways = ways
        self._settings = settings
        self._siwx = siwx
        self._url = url.rstrip("/")

    async def offer(self, wanted: Payable) -> OfferInProblem:
        """Never raises: without a rate, a 402 still tells prices."""
        sats = max(self._settings.minimum_sats, wanted.least_sats or 0)
        try:
            required = await self.required(wanted, sats)
        except SandboxerError as error:
            log.info("a 402 without offers: %s", error)
            return OfferInProblem(facts={"payment_error": str(error)})
        return as_offer(required)

    async def required(
        self, wanted: Payable, sats: int, *, tag: str = "", error: str | None = None
    ) -> PaymentRequired:
        """Raises NoRate where nothing can be priced now."""
        accepts = await self._offers.make(sats, tag=tag)
        return schemas.PaymentRequired(
            error=error or "Payment required",
            resource=schemas.ResourceInfo(
                url=self._url + wanted.path, description=wanted.description, mime_type=_JSON
            ),
            accepts=accepts,
            extensions=await self._extensions(wanted),
        )

    async def for_sale(self) -> list[dict[str, Any]]:
        """Every payable operation with its offers at the least price, in the shape of a bazaar listing."""
        try:
            accepts = await self._offers.make(self._settings.minimum_sats)
        except SandboxerError:
            accepts = []
        return [
            {
                "resource": self._url + path,
                "type": "http",
                "x402Version": 2,
                "operation": operation,
                "accepts": [dumped(one) for one in accepts],
                "extensions": _bazaar(operation),
            }
            for operation, (path, _, _) in _GOODS.items()
        ]

    async def _extensions(self, wanted: Payable) -> dict[str, Any]:
        extensions: dict[str, Any] = {
            payment_identifier.PAYMENT_IDENTIFIER: payment_identifier.declare_payment_identifier_extension(
                required=False
            ),
            **_bazaar(wanted.operation),
        }
        if wanted.account is None:
            extensions |= await self._sign_in(wanted)
        return extensions

    async def _sign_in(self, wanted: Payable) -> dict[str, Any]:
        info = await self._siwx.offer((self._url + wanted.path,), is_asked_for=False)
        chains = dict.fromkeys(way.network for way in self._ways)
        supported = [{"chainId": chain, "type": "eip191"} for chain in chains if chain.startswith("eip155:")]
        return {SIGN_IN_WITH_X: {"info": info, "supportedChains": supported}}


def as_offer(required: PaymentRequired) -> OfferInProblem:
    """For the problem and its headers."""
    body = dumped(required)
    return OfferInProblem(
        facts=body, headers={PAYMENT_REQUIRED: headers.encode_payment_required_header(required)}
    )


def dumped(model: PaymentRequired | PaymentRequirements) -> dict[str, Any]:
    shown: dict[str, Any] = model.model_dump(by_alias=True, exclude_none=True, mode="json")
    return shown


def _bazaar(operation: str) -> dict[str, Any]:
    if operation not in _GOODS:
        return {}
    _, body, answer = _GOODS[operation]
    declared: dict[str, Any] = bazaar.declare_discovery_extension(
        input=body,
        input_schema={"type": "object", "properties": {name: {} for name in body}},
        body_type="json",
        output=resource_service.OutputConfig(example=answer),
    )
    declared["bazaar"]["info"]["input"]["method"] = "PATCH" if operation == "extendTtl" else "POST"
    return declared
