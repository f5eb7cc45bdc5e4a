"""E2B's volumes, over our own. Their content is reached inside a sandbox, by a token of the volume."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from starlette.responses import Response

from sandboxer.artifacts.records import OVER
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.artifacts.volumes.use_cases import Wanted
from sandboxer.backends.guest import FileInfo, FileKind
from sandboxer.edges.e2b.answers import PROFILE, answer
from sandboxer.edges.http.answers import moment, printable
from sandboxer.edges.http.binding import Asked, AskedBody, bind
from sandboxer.edges.http.bodies import Download
from sandboxer.edges.http.demands import confirm_locked
from sandboxer.edges.http.idempotency import Bind, make_once
from sandboxer.edges.http.routes.work.files import body_of
from sandboxer.edges.http.sandbox_tokens import VOLUME_PLACE
from sandboxer.kernel.errors import Conflict, InvalidRequest, IsADirectory, NotFound, PathNotFound
from sandboxer.kernel.values import brief_value_class
from sandboxer.wire.e2b import control, operations
from sandboxer.wire.e2b.operations import ContentQuery, VolumePath
from sandboxer.work.exec import Run
from sandboxer.work.lines import Wanted as WantedCommand

Q = TypeVar("Q", bound=ContentQuery)
# E2B's have no size.
_SIZE_MB = 1024
_MOST = 1000
# As many as Linux follows.
_MOST_LINKS = 40
_TYPES = {FileKind.FILE: "file", FileKind.DIRECTORY: "directory", FileKind.SYMLINK: "symlink"}


async def create(asked: AskedBody[control.NewVolume]) -> Response:
    use_cases, who = asked.platform.artifacts.volumes, asked.caller

    async def make(bind: Bind | None) -> Volume:
        return await use_cases.create(Wanted(name=asked.body.name, size_mb=_SIZE_MB), who, also=bind)

    def show(made: Volume) -> Response:
        return answer(_with_token(asked, made), 201)

    return await make_once(asked.request, make, use_cases.recall, show, is_personal=True)


async def list_volumes(asked: Asked) -> Response:
    page = await asked.platform.artifacts.volumes.list(asked.caller, limit=_MOST)
    shown = [control.VolumeInfo.model_construct(volume_id=one.id, name=one.name) for one in page.records]
    return answer(shown)


async def get(asked: Asked[VolumePath]) -> Response:
    return answer(_with_token(asked, await _present(asked)))


async def remove(asked: Asked[VolumePath]) -> Response:
    found = await _present(asked)
    is_confirmed = await confirm_locked(asked.request, found, action="drop")
    await asked.platform.artifacts.volumes.drop(found.id, asked.caller, despite_lock=is_confirmed)
    return Response(status_code=204)


async def _present(asked: Asked[VolumePath]) -> Volume:
    found = await asked.platform.artifacts.volumes.get(asked.path.volume_id, asked.caller)
    if found.state in OVER:
        raise NotFound(what="volume", id=found.id)
    return found


def _with_token(asked: Asked[Any, Any, Any], record: Volume) -> control.VolumeAndToken:
    token = asked.platform.sandbox_tokens.of(asked.caller, VOLUME_PLACE + record.id)
    return control.VolumeAndToken.model_construct(volume_id=record.id, name=record.name, token=token)


@brief_value_class
class _Place:
    """A path of a volume, in a sandbox that has it."""

    asked: Asked[VolumePath, Any, Any]
    sandbox_id: str
    root: str
    path: str

    async def stat(self) -> FileInfo:
        files = self.asked.platform.work.files
        return await files.stat(self.sandbox_id, self.asked.caller, self.path, follow=False)

    async def is_there(self) -> bool:
        try:
            await self.stat()
        except PathNotFound:
            return False
        return True

    async def own(self, uid: int | None, gid: int | None, mode: int | None) -> None:
        """Changes whose it is, where something is said of that."""
        owner = f"{'' if uid is None else uid}:{'' if gid is None else gid}"
        changes = [["chown", "-h", owner, self.path]] if owner != ":" else []
        changes += [["chmod", f"{mode:o}", self.path]] if mode is not None else []
        for argv in changes:
            run = Run(wanted=WantedCommand(argv=argv), timeout_s=30.0, output_limit=200)
            work, asked = self.asked.platform.work, self.asked
            done = await work.exec.run(self.sandbox_id, asked.caller, run, asked.lease)
            if done.end.exit_code != 0:
                raise InvalidRequest(
                    field="path", why=printable(bytes(done.stderr).decode("utf-8", "replace"))
                )

    def shown(self, info: FileInfo) -> control.VolumeEntry:
        path = printable(info.path.removeprefix(self.root)) or "/"
        at = moment(info.modified_at)
        return control.VolumeEntry.model_construct(
            name=posixpath.basename(path) or "/",
            type=_TYPES.get(info.kind, "unknown"),
            path=path,
            size=info.size,
            mode=info.mode & 0o7777,
            uid=info.uid,
            gid=info.gid,
            atime=at,
            mtime=at,
            ctime=at,
            target=None if info.link_target is None else printable(info.link_target),
        )


@asynccontextmanager
async def _place(asked: Asked[VolumePath, Q, Any], *, follow: bool = True) -> AsyncIterator[_Place]:
    """Opens the path that a request names; if it is not to `follow`, a link in its last place is meant."""
    content = asked.platform.artifacts.volume_content
    async with content.open(asked.path.volume_id, asked.caller, PROFILE) as (sandbox_id, root):
        said = posixpath.normpath("/" + asked.query.path.strip()).strip("/")
        begun = _Place(asked, sandbox_id, root, root)
        yield replace(begun, path=await _without_links(begun, said, follow=follow))


async def _without_links(place: _Place, said: str, *, follow: bool) -> str:
    """Returns where a path of a volume leads. Raises InvalidRequest if a link in it leads out of the volume:
    whoever may use the volume may not use the rest of a sandbox that has it.
    """
    found, left, links = place.root, said.split("/") if said else [], 0
    while left:
        found = posixpath.normpath(f"{found}/{left.pop(0)}")
        if found != place.root and not found.startswith(place.root + "/"):
            break
        if not left and not follow:
            return found
        try:
            info = await replace(place, path=found).stat()
        except PathNotFound:
            if ".." in left:
                raise
            # What is not there has no links; whoever wants it there makes it.
            return posixpath.join(found, *left)
        if info.kind is FileKind.SYMLINK and info.link_target is not None:
            links += 1
            if links > _MOST_LINKS:
                raise InvalidRequest(field="path", why=f"there are more than {_MOST_LINKS} links in it")
            target = posixpath.join(posixpath.dirname(found), info.link_target, "")
            inside = target.removeprefix(place.root + "/")
            if inside == target:
                break
            found, left = place.root, [*inside.split("/"), *left]
    else:
        return found
    raise InvalidRequest(field="path", why="a link in it leads out of the volume")


async def stat(asked: Asked[VolumePath, ContentQuery]) -> Response:
    async with _place(asked, follow=False) as place:
        return answer(place.shown(await place.stat()))


async def change(asked: Asked[VolumePath, ContentQuery, control.Owned]) -> Response:
    async with _place(asked) as place:
        await place.stat()
        await place.own(asked.body.uid, asked.body.gid, asked.body.mode)
        return answer(place.shown(await place.stat()))


async def remove_path(asked: Asked[VolumePath, ContentQuery]) -> Response:
    async with _place(asked, follow=False) as place:
        if place.path == place.root:
            raise InvalidRequest(field="path", why="a volume without its root is none; remove the volume")
        await asked.platform.work.files.remove(place.sandbox_id, asked.caller, place.path, recursive=True)
    return Response(status_code=204)


async def list_folder(asked: Asked[VolumePath, operations.ListContentQuery]) -> Response:
    async with _place(asked) as place:
        page = await asked.platform.work.files.list(
            place.sandbox_id, asked.caller, place.path, depth=asked.query.depth, cursor=None, limit=_MOST
        )
        if page.next_cursor is not None:
            raise InvalidRequest(field="path", why=f"there are more than {_MOST} entries; list less at once")
        return answer([place.shown(one) for one in page.files])


async def make_folder(asked: Asked[VolumePath, operations.WriteContentQuery]) -> Response:
    query, files = asked.query, asked.platform.work.files
    async with _place(asked) as place:
        if not await place.is_there():
            mode = 0o755 if query.mode is None else query.mode
            await files.mkdir(place.sandbox_id, asked.caller, place.path, mode=mode, parents=query.force)
            await place.own(query.uid, query.gid, None)
        elif not query.force:
            raise Conflict(why=f"{query.path} is there already", hint="Say `force` to keep it.")
        return answer(place.shown(await place.stat()), 201)


async def write(asked: Asked[VolumePath, operations.WriteContentQuery]) -> Response:
    query, files = asked.query, asked.platform.work.files
    async with _place(asked) as place:
        if not query.force and await place.is_there():
            raise Conflict(why=f"{query.path} is there already", hint="Say `force` to replace it.")
        chunks = body_of(asked.request)
        await files.write(
            place.sandbox_id, asked.caller, place.path, chunks, mode=query.mode, parents=query.force
        )
        await place.own(query.uid, query.gid, None)
        return answer(place.shown(await place.stat()), 201)


async def read(asked: Asked[VolumePath, ContentQuery]) -> Response:
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(_place(asked))
        info = await asked.platform.work.files.stat(place.sandbox_id, asked.caller, place.path)
        if info.kind is FileKind.DIRECTORY:
            raise IsADirectory(path=asked.query.path, errno_name="EISDIR")
        chunks = _content(place, stack.pop_all())
        return Download(chunks, headers={}, media_type="application/octet-stream", length=info.size)
    raise AssertionError("an exit stack passes everything on")


async def _content(place: _Place, stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        files = place.asked.platform.work.files
        async for chunk in files.read(place.sandbox_id, place.asked.caller, place.path):
            yield chunk


BINDINGS = (
    bind(operations.NEW_VOLUME, create),
    bind(operations.VOLUMES, list_volumes),
    bind(operations.GET_VOLUME, get),
    bind(operations.REMOVE_VOLUME, remove),
    bind(operations.STAT_CONTENT, stat),
    bind(operations.CHANGE_CONTENT, change),
    bind(operations.REMOVE_CONTENT, remove_path),
    bind(operations.LIST_CONTENT, list_folder),
    bind(operations.MAKE_CONTENT, make_folder),
    bind(operations.READ_CONTENT, read),
    bind(operations.WRITE_CONTENT, write),
)
