"""Demands a second proof before something locked is destroyed or unlocked: a fresh signature by the account's
other factor.

Whoever called with an API key answers with a wallet, whoever called with a wallet session with an API key.
Before an account gets another factor, one with only one kind signs the challenge with that one: it is fresh
and names what it allows. What is locked is stricter: it needs both kinds; nothing is locked without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NoReturn

from sandboxer.identity.authenticate import matches, sign
from sandboxer.identity.keys import Caller, Keys, is_public_key
from sandboxer.identity.sessions.challenges import Challenge, Challenges
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.signatures.wallets import verify_message, wallet_of
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, SecondProofNeeded, Unauthenticated
from sandboxer.kernel.values import value_class

Factor = Literal["api_key", "wallet"]
_HEADERS = {b"x-sudo-challenge": "challenge", b"x-sudo-by": "by", b"x-sudo-otp": "proof"}
_WORDS: dict[Factor, str] = {"api_key": "an API key", "wallet": "a wallet"}


@value_class
class SecondProof:
    """Holds the answer to a challenge."""

    challenge: str
    # The public key or wallet address that signed.
    by: str
    proof: str = field(repr=False)


@value_class
class Bound:
    """Names what a challenge allows, once: one action on one resource."""

    action: str
    resource: str
    factor: Factor

    def text(self) -> str:
        return json.dumps([self.action, self.resource, self.factor])


def proof_from_headers(headers: Iterable[tuple[bytes, bytes]]) -> SecondProof | None:
    """Reads a second proof; None if there is none. Raises Unauthenticated if it is there in part, or
    twice.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        if (part := _HEADERS.get(name)) is not None:
            if part in found:
                raise _refused("incomplete_proof", f"{name.decode()} was sent twice")
            found[part] = value.decode("latin-1")
    if not found:
        return None
    if len(found) < len(_HEADERS):
        raise _refused("incomplete_proof", "X-Sudo-Challenge, X-Sudo-By and X-Sudo-OTP belong together")
    return SecondProof(**found)


def proof_message(challenge: Challenge, domain: str) -> str:
    """Returns the text to sign. It starts like no request's canonical form, so that neither can stand for
    the other.
    """
    action, resource, _ = json.loads(challenge.bound_to)
    return "\n".join(
        [
            "Sign this message to confirm an action with sandboxer.",
            "",
            f"Domain: {domain}",
            f"Account: {challenge.account}",
            f"Action: {action}",
            f"Resource: {resource}",
            f"Challenge: {challenge.nonce}",
            f"Expires: {int(challenge.expires_at.timestamp())}",
        ]
    )


def factor_needed(used: Factor, available: frozenset[Factor]) -> Factor:
    """Returns the other factor if the account has one, and otherwise the one that was used."""
    other: Factor = "wallet" if used == "api_key" else "api_key"
    return other if other in available else used


@dataclass(eq=False, repr=False)
class SecondProofs:
    challenges: Challenges
    keys: Keys
    wallets: Wallets
    clock: Clock
    _: KW_ONLY
    domain: str

    async def require(
        self,
        caller: Caller,
        *,
        action: str,
        resource: str,
        proof: SecondProof | None,
        factor: Factor | None = None,
        is_strict: bool = False,
    ) -> None:
        """Returns if the proof is valid. Raises SecondProofNeeded without one, with the challenge to sign.

        Ask for it also before an account gets another factor: a stolen session must not make its own second.
        `factor` names the one that must sign, where the other may be what was lost. `is_strict`: the factor
        that made the request never serves twice; Conflict where there is no other.
        """
        if factor is None:
            used: Factor = "api_key" if is_public_key(caller.public_key) else "wallet"
            available = await self.factors(caller.account)
            factor = factor_needed(used, available)
            if is_strict and factor == used:
                raise one_factor(available)
        bound = Bound(action=action, resource=resource, factor=factor)
        if proof is None:
            await self._demand(caller, bound)
        challenge = await self.challenges.take("second-proof", proof.challenge)
        if challenge.account != caller.account or challenge.bound_to != bound.text():
            raise _refused("bad_nonce", "this challenge was handed out for something else")
        await self._check(challenge, factor, proof)

    async def _demand(self, caller: Caller, bound: Bound) -> NoReturn:
        made = await self.challenges.issue("second-proof", account=caller.account, bound_to=bound.text())
        how = (
            "hex HMAC-SHA256 of `message` with the secret of an API key of the account"
            if bound.factor == "api_key"
            else "the signature of `message` by a wallet of the account"
        )
        raise SecondProofNeeded(
            why=f"{bound.action} of {bound.resource} must be confirmed by {_WORDS[bound.factor]}",
            reason="second_proof_needed",
            challenge=made.nonce,
            message=proof_message(made, self.domain),
            factor=bound.factor,
            expires_at=made.expires_at.isoformat(),
            hint=f"Repeat the request with X-Sudo-Challenge: the challenge, X-Sudo-By: your public key or"
            f" address, X-Sudo-OTP: {how}.",
        )

    async def _check(self, challenge: Challenge, factor: Factor, proof: SecondProof) -> None:
        message = proof_message(challenge, self.domain)
        if factor == "api_key":
            await self._check_key(challenge.account, message, proof)
        else:
            await self._check_wallet(challenge.account, message, proof)

    async def _check_key(self, account: str, message: str, proof: SecondProof) -> None:
        key = await self.keys.find(proof.by)
        expected = sign(b"\x00" if key is None else key.secret, message.encode())
        if not matches(expected, proof.proof) or key is None or key.caller.account != account:
            raise _refused("bad_signature", "no API key of this account signed the challenge")

    async def _check_wallet(self, account: str, message: str, proof: SecondProof) -> None:
        wallet = wallet_of(proof.by)
        known = await self.wallets.find(wallet.caip10)
        if known is None or known.account != account or known.revoked_at is not None:
            raise _refused("bad_signature", "no wallet of this account signed the challenge")
        verify_message(wallet, message, proof.proof)

    async def demand_two(self, account: str) -> None:
        """Raises Conflict unless the account could answer a strict demand."""
        available = await self.factors(account)
        if len(available) < 2:
            raise one_factor(available)

    async def factors(self, account: str) -> frozenset[Factor]:
        now = self.clock.now()
        found: set[Factor] = set()
        if any(key.why_not(now) is None for key in await self.keys.list(account)):
            found.add("api_key")
        if any(wallet.revoked_at is None for wallet in await self.wallets.of_account(account)):
            found.add("wallet")
        return frozenset(found)


def one_factor(available: frozenset[Factor]) -> Conflict:
    """Returns the error that says what an account with only one factor must do first."""
    if "wallet" in available:
        why, hint = "only wallets", "Make an API key for this account first: POST /v1/keys."
    else:
        why, hint = "only API keys", "Link a wallet to this account first: POST /v1/auth/wallets."
    return Conflict(
        why=f"this needs two kinds of proof, and this account has {why}", reason="one_factor", hint=hint
    )


def _refused(reason: str, why: str) -> Unauthenticated:
    return Unauthenticated(
        why=why,
        reason=reason,
        hint="Repeat the request without X-Sudo headers to get a new challenge, and sign that.",
    )
