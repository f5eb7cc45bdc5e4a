"""Decides who passes the genesis gate, where a profile or the operator demands it, at create and at extend.

Whether a genesis proof holds is decided by plain functions; the registry is asked afterwards. Both signatures
cover both addresses, the account, the server's nonce and one timestamp: neither can be taken from one proof
into another, nor be shown twice.

Asks a registry of agents over HTTP. Remembers answers for an hour and fails closed: no answer, no entry.

Addresses are asked for and remembered in their one spelling, so that no other spelling can fill the memory or
fetch another's answer.
"""

from __future__ import annotations

import json
import re
from asyncio import timeout
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import quote

import httpx

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
from sandboxer.kernel.errors import Forbidden, InvalidRequest, Unauthenticated, Unavailable
from sandboxer.kernel.values import brief_value_class, value_class

LEVEL_NEEDED = 2
_ONBOARDING = "Register both addresses together and reach the level, then try again."


@value_class
class RegistryEntry:
    btc_address: str
    stx_address: str
    # Only the number counts: names of levels have changed over time.
    level: int
    name: str | None = None


def judge(
    entry: RegistryEntry | None, *, btc_address: str, stx_address: str, level_needed: int = LEVEL_NEEDED
) -> RegistryEntry:
    """Returns the entry or raises Forbidden, without naming the pair of an address."""
    if entry is None:
        raise _refused("not_registered", "the registry does not know this agent", level_needed)
    if (entry.btc_address, entry.stx_address) != (btc_address, stx_address):
        raise _refused("other_pair", "the registry does not know these two addresses as a pair", level_needed)
    if entry.level < level_needed:
        raise Forbidden(
            why=f"level {level_needed} is needed, this agent has {entry.level}",
            reason="level_too_low",
            current_level=entry.level,
            required_level=level_needed,
            hint=_ONBOARDING,
        )
    return entry


def _refused(reason: str, why: str, level_needed: int) -> Forbidden:
    return Forbidden(why=why, reason=reason, required_level=level_needed, hint=_ONBOARDING)


REMEMBERED_FOR = timedelta(hours=1)
# Whoever has just registered should not wait an hour.
ABSENCE_REMEMBERED_FOR = timedelta(minutes=1)
CAPACITY = 10_000
TIMEOUT_S = 5.0
MAX_ANSWER = 64 * 1024


class Registry(Protocol):
    async def find(self, address: str) -> RegistryEntry | None:
        """Returns the entry of an address; None if the registry says there is none. Raises Unavailable
        otherwise.
        """


@brief_value_class
class _Remembered:
    entry: RegistryEntry | None
    until: datetime


class HttpRegistry:
    def __init__(
        self,
        base_url: str,
        client: httpx.AsyncClient,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
        capacity: int = CAPACITY,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s
        self._capacity = capacity
        self._memory: OrderedDict[str, _Remembered] = OrderedDict()

    async def find(self, address: str) -> RegistryEntry | None:
        address = canonical(address)
        now = self._clock.now()
        if (known := self._memory.get(address)) is not None and known.until > now:
            return known.entry
        entry = await self._ask(address)
        kept_for = ABSENCE_REMEMBERED_FOR if entry is None else REMEMBERED_FOR
        self._memory[address] = _Remembered(entry, now + kept_for)
        self._memory.move_to_end(address)
        while len(self._memory) > self._capacity:
            self._memory.popitem(last=False)
        return entry

    async def _ask(self, address: str) -> RegistryEntry | None:
        url = f"{self._base_url}/api/verify/{quote(address, safe='')}"
        try:
            # A bound on the whole exchange: a registry that drips bytes must not hold a create open.
            async with timeout(self._timeout_s):
                status, body = await self._get(url)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            raise _unavailable("the registry does not answer") from None
        if status == 404:
            return None
        if status != 200:
            raise _unavailable(f"the registry answered {status}")
        return read_answer(body)

    async def _get(self, url: str) -> tuple[int, bytes]:
        request = self._client.stream(
            "GET", url, headers={"accept": "application/json"}, follow_redirects=False
        )
        async with request as answer:
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise _unavailable("the registry's answer is too long")
            return answer.status_code, body


def canonical(address: str) -> str:
    if address.startswith("S"):
        return stacks_address(address).text
    return bitcoin_address(address).text


def read_answer(body: bytes) -> RegistryEntry | None:
    """Reads an answer strictly: whatever is not clearly an entry makes the registry unavailable."""
    try:
        said: Any = json.loads(body)
        if said["registered"] is False:
            return None
        agent, level = said["agent"], said["level"]
        if said["registered"] is not True or type(level) is not int:
            raise ValueError
        name = agent.get("displayName")
        return RegistryEntry(
            btc_address=bitcoin_address(_text(agent["btcAddress"])).text,
            stx_address=stacks_address(_text(agent["stxAddress"])).text,
            level=level,
            name=name if isinstance(name, str) else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, InvalidRequest, RecursionError):
        raise _unavailable("the registry's answer makes no sense") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _unavailable(why: str) -> Unavailable:
    return Unavailable(
        why=why,
        reason="registry_unavailable",
        hint="Nothing was decided about you; retry in a minute.",
    )


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


@value_class
class GenesisChallenge:
    nonce: str
    account: str
    # What to fill in: {btc}, {stx} and {timestamp} (unix seconds, the same in both).
    btc_message: str
    sip018_domain: dict[str, str | int]
    sip018_message: dict[str, str]
    expires_at: datetime


@value_class
class GenesisProof:
    btc_address: str
    btc_signature: str = field(repr=False)
    stx_address: str
    stx_signature: str = field(repr=False)
    timestamp: int
    nonce: str


@value_class
class Terms:
    """Holds what this platform demands of a proof."""

    domain: str
    is_mainnet: bool = True

    @property
    def sip018_domain(self) -> Sip018Domain:
        chain_id = MAINNET_CHAIN_ID if self.is_mainnet else TESTNET_CHAIN_ID
        return Sip018Domain(name=self.domain, version="1", chain_id=chain_id)


@dataclass(eq=False, repr=False)
class GenesisGate:
    registry: Registry
    challenges: Challenges
    clock: Clock
    terms: Terms
    _: KW_ONLY
    level_needed: int = LEVEL_NEEDED

    async def challenge(self, account: str) -> GenesisChallenge:
        made = await self.challenges.issue("genesis", account=account)
        domain = self.terms.sip018_domain
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
                required_level=self.level_needed,
                hint="POST /v1/auth/genesis for a challenge, and send its two signatures with this request.",
            )
        challenge = await self.challenges.take("genesis", proof.nonce)
        if challenge.account != account:
            raise Unauthenticated(
                why="this challenge was handed out to another account",
                reason="bad_nonce",
                hint="Ask for a challenge with the credentials you create with.",
            )
        check_proof(proof, account=account, terms=self.terms, now=self.clock.now())
        entry = await self.registry.find(proof.btc_address)
        return judge(
            entry,
            btc_address=proof.btc_address,
            stx_address=proof.stx_address,
            level_needed=self.level_needed,
        )


def proof_from_headers(headers: Iterable[tuple[bytes, bytes]]) -> GenesisProof | None:
    """Reads a proof; None if there is none. Raises Unauthenticated if it is there in part, or twice."""
    found: dict[str, str] = {}
    for name, value in headers:
        if (part := _HEADERS.get(name)) is None:
            continue
        if part in found:
            raise _incomplete(f"{name.decode()} was sent twice")
        found[part] = value.decode("latin-1")
    if not found:
        return None
    stx_timestamp = found.pop("stx_timestamp", None)
    if missing := sorted(set(_HEADERS.values()) - {"stx_timestamp"} - found.keys()):
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
