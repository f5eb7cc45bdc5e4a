"""`client.code` and `client.jobs`: code run once, at once or as a job, with asyncio.

`client.languages`: what runs here, with asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from sandboxer.sdk.aio.line import AsyncLine, pages, server_events
from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import catalogue, execute
from sandboxer.sdk.code import CodePiece, Options, code_piece, options_in
from sandboxer.sdk.commands import MARGIN_S
from sandboxer.wire.catalogue import Language
from sandboxer.wire.execute import TTL_DEFAULT_S, Execution, Job, JobSummary

# The server answers within its own limit, or with what there is.
WAIT_MAX_S = 60.0


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
        call = execute.execute_code(
            code=code, language=language, idempotency_key=idempotency_key, **options_in(options)
        )
        patience = (options.get("ttl_s") or TTL_DEFAULT_S) + 2 * MARGIN_S
        return await self._line.send(call.within(patience))

    async def stream(
        self, code: str, *, language: str | None = None, **options: Unpack[Options]
    ) -> AsyncIterator[CodePiece]:
        """Does the same piece by piece; the last piece is an `Execution` whose output is base 64."""
        call = execute.execute_code(code=code, language=language, encoding="base64", **options_in(options))
        async for event in server_events(self._line, call.streamed()):
            if (piece := code_piece(event)) is not None:
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
        call = execute.execute_later(
            code=code,
            language=language,
            webhook_url=webhook_url,
            idempotency_key=idempotency_key or new_idempotency_key(),
            **options_in(options),
        )
        return await self._line.send(call)


class AsyncJobs:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self, *, state: str | None = None, limit: int | None = None) -> AsyncIterator[JobSummary]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        async for page in pages(
            self._line, lambda cursor: execute.list_jobs(state=state, cursor=cursor, limit=limit)
        ):
            for found in page.jobs:
                yield found

    async def get(self, job_id: str) -> Job:
        """A job that runs comes with what it has printed so far."""
        return await self._line.send(execute.get_job(job_id))

    async def wait(self, job_id: str, *, timeout_s: float = 60.0) -> Job:
        """Returns at the job's end, or after `timeout_s` (a minute at most) with its present state."""
        call = execute.get_job(job_id, wait_s=min(timeout_s, WAIT_MAX_S) or None)
        return await self._line.send(call.within(timeout_s + MARGIN_S))

    async def cancel(self, job_id: str) -> Job:
        """End it; the answer has what it had printed."""
        return await self._line.send(execute.cancel_job(job_id))


class AsyncLanguages:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self, *, image: str | None = None, available: bool | None = None) -> Sequence[Language]:
        """Lists all, shells among them, or only those of an image, or only those that run here."""
        return (await self._line.send(catalogue.list_languages(image=image, available=available))).languages

    async def get(self, word: str) -> Language:
        """Finds a language by name, alias or extension."""
        return await self._line.send(catalogue.get_language(word))

    async def shells(self, *, image: str | None = None, available: bool | None = None) -> Sequence[Language]:
        return (await self._line.send(catalogue.list_shells(image=image, available=available))).shells
