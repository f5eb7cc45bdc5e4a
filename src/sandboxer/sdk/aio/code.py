"""`client.code` and `client.jobs`: code run once, at once or as a job, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.streams import server_events
from sandboxer.sdk.routes import code as routes
from sandboxer.sdk.routes.code import CodePiece, Options
from sandboxer.wire.execute import Execution
from sandboxer.wire.jobs import Job, JobSummary


class AsyncCode:
    """Each run has a sandbox of its own, which is gone afterwards."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def run(
        self,
        code: str,
        *,
        language: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> Execution:
        """Run to the end. Without a language, the first line of the code says it (`#!/usr/bin/env …`)."""
        return await self._line.do(routes.run(code, language, options, idempotency_key=idempotency_key))

    async def stream(
        self, code: str, *, language: str | None = None, **options: Unpack[Options]
    ) -> AsyncIterator[CodePiece]:
        """The same, piece by piece; the last one is an `Execution` whose output is base 64."""
        async for event in server_events(self._line, routes.stream(code, language, options)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    async def submit(
        self,
        code: str,
        *,
        language: str | None = None,
        webhook_url: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> JobSummary:
        """Queue it as a job; `client.jobs` follows it."""
        return await self._line.do(
            routes.submit(code, language, options, webhook_url=webhook_url, idempotency_key=idempotency_key)
        )


class AsyncJobs:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self, *, state: str | None = None, limit: int | None = None) -> AsyncIterator[JobSummary]:
        """All of them, newest first, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = await self._line.do(routes.jobs(state=state, cursor=cursor, limit=limit))
            for found in page.jobs:
                yield found
            cursor = page.next_cursor
            if cursor is None:
                return

    async def get(self, job_id: str) -> Job:
        """While it runs, with what it has printed so far."""
        return await self._line.do(routes.job(job_id))

    async def wait(self, job_id: str, *, timeout_s: float = 60.0) -> Job:
        """Its end, or its present state after `timeout_s` (a minute at most)."""
        return await self._line.do(routes.job(job_id, wait_s=timeout_s))

    async def cancel(self, job_id: str) -> Job:
        """End it; the answer has what it had printed."""
        return await self._line.do(routes.cancel(job_id))
