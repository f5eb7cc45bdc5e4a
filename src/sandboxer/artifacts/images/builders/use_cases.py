"""Builds an image from a Dockerfile, and fetches one from a registry, each in a workshop. What comes out of
it is imported as an upload is.

A template of other platforms is an image with two labels: what to start in a sandbox of it, and how to tell
that it has started (`START`, `READY`). They are kept in its config; nothing starts by itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import field, replace
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from sandboxer.artifacts.clones import Spawning, is_image_id
from sandboxer.artifacts.images.build import find_image
from sandboxer.artifacts.images.builders.references import (
    Reference,
    explain_build,
    explain_pull,
    is_reference,
    parse_reference,
)
from sandboxer.artifacts.images.builders.workshop import Bench, Said, Workshop, pieces
from sandboxer.artifacts.images.oci.applying import is_packed
from sandboxer.artifacts.images.oci.archive import architecture
from sandboxer.artifacts.images.oci.export import Exporting, Form
from sandboxer.artifacts.images.oci.upload import Importing
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import Wanted
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.errors import InvalidRequest, PathNotFound, SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.requests import CreateRequest, wanted_resources

START, READY = "sandboxer.start", "sandboxer.ready"
_CONTEXT, _LAYOUT, _ARCHIVE, _AUTH = "/build/context", "/build/base", "/build/image.tar", "/build/auth.json"
# Where the builder writes the digest of what it made.
_ID = "/build/id"
_TO_ARCHIVE, _BUILT = f"oci-archive:{_ARCHIVE}", "localhost/built:latest"
_STORE = "/var/lib/containers/storage"
_BUILDAH = ("buildah", "--storage-driver", "vfs")
_SKOPEO = ("skopeo", "--tmpdir", "/build")
# `FROM sandboxer/base` and `FROM sandboxer/img_…`: images of this platform, which no registry has.
# Within one line: blanks that go on over lines would be tried from each of them.
_OURS = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*sandboxer/([A-Za-z0-9._-]+)", re.I | re.M)
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_MOST_DOCKERFILE = 1 << 20
_NO_FILE = "there is no such file in what was sent"


@value_class
class Source:
    """An image in a registry, and how to ask for it."""

    reference: str
    # The user and password of the registry.
    credentials: tuple[str, str] | None = None
    # Without TLS: whoever is on the way may send another image, unless its digest was named.
    plain_http: bool = False


@value_class
class Recipe:
    """What to build of a context: a Dockerfile in it, and what it is told."""

    file: str = "Dockerfile"
    target: str | None = None
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    # Begin where the last build of the account differs.
    cached: bool = True


Event = Said | PublishedImage


@value_class
class ImageBuilders:
    workshop: Workshop
    importing: Importing
    exporting: Exporting
    spawning: Spawning
    images_dir: Path
    # By account and reference: fetching it is under way.
    fetching: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def receive(self, archive: AsyncIterator[bytes], caller: Caller) -> IO[bytes]:
        """Keeps a context until it is built. Raises Forbidden for who may make no images, before it is
        read.
        """
        async with self.workshop.place("contexts", caller):
            return await self.importing.spool(archive)

    async def build(
        self,
        context: IO[bytes],
        recipe: Recipe,
        wanted: Wanted,
        caller: Caller,
        *,
        profile: str | None,
    ) -> AsyncGenerator[Event]:
        """Yields what the builder says, then the image. Closing it early leaves nothing behind."""
        async with self.workshop.open(caller, cached=recipe.cached) as bench:
            if recipe.cached and not await self.workshop.has_room_for_layers(caller):
                await bench.run(["rm", "-rf", _STORE], explain_build)
            await bench.unpack(pieces(context), _CONTEXT, packed=is_packed(context))
            await bench.run([*_BUILDAH, "rm", "--all"], explain_build)
            for name in dict.fromkeys(ours_in(await _dockerfile(bench, recipe.file))):
                yield Said(f"taking {name} from this platform")
                await self._give(bench, name, caller)
            async with aclosing(bench.say(_command(recipe), explain_build)) as said:
                async for line in said:
                    yield line
            # One that leaves out secrets is not what was built.
            made = replace(wanted, source="build" if wanted.clean else _source(await _text(bench, _ID)))
            if (same := await self.same(made, caller, profile)) is not None:
                yield Said(f"it is {same.id}, built before")
                yield await self.importing.use_cases.clone(same.id, made, caller, source=made.source)
                return
            push = [*_BUILDAH, "push", "--format", "oci", _BUILT, _TO_ARCHIVE]
            async with aclosing(bench.say(push, explain_build)) as said:
                async for line in said:
                    yield line
            yield Said("importing it")
            yield await self.importing.receive(
                bench.guest.files.read(_ARCHIVE), made, caller, profile=profile
            )

    async def pull(
        self, source: Source, wanted: Wanted, caller: Caller, *, profile: str | None = None
    ) -> AsyncGenerator[Event]:
        """Yields what the fetcher says, then the image; one that is there with the same digest is not fetched
        again.
        """
        reference = parse_reference(source.reference, self.workshop.policy.default_registry)
        async with self.workshop.open(caller) as bench:
            yield Said(f"asking for {reference}")
            options, verify = await _authfile(bench, source, reference), str(not source.plain_http).lower()

            def explain(said: list[str], _: int) -> SandboxerError:
                return explain_pull(reference, said, architecture())

            inspect = [*_SKOPEO, "inspect", *options, f"--tls-verify={verify}", "--format", "{{.Digest}}"]
            digest = (await bench.run([*inspect, reference.exact], explain)).strip().rpartition("\n")[2]
            pinned = replace(reference, digest=digest)
            if (known := await self._find(str(pinned), caller, only_own=True)) is not None:
                yield Said(f"{known.id} is {pinned}")
                yield known
                return
            copying = [*_SKOPEO, "copy", *options, f"--src-tls-verify={verify}", pinned.exact]
            async with aclosing(bench.say([*copying, _TO_ARCHIVE], explain)) as said:
                async for line in said:
                    yield line
            yield Said("importing it")
            made = replace(wanted, name=wanted.name or _name_of(reference), source=str(pinned))
            yield await self.importing.receive(
                bench.guest.files.read(_ARCHIVE), made, caller, profile=profile
            )

    async def complete(self, request: CreateRequest, caller: Caller) -> CreateRequest:
        """See `sandboxes.admission.Source`. An image by its name in a registry is fetched once, and used
        again from then on; one by its id is for `Spawning`.
        """
        if (image := request.image) is None and request.origin is None and request.snapshot is None:
            profiles = self.workshop.sandboxes
            image = profiles.profiles.get(request.profile or profiles.default_profile).image
        if image is None or request.origin is not None or not is_reference(image):
            return await self.spawning.complete(request, caller)
        found = await self.ensure(image, caller)
        return await self.spawning.request_for(found.id, replace(request, image=found.id), caller)

    async def ensure(self, image: str, caller: Caller) -> PublishedImage:
        """Returns the image of this reference: the caller's own, else the operator's public one, else it is
        fetched.
        """
        reference = parse_reference(image, self.workshop.policy.default_registry)
        turn = self.fetching.setdefault((caller.account, str(reference)), asyncio.Lock())
        async with turn:
            if (known := await self._find(str(reference), caller)) is not None:
                return known
            wanted = Wanted(name=_name_of(reference))
            async with aclosing(self.pull(Source(reference=image), wanted, caller)) as events:
                async for event in events:
                    if isinstance(event, PublishedImage):
                        return event
        raise InvalidRequest(field="image", why=f"{reference} was not fetched")

    async def same(self, wanted: Wanted, caller: Caller, profile: str | None) -> PublishedImage | None:
        """Returns an image of the account that an earlier build made of the same layers. A copy of it takes a
        moment; to write an archive of them and to read it takes as long as the build did.

        The builder says what it made: what it says wrongly leads to another image of the same account.
        """
        known = await self._find(wanted.source, caller, only_own=True) if "@" in wanted.source else None
        if known is None or known.profile != (profile or self.importing.default_profile):
            return None
        made_as = self.workshop.sandboxes.profiles.get(known.profile)
        return known if known.resources == wanted_resources(wanted.resources, made_as) else None

    async def _find(self, reference: str, caller: Caller, *, only_own: bool = False) -> PublishedImage | None:
        accounts = [caller.account] if only_own else [caller.account, OWNER_ACCOUNT]
        images = self.importing.use_cases
        found = await images.repository.store.read(
            lambda conn: records.find_fetched(conn, accounts, reference)
        )
        if found is None or found.account == caller.account:
            return found
        return found if found.visibility is records.Visibility.PUBLIC else None

    async def _give(self, bench: Bench, name: str, caller: Caller) -> None:
        """Puts an image of this platform where `FROM sandboxer/…` finds it, unless it is there."""
        tag, image = f"localhost/sandboxer/{name}", None
        if is_image_id(name):
            async with self.importing.use_cases.reading(name, caller):
                known = name
        else:
            image = find_image(name, self.images_dir)
            known = image.digest.removeprefix("sha256:")[:12]
        kept = f"{tag}:{known.lower()}"
        script = f"{shlex.join(_BUILDAH)} inspect --type image {kept} >/dev/null 2>&1 && echo yes || echo no"
        if await bench.run(["/bin/sh", "-c", script], explain_build) == "no":
            # Every file of it is read once before the first goes in.
            if image is None:
                export = await self.exporting.export(name, Form.OCI, caller)
            else:
                export = await self.exporting.export_tree(image.rootfs.resolve(), f"{tag}:latest")
            await bench.unpack(export.chunks, _LAYOUT)
            pulled = await bench.run([*_BUILDAH, "pull", "--quiet", f"oci:{_LAYOUT}"], explain_build)
            await bench.run(["rm", "-rf", _LAYOUT], explain_build)
            loaded = pulled.strip().rpartition("\n")[2]
            await bench.run([*_BUILDAH, "tag", loaded, kept], explain_build)
        await bench.run([*_BUILDAH, "tag", kept, f"{tag}:latest"], explain_build)


def _command(recipe: Recipe) -> list[str]:
    command = [*_BUILDAH, "bud", "--isolation", "chroot", "--format", "oci", "--layers"]
    command += ["--file", f"{_CONTEXT}/{recipe.file}", "--tag", _BUILT, "--iidfile", _ID]
    command += [] if recipe.cached else ["--no-cache"]
    command += ["--target", recipe.target] if recipe.target else []
    for option, words in (("--build-arg", recipe.args), ("--label", recipe.labels)):
        for name, value in words.items():
            command += [option, f"{name}={value}"]
    return [*command, _CONTEXT]


def _source(digest: str) -> str:
    """Whatever runs in the builder may have written it."""
    return f"build@{digest}" if _DIGEST.fullmatch(digest) else "build"


def ours_in(dockerfile: str) -> list[str]:
    """Returns the names of images of this platform that a Dockerfile begins with."""
    return _OURS.findall(dockerfile)


async def _dockerfile(bench: Bench, file: str) -> str:
    try:
        return await _text(bench, f"{_CONTEXT}/{file}")
    except PathNotFound:
        raise InvalidRequest(field="file", why=f"{file}: {_NO_FILE}") from None


async def _text(bench: Bench, path: str) -> str:
    content = b""
    async for chunk in bench.guest.files.read(path, length=_MOST_DOCKERFILE):
        content += chunk
    return content.decode("utf-8", "replace")


async def _authfile(bench: Bench, source: Source, reference: Reference) -> list[str]:
    """Puts credentials in a file: every program there could read an argument."""
    if source.credentials is None:
        return []
    word = base64.b64encode(":".join(source.credentials).encode()).decode()
    await bench.put(_AUTH, json.dumps({"auths": {reference.registry: {"auth": word}}}))
    return ["--authfile", _AUTH]


def _name_of(reference: Reference) -> str:
    return f"{reference.path.rpartition('/')[2]}{'-' if reference.tag else ''}{reference.tag}"[:64]
