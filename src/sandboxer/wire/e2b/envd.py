"""Messages of the daemon (envd) that E2B's clients expect inside a sandbox, as JSON of protobuf has them:
names in camel case, bytes in base 64, large numbers as text, and nothing for what is not set.
"""

from typing import Annotated, Literal

from pydantic import Base64Bytes, Field, RootModel

from sandboxer.wire.e2b.control import Said, Told
from sandboxer.wire.processes import Argument, Cells
from sandboxer.wire.words import Env

Tag = Annotated[str, Field(max_length=255, pattern=r"^[^@\x00-\x1f][^\x00-\x1f]*$")]
SignalWord = Literal["SIGNAL_SIGTERM", "SIGNAL_SIGKILL"]


class Size(Said):
    cols: Cells
    rows: Cells


class Pty(Said):
    size: Size


class ProcessConfig(Said):
    cmd: Argument
    args: Annotated[list[Argument], Field(max_length=4096)] = Field(default_factory=list)
    envs: Env = Field(default_factory=dict)
    cwd: str | None = None


class StartProcess(Said):
    process: ProcessConfig
    pty: Pty | None = None
    tag: Tag | None = None
    # Older clients do not say it, and mean that it is open.
    stdin: bool = True


class Selector(Said):
    pid: int | None = None
    tag: str | None = None


class Selected(Said):
    """A message that names a process."""

    process: Selector


class Input(Said):
    stdin: Base64Bytes | None = None
    pty: Base64Bytes | None = None

    @property
    def data(self) -> bytes:
        return self.stdin or self.pty or b""


class SendInput(Selected):
    input: Input


class SendSignal(Selected):
    signal: SignalWord


class UpdateProcess(Selected):
    pty: Pty | None = None


class InputData(Said):
    input: Input


class InputMessage(Said):
    """One message of a stream of input: first which process, then what it reads."""

    start: Selected | None = None
    data: InputData | None = None


class Empty(Said):
    """A message without anything in it."""


class ShownConfig(Told):
    cmd: str
    args: list[str]


class ShownProcess(Told):
    config: ShownConfig
    pid: int
    tag: str | None = None


class ProcessList(Told):
    processes: list[ShownProcess]


class Named(Said):
    """A message that names a path."""

    path: str


class ListFolder(Named):
    depth: Annotated[int, Field(ge=0, le=64)] = 1


class MovePath(Said):
    source: str
    destination: str


class WatchFolder(Named):
    recursive: bool = False
    include_entry: Annotated[bool, Field(alias="includeEntry")] = False


class Watcher(Said):
    watcher_id: Annotated[str, Field(alias="watcherId", max_length=64)]


class Entry(Told):
    name: str
    type: Literal["FILE_TYPE_FILE", "FILE_TYPE_DIRECTORY", "FILE_TYPE_SYMLINK", "FILE_TYPE_UNSPECIFIED"]
    path: str
    size: str
    mode: int
    permissions: str
    owner: str
    group: str
    modified_time: Annotated[str, Field(alias="modifiedTime")]
    symlink_target: Annotated[str | None, Field(alias="symlinkTarget")] = None
    is_symlink: Annotated[bool, Field(alias="isSymlink")] = False
    metadata: dict[str, str] | None = None


class OneEntry(Told):
    entry: Entry


class Entries(Told):
    entries: list[Entry]


class Change(Told):
    name: str
    type: Literal[
        "EVENT_TYPE_CREATE", "EVENT_TYPE_WRITE", "EVENT_TYPE_REMOVE", "EVENT_TYPE_RENAME", "EVENT_TYPE_CHMOD"
    ]
    entry: Entry | None = None


class Changes(Told):
    events: list[Change]


class OpenWatcher(Told):
    watcher_id: Annotated[str, Field(alias="watcherId")]


class Usage(Told):
    """What a sandbox uses at one moment."""

    ts: int
    cpu_count: int
    cpu_used_pct: float
    mem_total: int
    mem_used: int
    mem_cache: int
    mem_total_mib: int
    mem_used_mib: int
    disk_used: int
    disk_total: int


class Envs(RootModel[dict[str, str]]):
    """Variables by name."""


class Init(Said):
    """What whoever starts envd tells it first."""

    env_vars: Annotated[Env, Field(alias="envVars")] = Field(default_factory=dict)
    default_user: Annotated[str | None, Field(alias="defaultUser")] = None
    default_workdir: Annotated[str | None, Field(alias="defaultWorkdir")] = None


class Written(Told):
    """A file that was uploaded."""

    name: str
    path: str
    type: Literal["file"] = "file"
    metadata: dict[str, str] | None = None


class Execute(Said):
    """Code for the code interpreter."""

    code: str
    context_id: str | None = None
    language: str | None = None
    env_vars: Env | None = None


class NewContext(Said):
    language: str | None = None
    cwd: str | None = None


class Context(Told):
    id: str
    language: str
    cwd: str
