"""envd's plain HTTP: files are downloaded and uploaded, one or many at once, and what it is and uses is
asked.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator

from starlette.responses import Response

from sandboxer.backends.guest import FileKind
from sandboxer.edges.e2b.answers import ENVD_VERSION, answer, metric
from sandboxer.edges.e2b.multipart import boundary_of, parts, unpacked
from sandboxer.edges.e2b.sandboxes import bind_inside
from sandboxer.edges.e2b.users import environment_of, path_for, user_of
from sandboxer.edges.http.answers import printable
from sandboxer.edges.http.binding import Asked, AskedPathBody, bind
from sandboxer.edges.http.bodies import Download
from sandboxer.edges.http.routes.work.files import body_of
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, IsADirectory
from sandboxer.sandboxes.use_cases import inspection
from sandboxer.wire.e2b import envd, operations
from sandboxer.wire.operations.sandboxes import SandboxPath

_METADATA = "x-metadata-"
_NOT_KEPT = {"cache-control": "no-store"}
# What is held of each file of a form until all are answered for.
_WRITTEN = 1024
_Upload = Asked[SandboxPath, operations.FilesQuery]


async def health(asked: Asked[SandboxPath]) -> Response:
    seen = await inspection.reachability(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller)
    if not seen.is_reachable:
        raise IllegalTransition(signal="reach", state=seen.sandbox.state.value)
    return Response(status_code=204)


async def metrics(asked: Asked[SandboxPath]) -> Response:
    sandboxes, now = asked.platform.sandboxes, asked.platform.clock.now()
    record = await sandboxes.visible(asked.path.sandbox_id, asked.caller)
    seen = metric(record, await inspection.usage(sandboxes, record.id, asked.caller), now)
    shown = envd.Usage.model_construct(
        **seen.model_dump(exclude={"timestamp", "timestamp_unix"}),
        ts=seen.timestamp_unix,
        mem_total_mib=seen.mem_total >> 20,
        mem_used_mib=seen.mem_used >> 20,
    )
    return answer(shown, headers=_NOT_KEPT)


async def envs(asked: Asked[SandboxPath]) -> Response:
    record = await asked.platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
    return answer(envd.Envs({**record.environment(), **environment_of(record.id)}), headers=_NOT_KEPT)


async def init(asked: AskedPathBody[SandboxPath, envd.Init]) -> Response:
    """Answers as an envd that has begun. What it could be told was decided when the sandbox was made."""
    said = asked.body.model_dump(exclude_defaults=True)
    if said:
        raise InvalidRequest(field=sorted(said)[0], why="that is decided when the sandbox is made")
    return Response(status_code=204, headers={**_NOT_KEPT, "x-envd-version": ENVD_VERSION})


async def read(asked: Asked[SandboxPath, operations.FileQuery]) -> Response:
    files, sandbox_id = asked.platform.work.files, asked.path.sandbox_id
    path = path_for(asked.query.path, user_of(asked.request, asked.query.username))
    info = await files.stat(sandbox_id, asked.caller, path)
    if info.kind is FileKind.DIRECTORY:
        raise IsADirectory(path=path, errno_name="EISDIR")
    source = files.read(sandbox_id, asked.caller, path)
    # The kernel says that what it makes up, in /proc, is empty.
    length = info.size or None
    return Download(source, headers={}, media_type="application/octet-stream", length=length)


async def write(asked: _Upload) -> Response:
    if any(name.startswith(_METADATA) for name in asked.request.headers):
        raise InvalidRequest(field="metadata", why="metadata of files is not kept here")
    boundary = boundary_of(asked.request.headers.get("content-type", ""))
    chunks = body_of(asked.request)
    if boundary is None:
        if asked.query.path is None:
            raise InvalidRequest(field="path", why="say where it is to be written")
        is_packed = asked.request.headers.get("content-encoding") == "gzip"
        written = [await _write(asked, asked.query.path, unpacked(chunks) if is_packed else chunks)]
    else:
        written = []
        async for part in parts(chunks, boundary):
            if asked.query.path and written:
                # Whoever holds a signed address may write the file that it names, and no other.
                raise InvalidRequest(field="body", why="the address names one file, and the form has several")
            path = asked.query.path or part.filename
            if path is None:
                raise InvalidRequest(field="body", why="a part of the form does not say where it belongs")
            written.append(await _write(asked, path, part.content))
            await asked.lease.grow(_WRITTEN)
    return answer(written)


async def _write(asked: _Upload, path: str, chunks: AsyncIterator[bytes]) -> envd.Written:
    user = user_of(asked.request, asked.query.username)
    info = await asked.platform.work.files.write(
        asked.path.sandbox_id, asked.caller, path_for(path, user), chunks, owner=user
    )
    shown = printable(info.path)
    return envd.Written.model_construct(name=posixpath.basename(shown), path=shown, type="file")


BINDINGS = (
    bind(operations.HEALTH, health),
    bind(operations.ENVD_METRICS, metrics),
    bind(operations.ENVS, envs),
    bind(operations.INIT, init),
    bind_inside(operations.READ_FILE, read),
    bind_inside(operations.WRITE_FILES, write),
)
