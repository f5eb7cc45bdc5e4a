# Written by scripts/generate-sync from sdk/aio/images.py. Do not edit.
"""`client.images`: what sandboxes start from; published, shared, sent out and taken in. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from sandboxer.sdk.bodies import Content, Progress, VolumesIn, body_of, watched
from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import catalogue
from sandboxer.sdk.calls import images as calls
from sandboxer.sdk.sync.line import Line, pages, pieces, saved
from sandboxer.sdk.sync.native import beside
from sandboxer.wire import images as wire
from sandboxer.wire.catalogue import Image
from sandboxer.wire.snapshots import Clones


class Images:
    def __init__(self, line: Line) -> None:
        self._line = line

    def publish(
        self,
        name: str,
        *,
        snapshot: str | None = None,
        sandbox: str | None = None,
        service: str | None = None,
        description: str = "",
        visibility: str = "private",
        clean: bool = False,
    ) -> wire.PublishedImage:
        """Of exactly one of the three. Refused with what was found if others could see a secret in it."""
        call = calls.publish_image(
            name=name,
            snapshot=snapshot,
            sandbox=sandbox,
            service=service,
            description=description,
            visibility=visibility,
            clean=clean,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)

    def list(self, *, which: str | None = None, limit: int | None = None) -> Iterator[wire.PublishedImage]:
        """Yields published ones (`all`, `owned`, `shared` or `public`), newest first, page by page."""
        for page in pages(
            self._line, lambda cursor: catalogue.list_images(filter=which, cursor=cursor, limit=limit)
        ):
            yield from page.published

    def base(self) -> Sequence[Image]:
        """Lists those that the operator built; a sandbox starts from one by its name."""
        return self._line.send(catalogue.list_images(limit=1)).images

    def get(self, image_id: str) -> wire.PublishedImage:
        return self._line.send(calls.get_image(image_id))

    def change(
        self,
        image_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        visibility: str | None = None,
    ) -> wire.PublishedImage:
        call = calls.change_image(image_id, name=name, description=description, visibility=visibility)
        return self._line.send(call)

    def remove(self, image_id: str) -> wire.PublishedImage:
        """Removes it; gone already is success. What was made from it stays."""
        return self._line.send(calls.remove_image(image_id))

    def verify(self, image_id: str) -> wire.PublishedImage:
        """Has every file read, and the digest compared."""
        return self._line.send(calls.verify_image(image_id))

    def clone(self, image_id: str, *, name: str | None = None) -> wire.PublishedImage:
        """Makes a copy in one's own account."""
        call = calls.clone_image(image_id, name=name, idempotency_key=new_idempotency_key())
        return self._line.send(call)

    def spawn(
        self,
        image_id: str,
        *,
        count: int = 1,
        name: str | None = None,
        profile: str | None = None,
        trust: str | None = None,
        ttl: str | None = None,
        idle_timeout: str | None = None,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        volumes: VolumesIn | None = None,
    ) -> Clones:
        """Makes sandboxes that begin as the image; `failed` says which of them could not be made."""
        call = calls.spawn_image(
            image_id,
            count=count,
            name=name,
            profile=profile,
            trust=trust,
            ttl=ttl,
            idle_timeout=idle_timeout,
            resources=resources,
            env=env,
            labels=labels,
            volumes=volumes,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)

    def grants(self, image_id: str) -> Sequence[str]:
        return self._line.send(calls.list_image_grants(image_id)).accounts

    def grant(self, image_id: str, account: str) -> Sequence[str]:
        return self._line.send(calls.grant_image(image_id, account=account)).accounts

    def revoke(self, image_id: str, account: str) -> Sequence[str]:
        return self._line.send(calls.revoke_image(image_id, account)).accounts

    def transfer(self, image_id: str, account: str | None) -> wire.PublishedImage:
        """Offers it to that account, which has to accept it; None takes the offer back."""
        return self._line.send(calls.transfer_image(image_id, account=account))

    def accept(self, image_id: str) -> wire.PublishedImage:
        return self._line.send(calls.accept_image(image_id))

    def lock(self, image_id: str) -> wire.PublishedImage:
        """From now on removing and unlocking it need a second proof (`confirm`)."""
        return self._line.send(calls.lock_image(image_id))

    def unlock(self, image_id: str) -> wire.PublishedImage:
        return self._line.send(calls.unlock_image(image_id))

    def export(
        self,
        image_id: str,
        to: Path,
        *,
        form: Literal["oci", "docker"] = "oci",
        progress: Progress | None = None,
    ) -> int:
        """Writes a local file, as an OCI layout or as `docker load` reads it; returns its size."""
        return saved(pieces(self._line, calls.export_image(image_id, format=form)), to, progress)

    def import_archive(
        self,
        content: Content,
        name: str,
        *,
        description: str = "",
        visibility: str = "private",
        clean: bool = False,
        profile: str | None = None,
        progress: Progress | None = None,
    ) -> wire.PublishedImage:
        """Import an OCI layout or a Docker archive; a `Path` names a local file."""
        body = watched(beside(body_of, content), progress)
        call = calls.import_image(
            body,
            name=name,
            description=description or None,
            visibility=visibility,
            clean=clean,
            profile=profile,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)
