"""Answers 402, funding needed: to strangers on payable routes, and to callers whose bucket is too empty.

A stranger's request is judged like anyone's before it is asked for money: a malformed one gets 422, one that
costs nothing gets 401. `platform.payment_offers` adds the ways to pay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import Request

from sandboxer.accounts.offers import Offer
from sandboxer.edges.http.authentication import STRANGER
from sandboxer.edges.http.problems import ANSWER_HEADERS
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.identity.authenticate import unsigned
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InsufficientCredit, PaymentNeeded
from sandboxer.sandboxes.use_cases.purchase import Price

SIGN_IN = {
    "api_key": "Sign the request with an API key (HMAC-SHA256): docs/reference/auth.md.",
    "session": "POST /v1/auth/challenge, sign its message with a wallet, POST /v1/auth/session.",
    "sign_in_with_x": "GET /v1/auth/siwx, then send SIGN-IN-WITH-X with the request.",
}


PriceOf = Callable[[], Price]


async def paying_caller(request: Request, price: PriceOf) -> Caller:
    """Returns the caller. A stranger gets PaymentNeeded, after the request was found to make sense."""
    if STRANGER not in request.scope:
        return caller(request)
    asked = price()
    if not platform_of(request).settings.charging or asked.payable.sats == 0:
        # Money would not help; the caller must authenticate.
        raise unsigned()
    offer = await _offer(request, asked)
    raise PaymentNeeded(**{**_facts(asked), **offer.facts})


@asynccontextmanager
async def offering(request: Request, price: PriceOf) -> AsyncIterator[None]:
    """Adds the ways to pay to the error of a known caller that is short of credit."""
    try:
        yield
    except InsufficientCredit as error:
        asked = price()
        offer = await _offer(request, asked)
        facts = {"pricing": "/v1/pricing", **offer.facts}
        error.facts.update({name: value for name, value in facts.items() if name not in error.facts})
        raise


async def _offer(request: Request, asked: Price) -> Offer:
    offer = await platform_of(request).payment_offers.offer(asked.payable)
    request.scope[ANSWER_HEADERS] = dict(offer.headers)
    return offer


def _facts(asked: Price) -> dict[str, object]:
    facts: dict[str, object] = {
        "why": f"{asked.payable.description[:1].lower()}{asked.payable.description[1:]} costs sats",
        "pricing": "/v1/pricing",
        "sign_in": SIGN_IN,
        "sats": asked.payable.sats,
        "least_sats": asked.payable.least_sats,
    }
    if asked.quote is not None:
        facts["quote"] = {
            "profile": asked.quote.profile,
            "duration_s": int(asked.quote.duration.total_seconds()),
            "sats": asked.quote.sats,
            "running_msats": asked.quote.card.running,
            "frozen_msats": asked.quote.card.frozen,
            "stored_msats": asked.quote.card.stored,
        }
    return facts
