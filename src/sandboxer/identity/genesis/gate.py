"""Who passes the gate: asked where a profile or the operator demands it, at create and at extend."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sandboxer.identity.genesis.judgement import LEVEL_NEEDED, RegistryEntry, judge
from sandboxer.identity.genesis.proof import GenesisProof, Terms, check_proof
from sandboxer.identity.genesis.registry import Registry
from sandboxer.identity.sessions.challenges import Challenges
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, Unauthenticated


@dataclass(frozen=True, slots=True, kw_only=True)
class GenesisChallenge:
    nonce: str
    account: str
    # What to fill in: {btc}, {stx} and {timestamp} (unix seconds, the same in both).
    btc_message: str
    sip018_domain: dict[str, str | int]
    sip018_message: dict[str, str]
    expires_at: datetime


class GenesisGate:
    def __init__(
        self,
        registry: Registry,
        challenges: Challenges,
        clock: Clock,
        terms: Terms,
        *,
        level_needed: int = LEVEL_NEEDED,
    ) -> None:
        self._registry = registry
        self._challenges = challenges
        self._clock = clock
        self._terms = terms
        self._level_needed = level_needed

    async def challenge(self, account: str) -> GenesisChallenge:
        made = await self._challenges.issue("genesis", account=account)
        domain = self._terms.sip018_domain
        return GenesisChallenge(
            nonce=made.nonce,
            account=account,
            btc_message=f"GENESIS {{btc}}:{{stx}}:{account}:{{timestamp}}:{made.nonce}",
            sip018_domain={"name": domain.name, "version": domain.version, "chain-id": domain.chain_id},
            sip018_message={
                "action": "genesis",
                "btc-address": "{btc}",
                "stx-address": "{stx}",
                "account": account,
                "timestamp": "{timestamp}",
                "nonce": made.nonce,
            },
            expires_at=made.expires_at,
        )

    async def admit(self, account: str, proof: GenesisProof | None) -> RegistryEntry:
        """Who this is by the registry, or a refusal. Each proof admits once."""
        if proof is None:
            raise Forbidden(
                why="this needs a genesis proof",
                reason="genesis_needed",
                required_level=self._level_needed,
                hint="POST /v1/auth/genesis for a challenge, and send its two signatures with this request.",
            )
        challenge = await self._challenges.take("genesis", proof.nonce)
        if challenge.account != account:
            raise Unauthenticated(
                why="this challenge was handed out to another account",
                reason="bad_nonce",
                hint="Ask for a challenge with the credentials you create with.",
            )
        check_proof(proof, account=account, terms=self._terms, now=self._clock.now())
        entry = await self._registry.find(proof.btc_address)
        return judge(
            entry,
            btc_address=proof.btc_address,
            stx_address=proof.stx_address,
            level_needed=self._level_needed,
        )
