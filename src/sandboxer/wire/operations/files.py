"""The operations on files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.files import (
    FileInfo,
    FileMode,
    FilePage,
    MakeDirectory,
    MoveFile,
    RemoveFile,
    TarUnpacked,
)
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Bytes,
    Events,
    InHeader,
    Json,
    Nothing,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    Stream,
    needs,
)
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.words import MAX_PATH_BYTES, PAGE_LIMIT_MAX, Cursor

QueryPath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_PATH_BYTES - 1,
        pattern="^/[^\\x00]*$",
        description="Absolute path; any bytes but NUL, percent-encoded.",
        examples=["/workspace/main.py"],
    ),
]


class ReadFileQuery(Parameters):
    path: QueryPath
    range: Annotated[
        str | None, Field(max_length=200, description="One range, as `bytes=0-99`."), InHeader("range")
    ] = None


class HeadFileQuery(Parameters):
    path: QueryPath


class WriteFileQuery(Parameters):
    path: QueryPath
    mode: Annotated[FileMode | None, Field(description="Permission bits, as a decimal number.")] = None
    parents: Annotated[bool, Field(description="Make missing folders.")] = True


class DeleteFileQuery(Parameters):
    path: QueryPath
    recursive: Annotated[bool, Field(description="Also a folder with content.")] = False


class ListFilesQuery(Parameters):
    path: QueryPath
    depth: Annotated[int, Field(ge=1, le=64, description="1: the folder itself.")] = 1
    cursor: Annotated[Cursor | None, Field(max_length=8192, pattern="^[A-Za-z0-9_-]{1,8192}$")] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX * 10)] = PAGE_LIMIT_MAX


class StatFileQuery(Parameters):
    path: QueryPath
    follow: Annotated[bool, Field(description="False: of a link itself.")] = True


class WatchFilesQuery(Parameters):
    path: QueryPath
    recursive: Annotated[bool, Field(description="Also in folders below.")] = False


class PackFolderQuery(Parameters):
    path: QueryPath


class UnpackFolderQuery(Parameters):
    path: QueryPath


READ_FILE = Operation(
    id="readFile",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/files/content",
    noun="files",
    summary="Read a file, or a part of it",
    parameters=SandboxPath,
    query=ReadFileQuery,
    answer=Bytes(
        media_type="application/octet-stream", words="The file.", part_words="The part that was asked for."
    ),
    needs=needs(Scope.FILES_READ),
    failures=(404, 409, 416, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.content"),
)
HEAD_FILE = Operation(
    id="headFile",
    method="HEAD",
    path="/v1/sandboxes/{sandbox_id}/files/content",
    noun="files",
    summary="Size of a file",
    parameters=SandboxPath,
    query=HeadFileQuery,
    answer=Nothing(status=200, words="Size and time of the file, in headers."),
    needs=needs(Scope.FILES_READ),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.content"),
)
WRITE_FILE = Operation(
    id="writeFile",
    method="PUT",
    path="/v1/sandboxes/{sandbox_id}/files/content",
    noun="files",
    summary="Write a file; it is replaced only when the whole body arrived",
    parameters=SandboxPath,
    query=WriteFileQuery,
    body=Stream("application/octet-stream"),
    answer=Answered(model=FileInfo),
    needs=needs(Scope.FILES_WRITE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.content"),
)
DELETE_FILE = Operation(
    id="deleteFile",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/files/content",
    noun="files",
    summary="Remove a file or folder",
    parameters=SandboxPath,
    query=DeleteFileQuery,
    answer=Nothing(),
    needs=needs(Scope.FILES_WRITE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.content"),
)
LIST_FILES = Operation(
    id="listFiles",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/files",
    noun="files",
    summary="List a folder, by path",
    parameters=SandboxPath,
    query=ListFilesQuery,
    answer=Answered(model=FilePage),
    needs=needs(Scope.FILES_READ),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files"),
)
STAT_FILE = Operation(
    id="statFile",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/files/stat",
    noun="files",
    summary="Look at a file, folder or link",
    parameters=SandboxPath,
    query=StatFileQuery,
    answer=Answered(model=FileInfo),
    needs=needs(Scope.FILES_READ),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.stat"),
)
MAKE_DIRECTORY = Operation(
    id="makeDirectory",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/files/mkdir",
    noun="files",
    summary="Make a folder",
    parameters=SandboxPath,
    body=Json(MakeDirectory),
    answer=Nothing(),
    needs=needs(Scope.FILES_WRITE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.mkdir"),
)
MOVE_FILE = Operation(
    id="moveFile",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/files/move",
    noun="files",
    summary="Move or rename",
    parameters=SandboxPath,
    body=Json(MoveFile),
    answer=Nothing(),
    needs=needs(Scope.FILES_WRITE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.move"),
)
REMOVE_FILE = Operation(
    id="removeFile",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/files/remove",
    noun="files",
    summary="Remove a file or folder",
    parameters=SandboxPath,
    body=Json(RemoveFile),
    answer=Nothing(),
    needs=needs(Scope.FILES_WRITE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.remove"),
)
WATCH_FILES = Operation(
    id="watchFiles",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/files/watch",
    noun="files",
    summary="Changes in a folder, as they happen",
    parameters=SandboxPath,
    query=WatchFilesQuery,
    answer=Events(words="`ready`, then a `change` for each change, or `error`."),
    needs=needs(Scope.FILES_READ),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.watch"),
)
PACK_FOLDER = Operation(
    id="packFolder",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/files/tar",
    noun="files",
    summary="A folder as tar",
    parameters=SandboxPath,
    query=PackFolderQuery,
    answer=Bytes(media_type="application/x-tar", words="A tar of the folder's content, or of the one file."),
    needs=needs(Scope.FILES_READ),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.tar"),
)
UNPACK_FOLDER = Operation(
    id="unpackFolder",
    method="PUT",
    path="/v1/sandboxes/{sandbox_id}/files/tar",
    noun="files",
    summary="Unpack a tar into a folder, once all of it arrived",
    parameters=SandboxPath,
    query=UnpackFolderQuery,
    body=Stream("application/x-tar"),
    answer=Answered(model=TarUnpacked),
    needs=needs(Scope.FILES_WRITE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.files.tar"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    READ_FILE,
    HEAD_FILE,
    WRITE_FILE,
    DELETE_FILE,
    LIST_FILES,
    STAT_FILE,
    MAKE_DIRECTORY,
    MOVE_FILE,
    REMOVE_FILE,
    WATCH_FILES,
    PACK_FOLDER,
    UNPACK_FOLDER,
)
