"""Languages and shells: for anyone to read, since an agent wants to know before it pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import unsigned_failures
from sandboxer.edges.http.offers import KEPT_S, offers_here
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.wire import languages as wire
from sandboxer.work.languages.offering import Offered, count, shown_commands
from sandboxer.work.languages.table import find_language

router = APIRouter(prefix="/v1", tags=["languages"])
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
    found = _filtered(await offers_here(request), image, available)
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
    offers = await offers_here(request)
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
    offers = [one for one in await offers_here(request) if one.language.is_shell]
    shown = [_language(one) for one in _filtered(offers, image, available)]
    return _cached(wire.ShellList(shells=shown, count=len(shown)))


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
