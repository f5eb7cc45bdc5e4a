"""Files inside a sandbox. A path is `str` as `os.fsdecode` makes it: any bytes the kernel allows."""

from __future__ import annotations

from urllib.parse import quote

from sandboxer.sdk.bodies import Body
from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import content, model, nothing
from sandboxer.sdk.routes.sandboxes import STREAM_TIMEOUT_S
from sandboxer.wire.files import FileInfo, FilePage, TarUnpacked

OCTETS = {"content-type": "application/octet-stream"}
TAR = {"content-type": "application/x-tar"}


def page(sandbox_id: str, path: str, *, depth: int, cursor: str | None) -> Call[FilePage]:
    query = {"path": path, "depth": depth, "cursor": cursor}
    return Call(
        method="GET",
        target=target("/v1/sandboxes/{}/files", sandbox_id, query=query),
        read=model(FilePage),
    )


def stat(sandbox_id: str, path: str, *, follow: bool) -> Call[FileInfo]:
    where = target("/v1/sandboxes/{}/files/stat", sandbox_id, query={"path": path, "follow": follow})
    return Call(method="GET", target=where, read=model(FileInfo))


def read(sandbox_id: str, path: str, *, offset: int = 0, length: int | None = None) -> Call[bytes]:
    headers = {}
    if offset or length is not None:
        headers["range"] = f"bytes={offset}-" + ("" if length is None else str(offset + length - 1))
    return Call(
        method="GET",
        target=target("/v1/sandboxes/{}/files/content", sandbox_id, query={"path": path}),
        headers=headers,
        read=content,
        timeout_s=STREAM_TIMEOUT_S,
    )


def write(sandbox_id: str, path: str, body: Body, *, mode: int | None, parents: bool) -> Call[FileInfo]:
    query = {"path": path, "mode": mode, "parents": None if parents else False}
    return Call(
        method="PUT",
        target=target("/v1/sandboxes/{}/files/content", sandbox_id, query=query),
        body=body,
        headers=OCTETS,
        read=model(FileInfo),
        # The same content at the same place: once is as good as twice.
        is_repeatable=True,
        timeout_s=STREAM_TIMEOUT_S,
    )


def mkdir(sandbox_id: str, path: str, *, mode: int, parents: bool) -> Call[None]:
    return _post(sandbox_id, "mkdir", {"mode": mode, "parents": parents}, path=path)


def move(sandbox_id: str, source: str, to: str, *, overwrite: bool) -> Call[None]:
    return _post(sandbox_id, "move", {"overwrite": overwrite}, source=source, target=to)


def remove(sandbox_id: str, path: str, *, recursive: bool) -> Call[None]:
    return _post(sandbox_id, "remove", {"recursive": recursive}, path=path)


def watch(sandbox_id: str, path: str, *, recursive: bool) -> Call[None]:
    query = {"path": path, "recursive": recursive}
    return Call(
        method="GET",
        target=target("/v1/sandboxes/{}/files/watch", sandbox_id, query=query),
        headers={"accept": "text/event-stream"},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def tar_out(sandbox_id: str, path: str) -> Call[bytes]:
    where = target("/v1/sandboxes/{}/files/tar", sandbox_id, query={"path": path})
    return Call(method="GET", target=where, read=content, timeout_s=STREAM_TIMEOUT_S)


def tar_in(sandbox_id: str, path: str, body: Body) -> Call[TarUnpacked]:
    return Call(
        method="PUT",
        target=target("/v1/sandboxes/{}/files/tar", sandbox_id, query={"path": path}),
        body=body,
        headers=TAR,
        read=model(TarUnpacked),
        timeout_s=STREAM_TIMEOUT_S,
    )


def _post(sandbox_id: str, verb: str, fields: dict[str, object], **paths: str) -> Call[None]:
    body, headers = json_body(fields | _paths(**paths))
    where = target("/v1/sandboxes/{}/files/{}", sandbox_id, verb)
    return Call(method="POST", target=where, body=body, headers=headers, read=nothing)


def _paths(**paths: str) -> dict[str, object]:
    """JSON has no bytes: names that are not UTF-8 travel percent-encoded, all paths of a request alike."""
    if all(_is_text(path) for path in paths.values()):
        return dict(paths)
    encoded = {name: quote(path.encode("utf-8", "surrogateescape")) for name, path in paths.items()}
    return {**encoded, "path_encoding": "percent"}


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
