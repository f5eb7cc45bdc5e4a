"""`client.snapshots`: keep a sandbox's disk, go back to it, fork from it, with asyncio.

`client.volumes`: disks that outlive sandboxes. `client.images`: what sandboxes start from; published, shared,
sent out and taken in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from sandboxer.sdk.aio.line import AsyncNoun, items, pieces, saved, told
from sandboxer.sdk.aio.native import beside
from sandboxer.sdk.bodies import (
    BuildOptions,
    CloneOptions,
    Content,
    Progress,
    PullOptions,
    body_of,
    labelled,
    packed,
    watched,
)
from sandboxer.sdk.call import Call, new_idempotency_key
from sandboxer.sdk.calls import catalogue
from sandboxer.sdk.calls import images as image_calls
from sandboxer.sdk.calls import snapshots as snapshot_calls
from sandboxer.sdk.calls import volumes as volume_calls
from sandboxer.sdk.commands import image_piece
from sandboxer.sdk.errors import BrokenAnswer

if TYPE_CHECKING:
    from sandboxer.sdk import models


class AsyncSnapshots(AsyncNoun):
    """A snapshot is a sandbox's disk at one moment; many sandboxes can begin as it was."""

    async def take(
        self,
        sandbox_id: str,
        *,
        name: str | None = None,
        ttl: str | None = None,
        labels: Mapping[str, str] | None = None,
        memory: bool | None = None,
    ) -> models.Snapshot:
        """Keeps the disk as it is now, with `memory` what runs too; whatever runs goes on.

        Examples:
            >>> snapshot = await client.snapshots.take(sandbox.id, name="ready")
            >>> forks = await client.snapshots.clone(snapshot.id, count=3)
            >>> print([fork.id for fork in forks.sandboxes])
        """
        return await self._line.send(
            snapshot_calls.take_snapshot(
                sandbox_id,
                name=name,
                ttl=ttl,
                labels=labels,
                memory=memory,
                idempotency_key=new_idempotency_key(),
            )
        )

    def list(
        self,
        *,
        sandbox_id: str | None = None,
        state: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.Snapshot]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        label = labelled(labels)
        return items(
            self._line,
            lambda cursor: snapshot_calls.list_snapshots(
                sandbox_id=sandbox_id, state=state, label=label, cursor=cursor, limit=limit
            ),
            lambda page: page.snapshots,
        )

    async def tree(self) -> Sequence[models.SnapshotLine]:
        """Says what came from what, parents before children."""
        return (await self._line.send(snapshot_calls.get_snapshot_tree())).lines

    async def get(self, snapshot_id: str) -> models.Snapshot:
        """Returns one with its exact size, which may take a while where there are very many files."""
        return await self._line.send(snapshot_calls.get_snapshot(snapshot_id))

    async def change(
        self,
        snapshot_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: str | None = None,
    ) -> models.Snapshot:
        """Changes name, labels or the moment at which it goes; what is left out stays."""
        return await self._line.send(
            snapshot_calls.change_snapshot(snapshot_id, name=name, labels=labels, ttl=ttl)
        )

    async def restore(self, snapshot_id: str) -> models.Sandbox:
        """Puts its sandbox's disk back to what it was; what is on it now is lost."""
        return await self._line.send(snapshot_calls.restore_snapshot(snapshot_id))

    async def clone(
        self,
        snapshot_id: str,
        *,
        count: int = 1,
        **options: Unpack[CloneOptions],
    ) -> models.Clones:
        """Makes sandboxes that begin as it was; `failed` says which of them could not be made."""
        return await self._line.send(
            snapshot_calls.clone_snapshot(
                snapshot_id,
                count=count,
                **options,
                idempotency_key=new_idempotency_key(),
            )
        )

    async def lock(self, snapshot_id: str) -> models.Snapshot:
        """Makes dropping and unlocking it need a second proof (`confirm`)."""
        return await self._line.send(snapshot_calls.lock_snapshot(snapshot_id))

    async def unlock(self, snapshot_id: str) -> models.Snapshot:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return await self._line.send(snapshot_calls.unlock_snapshot(snapshot_id))

    async def remove(self, snapshot_id: str) -> models.Snapshot:
        """Removes it; gone already is success. What was made from it stays."""
        return await self._line.send(snapshot_calls.drop_snapshot(snapshot_id))


class AsyncVolumes(AsyncNoun):
    """A volume is a disk that outlives sandboxes; `create(volumes=[…])` attaches it by id or name."""

    async def create(
        self,
        name: str,
        *,
        size_mb: int | None = None,
        from_snapshot: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> models.Volume:
        """Makes a volume: empty, or a copy of a volume's snapshot."""
        return await self._line.send(
            volume_calls.create_volume(
                name=name,
                size_mb=size_mb,
                from_snapshot=from_snapshot,
                labels=labels,
                idempotency_key=new_idempotency_key(),
            )
        )

    def list(self, *, state: str | None = None, limit: int | None = None) -> AsyncIterator[models.Volume]:
        """Yields all of them, page by page; `limit` is the size of a page."""
        return items(
            self._line,
            lambda cursor: volume_calls.list_volumes(state=state, cursor=cursor, limit=limit),
            lambda page: page.volumes,
        )

    async def get(self, volume: str) -> models.Volume:
        """Returns one volume."""
        return await self._line.send(volume_calls.get_volume(volume))

    async def change(
        self,
        volume: str,
        *,
        name: str | None = None,
        size_mb: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> models.Volume:
        """Changes name, labels or size; what is left out stays as it is."""
        return await self._line.send(
            volume_calls.change_volume(volume, name=name, size_mb=size_mb, labels=labels)
        )

    async def snapshot(
        self,
        volume: str,
        *,
        name: str | None = None,
        ttl: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> models.Snapshot:
        """Keeps it as it is now; whoever writes to it goes on."""
        return await self._line.send(
            volume_calls.take_volume_snapshot(
                volume, name=name, ttl=ttl, labels=labels, idempotency_key=new_idempotency_key()
            )
        )

    async def restore(self, volume: str, snapshot: str) -> models.Volume:
        """Puts it back to what the snapshot has; what is on it now is lost. Refused while it is in use."""
        return await self._line.send(volume_calls.restore_volume(volume, snapshot=snapshot))

    async def lock(self, volume: str) -> models.Volume:
        """Makes removing and unlocking it need a second proof (`confirm`)."""
        return await self._line.send(volume_calls.lock_volume(volume))

    async def unlock(self, volume: str) -> models.Volume:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return await self._line.send(volume_calls.unlock_volume(volume))

    async def remove(self, volume: str) -> models.Volume:
        """Removes it; all that is on it is lost."""
        return await self._line.send(volume_calls.drop_volume(volume))


class AsyncImages(AsyncNoun):
    """An image is what a sandbox's disk begins as. It can be published, shared and moved."""

    async def publish(
        self,
        name: str,
        *,
        snapshot: str | None = None,
        sandbox: str | None = None,
        service: str | None = None,
        description: str = "",
        visibility: str = "private",
        clean: bool = False,
    ) -> models.PublishedImage:
        """Publishes one of the three. Refused with what was found if others could see a secret in it."""
        return await self._line.send(
            image_calls.publish_image(
                name=name,
                snapshot=snapshot,
                sandbox=sandbox,
                service=service,
                description=description,
                visibility=visibility,
                clean=clean,
                idempotency_key=new_idempotency_key(),
            )
        )

    def list(
        self, *, which: str | None = None, limit: int | None = None
    ) -> AsyncIterator[models.PublishedImage]:
        """Yields published ones (`all`, `owned`, `shared` or `public`), newest first, page by page."""
        return items(
            self._line,
            lambda cursor: catalogue.list_images(filter=which, cursor=cursor, limit=limit),
            lambda page: page.published,
        )

    async def base(self) -> Sequence[models.Image]:
        """Lists those that the operator built; a sandbox starts from one by its name."""
        return (await self._line.send(catalogue.list_images(limit=1))).images

    async def get(self, image_id: str) -> models.PublishedImage:
        """Returns one published image."""
        return await self._line.send(image_calls.get_image(image_id))

    async def change(
        self,
        image_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        visibility: str | None = None,
    ) -> models.PublishedImage:
        """Changes name, description or who may see it; what is left out stays."""
        return await self._line.send(
            image_calls.change_image(image_id, name=name, description=description, visibility=visibility)
        )

    async def remove(self, image_id: str) -> models.PublishedImage:
        """Removes it; gone already is success. What was made from it stays."""
        return await self._line.send(image_calls.remove_image(image_id))

    async def verify(self, image_id: str) -> models.PublishedImage:
        """Has every file read, and the digest compared."""
        return await self._line.send(image_calls.verify_image(image_id))

    async def clone(self, image_id: str, *, name: str | None = None) -> models.PublishedImage:
        """Makes a copy in one's own account."""
        return await self._line.send(
            image_calls.clone_image(image_id, name=name, idempotency_key=new_idempotency_key())
        )

    async def spawn(
        self,
        image_id: str,
        *,
        count: int = 1,
        **options: Unpack[CloneOptions],
    ) -> models.Clones:
        """Makes sandboxes that begin as the image; `failed` says which of them could not be made."""
        return await self._line.send(
            image_calls.spawn_image(
                image_id,
                count=count,
                **options,
                idempotency_key=new_idempotency_key(),
            )
        )

    async def grants(self, image_id: str) -> Sequence[str]:
        """Returns the accounts that may use it beside its owner."""
        return (await self._line.send(image_calls.list_image_grants(image_id))).accounts

    async def grant(self, image_id: str, account: str) -> Sequence[str]:
        """Lets an account use it; returns all that may."""
        return (await self._line.send(image_calls.grant_image(image_id, account=account))).accounts

    async def revoke(self, image_id: str, account: str) -> Sequence[str]:
        """Ends an account's use of it; what that account made from it stays."""
        return (await self._line.send(image_calls.revoke_image(image_id, account))).accounts

    async def transfer(self, image_id: str, account: str | None) -> models.PublishedImage:
        """Offers it to that account, which has to accept it; None takes the offer back."""
        return await self._line.send(image_calls.transfer_image(image_id, account=account))

    async def accept(self, image_id: str) -> models.PublishedImage:
        """Takes over an image that was offered by `transfer`."""
        return await self._line.send(image_calls.accept_image(image_id))

    async def lock(self, image_id: str) -> models.PublishedImage:
        """Makes removing and unlocking it need a second proof (`confirm`)."""
        return await self._line.send(image_calls.lock_image(image_id))

    async def unlock(self, image_id: str) -> models.PublishedImage:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return await self._line.send(image_calls.unlock_image(image_id))

    async def build(
        self,
        context: Path,
        name: str,
        *,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[BuildOptions],
    ) -> models.PublishedImage:
        """Builds the Dockerfile in a folder, or in a tar of one; `progress` hears each line of the builder.

        Examples:
            >>> image = await client.images.build(Path("app"), "app", progress=print)
            >>> sandbox = await client.create(image=image.id)
        """
        if context.is_dir():
            body = await beside(packed, context, options.get("file") or "Dockerfile")
        else:
            body = await beside(body_of, context)
        return await self._made(image_calls.build_image(body, name=name, **options), progress)

    async def pull(
        self,
        reference: str,
        *,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[PullOptions],
    ) -> models.PublishedImage:
        """Fetches an image of a registry (`python:3.12`); one that is there already is not fetched again."""
        return await self._made(image_calls.pull_image(reference=reference, **options), progress)

    async def _made(
        self, call: Call[models.PublishedImage], progress: Callable[[str], None] | None
    ) -> models.PublishedImage:
        said: AsyncIterator[str | models.PublishedImage] = told(self._line, call.streamed(), image_piece)
        async for piece in said:
            if isinstance(piece, str):
                if progress is not None:
                    progress(piece)
            else:
                return piece
        raise BrokenAnswer("The stream ended without an image.")

    async def export(
        self,
        image_id: str,
        to: Path,
        *,
        form: Literal["oci", "docker"] = "oci",
        progress: Progress | None = None,
    ) -> int:
        """Writes a local file, as an OCI layout or as `docker load` reads it; returns its size."""
        return await saved(pieces(self._line, image_calls.export_image(image_id, format=form)), to, progress)

    async def import_archive(
        self,
        content: Content,
        name: str,
        *,
        description: str = "",
        visibility: str = "private",
        clean: bool = False,
        profile: str | None = None,
        progress: Progress | None = None,
    ) -> models.PublishedImage:
        """Imports an OCI layout or a Docker archive; a `Path` names a local file."""
        body = watched(await beside(body_of, content), progress)
        return await self._line.send(
            image_calls.import_image(
                body,
                name=name,
                description=description or None,
                visibility=visibility,
                clean=clean,
                profile=profile,
                idempotency_key=new_idempotency_key(),
            )
        )
