"""How a 402 asks for money: the offers in the header and body that x402 names, and what else a client may do.

Also what is for sale in general, for those who look before they ask.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from x402.extensions.bazaar import declare_discovery_extension
from x402.extensions.bazaar.resource_service import OutputConfig
from x402.extensions.payment_identifier import PAYMENT_IDENTIFIER, declare_payment_identifier_extension
from x402.http.utils import encode_payment_required_header
from x402.schemas import PaymentRequired, PaymentRequirements, ResourceInfo

from sandboxer.accounts.offers import Offer, Payable
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.errors import SandboxerError
from sandboxer.payments.x402.config import X402Settings
from sandboxer.payments.x402.offers import Offers
from sandboxer.payments.x402.ways import Ways

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


class X402Asking:
    """The room of payments' answer to `PaymentOffers`."""

    def __init__(self, offers: Offers, ways: Ways, settings: X402Settings, siwx: Siwx, *, url: str) -> None:
        self._offers = offers
        self._ways = ways
        self._settings = settings
        self._siwx = siwx
        self._url = url.rstrip("/")

    async def offer(self, wanted: Payable) -> Offer:
        """Never raises: without a rate, a 402 still tells prices."""
        sats = max(self._settings.minimum_sats, wanted.least_sats or 0)
        try:
            required = await self.required(wanted, sats)
        except SandboxerError as error:
            log.info("a 402 without offers: %s", error)
            return Offer(facts={"payment_error": str(error)})
        return as_offer(required)

    async def required(
        self, wanted: Payable, sats: int, *, tag: str = "", error: str | None = None
    ) -> PaymentRequired:
        """Raises NoRate where nothing can be priced now."""
        accepts = await self._offers.make(sats, tag=tag)
        return PaymentRequired(
            error=error or "Payment required",
            resource=ResourceInfo(
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
            PAYMENT_IDENTIFIER: declare_payment_identifier_extension(required=False),
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


def as_offer(required: PaymentRequired) -> Offer:
    """For the problem and its headers."""
    body = dumped(required)
    return Offer(facts=body, headers={PAYMENT_REQUIRED: encode_payment_required_header(required)})


def dumped(model: PaymentRequired | PaymentRequirements) -> dict[str, Any]:
    shown: dict[str, Any] = model.model_dump(by_alias=True, exclude_none=True, mode="json")
    return shown


def _bazaar(operation: str) -> dict[str, Any]:
    if operation not in _GOODS:
        return {}
    _, body, answer = _GOODS[operation]
    declared: dict[str, Any] = declare_discovery_extension(
        input=body,
        input_schema={"type": "object", "properties": {name: {} for name in body}},
        body_type="json",
        output=OutputConfig(example=answer),
    )
    declared["bazaar"]["info"]["input"]["method"] = "PATCH" if operation == "extendTtl" else "POST"
    return declared
