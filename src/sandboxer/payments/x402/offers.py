"""An offer gives so many sats for so much of an asset, for some minutes. It is sealed, so nothing is stored.

The payer's client echoes the whole requirement with its payment. Our seal in it says that we made this offer
and at which rate; a requirement that was changed on the way, or never made, does not open.

`X402Asking` asks for money in a 402: offers in the header and body that x402 names, and what else a client
may do. It also lists what is for sale, for those who look before they ask.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sandboxer.accounts.records import Offer as OfferInProblem
from sandboxer.accounts.records import Payable
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest, NoRate, SandboxerError
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class
from sandboxer.payments.rates import Rate, Rates, atomic_for_sats, needs_rate, sats_for_atomic
from sandboxer.payments.x402.ways import Accepted, Way, Ways, X402Settings

if TYPE_CHECKING:
    from x402 import schemas
    from x402.extensions import bazaar, payment_identifier
    from x402.extensions.bazaar import resource_service
    from x402.http import utils as headers
    from x402.schemas import PaymentRequired, PaymentRequirements
else:
    schemas, headers = late("x402.schemas"), late("x402.http.utils")
    bazaar, resource_service = late("x402.extensions.bazaar"), late("x402.extensions.bazaar.resource_service")
    payment_identifier = late("x402.extensions.payment_identifier")

SATS, EXPIRES, FOR, SEAL = "sats", "expiresAt", "for", "offer"
log = logging.getLogger(__name__)
PAYMENT_REQUIRED = "PAYMENT-REQUIRED"
SIGN_IN_WITH_X = "sign-in-with-x"
_JSON = "application/json"
# By which catalogues of what can be bought file us: at most 32 and five times 32 characters count there.
SERVICE, TAGS = "sandboxer", ("sandbox", "code execution", "agents")
_TYPES: Mapping[type, str] = {str: "string", int: "integer"}
_NAME_IN_PATH = re.compile(r"\{(\w+)\}")
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


@value_class
class Offer:
    """An offer of ours that a payment came back with."""

    sats: int
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
        """Make an offer for each asset on each network. Assets without a rate are left out; raises NoRate if
        none has one.
        """
        if sats < 1:
            raise InvalidRequest(field="sats", why="a price is at least one sat")
        expires_at = self._clock.now() + self._good_for
        offers = []
        missing: NoRate | None = None
        for way in self._ways.open_ones:
            for accepted in way.accepts:
                try:
                    rate, btc = await self._known_rates(accepted)
                    atomic = atomic_for_sats(sats, accepted.asset, rate, btc)
                except NoRate as error:
                    missing = error
                    continue
                offers.append(self._offer(way, accepted, atomic, sats, expires_at, tag))
        if not offers and missing is not None:
            raise missing
        return offers

    def open(self, requirements: PaymentRequirements) -> Offer | None:
        """Return the offer, if we made it and it is still good."""
        way = self._ways.find(requirements.network, requirements.scheme)
        if way is None or way.accepted(requirements.asset) is None:
            return None
        seal = requirements.extra.get(SEAL)
        if not isinstance(seal, str) or not hmac.compare_digest(seal.encode(), self._seal(requirements)):
            return None
        if datetime.fromtimestamp(requirements.extra[EXPIRES], UTC) <= self._clock.now():
            return None
        return Offer(sats=int(requirements.extra[SATS]), tag=str(requirements.extra.get(FOR, "")))

    async def worth(self, accepted: Accepted, amount: int) -> int:
        """Return what an amount buys at the present rate, rounded down. Version 1 needs it: it echoes no
        offer.
        """
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
    """Cut an offer's requirement and sats to at most `most` sats at its own rate; the asset is rounded up."""
    if sats <= most:
        return requirements, sats
    amount = -(-int(requirements.amount) * most // sats)
    return requirements.model_copy(update={"amount": str(amount)}), most


class X402Asking:
    """Implements `PaymentOffers` for x402."""

    def __init__(self, offers: Offers, ways: Ways, settings: X402Settings, siwx: Siwx, *, url: str) -> None:
        self._offers = offers
        self._ways = ways
        self._settings = settings
        self._siwx = siwx
        self._url = url.rstrip("/")

    async def offer(self, wanted: Payable) -> OfferInProblem:
        """Return the offers for a 402. It never raises: without a rate, a 402 still tells prices."""
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
        """Return the document of a 402. Raises NoRate where nothing can be priced now."""
        accepts = await self._offers.make(sats, tag=tag)
        return schemas.PaymentRequired(
            error=error or "Payment required",
            resource=schemas.ResourceInfo(
                url=self._url + wanted.path,
                description=wanted.description,
                mime_type=_JSON,
                service_name=SERVICE,
                tags=list(TAGS),
            ),
            accepts=accepts,
            extensions=await self._extensions(wanted),
        )

    async def for_sale(self) -> list[dict[str, Any]]:
        """Return every payable operation with its offers at the least price, in the shape of a bazaar
        listing.
        """
        try:
            accepts = await self._offers.make(self._settings.minimum_sats)
        except SandboxerError:
            accepts = []
        return [
            {
                "resource": self._url + path,
                "type": "http",
                "x402Version": 2,
                "mimeType": _JSON,
                "serviceName": SERVICE,
                "tags": list(TAGS),
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
            extensions |= self._sign_in(wanted)
        return extensions

    def _sign_in(self, wanted: Payable) -> dict[str, Any]:
        info = self._siwx.offer((self._url + wanted.path,))
        chains = dict.fromkeys(way.network for way in self._ways)
        supported = [{"chainId": chain, "type": "eip191"} for chain in chains if chain.startswith("eip155:")]
        return {SIGN_IN_WITH_X: {"info": info, "supportedChains": supported}}


def as_offer(required: PaymentRequired) -> OfferInProblem:
    """Return the offer in the form that a problem and its headers take."""
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
    path, body, answer = _GOODS[operation]
    declared: dict[str, Any] = bazaar.declare_discovery_extension(
        input=body,
        input_schema={
            "type": "object",
            "properties": {name: {"type": _TYPES[type(value)]} for name, value in body.items()},
        },
        body_type="json",
        output=resource_service.OutputConfig(example=answer),
    )
    declared["bazaar"]["info"]["input"]["method"] = "PATCH" if operation == "extendTtl" else "POST"
    if (route := _NAME_IN_PATH.sub(r":\1", path)) != path:
        # Else each sandbox would be catalogued as something of its own, and its id with it.
        declared["bazaar"]["routeTemplate"] = route
    return declared
