"""Which languages the images on this host have, and in which version; looked at now and then."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from sandboxer.artifacts.images.catalog import Image, list_images
from sandboxer.edges.http.state import platform_of
from sandboxer.work.languages.offering import ImageContent, Offered, offered
from sandboxer.work.languages.table import languages

# Images change by hand only, and anyone may ask.
KEPT_S = 30.0
# For what is only told beside an answer that somebody waits for.
KEPT_LONGER_S = 600.0


@dataclass(frozen=True)
class _Known:
    at: float
    offers: Sequence[Offered]


async def offers_here(request: Request, kept_s: float = KEPT_S) -> Sequence[Offered]:
    state = request.app.state
    known: _Known | None = getattr(state, "languages", None)
    if known is None or time.monotonic() - known.at > kept_s:
        offers = await asyncio.to_thread(_look, platform_of(request).settings.images_dir)
        known = state.languages = _Known(time.monotonic(), offers)
    return known.offers


async def version_in(request: Request, language: str, image: str | None) -> str | None:
    """The version of a language in an image, as its package says it; None: nobody knows."""
    offers = await offers_here(request, KEPT_LONGER_S)
    found = next((one for one in offers if one.language.name == language), None)
    if found is None or image is None:
        return None
    return found.versions.get(image.partition("@")[0])


def _look(images_dir: Path) -> Sequence[Offered]:
    # An older tree, `name@digest`, serves disks that lie over it, not new sandboxes.
    images = [_content(image) for image in list_images(images_dir) if "@" not in image.name]
    return [offered(language, images) for language in languages().values()]


def _content(image: Image) -> ImageContent:
    return ImageContent(
        name=image.name,
        packages=image.packages,
        # A link in there may point anywhere, so none is followed.
        has_file=lambda path: os.path.lexists(image.rootfs / path),
    )
