"""Which languages the images on this host have, and in which version."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from sandboxer.edges.http.state import platform_of
from sandboxer.work.languages.offering import HostImages, Offered

KEPT_S = HostImages.KEPT_S
# For what is only told beside an answer that somebody waits for.
KEPT_LONGER_S = 600.0


async def offers_here(request: Request, kept_s: float = KEPT_S) -> Sequence[Offered]:
    return await platform_of(request).execution.images.offers(kept_s)


async def version_in(request: Request, language: str, image: str | None) -> str | None:
    """The version of a language in an image, as its package says it; None: nobody knows."""
    offers = await offers_here(request, KEPT_LONGER_S)
    found = next((one for one in offers if one.language.name == language), None)
    if found is None or image is None:
        return None
    return found.versions.get(image.partition("@")[0])
