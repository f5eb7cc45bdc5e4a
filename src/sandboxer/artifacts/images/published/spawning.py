"""New sandboxes from a published image: one, or up to a hundred at once, each through the ordinary create."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields, replace

from sandboxer.accounts.authority import AuthorityBook
from sandboxer.artifacts.images.published.desk import ImageDesk
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.snapshots.cloning import MOST_AT_ONCE, Clones
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, InvalidRequest, SandboxerError
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

    async def spawn(self, image_id: str, request: CreateRequest, caller: Caller, *, count: int) -> Clones:
        """All at once; each is made or not by itself. Raises what went wrong if none could be made."""
        if not 1 <= count <= MOST_AT_ONCE:
            raise InvalidRequest(field="count", why=f"from 1 to {MOST_AT_ONCE}")
        wanted = await self.request_for(image_id, request, caller)
        made: dict[int, Sandbox] = {}
        failed: dict[int, SandboxerError] = {}

        async def one(number: int) -> None:
            named = wanted
            if count > 1 and wanted.name is not None:
                named = replace(wanted, name=f"{wanted.name[:59]}-{number + 1}")
            try:
                async with self.slots.taken(await self.authorities.of(caller)):
                    made[number] = await self.desk.sandboxes.create(named, caller)
            except SandboxerError as error:
                failed[number] = error

        async with self.desk.reading(image_id, caller), asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))
        if not made:
            raise failed.get(0) or Broken(why="nothing was made, and nobody knows why")
        return Clones(sandboxes=[made[n] for n in sorted(made)], failed=dict(sorted(failed.items())))

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
