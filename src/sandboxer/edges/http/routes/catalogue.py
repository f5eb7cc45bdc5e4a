"""What a sandbox can be made of."""

from __future__ import annotations

import asyncio

from sandboxer.artifacts.images.catalog import list_images as images_of
from sandboxer.artifacts.images.published import records
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.published import shown_image
from sandboxer.kernel.durations import format_duration
from sandboxer.sandboxes import profiles
from sandboxer.wire.catalogue import Image, ImageList, Profile, ProfileList
from sandboxer.wire.operations import catalogue as operations
from sandboxer.wire.operations.catalogue import ListImagesQuery
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.sandboxes import Resources


async def list_images(asked: Asked[NoParameters, ListImagesQuery, None]) -> ImageList:
    page = await asked.platform.artifacts.images.list(
        asked.caller,
        which=records.Filter(asked.query.filter),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    found = await asyncio.to_thread(images_of, asked.platform.settings.images_dir)
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
    return ImageList.model_construct(images=shown, published=published, next_cursor=page.next_cursor)


async def list_profiles(asked: Asked[NoParameters, NoParameters, None]) -> ProfileList:
    platform = asked.platform
    everywhere = platform.settings.genesis_demanded
    shown = [_profile(profile, everywhere) for profile in platform.sandboxes.profiles()]
    return ProfileList(profiles=shown)


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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.LIST_IMAGES, list_images),
    bind(operations.LIST_PROFILES, list_profiles),
)
