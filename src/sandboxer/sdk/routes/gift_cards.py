"""Gift cards: buy, show, redeem, approve, end. What needs no key is sent without one where it matters."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.puzzles import solve
from sandboxer.sdk.routes.reading import model
from sandboxer.wire import gift_cards as wire

CARDS = "/v1/gift-cards"
WORK_NEEDED = "work_needed"
# The work asked for may grow while one is at it.
MOST_PUZZLES = 5


def pricing() -> Call[wire.GiftPricing]:
    return Call(method="GET", target=f"{CARDS}/pricing", read=model(wire.GiftPricing))


def create(wanted: Mapping[str, Any], *, is_signed: bool) -> Call[wire.NewGiftCard]:
    body, headers = json_body(_given(wanted))
    if is_signed:
        headers = {**headers, "idempotency-key": new_idempotency_key()}
    return Call(
        method="POST",
        target=CARDS,
        body=body,
        headers=headers,
        read=model(wire.NewGiftCard),
        is_signed=is_signed,
    )


def get(card_id: str) -> Call[wire.GiftCard]:
    return Call(method="GET", target=target(CARDS + "/{}", card_id), read=model(wire.GiftCard))


def code(card_id: str, *, claim: str | None, again: bool) -> Call[wire.ShownCode]:
    body, headers = json_body(_given({"claim": claim, "again": again}))
    where = target(CARDS + "/{}/code", card_id)
    return Call(
        method="POST",
        target=where,
        body=body,
        headers=headers,
        read=model(wire.ShownCode),
        is_signed=claim is None,
    )


def balance(code: str, work: Mapping[str, str] | None) -> Call[wire.CardBalance]:
    body, headers = json_body(_given({"code": code, "work": work}))
    return Call(
        method="POST",
        target=f"{CARDS}/balance",
        body=body,
        headers=headers,
        read=model(wire.CardBalance),
        is_repeatable=True,
    )


def new_request_id() -> str:
    return secrets.token_urlsafe(18)


def redeem(
    wanted: Mapping[str, Any], work: Mapping[str, str] | None, *, is_signed: bool
) -> Call[wire.NewRedemption]:
    """Its request id makes it the same redemption, however often it is sent."""
    body, headers = json_body(_given({**wanted, "work": work}))
    return Call(
        method="POST",
        target=f"{CARDS}/redeem",
        body=body,
        headers=headers,
        read=model(wire.NewRedemption),
        is_repeatable=True,
        is_signed=is_signed,
    )


def redemption(redemption_id: str) -> Call[wire.Redemption]:
    where = target(CARDS + "/redemptions/{}", redemption_id)
    return Call(method="GET", target=where, read=model(wire.Redemption))


def answer(link: str, decision: str) -> Call[wire.Redemption]:
    """`link` may be the whole link of a mail, or its last part."""
    token = link.rstrip("/").removesuffix("/approve").removesuffix("/deny").rpartition("/")[2]
    where = target(CARDS + "/approvals/{}/" + decision, token)
    return Call(method="POST", target=where, read=model(wire.Redemption))


def revoke(card_id: str, *, claim: str | None, reason: str) -> Call[wire.GiftCard]:
    body, headers = json_body(_given({"claim": claim, "reason": reason}))
    where = target(CARDS + "/{}/revoke", card_id)
    return Call(
        method="POST",
        target=where,
        body=body,
        headers=headers,
        read=model(wire.GiftCard),
        is_signed=claim is None,
        is_repeatable=True,
    )


def refund(card_id: str, wanted: Mapping[str, Any]) -> Call[wire.RefundedCard]:
    body, headers = json_body(_given(wanted))
    where = target(CARDS + "/{}/refund", card_id)
    is_signed = wanted.get("claim") is None
    return Call(
        method="POST",
        target=where,
        body=body,
        headers=headers,
        read=model(wire.RefundedCard),
        is_signed=is_signed,
    )


def page(*, state: str | None, cursor: str | None, limit: int | None) -> Call[wire.GiftCardList]:
    where = target(CARDS, query={"state": state, "cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.GiftCardList))


def puzzle_in(error: ApiError) -> tuple[str, int] | None:
    """The work that a refusal asks for; None: it was refused for something else."""
    if error.code != WORK_NEEDED:
        return None
    return str(error.fact("challenge")), int(error.fact("bits"))


def work_for(challenge: str, bits: int) -> Mapping[str, str]:
    """Seconds of hashing at worst."""
    return {"challenge": challenge, "solution": solve(challenge, bits)}


def _given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}
