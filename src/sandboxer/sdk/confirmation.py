"""Answers to what the platform asks back: a second proof, or work.

A 428 asks for a second proof: an act on something locked, or on the account's own keys, must be confirmed by
the account's other factor.

A confirmer is any function from a `Demand` to a `Proof`, or to None if it cannot sign that; the client then
repeats the call with the proof, once. `confirm_with_wallet` makes one of whatever signs for a wallet.

`work_needed` asks for work, where many wrong codes are tried: `work_for` does it.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.errors import ApiError, BrokenAnswer, ForeignText
from sandboxer.sdk.signed_texts import Form, fault_of

SECOND_PROOF = 428
WORK_NEEDED = "work_needed"
# The work asked for may grow while one is at it.
MOST_PUZZLES = 5

# More than any honest platform asks for: hours of hashing.
MAX_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be signed: show `message` to whoever signs, it says what it allows."""

    challenge: str
    message: str
    # "wallet" or "api_key".
    factor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A signature over the message of a demand."""

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
    """Returns what confirms with an API key, where the platform asks for one."""

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


def demand_own_text(text: str, form: Form, *, nonce: str, url: str | None) -> str:
    """Returns a text that may be signed for whoever answers at `url`. Raises ForeignText."""
    if (fault := fault_of(text, form, nonce=nonce, now=time.time(), url=url)) is not None:
        raise ForeignText(f"Nothing was signed: {fault}.")
    return text


def demand_own(demand: Demand, url: str) -> None:
    """Raises ForeignText for a demand that is no text of the platform at `url`.

    A key proves nothing elsewhere, so by whatever address a platform is asked its own text is signed with it.
    """
    at = url if demand.factor == "wallet" else None
    demand_own_text(demand.message, Form.CONFIRM, nonce=demand.challenge, url=at)


def proof_headers(demand: Demand, proof: Proof) -> Mapping[str, str]:
    """Returns the headers that carry a proof in the repeated request."""
    return {
        "x-sudo-challenge": proof.challenge or demand.challenge,
        "x-sudo-by": proof.by,
        "x-sudo-otp": proof.signature,
    }


def solve(challenge: str, bits: int) -> str:
    """A text for which SHA-256 of `challenge:text` begins with so many zero bits: 2^bits hashes or so."""
    if not 0 <= bits <= MAX_BITS:
        raise BrokenAnswer(f"a proof of work of {bits} bits was asked for")
    begun = hashlib.sha256(f"{challenge}:".encode())
    for number in itertools.count():
        tried = begun.copy()
        tried.update(b"%d" % number)
        if not int.from_bytes(tried.digest()) >> (256 - bits):
            return str(number)
    raise AssertionError("counting does not end")


def puzzle_in(error: ApiError) -> tuple[str, int] | None:
    """The work that a refusal asks for; None: it was refused for something else."""
    if error.code != WORK_NEEDED:
        return None
    return str(error.fact("challenge")), int(error.fact("bits"))


def work_for(challenge: str, bits: int) -> Mapping[str, str]:
    """Does the work, which takes seconds of hashing at worst."""
    return {"challenge": challenge, "solution": solve(challenge, bits)}
