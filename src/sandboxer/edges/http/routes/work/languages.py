"""Languages and shells: for anyone to read, since an agent wants to know before it pays."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.offers import KEPT_S, offers_here
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.wire import languages as wire
from sandboxer.wire.operations import languages as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.languages import ListLanguagesQuery, ListShellsQuery
from sandboxer.wire.operations.paths import LanguagePath
from sandboxer.work.languages.offering import Offered, count, shown_commands
from sandboxer.work.languages.table import find_language

CACHE = f"public, max-age={KEPT_S:.0f}"


async def list_languages(asked: Asked[NoParameters, ListLanguagesQuery, None]) -> Response:
    found = _filtered(await offers_here(asked.request), asked.query.image, asked.query.available)
    shown = wire.LanguageList(
        languages=[_language(one) for one in found],
        aliases={alias: one.language.name for one in found for alias in one.language.aliases},
        count=count([one.language for one in found]),
    )
    return _cached(shown)


async def get_language(asked: Asked[LanguagePath, NoParameters, None]) -> Response:
    try:
        wanted = find_language(asked.path.name)
    except InvalidRequest as error:
        why = str(error.facts["why"])
        raise NotFound(what="language", id=asked.path.name, hint=why[:1].upper() + why[1:] + ".") from None
    offers = await offers_here(asked.request)
    return _cached(_language(next(one for one in offers if one.language is wanted)))


async def list_shells(asked: Asked[NoParameters, ListShellsQuery, None]) -> Response:
    offers = [one for one in await offers_here(asked.request) if one.language.is_shell]
    shown = [_language(one) for one in _filtered(offers, asked.query.image, asked.query.available)]
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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.LIST_LANGUAGES, list_languages),
    bind(operations.GET_LANGUAGE, get_language),
    bind(operations.LIST_SHELLS, list_shells),
)
