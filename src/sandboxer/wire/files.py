"""Files inside a sandbox. Names are bytes there; `raw_path` keeps those that are not text."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.words import AbsolutePath, Answer, Moment, Request

FileMode = Annotated[int, Field(ge=0, le=0o7777, description="Permission bits.", examples=[0o644])]
PathEncoding = Annotated[
    Literal["text", "percent"],
    Field(description="`percent`: paths here are percent-encoded bytes, for names that are not UTF-8."),
]
RawPath = Annotated[
    str | None,
    Field(description="The exact bytes, percent-encoded; present when `path` had to replace broken UTF-8."),
]


class FileInfo(Answer):
    path: Annotated[str, Field(examples=["/workspace/main.py"])]
    raw_path: RawPath = None
    name: Annotated[str, Field(examples=["main.py"])]
    kind: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: Annotated[int, Field(description="Permission bits.")]
    uid: int
    gid: int
    modified_at: Moment
    link_target: str | None = None


class FilePage(Answer):
    files: list[FileInfo]
    next_cursor: str | None = None


class MakeDirectory(Request):
    path: AbsolutePath
    mode: FileMode = 0o755
    parents: bool = True
    path_encoding: PathEncoding = "text"


class MoveFile(Request):
    source: AbsolutePath
    target: AbsolutePath
    overwrite: bool = False
    path_encoding: PathEncoding = "text"


class RemoveFile(Request):
    path: AbsolutePath
    recursive: bool = False
    path_encoding: PathEncoding = "text"


class FileEvent(Answer):
    """Event `change` of a watch. `overflow` means: changes were lost, look again."""

    path: str
    raw_path: RawPath = None
    change: Literal["created", "modified", "removed", "moved", "overflow"]


class WatchReady(Answer):
    """First event (`ready`) of a watch: from here on no change is missed."""

    path: str
    recursive: bool


class TarUnpacked(Answer):
    path: str
    received_bytes: int
