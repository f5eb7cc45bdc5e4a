"""Decides who passes the genesis gate, where a profile or the operator demands it, at create and at extend.

Whether a genesis proof holds is decided by plain functions; the registry is asked afterwards. Both signatures
cover both addresses, the account, the server's nonce and one timestamp: neither can be taken from one proof
into another, nor be shown twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from sandboxer.identity.genesis.registry import LEVEL_NEEDED, Registry, RegistryEntry, judge
from sandboxer.identity.sessions.challenges import Challenges
from sandboxer.identity.signatures.bitcoin import bitcoin_address, verify_bitcoin
from sandboxer.identity.signatures.stacks import (
    MAINNET_CHAIN_ID,
    TESTNET_CHAIN_ID,
    Ascii,
    Sip018Domain,
    UInt,
    Value,
    stacks_address,
    verify_sip018,
)
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, Unauthenticated

WINDOW_S = 300
_ACTION = "genesis"
# The names the AIBTC services use; the nonce, which theirs lack, is ours.
_HEADERS = {
    b"x-btc-address": "btc_address",
    b"x-btc-signature": "btc_signature",
    b"x-btc-timestamp": "timestamp",
    b"x-stx-address": "stx_address",
    b"x-stx-signature": "stx_signature",
    b"x-stx-timestamp": "stx_timestamp",
    b"x-genesis-nonce": "nonce",
}
_TIMESTAMP = re.compile(r"[1-9][0-9]{0,11}")
_HOW = (
    "Ask for a challenge (POST /v1/auth/genesis), sign its two messages and send X-BTC-Address,"
    " X-BTC-Signature, X-BTC-Timestamp, X-STX-Address, X-STX-Signature and X-Genesis-Nonce."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenesisChallenge:
    nonce: str
    account: str
    # What to fill in: {btc}, {stx} and {timestamp} (unix seconds, the same in both).
    btc_message: str
    sip018_domain: dict[str, str | int]
    sip018_message: dict[str, str]
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GenesisProof:
    btc_address: str
    btc_signature: str = field(repr=False)
    stx_address: str
    stx_signature: str = field(repr=False)
    timestamp: int
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Holds what this platform demands of a proof."""

    domain: str
    is_mainnet: bool = True

    @property
    def sip018_domain(self) -> Sip018Domain:
        chain_id = MAINNET_CHAIN_ID if self.is_mainnet else TESTNET_CHAIN_ID
        return Sip018Domain(name=self.domain, version="1", chain_id=chain_id)


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
        """Returns the registry's entry of whoever brings the proof, or raises. Each proof admits once."""
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


def proof_from_headers(headers: Iterable[tuple[bytes, bytes]]) -> GenesisProof | None:
    """Reads a proof; None if there is none. Raises Unauthenticated if it is there in part, or twice."""
    found: dict[str, str] = {}
    for name, value in headers:
        part = _HEADERS.get(name)
        if part is None:
            continue
        if part in found:
            raise _incomplete(f"{name.decode()} was sent twice")
        found[part] = value.decode("latin-1")
    if not found:
        return None
    stx_timestamp = found.pop("stx_timestamp", None)
    missing = sorted(set(_HEADERS.values()) - {"stx_timestamp"} - found.keys())
    if missing:
        raise _incomplete(f"the genesis proof lacks {', '.join(missing)}")
    timestamp = found.pop("timestamp")
    if stx_timestamp not in (None, timestamp):
        raise _incomplete("X-BTC-Timestamp and X-STX-Timestamp differ")
    if _TIMESTAMP.fullmatch(timestamp) is None:
        raise _incomplete("X-BTC-Timestamp is not unix seconds")
    return GenesisProof(timestamp=int(timestamp), **found)


def btc_message(proof: GenesisProof, account: str) -> str:
    return f"GENESIS {proof.btc_address}:{proof.stx_address}:{account}:{proof.timestamp}:{proof.nonce}"


def stx_message(proof: GenesisProof, account: str) -> Value:
    return {
        "action": Ascii(_ACTION),
        "btc-address": Ascii(proof.btc_address),
        "stx-address": Ascii(proof.stx_address),
        "account": Ascii(account),
        "timestamp": UInt(proof.timestamp),
        "nonce": Ascii(proof.nonce),
    }


def check_proof(proof: GenesisProof, *, account: str, terms: Terms, now: datetime) -> None:
    """Raises unless both wallets signed this, now, for this account. The nonce was used up before."""
    _check_time(proof.timestamp, now)
    btc, stx = bitcoin_address(proof.btc_address), stacks_address(proof.stx_address)
    wanted = "mainnet" if terms.is_mainnet else "testnet"
    if stx.network != wanted or (btc.network == "mainnet") != terms.is_mainnet:
        raise Forbidden(
            why=f"both addresses must be of {wanted}",
            reason="other_network",
            hint=f"Sign with {wanted} addresses.",
        )
    if (btc.text, stx.text) != (proof.btc_address, proof.stx_address):
        raise _incomplete("an address is not in its usual spelling")
    verify_bitcoin(proof.btc_address, btc_message(proof, account), proof.btc_signature)
    verify_sip018(proof.stx_address, terms.sip018_domain, stx_message(proof, account), proof.stx_signature)


def _check_time(timestamp: int, now: datetime) -> None:
    skew = timestamp - int(now.timestamp())
    if abs(skew) > WINDOW_S:
        raise Unauthenticated(
            why=f"the proof's timestamp is {abs(skew)} s off this server's clock; {WINDOW_S} s are allowed",
            reason="clock_skew",
            server_time=int(now.timestamp()),
            hint="Sign again with the current time.",
        )


def _incomplete(why: str) -> Unauthenticated:
    return Unauthenticated(why=why, reason="incomplete_proof", hint=_HOW)
