"""Decides how much an account may keep of one kind, and says how long unpaid things stay; decides who may see
and use an image, and what keeps it from being shared. The operator's disk space is another matter: the pool
decides about that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from datetime import timedelta

from sandboxer.artifacts.images.published.records import PublishedImage, Visibility
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.artifacts.records import Holding
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden
from sandboxer.kernel.values import value_class


@value_class
class KeepPolicy:
    """The limits of one account for one kind, and how long unpaid ones are kept."""

    per_account: int = 100
    bytes_per_account: int = 100 << 30
    retention: timedelta = timedelta(days=7)


@value_class
class ImagePolicy(KeepPolicy):
    bounds: Bounds = field(default_factory=Bounds)
    # The largest archive that may be imported.
    upload_bytes: int = 8 << 30


def check_room(held: Holding, policy: KeepPolicy, noun: str, *, more: int = 1, more_bytes: int) -> None:
    """Raises Forbidden if `more` of them, with `more_bytes` together, would be too many or too much."""
    hint = f"Remove one that is not needed any more (DELETE /v1/{noun}s/{{id}})."
    if more and held.count + more > policy.per_account:
        raise Forbidden(
            why=f"an account may keep {policy.per_account} {noun}s",
            reason=f"{noun}_quota",
            limit=policy.per_account,
            hint=hint,
        )
    if (more or more_bytes > 0) and held.size_bytes + more_bytes > policy.bytes_per_account:
        raise Forbidden(
            why=f"an account may keep {policy.bytes_per_account >> 20} MB in {noun}s",
            reason=f"{noun}_quota",
            limit_bytes=policy.bytes_per_account,
            held_bytes=held.size_bytes,
            hint=hint,
        )


def is_visible(image: PublishedImage, caller: Caller, granted: Collection[str]) -> bool:
    if caller.is_owner or caller.account in (image.account, image.offered_to):
        return True
    return image.visibility is not Visibility.PRIVATE or caller.account in granted


def is_theirs(image: PublishedImage, caller: Caller) -> bool:
    return caller.is_owner or caller.account == image.account


def refuse_strangers(image: PublishedImage, caller: Caller) -> None:
    """Refuses changes by a caller who may only see the image."""
    if not is_theirs(image, caller):
        raise Forbidden(why=f"{image.id} is not yours to change", hint="Clone it, and change the clone.")


def refuse_findings(image: PublishedImage) -> None:
    """Refuses to share an image with secrets in it. The error has names and kinds, never a value."""
    if image.findings_count:
        first = ", ".join(f"{one.path} ({one.kind})" for one in image.findings[:3])
        raise Conflict(
            why=f"{image.findings_count} things in it look like secrets: {first}",
            reason="secrets_found",
            findings=[{"path": one.path, "kind": one.kind} for one in image.findings],
            findings_count=image.findings_count,
            hint="Remove them and publish again, or publish with `clean`, which leaves those files out.",
        )
