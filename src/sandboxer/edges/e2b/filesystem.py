"""envd's file system: paths are looked at, listed, made, moved, removed and watched."""

from __future__ import annotations

import posixpath
import stat as modes
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from sandboxer.backends.guest import FileChange, FileEvent, FileInfo, FileKind
from sandboxer.edges.e2b.answers import answer, as_json
from sandboxer.edges.e2b.connect import ConnectStream, single_message
from sandboxer.edges.e2b.sandboxes import bind_inside
from sandboxer.edges.e2b.users import path_for, user_of
from sandboxer.edges.http.answers import moment, printable
from sandboxer.edges.http.binding import Asked, AskedPathBody
from sandboxer.edges.http.bodies import LargeAnswer
from sandboxer.edges.http.routes.work.files import AT_A_TIME
from sandboxer.kernel.errors import NotADirectory, PathExists, PathNotFound, SandboxerError
from sandboxer.wire.e2b import envd, operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.words import PAGE_LIMIT_MAX

_ANY = AskedPathBody[SandboxPath, Any]
# Metadata of files is kept in extended attributes of these names, so that programs inside see it too.
ATTRIBUTES = "user.e2b."
# Each page walks the folder anew: with small ones a folder of 150,000 files is walked 300 times.
_PAGE = 20 * PAGE_LIMIT_MAX
_BLOCK = 4096
_QUIET: Mapping[str, Any] = {"keepalive": {}}
# The end of the id of a watcher that is asked for entries too.
_ENTRIES = ".entries"
_TYPES = {FileKind.FILE: "FILE_TYPE_FILE", FileKind.DIRECTORY: "FILE_TYPE_DIRECTORY"}
_BITS = {
    FileKind.FILE: modes.S_IFREG,
    FileKind.DIRECTORY: modes.S_IFDIR,
    FileKind.SYMLINK: modes.S_IFLNK,
}
_CHANGES = {
    FileChange.CREATED: "EVENT_TYPE_CREATE",
    FileChange.MODIFIED: "EVENT_TYPE_WRITE",
    FileChange.REMOVED: "EVENT_TYPE_REMOVE",
    FileChange.MOVED: "EVENT_TYPE_RENAME",
}
# The users of our images; others are shown by their number.
_NAMES = {0: "root", 1000: "user"}


async def stat(asked: AskedPathBody[SandboxPath, envd.Named]) -> Response:
    return answer(envd.OneEntry.model_construct(entry=await _entry(asked, _path(asked, asked.body.path))))


async def list_folder(asked: AskedPathBody[SandboxPath, envd.ListFolder]) -> Response:
    path, files = _path(asked, asked.body.path), asked.platform.work.files
    await _demand_folder(asked, path)
    pieces, cursor = [b'{"entries":['], None
    while True:
        page = await files.list(
            asked.path.sandbox_id,
            asked.caller,
            path,
            depth=asked.body.depth or 1,
            cursor=cursor,
            limit=_PAGE,
            attributes=ATTRIBUTES,
        )
        for start in range(0, len(page.files), AT_A_TIME):
            # As text at once: as objects a folder of a million files would take gigabytes, and a second to
            # be put into words.
            shown = [as_json(await _shown(asked, one)) for one in page.files[start : start + AT_A_TIME]]
            piece = ("," * (len(pieces) > 1) + ",".join(shown)).encode()
            await asked.lease.grow(len(piece))
            pieces.append(piece)
            await asked.lease.in_turn(0.0)
        if (cursor := page.next_cursor) is None:
            return LargeAnswer(iter([*pieces, b"]}"]))


async def make_folder(asked: AskedPathBody[SandboxPath, envd.Named]) -> Response:
    path, files = _path(asked, asked.body.path), asked.platform.work.files
    try:
        await _demand_folder(asked, path)
    except PathNotFound:
        user = user_of(asked.request)
        await files.mkdir(asked.path.sandbox_id, asked.caller, path, mode=0o755, parents=True, owner=user)
        return answer(envd.OneEntry.model_construct(entry=await _entry(asked, path)))
    raise PathExists(path=path, errno_name="EEXIST")


async def move(asked: AskedPathBody[SandboxPath, envd.MovePath]) -> Response:
    source, target = _path(asked, asked.body.source), _path(asked, asked.body.destination)
    files, sandbox_id = asked.platform.work.files, asked.path.sandbox_id
    folder, user = posixpath.dirname(target), user_of(asked.request)
    await files.stat(sandbox_id, asked.caller, source, follow=False)
    await files.mkdir(sandbox_id, asked.caller, folder, mode=0o755, parents=True, owner=user)
    await files.move(sandbox_id, asked.caller, source, target, overwrite=True)
    return answer(envd.OneEntry.model_construct(entry=await _entry(asked, target)))


async def remove(asked: AskedPathBody[SandboxPath, envd.Named]) -> Response:
    """Removes a path with everything below it. Gone already is success, as in envd."""
    path, files = _path(asked, asked.body.path), asked.platform.work.files
    with suppress(PathNotFound):
        await files.remove(asked.path.sandbox_id, asked.caller, path, recursive=True)
    return answer(envd.Empty())


async def watch(asked: Asked[SandboxPath]) -> Response:
    body = single_message(await asked.request.body(), envd.WatchFolder)
    return ConnectStream(asked.request, _stream(asked, body), _QUIET)


async def create_watcher(asked: AskedPathBody[SandboxPath, envd.WatchFolder]) -> Response:
    path = _path(asked, asked.body.path)
    await _demand_folder(asked, path)
    watcher_id = await asked.platform.work.watchers.watch(
        asked.path.sandbox_id, asked.caller, path, recursive=asked.body.recursive
    )
    # Its id says how its changes are to be told, so that nothing is kept of it here.
    return answer(
        envd.OpenWatcher.model_construct(watcher_id=watcher_id + _ENTRIES * asked.body.include_entry)
    )


async def watcher_events(asked: AskedPathBody[SandboxPath, envd.Watcher]) -> Response:
    watcher_id = asked.body.watcher_id.removesuffix(_ENTRIES)
    path, events = await asked.platform.work.watchers.events(asked.path.sandbox_id, asked.caller, watcher_id)
    told = _Told(path, asked if watcher_id != asked.body.watcher_id else None)
    shown = [change for event in events for change in await told.changes(event)]
    return answer(envd.Changes.model_construct(events=shown))


async def remove_watcher(asked: AskedPathBody[SandboxPath, envd.Watcher]) -> Response:
    watcher_id = asked.body.watcher_id.removesuffix(_ENTRIES)
    asked.platform.work.watchers.end(asked.path.sandbox_id, asked.caller, watcher_id)
    return answer(envd.Empty())


async def _stream(asked: _ANY, body: envd.WatchFolder) -> AsyncIterator[Mapping[str, Any]]:
    path = _path(asked, body.path)
    told = _Told(path, asked if body.include_entry else None)
    await _demand_folder(asked, path)
    source = asked.platform.work.files.watch(
        asked.path.sandbox_id, asked.caller, path, recursive=body.recursive
    )
    async with aclosing(source) as events:  # type: ignore[type-var]
        async for event in events:
            if event is None:
                yield {"start": {}}
                continue
            for shown in await told.changes(event):
                yield {"filesystem": shown.model_dump(by_alias=True, exclude_none=True)}


class _Told:
    """Says changes of a folder in envd's words."""

    def __init__(self, folder: str, asked: _ANY | None) -> None:
        self._folder = folder
        # Who wants to know of each change what there is now; None: nobody.
        self._asked = asked
        self._created = ""

    async def changes(self, event: FileEvent) -> list[envd.Change]:
        if event.change not in _CHANGES:
            return []
        kinds = [_CHANGES[event.change]]
        if event.change is FileChange.MODIFIED and event.path == self._created:
            # envd gives a new file to its user before it writes to it, and that is seen too.
            kinds.insert(0, "EVENT_TYPE_CHMOD")
        self._created = event.path if event.change is FileChange.CREATED else ""
        name = posixpath.relpath(printable(event.path), self._folder)
        entry = None
        if self._asked is not None:
            with suppress(SandboxerError):
                entry = await _entry(self._asked, event.path)
        return [envd.Change.model_construct(name=name, type=kind, entry=entry) for kind in kinds]


def _path(asked: _ANY, path: str) -> str:
    return path_for(path, user_of(asked.request))


async def _demand_folder(asked: _ANY, path: str) -> None:
    info = await asked.platform.work.files.stat(asked.path.sandbox_id, asked.caller, path)
    if info.kind is not FileKind.DIRECTORY:
        raise NotADirectory(path=path, errno_name="ENOTDIR")


async def _entry(asked: _ANY, path: str) -> envd.Entry:
    files = asked.platform.work.files
    info = await files.stat(asked.path.sandbox_id, asked.caller, path, follow=False, attributes=ATTRIBUTES)
    return await _shown(asked, info)


async def _shown(asked: _ANY, info: FileInfo) -> envd.Entry:
    """Returns an entry. Of a link it says the kind and the metadata of what the link leads to."""
    kind, metadata = info.kind, metadata_of(info)
    if is_link := kind is FileKind.SYMLINK:
        try:
            led_to = await asked.platform.work.files.stat(
                asked.path.sandbox_id, asked.caller, info.path, attributes=ATTRIBUTES
            )
            kind, metadata = led_to.kind, metadata_of(led_to)
        except PathNotFound:
            kind = FileKind.OTHER
    path = printable(info.path)
    target = None if info.link_target is None else printable(info.link_target)
    return envd.Entry.model_construct(
        name=posixpath.basename(path) or "/",
        type=_TYPES.get(kind, "FILE_TYPE_SYMLINK" if is_link else "FILE_TYPE_UNSPECIFIED"),
        path=path,
        # Some file systems count nothing for a folder; E2B's counts a block.
        size=str(info.size or (_BLOCK if kind is FileKind.DIRECTORY else 0)),
        mode=info.mode & 0o7777,
        permissions=modes.filemode(_BITS.get(info.kind, 0) | (info.mode & 0o7777)),
        owner=_NAMES.get(info.uid, str(info.uid)),
        group=_NAMES.get(info.gid, str(info.gid)),
        modified_time=_rfc3339(moment(info.modified_at)),
        symlink_target=None if target is None else posixpath.join(posixpath.dirname(path), target),
        is_symlink=is_link,
        metadata=metadata,
    )


def metadata_of(info: FileInfo) -> dict[str, str] | None:
    """Returns the metadata of a file. Programs inside may write anything: what is no text is left out."""
    found = {}
    for name, value in info.attributes.items():
        with suppress(UnicodeError):
            found[name.removeprefix(ATTRIBUTES).encode().decode()] = value.decode()
    return found or None


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


BINDINGS = (
    bind_inside(operations.STAT, stat),
    bind_inside(operations.LIST_DIR, list_folder),
    bind_inside(operations.MAKE_DIR, make_folder),
    bind_inside(operations.MOVE, move),
    bind_inside(operations.REMOVE, remove),
    bind_inside(operations.WATCH_DIR, watch),
    bind_inside(operations.CREATE_WATCHER, create_watcher),
    bind_inside(operations.WATCHER_EVENTS, watcher_events),
    bind_inside(operations.REMOVE_WATCHER, remove_watcher),
)
