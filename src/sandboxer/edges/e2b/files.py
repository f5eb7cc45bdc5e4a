"""envd's plain HTTP: files are downloaded and uploaded, one or many at once, and what it is and uses is
asked.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Mapping

from starlette.responses import Response

from sandboxer.backends.guest import FileKind
from sandboxer.edges.e2b.answers import ENVD_VERSION, answer, metric
from sandboxer.edges.e2b.filesystem import ATTRIBUTES, metadata_of
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
# What one file can have: E2B's own bounds, and how much the sandbox's filter lets be written of one at once.
_LONGEST_KEY, _LONGEST_VALUE, _MOST_METADATA = 255 - len(ATTRIBUTES), 1024, 4096
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
    metadata = _metadata(asked)
    boundary = boundary_of(asked.request.headers.get("content-type", ""))
    chunks = body_of(asked.request)
    if boundary is None:
        if asked.query.path is None:
            raise InvalidRequest(field="path", why="say where it is to be written")
        is_packed = asked.request.headers.get("content-encoding") == "gzip"
        content = unpacked(chunks) if is_packed else chunks
        written = [await _write(asked, asked.query.path, content, metadata)]
    else:
        written = []
        async for part in parts(chunks, boundary):
            if asked.query.path and written:
                # Whoever holds a signed address may write the file that it names, and no other.
                raise InvalidRequest(field="body", why="the address names one file, and the form has several")
            path = asked.query.path or part.filename
            if path is None:
                raise InvalidRequest(field="body", why="a part of the form does not say where it belongs")
            written.append(await _write(asked, path, part.content, metadata))
            await asked.lease.grow(_WRITTEN + _MOST_METADATA * bool(metadata))
    return answer(written)


def _metadata(asked: _Upload) -> dict[str, str]:
    """Returns the extended attributes that a request wants its files to have. Raises InvalidRequest."""
    headers = asked.request.headers
    said = {
        name.removeprefix(_METADATA): value for name, value in headers.items() if name.startswith(_METADATA)
    }
    for key, value in said.items():
        if not 0 < len(key) <= _LONGEST_KEY or not (value.isascii() and value.isprintable()):
            why = f"{key[:80]!r} is no key of metadata, or what it says is not printable ASCII"
            raise InvalidRequest(field="metadata", why=why)
        if len(value) > _LONGEST_VALUE:
            why = f"what {key[:80]!r} says is longer than {_LONGEST_VALUE} bytes"
            raise InvalidRequest(field="metadata", why=why)
    if sum(len(ATTRIBUTES) + len(key) + len(value) for key, value in said.items()) > _MOST_METADATA:
        raise InvalidRequest(field="metadata", why=f"there are more than {_MOST_METADATA} bytes of it")
    return {ATTRIBUTES + key: value for key, value in said.items()}


async def _write(
    asked: _Upload, path: str, chunks: AsyncIterator[bytes], metadata: Mapping[str, str]
) -> envd.Written:
    files, sandbox_id = asked.platform.work.files, asked.path.sandbox_id
    user = user_of(asked.request, asked.query.username)
    path = path_for(path, user)
    info = await files.write(sandbox_id, asked.caller, path, chunks, owner=user, attributes=metadata)
    if metadata:
        # Not every file system keeps it.
        info = await files.stat(sandbox_id, asked.caller, path, attributes=ATTRIBUTES)
    shown = printable(info.path)
    return envd.Written.model_construct(
        name=posixpath.basename(shown), path=shown, type="file", metadata=metadata_of(info)
    )


BINDINGS = (
    bind(operations.HEALTH, health),
    bind(operations.ENVD_METRICS, metrics),
    bind(operations.ENVS, envs),
    bind(operations.INIT, init),
    bind_inside(operations.READ_FILE, read),
    bind_inside(operations.WRITE_FILES, write),
)
