"""New sandboxes from a published image: one, or up to a hundred at once, each through the ordinary create."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from sandboxer.accounts.authority import AuthorityBook
from sandboxer.artifacts.images.published.desk import ImageDesk
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.snapshots.cloning import Batch, Clones, check_count, make_all
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.book import Also
from sandboxer.sandboxes.profiles import excess
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest, Origin, WantedResources
from sandboxer.sandboxes.slots import Slots


def is_image_id(text: str | None) -> bool:
    return text is not None and text.startswith("img_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawning:
    desk: ImageDesk
    authorities: AuthorityBook
    slots: Slots

    async def request_for(self, image_id: str, request: CreateRequest, caller: Caller) -> CreateRequest:
        """The request, with this image as its origin, and as its source was where nothing is asked.

        What the image sets for its processes holds where the request says nothing.
        """
        async with self.desk.reading(image_id, caller) as image:
            profile = request.profile or image.profile
            return replace(
                request,
                profile=profile,
                image=image.id,
                resources=self._resources(image, request, profile),
                env={**_env(image), **request.env},
                origin=Origin(disk_id=image.id, backend=image.backend, image=image.id),
            )

    async def spawn(self, image_id: str, request: CreateRequest, caller: Caller, batch: Batch) -> Clones:
        """See `cloning.make_all`."""
        check_count(batch.count)
        wanted = await self.request_for(image_id, request, caller)

        async def create(one: CreateRequest, also: Also | None) -> Sandbox:
            async with self.slots.taken(await self.authorities.of(caller)):
                return await self.desk.sandboxes.create(one, caller, also=also)

        async with self.desk.reading(image_id, caller):
            return await make_all(self.desk.sandboxes, wanted, caller, batch, create)

    def _resources(self, image: PublishedImage, request: CreateRequest, profile_id: str) -> WantedResources:
        profile = self.desk.sandboxes.room.profiles.get(profile_id)
        too_much = set(excess(image.resources, profile.resources_max))
        asked = request.resources
        return WantedResources(
            **{
                f.name: getattr(image.resources, f.name)
                if getattr(asked, f.name) is None and f.name not in too_much
                else getattr(asked, f.name)
                for f in fields(WantedResources)
            }
        )


def _env(image: PublishedImage) -> dict[str, str]:
    pairs = (str(one).partition("=") for one in image.config.get("Env", ()))
    return {name: value for name, mark, value in pairs if mark and name}
