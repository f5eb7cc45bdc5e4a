"""Answering a 428: an act on something locked, or on the account's own keys, must be confirmed by its other
factor.

A confirmer is any function from a `Demand` to a `Proof`, or to None if it cannot sign that; the client then
repeats the call with the proof, once. `confirm_with_wallet` makes one of whatever signs for a wallet.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.errors import ApiError

SECOND_PROOF = 428


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be signed: show `message` to whoever signs, it says what it allows."""

    challenge: str
    message: str
    # "wallet" or "api_key".
    factor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    # The address or public key that signed.
    by: str
    signature: str = field(repr=False)
    # Where it answers a challenge that was handed out earlier.
    challenge: str | None = None


Confirmer = Callable[[Demand], Proof | None]


def confirm_with_wallet(address: str, sign: Callable[[str], str]) -> Confirmer:
    """`sign` gives the wallet's signature of a text, as `personal_sign` does."""

    def confirm(demand: Demand) -> Proof | None:
        if demand.factor != "wallet":
            return None
        return Proof(by=address, signature=sign(demand.message))

    return confirm


def confirm_with_key(credentials: Credentials) -> Confirmer:
    def confirm(demand: Demand) -> Proof | None:
        if demand.factor != "api_key":
            return None
        signature = hmac.new(credentials.secret_key.encode(), demand.message.encode(), hashlib.sha256)
        return Proof(by=credentials.public_key, signature=signature.hexdigest())

    return confirm


def demand_of(error: ApiError) -> Demand | None:
    """None unless the refusal asks for a second proof."""
    parts = {name: error.fact(name) for name in ("challenge", "message", "factor")}
    if error.status != SECOND_PROOF or not all(isinstance(part, str) for part in parts.values()):
        return None
    return Demand(**parts)


def proof_headers(demand: Demand, proof: Proof) -> Mapping[str, str]:
    return {
        "x-sudo-challenge": proof.challenge or demand.challenge,
        "x-sudo-by": proof.by,
        "x-sudo-otp": proof.signature,
    }
