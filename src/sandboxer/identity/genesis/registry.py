"""Asks a registry of agents over HTTP. Remembers answers for an hour and fails closed: no answer, no entry.

Addresses are asked for and remembered in their one spelling, so that no other spelling can fill the memory or
fetch another's answer.
"""

from __future__ import annotations

import json
from asyncio import timeout
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from sandboxer.identity.signatures.bitcoin import bitcoin_address
from sandboxer.identity.signatures.stacks import stacks_address
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, InvalidRequest, Unavailable

LEVEL_NEEDED = 2
_ONBOARDING = "Register both addresses together and reach the level, then try again."


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
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
        known = self._memory.get(address)
        if known is not None and known.until > now:
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
