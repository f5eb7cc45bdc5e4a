# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.bodies import Body
from sandboxer.sdk.call import (
    BYTES,
    EVENT_STREAM,
    NOTHING,
    STREAM_TIMEOUT_S,
    Call,
    headers_of,
    json_body,
    target_of,
)

if TYPE_CHECKING:
    from sandboxer.wire.files import FileInfo, FilePage, TarUnpacked


def read_file(sandbox_id: str, *, path: str, range: str | None = None) -> Call[bytes]:
    """Read a file, or a part of it."""
    return Call(
        operation="readFile",
        method="GET",
        target=target_of("/v1/sandboxes/{}/files/content", sandbox_id, path=path),
        answer=BYTES,
        headers=headers_of(range=range),
        timeout_s=STREAM_TIMEOUT_S,
    )


def head_file(sandbox_id: str, *, path: str) -> Call[None]:
    """Ask for the size of a file."""
    return Call(
        operation="headFile",
        method="HEAD",
        target=target_of("/v1/sandboxes/{}/files/content", sandbox_id, path=path),
        answer=NOTHING,
    )


def write_file(
    sandbox_id: str, body: Body, *, path: str, mode: int | None = None, parents: bool | None = None
) -> Call[FileInfo]:
    """Write a file; it is replaced only when the whole body arrived."""
    return Call(
        operation="writeFile",
        method="PUT",
        target=target_of("/v1/sandboxes/{}/files/content", sandbox_id, path=path, mode=mode, parents=parents),
        answer="sandboxer.wire.files:FileInfo",
        body=body,
        headers=headers_of(content_type="application/octet-stream"),
        is_repeatable=True,
        timeout_s=STREAM_TIMEOUT_S,
    )


def delete_file(sandbox_id: str, *, path: str, recursive: bool | None = None) -> Call[None]:
    """Remove a file or folder."""
    return Call(
        operation="deleteFile",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/files/content", sandbox_id, path=path, recursive=recursive),
        answer=NOTHING,
    )


def list_files(
    sandbox_id: str,
    *,
    path: str,
    depth: int | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[FilePage]:
    """List a folder, by path."""
    return Call(
        operation="listFiles",
        method="GET",
        target=target_of(
            "/v1/sandboxes/{}/files", sandbox_id, path=path, depth=depth, cursor=cursor, limit=limit
        ),
        answer="sandboxer.wire.files:FilePage",
    )


def stat_file(sandbox_id: str, *, path: str, follow: bool | None = None) -> Call[FileInfo]:
    """Show a file, folder or link."""
    return Call(
        operation="statFile",
        method="GET",
        target=target_of("/v1/sandboxes/{}/files/stat", sandbox_id, path=path, follow=follow),
        answer="sandboxer.wire.files:FileInfo",
    )


def make_directory(
    sandbox_id: str,
    *,
    path: str,
    mode: int | None = None,
    parents: bool | None = None,
    path_encoding: str | None = None,
) -> Call[None]:
    """Make a folder."""
    return Call(
        operation="makeDirectory",
        method="POST",
        target=target_of("/v1/sandboxes/{}/files/mkdir", sandbox_id),
        answer=NOTHING,
        body=json_body({"path": path}, mode=mode, parents=parents, path_encoding=path_encoding),
        headers=headers_of(content_type="application/json"),
    )


def move_file(
    sandbox_id: str,
    *,
    source: str,
    target: str,
    overwrite: bool | None = None,
    path_encoding: str | None = None,
) -> Call[None]:
    """Move or rename a file or folder."""
    return Call(
        operation="moveFile",
        method="POST",
        target=target_of("/v1/sandboxes/{}/files/move", sandbox_id),
        answer=NOTHING,
        body=json_body(
            {"source": source, "target": target}, overwrite=overwrite, path_encoding=path_encoding
        ),
        headers=headers_of(content_type="application/json"),
    )


def remove_file(
    sandbox_id: str, *, path: str, recursive: bool | None = None, path_encoding: str | None = None
) -> Call[None]:
    """Remove a file or folder."""
    return Call(
        operation="removeFile",
        method="POST",
        target=target_of("/v1/sandboxes/{}/files/remove", sandbox_id),
        answer=NOTHING,
        body=json_body({"path": path}, recursive=recursive, path_encoding=path_encoding),
        headers=headers_of(content_type="application/json"),
    )


def watch_files(sandbox_id: str, *, path: str, recursive: bool | None = None) -> Call[None]:
    """Follow changes in a folder."""
    return Call(
        operation="watchFiles",
        method="GET",
        target=target_of("/v1/sandboxes/{}/files/watch", sandbox_id, path=path, recursive=recursive),
        answer=NOTHING,
        headers=headers_of(accept=EVENT_STREAM),
        timeout_s=STREAM_TIMEOUT_S,
    )


def pack_folder(sandbox_id: str, *, path: str) -> Call[bytes]:
    """Download a folder as tar."""
    return Call(
        operation="packFolder",
        method="GET",
        target=target_of("/v1/sandboxes/{}/files/tar", sandbox_id, path=path),
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def unpack_folder(sandbox_id: str, body: Body, *, path: str) -> Call[TarUnpacked]:
    """Unpack a tar into a folder, once all of it arrived."""
    return Call(
        operation="unpackFolder",
        method="PUT",
        target=target_of("/v1/sandboxes/{}/files/tar", sandbox_id, path=path),
        answer="sandboxer.wire.files:TarUnpacked",
        body=body,
        headers=headers_of(content_type="application/x-tar"),
        is_repeatable=True,
        timeout_s=STREAM_TIMEOUT_S,
    )
