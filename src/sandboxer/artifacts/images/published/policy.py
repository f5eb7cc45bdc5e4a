"""Decides who may see and use an image, what keeps it from being shared, and how much an account
may publish.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sandboxer.artifacts.images.published.records import PublishedImage, Visibility
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.artifacts.policy import KeepPolicy
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePolicy(KeepPolicy):
    bounds: Bounds = field(default_factory=Bounds)
    # The largest archive that may be imported.
    upload_bytes: int = 8 << 30


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
