"""Limits of the job queue: how many jobs may run and wait, by count and by bytes, per account and in all, and
how long ended ones are kept. Decisions only; settings import this module, so it imports no database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sandboxer.kernel.errors import QueueFull, TooLarge

RETRY_AFTER_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    running_per_account: int
    running: int
    queued_per_account: int
    queued: int = 10_000
    # Bytes given to waiting jobs: code, files, input.
    queued_bytes_per_account: int = 64 << 20
    queued_bytes: int = 1 << 30
    retention: timedelta
    # Bytes of output kept for ended jobs of one account; beyond it the oldest outputs are deleted.
    kept_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Queue:
    """How many jobs wait, and how many bytes they were given together."""

    jobs: int
    bytes: int


def refuse_alone(size: int, policy: JobPolicy) -> None:
    """Raises TooLarge for a job that even an empty queue would refuse."""
    limit = min(policy.queued_bytes_per_account, policy.queued_bytes)
    if size > limit:
        raise TooLarge(
            what="what this job was given",
            limit=limit,
            size=size,
            hint="Give it less: let it fetch its files from a volume, or run it without queueing.",
        )


def refuse_one_more(size: int, mine: Queue, all_: Queue, policy: JobPolicy) -> None:
    """Raises QueueFull if the queue cannot take another of this size."""
    bounds = (
        ("account", mine, policy.queued_per_account, policy.queued_bytes_per_account),
        ("platform", all_, policy.queued, policy.queued_bytes),
    )
    for owner, queue, most, most_bytes in bounds:
        if queue.jobs >= most:
            why = f"{most} jobs of this {owner} are waiting already"
            raise QueueFull(why=why, reason="jobs", of=owner, limit=most, retry_after_s=RETRY_AFTER_S)
        if queue.bytes + size > most_bytes:
            why = (
                f"jobs of this {owner} that wait hold {queue.bytes} bytes; "
                f"with {size} more that is past {most_bytes}"
            )
            raise QueueFull(why=why, reason="bytes", of=owner, limit=most_bytes, retry_after_s=RETRY_AFTER_S)
