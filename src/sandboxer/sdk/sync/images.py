"""`client.images`: what sandboxes start from; published, shared, sent out and taken in. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandboxer.sdk.bodies import CHUNK, Content, Progress, body_of, watched
from sandboxer.sdk.routes import images as routes
from sandboxer.sdk.routes.sandboxes import VolumesIn, volumes_in
from sandboxer.sdk.sync.line import Line
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
        wanted = {"name": name, "snapshot": snapshot, "sandbox": sandbox, "service": service}
        more = {"description": description, "visibility": visibility, "clean": clean}
        return self._line.do(routes.publish({**wanted, **more}))

    def list(self, *, which: str | None = None, limit: int | None = None) -> Iterator[wire.PublishedImage]:
        """Published ones: `all`, `owned`, `shared` or `public`; newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self._line.do(routes.page(which=which, cursor=cursor, limit=limit))
            yield from page.published
            cursor = page.next_cursor
            if cursor is None:
                return

    def base(self) -> Sequence[Image]:
        """The host's own, which the operator built; a sandbox starts from one by its name."""
        return self._line.do(routes.page(which=None, cursor=None, limit=1)).images

    def get(self, image_id: str) -> wire.PublishedImage:
        return self._line.do(routes.get(image_id))

    def change(
        self,
        image_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        visibility: str | None = None,
    ) -> wire.PublishedImage:
        wanted = {"name": name, "description": description, "visibility": visibility}
        return self._line.do(routes.change(image_id, wanted))

    def remove(self, image_id: str) -> wire.PublishedImage:
        """Gone already is success; what was made from it stays."""
        return self._line.do(routes.remove(image_id))

    def verify(self, image_id: str) -> wire.PublishedImage:
        """Every file read, and the digest compared."""
        return self._line.do(routes.do(image_id, "verify"))

    def clone(self, image_id: str, *, name: str | None = None) -> wire.PublishedImage:
        """A copy in one's own account."""
        return self._line.do(routes.clone(image_id, {"name": name}))

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
        """New sandboxes that begin as the image; `failed` says which of them could not be made."""
        wanted = {"count": count, "name": name, "profile": profile, "trust": trust, "ttl": ttl}
        more: dict[str, Any] = {
            "idle_timeout": idle_timeout,
            "resources": resources,
            "env": env,
            "labels": labels,
        }
        more |= {"volumes": volumes_in(volumes)}
        return self._line.do(routes.spawn(image_id, {**wanted, **more}))

    def grants(self, image_id: str) -> Sequence[str]:
        return self._line.do(routes.grants(image_id)).accounts

    def grant(self, image_id: str, account: str) -> Sequence[str]:
        return self._line.do(routes.grant(image_id, account)).accounts

    def revoke(self, image_id: str, account: str) -> Sequence[str]:
        return self._line.do(routes.revoke(image_id, account)).accounts

    def transfer(self, image_id: str, account: str | None) -> wire.PublishedImage:
        """Offered to that account, which has to accept it; None takes the offer back."""
        return self._line.do(routes.transfer(image_id, account))

    def accept(self, image_id: str) -> wire.PublishedImage:
        return self._line.do(routes.do(image_id, "accept"))

    def lock(self, image_id: str) -> wire.PublishedImage:
        """From now on removing and unlocking it need a second proof (`confirm`)."""
        return self._line.do(routes.do(image_id, "lock"))

    def unlock(self, image_id: str) -> wire.PublishedImage:
        return self._line.do(routes.do(image_id, "unlock"))

    def export(
        self, image_id: str, to: Path, *, form: routes.Form = "oci", progress: Progress | None = None
    ) -> int:
        """Into a local file, as an OCI layout or as `docker load` reads it; returns its size."""
        size = 0
        with self._line.open(routes.export(image_id, form)) as response, to.open("wb") as file:
            for chunk in response.iter_raw(CHUNK):
                file.write(chunk)
                size += len(chunk)
                if progress is not None:
                    progress(len(chunk))
        return size

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
        body = watched(body_of(content), progress)
        wanted = {"name": name, "description": description or None, "visibility": visibility}
        more = {"clean": clean, "profile": profile}
        return self._line.do(routes.import_archive(body, {**wanted, **more}))
