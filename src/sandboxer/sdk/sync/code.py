# Written by scripts/generate-sync from sdk/aio/code.py. Do not edit.
"""`client.code` and `client.jobs`: code run once, at once or as a job, blocking.

`client.sessions`: interpreters that keep their state. `client.languages`: what runs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from sandboxer.sdk.call import STREAM_TIMEOUT_S, Call, described, new_idempotency_key
from sandboxer.sdk.calls import catalogue, execute, sandboxes, sessions
from sandboxer.sdk.code import CellPiece, CodePiece, Options, StartOptions, cell_piece, code_piece, options_in
from sandboxer.sdk.commands import MARGIN_S
from sandboxer.sdk.sync.line import Line, Noun, Scope, items, told
from sandboxer.wire.execute import TTL_DEFAULT_S
from sandboxer.wire.sessions import CELL_TIMEOUT_DEFAULT_S

if TYPE_CHECKING:
    from sandboxer.sdk import models

# The server answers within its own limit, or with what there is.
WAIT_MAX_S = 60.0


class Code(Noun):
    """Each run has a sandbox of its own, which is gone afterwards."""

    def run(
        self,
        code: str,
        *,
        language: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> models.Execution:
        """Runs it to the end. Without a language, the first line of the code says it (`#!/usr/bin/env …`).

        Examples:
            >>> done = client.code.run("print(6 * 7)", language="python")
            >>> print(done.stdout, done.exit_code)
        """
        call = execute.execute_code(
            code=code, language=language, idempotency_key=idempotency_key, **options_in(options)
        )
        patience = (options.get("ttl_s") or TTL_DEFAULT_S) + 2 * MARGIN_S
        return self._line.send(call.within(patience))

    def stream(
        self, code: str, *, language: str | None = None, **options: Unpack[Options]
    ) -> Iterator[CodePiece]:
        """Does the same piece by piece; the last piece is an `Execution` whose output is base 64."""
        call = execute.execute_code(code=code, language=language, encoding="base64", **options_in(options))
        return told(self._line, call.streamed(), code_piece)

    def submit(
        self,
        code: str,
        *,
        language: str | None = None,
        webhook_url: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> models.JobSummary:
        """Queues it as a job; `client.jobs` follows it."""
        return self._line.send(
            execute.execute_later(
                code=code,
                language=language,
                webhook_url=webhook_url,
                idempotency_key=idempotency_key or new_idempotency_key(),
                **options_in(options),
            )
        )


class Jobs(Noun):
    """A job is code that runs later, or longer than anybody wants to wait for."""

    def list(self, *, state: str | None = None, limit: int | None = None) -> Iterator[models.JobSummary]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        return items(
            self._line,
            lambda cursor: execute.list_jobs(state=state, cursor=cursor, limit=limit),
            lambda page: page.jobs,
        )

    def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> models.JobPage:
        """Returns one page, newest first."""
        return self._line.send(execute.list_jobs(state=state, cursor=cursor, limit=limit))

    def get(self, job_id: str) -> models.Job:
        """Returns a job; one that runs comes with what it has printed so far."""
        return self._line.send(execute.get_job(job_id))

    def wait(self, job_id: str, *, timeout_s: float = 60.0) -> models.Job:
        """Returns at the job's end, or after `timeout_s` (a minute at most) with its present state."""
        call = execute.get_job(job_id, wait_s=min(timeout_s, WAIT_MAX_S) or None)
        return self._line.send(call.within(timeout_s + MARGIN_S))

    def cancel(self, job_id: str) -> models.Job:
        """Ends it; the answer has what it had printed."""
        return self._line.send(execute.cancel_job(job_id))


class Languages(Noun):
    """These are the languages that `code.run` and `sessions.start` can run here."""

    def list(self, *, image: str | None = None, available: bool | None = None) -> Sequence[models.Language]:
        """Lists all, shells among them, or only those of an image, or only those that run here."""
        return self._line.send(catalogue.list_languages(image=image, available=available)).languages

    def get(self, word: str) -> models.Language:
        """Finds a language by name, alias or extension."""
        return self._line.send(catalogue.get_language(word))

    def shells(self, *, image: str | None = None, available: bool | None = None) -> Sequence[models.Language]:
        """Returns the shells, which can be used like any language."""
        return self._line.send(catalogue.list_shells(image=image, available=available)).shells


class Session(Scope):
    """One interpreter that keeps its state between cells; a block of `with` ends it."""

    def __init__(self, line: Line, session_id: str, info: models.Session | None = None) -> None:
        self._line = line
        self._info = info
        self.id = session_id

    def __repr__(self) -> str:
        return described(self, self._info)

    def _leave(self) -> None:
        self.end()

    @property
    def info(self) -> models.Session | None:
        """Holds what the platform last said about it; None before the first `refresh`."""
        return self._info

    def refresh(self) -> models.Session:
        """Asks how the session stands now."""
        self._info = self._line.send(sessions.get_session(self.id))
        return self._info

    def run(self, code: str, *, timeout_s: float | None = None) -> models.Cell:
        """Runs a cell to the end; what it sets, the next cell finds."""
        call = sessions.run_cell(self.id, code=code, timeout_s=timeout_s, wait=True)
        # Those before it come first; nobody knows how long they take.
        return self._line.send(call.within(STREAM_TIMEOUT_S))

    def submit(self, code: str, *, timeout_s: float | None = None) -> models.Cell:
        """Has a cell run; `cell` and `follow` look at it later."""
        call = sessions.run_cell(self.id, code=code, timeout_s=timeout_s, wait=False)
        return self._line.send(call.within((timeout_s or CELL_TIMEOUT_DEFAULT_S) + MARGIN_S))

    def stream(self, code: str, *, timeout_s: float | None = None) -> Iterator[CellPiece]:
        """Yields a `CellEnd` when it is taken, output and results as they come, a `CellEnd` at the end."""
        call = sessions.run_cell(self.id, code=code, timeout_s=timeout_s, encoding="base64")
        return told(self._line, call.streamed(), cell_piece)

    def follow(self, n: int) -> Iterator[CellPiece]:
        """Yields a cell from its beginning, whoever asked for it."""
        call = sessions.get_cell(self.id, n, encoding="base64")
        return told(self._line, call.streamed(), cell_piece)

    def cell(self, n: int, *, wait_s: float = 0.0) -> models.Cell:
        """Says how a cell stands, or how it ended if that is within `wait_s`."""
        call = sessions.get_cell(self.id, n, wait_s=wait_s or None)
        return self._line.send(call.within(wait_s + MARGIN_S))

    def cells(self) -> Sequence[models.CellEnd]:
        """Returns all cells so far, oldest first, without their output."""
        return self._line.send(sessions.list_cells(self.id)).cells

    def interrupt(self) -> int | None:
        """Returns the number of the cell that was asked to stop; None if none ran."""
        return self._line.send(sessions.interrupt_session(self.id)).cell

    def restart(self) -> models.Session:
        """Starts a fresh interpreter: what the old one knew is gone, files are not."""
        return self._change(sessions.restart_session(self.id))

    def freeze(self) -> models.Session:
        """Pauses its interpreter in memory."""
        return self._change(sessions.freeze_session(self.id))

    def thaw(self) -> models.Session:
        """Lets a frozen interpreter go on."""
        return self._change(sessions.thaw_session(self.id))

    def boost(self, vcpus: int) -> models.Session:
        """Gives it `vcpus` CPUs in all, each with 2 GB of memory, at once."""
        return self._change(sessions.boost_session(self.id, vcpus=vcpus))

    def unboost(self) -> models.Session:
        """Gives back what `boost` added."""
        return self._change(sessions.unboost_session(self.id))

    def lock(self) -> models.Session:
        """Makes ending and unlocking it need a second proof (`confirm`)."""
        return self._change(sessions.lock_session(self.id))

    def unlock(self) -> models.Session:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return self._change(sessions.unlock_session(self.id))

    def end(self) -> models.Session:
        """Ends it, with the sandbox that was made for it; ended already is success."""
        return self._change(sessions.end_session(self.id))

    def _change(self, call: Call[models.Session]) -> models.Session:
        self._info = self._line.send(call)
        return self._info


class Sessions(Noun):
    """A session is an interpreter that stays: what one cell sets, the next one finds."""

    def start(
        self, language: str, *, idempotency_key: str | None = None, **options: Unpack[StartOptions]
    ) -> Session:
        """Starts one, ready to take cells, in a sandbox of its own or in the one that is named.

        Examples:
            >>> with client.sessions.start("python") as session:
            ...     session.run("x = 6 * 7")
            ...     print((session.run("print(x)")).stdout)
        """
        call = sessions.start_session(
            language=language, idempotency_key=idempotency_key or new_idempotency_key(), **options
        )
        info = self._line.send(call)
        return Session(self._line, info.id, info)

    def get(self, session_id: str) -> Session:
        """Returns a session that is there, by its id."""
        info = self._line.send(sessions.get_session(session_id))
        return Session(self._line, info.id, info)

    def list(
        self, *, sandbox_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[models.Session]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        return items(
            self._line,
            lambda cursor: sessions.list_sessions(
                sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit
            ),
            lambda page: page.sessions,
        )

    def boost(self, sandbox_id: str, vcpus: int) -> models.Sandbox:
        """Gives any sandbox `vcpus` CPUs in all, whether or not a session is in it."""
        return self._line.send(sandboxes.boost_sandbox(sandbox_id, vcpus=vcpus))

    def unboost(self, sandbox_id: str) -> models.Sandbox:
        """Gives back what `boost` added to a sandbox."""
        return self._line.send(sandboxes.unboost_sandbox(sandbox_id))
