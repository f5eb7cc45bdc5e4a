"""Routes of what a sandbox can be made of: images, profiles, and the languages in this host's images.

Anyone may read languages and shells, since an agent wants to know them before it pays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request

from sandboxer.artifacts.images.build import list_images as images_of
from sandboxer.artifacts.images.published import records
from sandboxer.backends.contract import Capability
from sandboxer.edges.http.answers import considered, from_record, shown_image
from sandboxer.edges.http.binding import Asked, AskedQuery, bind
from sandboxer.edges.http.requests import platform_of
from sandboxer.hosts.routes.records import Constraints, IsolationLevel, Strategy
from sandboxer.kernel.clock import format_duration
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.sandboxes import profiles
from sandboxer.sandboxes.promises import Wishes
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import routes
from sandboxer.wire import catalogue as wire
from sandboxer.wire.operations import platform as operations
from sandboxer.wire.routes import RouteExplanation
from sandboxer.wire.sandboxes import Resources
from sandboxer.work.languages import HostImages, Offered, count, find_language, shown_commands

KEPT_S = HostImages.KEPT_S
# How long a version may take that is only shown beside an answer.
KEPT_LONGER_S = 600.0


async def list_images(asked: AskedQuery[operations.ListImagesQuery]) -> wire.ImageList:
    page = await asked.platform.artifacts.images.list(
        asked.caller,
        which=records.Filter(asked.query.filter),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    found = await asyncio.to_thread(images_of, asked.platform.settings.images_dir)
    shown = [
        from_record(
            wire.Image,
            image,
            facts={
                "digest": image.digest,
                "distribution": image.distribution,
                "suite": image.suite,
                "architecture": image.architecture,
            },
        )
        for image in found
    ]
    published = [shown_image(one) for one in page.records]
    return wire.ImageList.model_construct(images=shown, published=published, next_cursor=page.next_cursor)


async def list_profiles(asked: Asked) -> wire.ProfileList:
    platform = asked.platform
    everywhere = platform.settings.genesis_demanded
    shown = [_profile(profile, everywhere) for profile in platform.sandboxes.profiles.all()]
    return wire.ProfileList(profiles=shown)


async def explain_route(
    asked: Asked[operations.ProfilePath, operations.ExplainRouteQuery],
) -> RouteExplanation:
    query = asked.query
    constraints = Constraints(
        strategy=None if query.strategy is None else Strategy(query.strategy),
        region=query.region,
        gpus=query.gpus,
        gpu=query.gpu,
        max_msats_per_hour=None if query.max_sats_per_hour is None else query.max_sats_per_hour * 1000,
        capabilities=frozenset(map(Capability, query.capability)),
    )
    isolation = None if query.isolation is None else IsolationLevel(query.isolation)
    request = CreateRequest(
        profile=asked.path.profile_id, wishes=Wishes(isolation=isolation), route=constraints
    )
    found = await routes.explain_route(asked.platform.sandboxes, request, asked.caller)
    return RouteExplanation(
        profile=found.profile,
        strategy=found.demand.strategy.value,
        isolation=found.demand.isolation.value,
        isolation_since=found.demand.raised_by,
        considered=considered(found.considered),
    )


def _profile(profile: profiles.Profile, is_genesis_demanded: bool) -> wire.Profile:
    default = profile.resources
    return from_record(
        wire.Profile,
        profile,
        resources=from_record(Resources, default),
        ttl_default=format_duration(profile.ttl_default),
        ttl_max=format_duration(profile.ttl_max),
        idle_timeout=None if profile.idle_timeout is None else format_duration(profile.idle_timeout),
        genesis_required=is_genesis_demanded or profile.genesis is profiles.Genesis.REQUIRED,
        metadata=dict(profile.metadata),
    )


async def list_languages(asked: AskedQuery[operations.ListLanguagesQuery]) -> wire.LanguageList:
    found = _filtered(await offers_here(asked.request), asked.query.image, asked.query.available)
    return wire.LanguageList(
        languages=[_language(one) for one in found],
        aliases={alias: one.language.name for one in found for alias in one.language.aliases},
        count=count([one.language for one in found]),
    )


async def get_language(asked: Asked[operations.LanguagePath]) -> wire.Language:
    try:
        wanted = find_language(asked.path.name)
    except InvalidRequest as error:
        why = str(error.facts["why"])
        raise NotFound(what="language", id=asked.path.name, hint=why[:1].upper() + why[1:] + ".") from None
    offers = await offers_here(asked.request)
    return _language(next(one for one in offers if one.language is wanted))


async def list_shells(asked: AskedQuery[operations.ListLanguagesQuery]) -> wire.ShellList:
    offers = [one for one in await offers_here(asked.request) if one.language.is_shell]
    shown = [_language(one) for one in _filtered(offers, asked.query.image, asked.query.available)]
    return wire.ShellList(shells=shown, count=len(shown))


def _filtered(offers: Sequence[Offered], image: str | None, available: bool | None) -> list[Offered]:
    return [
        one
        for one in offers
        if (image is None or image in one.images) and (available is None or one.is_available == available)
    ]


def _language(one: Offered) -> wire.Language:
    language = one.language
    compile_, run = shown_commands(language)
    return from_record(
        wire.Language,
        language,
        aliases=list(language.aliases),
        compile=None if compile_ is None else list(compile_),
        run=list(run),
        images=list(one.images),
        available=one.is_available,
        version=one.version,
        hello=language.programs["hello"],
    )


async def offers_here(request: Request, kept_s: float = KEPT_S) -> Sequence[Offered]:
    return await platform_of(request).execution.images.offers(kept_s)


async def version_in(request: Request, language: str, image: str | None) -> str | None:
    """Returns the version of a language in an image, from its package; None if it is not known."""
    offers = await offers_here(request, KEPT_LONGER_S)
    found = next((one for one in offers if one.language.name == language), None)
    return None if found is None or image is None else found.versions.get(image.partition("@")[0])


BINDINGS = (
    bind(operations.LIST_IMAGES, list_images),
    bind(operations.LIST_PROFILES, list_profiles),
    bind(operations.EXPLAIN_ROUTE, explain_route),
    bind(operations.LIST_LANGUAGES, list_languages),
    bind(operations.GET_LANGUAGE, get_language),
    bind(operations.LIST_SHELLS, list_shells),
)
