"""Languages and shells: for anyone to read, since an agent wants to know before it pays."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.catalog import Image, list_images
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import unsigned_failures
from sandboxer.edges.http.state import platform_of
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.wire import languages as wire
from sandboxer.work.languages.offering import ImageContent, Offered, count, offered, shown_commands
from sandboxer.work.languages.table import find_language, languages

router = APIRouter(prefix="/v1", tags=["languages"])
# Images change by hand only, and anyone may ask.
KEPT_S = 30.0
CACHE = f"public, max-age={KEPT_S:.0f}"
ImageFilter = Annotated[
    str | None,
    Query(
        pattern=r"^[a-z0-9][a-z0-9._@-]{0,127}$",
        max_length=128,
        description="Only what this image on this host has.",
        examples=["base"],
    ),
]
AvailableFilter = Annotated[bool | None, Query(description="Only what runs here, or only what does not.")]


@dataclass(frozen=True)
class _Known:
    at: float
    offers: Sequence[Offered]


@router.get(
    "/languages",
    operation_id="listLanguages",
    response_model=wire.LanguageList,
    responses=unsigned_failures(422),
    summary="Languages, and whether they run here",
)
async def list_languages(
    request: Request, image: ImageFilter = None, available: AvailableFilter = None
) -> Response:
    found = _filtered(await _offers(request), image, available)
    shown = wire.LanguageList(
        languages=[_language(one) for one in found],
        aliases={alias: one.language.name for one in found for alias in one.language.aliases},
        count=count([one.language for one in found]),
    )
    return _cached(shown)


@router.get(
    "/languages/{name}",
    operation_id="getLanguage",
    response_model=wire.Language,
    responses=unsigned_failures(404, 422),
    summary="One language, by name, alias or extension",
)
async def get_language(request: Request, name: wire.LanguageWord) -> Response:
    try:
        wanted = find_language(name)
    except InvalidRequest as error:
        why = str(error.facts["why"])
        raise NotFound(what="language", id=name, hint=why[:1].upper() + why[1:] + ".") from None
    offers = await _offers(request)
    return _cached(_language(next(one for one in offers if one.language is wanted)))


@router.get(
    "/shells",
    operation_id="listShells",
    response_model=wire.ShellList,
    responses=unsigned_failures(422),
    summary="Shells, and whether they run here",
)
async def list_shells(
    request: Request, image: ImageFilter = None, available: AvailableFilter = None
) -> Response:
    offers = [one for one in await _offers(request) if one.language.is_shell]
    shown = [_language(one) for one in _filtered(offers, image, available)]
    return _cached(wire.ShellList(shells=shown, count=len(shown)))


async def _offers(request: Request) -> Sequence[Offered]:
    state = request.app.state
    known: _Known | None = getattr(state, "languages", None)
    if known is None or time.monotonic() - known.at > KEPT_S:
        offers = await asyncio.to_thread(_look, platform_of(request).settings.images_dir)
        known = state.languages = _Known(time.monotonic(), offers)
    return known.offers


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


def _filtered(offers: Sequence[Offered], image: str | None, available: bool | None) -> list[Offered]:
    return [
        one
        for one in offers
        if (image is None or image in one.images) and (available is None or one.is_available == available)
    ]


def _language(one: Offered) -> wire.Language:
    language = one.language
    compile_, run = shown_commands(language)
    return wire.Language(
        name=language.name,
        title=language.title,
        aliases=list(language.aliases),
        extension=language.extension,
        is_shell=language.is_shell,
        compile=None if compile_ is None else list(compile_),
        run=list(run),
        image=language.image,
        images=list(one.images),
        available=one.is_available,
        version=one.version,
        hello=language.programs["hello"],
    )


def _cached(shown: wire.Language | wire.LanguageList | wire.ShellList) -> Response:
    response = json_response(shown)
    response.headers["cache-control"] = CACHE
    return response
