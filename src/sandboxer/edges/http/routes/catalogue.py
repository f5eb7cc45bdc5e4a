"""What a sandbox can be made of."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.catalog import list_images as images_of
from sandboxer.artifacts.images.published import records
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.kernel.durations import format_duration
from sandboxer.sandboxes import profiles
from sandboxer.wire.catalogue import Image, ImageList, Profile, ProfileList
from sandboxer.wire.images import Filter
from sandboxer.wire.sandboxes import Resources
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor

router = APIRouter(prefix="/v1", tags=["catalogue"])


@router.get(
    "/images",
    operation_id="listImages",
    response_model=ImageList,
    responses=failures(),
    summary="Images: the host's own, and published ones that you may use",
)
async def list_images(
    request: Request,
    filter: Annotated[Filter, Query(description="Which published ones.")] = "all",
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    page = await platform_of(request).artifacts.images.list(
        caller(request), which=records.Filter(filter), cursor=cursor, limit=limit
    )
    found = await asyncio.to_thread(images_of, platform_of(request).settings.images_dir)
    shown = [
        Image(
            name=image.name,
            size_bytes=image.size_bytes,
            built_at=image.built_at,
            facts={
                "digest": image.digest,
                "distribution": image.distribution,
                "suite": image.suite,
                "architecture": image.architecture,
            },
        )
        for image in found
    ]
    published = [shown_image(one) for one in page.images]
    return json_response(
        ImageList.model_construct(images=shown, published=published, next_cursor=page.next_cursor)
    )


@router.get(
    "/profiles",
    operation_id="listProfiles",
    response_model=ProfileList,
    responses=failures(),
    summary="Profiles of this platform",
)
async def list_profiles(request: Request) -> Response:
    platform = platform_of(request)
    everywhere = platform.settings.genesis_demanded
    shown = [_profile(profile, everywhere) for profile in platform.sandboxes.profiles()]
    return json_response(ProfileList(profiles=shown))


def _profile(profile: profiles.Profile, is_genesis_demanded: bool) -> Profile:
    default = profile.resources
    return Profile(
        id=profile.id,
        version=profile.version,
        title=profile.title,
        backend=profile.backend,
        image=profile.image,
        trust=profile.trust.value,
        resources=Resources(
            vcpus=default.vcpus, memory_mb=default.memory_mb, disk_mb=default.disk_mb, pids=default.pids
        ),
        ttl_default=format_duration(profile.ttl_default),
        ttl_max=format_duration(profile.ttl_max),
        idle_timeout=None if profile.idle_timeout is None else format_duration(profile.idle_timeout),
        genesis_required=is_genesis_demanded or profile.genesis is profiles.Genesis.REQUIRED,
        metadata=dict(profile.metadata),
    )
