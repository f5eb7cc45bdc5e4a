"""Bare single-row commits of a driver, flushed to the disk: what a ledger is measured against."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

_TABLE = "CREATE TABLE bare (id TEXT PRIMARY KEY, number BIGINT)"
_numbers = itertools.count(1)
Commit = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """One connection for each caller, and a thread for each."""

    commits: list[Commit]
    threads: ThreadPoolExecutor
    # Do more callers get more done?
    is_shared_well: bool

    def one_caller(self, count: int) -> float:
        """Commits per second, one after another."""
        start = time.perf_counter()
        _repeat(self.commits[0], count)
        return count / (time.perf_counter() - start)

    def all_callers(self, count: int) -> float:
        """Commits per second, from all connections at once."""
        each = count // len(self.commits)
        start = time.perf_counter()
        for done in [self.threads.submit(_repeat, commit, each) for commit in self.commits]:
            done.result()
        return each * len(self.commits) / (time.perf_counter() - start)


def _repeat(commit: Commit, count: int) -> None:
    for _ in range(count):
        commit(next(_numbers))


@contextmanager
def sqlite(path: Path, callers: int) -> Iterator[Bare]:
    with ExitStack() as closers, ThreadPoolExecutor(callers) as threads:
        commits: list[Commit] = []
        for number in range(callers):
            # Fifty seconds: all of them want the one lock, and nobody may give up.
            conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=50)
            closers.enter_context(closing(conn))
            conn.execute("PRAGMA journal_mode=WAL")
            conn.execute("PRAGMA synchronous=FULL")
            if number == 0:
                conn.execute(_TABLE)
            commits.append(_sqlite_commit(conn))
        # Until its log has been around once: from then on it is written over, which is quicker than growing.
        _repeat(commits[0], 600)
        yield Bare(commits=commits, threads=threads, is_shared_well=False)


def _sqlite_commit(conn: sqlite3.Connection) -> Commit:
    def commit(number: int) -> None:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("INSERT INTO bare VALUES (?, ?)", (f"row-{number}", number))
        conn.execute("COMMIT")

    return commit


@contextmanager
def postgres(url: str, callers: int) -> Iterator[Bare]:
    with ExitStack() as closers, ThreadPoolExecutor(callers) as threads:
        conns = [closers.enter_context(psycopg.connect(url)) for _ in range(callers)]
        conns[0].execute(_TABLE)
        conns[0].commit()
        yield Bare(commits=[_postgres_commit(conn) for conn in conns], threads=threads, is_shared_well=True)


def _postgres_commit(conn: psycopg.Connection) -> Commit:
    def commit(number: int) -> None:
        conn.execute("INSERT INTO bare VALUES (%s, %s)", (f"row-{number}", number))
        conn.commit()

    return commit
