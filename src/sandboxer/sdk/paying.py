"""Answering a 402: a payer signs one of the offers, and the client repeats the call with it, once.

A payer is any function from x402's PaymentRequired document to the value of the PAYMENT-SIGNATURE header, or
to None if it will not pay that; `sandboxer.sdk.payers` has one for EVM wallets. A wallet without a key is
given one with its first paid answer, and the client signs with it from then on.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from sandboxer.sdk.calls import Answer
from sandboxer.sdk.signing import Credentials

PAYMENT_NEEDED = 402
PAYMENT_REQUIRED = "payment-required"
PAYMENT_SIGNATURE = "payment-signature"
PAYMENT_RESPONSE = "payment-response"

Payer = Callable[[Mapping[str, Any]], str | None]


def required_by(status: int, headers: Mapping[str, str]) -> Mapping[str, Any] | None:
    """What a refusal asks to be paid; None if it asks for nothing that could be paid here."""
    header = headers.get(PAYMENT_REQUIRED)
    if status != PAYMENT_NEEDED or header is None:
        return None
    try:
        document = json.loads(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("accepts") else None


def key_in(answer: Answer, url: str) -> Credentials | None:
    """The key that came with a paid answer: shown once, so it must not be lost."""
    if PAYMENT_RESPONSE not in answer.headers:
        return None
    try:
        key = json.loads(answer.content).get("key")
        return Credentials(str(key["public_key"]), str(key["secret_key"]), url)
    except (ValueError, AttributeError, KeyError, TypeError):
        return None
