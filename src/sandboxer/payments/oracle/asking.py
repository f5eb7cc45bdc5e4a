"""Asks the price services over HTTP, all at once, none for longer than a few seconds or a few kilobytes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from decimal import Decimal

import httpx

from sandboxer.kernel.clock import Clock
from sandboxer.payments.oracle.sightings import Sighting
from sandboxer.payments.oracle.sources import Ask, Source

log = logging.getLogger(__name__)
TIMEOUT_S = 5.0
MAX_ANSWER = 64 * 1024


class Asking:
    """One round of questions. What fails is silent: the judgement counts who spoke."""

    def __init__(
        self,
        sources: Sequence[Source],
        client: httpx.AsyncClient,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.sources = tuple(sources)
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s

    async def look(self, assets: Iterable[str]) -> list[Sighting]:
        wanted = frozenset(assets)
        found: list[Sighting] = []
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                for ask in source.asks_for(wanted):
                    group.create_task(self._ask(source, ask, found))
        return found

    async def _ask(self, source: Source, ask: Ask, found: list[Sighting]) -> None:
        try:
            # A bound on the whole exchange: a server that drips bytes must not hold a quote open.
            async with asyncio.timeout(self._timeout_s):
                body = await self._get(source.url + ask.path)
            found.extend(ask.read(json.loads(body, parse_float=Decimal), self._clock.now()))
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            TimeoutError,
            ValueError,
            LookupError,
            TypeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            log.info("the price source %s is silent: %s", source.name, error or type(error).__name__)

    async def _get(self, url: str) -> bytes:
        headers = {"accept": "application/json"}
        async with self._client.stream("GET", url, headers=headers, follow_redirects=False) as answer:
            if answer.status_code != 200:
                raise ValueError(f"it answered {answer.status_code}")
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise ValueError("its answer is too long")
            return body
