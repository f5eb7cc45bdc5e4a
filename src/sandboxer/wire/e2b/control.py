"""Models of E2B's control plane: sandboxes, as its clients ask for them and read about them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from sandboxer.wire.sandboxes import ImageName
from sandboxer.wire.words import ONE_LINE, Env, VolumeName, VolumeRef

# Longer than any life that a profile allows; what a profile allows is said when it is asked for.
Seconds = Annotated[int, Field(ge=0, le=10**9)]
MetadataValue = Annotated[str, StringConstraints(max_length=255, pattern=ONE_LINE)]
Metadata = Annotated[dict[str, MetadataValue], Field(max_length=32)]
# What a sandbox is made of: the name of a template or a snapshot, with a tag or without; or an id of ours.
TemplateName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}(:[A-Za-z0-9._-]{1,64})?$")]
TagName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
FilesHash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Said(BaseModel):
    """What a client says. Newer clients say more than we know: that is passed over."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore", frozen=True, defer_build=True)


class Told(BaseModel):
    """What a client is told, under E2B's names; what is not known is left out."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True)


class VolumeMount(Said):
    name: VolumeRef
    path: str


class Transform(Said):
    # Set in requests to the host, instead of what they say.
    headers: dict[str, Annotated[str, Field(max_length=4096, pattern=r"^[\x20-\x7e]*$")]] = Field(
        default_factory=dict
    )


class NetworkRule(Said):
    transform: Transform = Field(default_factory=Transform)


class Network(Said):
    # False: the ports are open to who sends the token of its traffic, and to nobody else.
    allow_public_traffic: Annotated[bool | None, Field(alias="allowPublicTraffic")] = None
    allow_out: Annotated[list[str] | None, Field(alias="allowOut", max_length=64)] = None
    deny_out: Annotated[list[str] | None, Field(alias="denyOut", max_length=64)] = None
    # What programs inside see as the host of requests to their ports; `${PORT}` stands for the port.
    mask_request_host: Annotated[
        str | None, Field(alias="maskRequestHost", max_length=255, pattern=r"^[A-Za-z0-9.:\[\]_${}-]+$")
    ] = None
    rules: dict[str, Annotated[list[NetworkRule], Field(max_length=64)]] | None = None
    # What is not here, and is refused by name.
    egress_proxy: Annotated[dict[str, Any] | None, Field(alias="egressProxy")] = None


class ChangeNetwork(Network):
    allow_internet_access: Annotated[bool | None, Field(alias="allowInternetAccess")] = None


class AutoResume(Said):
    enabled: bool = False


class NamedImage(Said):
    image: ImageName


class NewSandbox(Said):
    template_id: Annotated[str, Field(alias="templateID", min_length=1, max_length=255)]
    timeout: Seconds = 300
    auto_pause: Annotated[bool | None, Field(alias="autoPause")] = None
    auto_pause_memory: Annotated[bool | None, Field(alias="autoPauseMemory")] = None
    auto_resume: Annotated[AutoResume | None, Field(alias="autoResume")] = None
    allow_internet_access: Annotated[bool | None, Field(alias="allowInternetAccess")] = None
    network: Network | None = None
    metadata: Metadata = Field(default_factory=dict)
    env_vars: Annotated[Env, Field(alias="envVars")] = Field(default_factory=dict)
    iam: dict[str, Any] | None = None
    volume_mounts: Annotated[list[VolumeMount], Field(alias="volumeMounts", max_length=8)] = Field(
        default_factory=list
    )


class Timeout(Said):
    timeout: Seconds


class Connect(Said):
    timeout: Seconds = 300
    memory: bool | None = None


class Pause(Said):
    # True asks for a snapshot of memory too; left out, E2B means the same by it.
    memory: bool | None = None


class Refresh(Said):
    duration: Seconds | None = None


class TakeSnapshot(Pause):
    name: TemplateName | None = None


class Fork(Said):
    timeout: Seconds = 300
    count: Annotated[int, Field(ge=1, le=100)] = 1


StateWord = Literal["running", "paused"]


class Sandbox(Told):
    """The answer to create and connect."""

    template_id: Annotated[str, Field(alias="templateID")]
    sandbox_id: Annotated[str, Field(alias="sandboxID")]
    client_id: Annotated[str, Field(alias="clientID")]
    envd_version: Annotated[str, Field(alias="envdVersion")]
    envd_access_token: Annotated[str, Field(alias="envdAccessToken")]
    traffic_access_token: Annotated[str, Field(alias="trafficAccessToken")]
    domain: str | None = None


class Refusal(Told):
    code: int
    message: str


class Forked(Told):
    """One of several forks: the sandbox, or why there is none."""

    sandbox: Sandbox | None = None
    error: Refusal | None = None


class SnapshotInfo(Told):
    snapshot_id: Annotated[str, Field(alias="snapshotID")]
    names: list[str]


class NewVolume(Said):
    name: VolumeName


class Owned(Said):
    """Whose a file shall be, and who may do what with it."""

    uid: Annotated[int | None, Field(ge=0, le=65535)] = None
    gid: Annotated[int | None, Field(ge=0, le=65535)] = None
    mode: Annotated[int | None, Field(ge=0, le=0o7777)] = None


class VolumeInfo(Told):
    volume_id: Annotated[str, Field(alias="volumeID")]
    name: str


class VolumeAndToken(VolumeInfo):
    token: str
    domain: str | None = None


class VolumeEntry(Told):
    name: str
    type: Literal["unknown", "file", "directory", "symlink"]
    path: str
    size: int
    mode: int
    uid: int
    gid: int
    atime: datetime
    mtime: datetime
    ctime: datetime
    target: str | None = None


class NewTemplate(Said):
    name: TemplateName | None = None
    # What older clients call it.
    alias: TemplateName | None = None
    tags: Annotated[list[TagName], Field(max_length=16)] = Field(default_factory=list)
    cpu_count: Annotated[int | None, Field(alias="cpuCount", ge=1)] = None
    memory_mb: Annotated[int | None, Field(alias="memoryMB", ge=1)] = None


class TemplateStep(Said):
    type: Annotated[str, Field(max_length=64)]
    args: Annotated[list[Annotated[str, Field(max_length=64 * 1024)]], Field(max_length=256)] = Field(
        default_factory=list
    )
    files_hash: Annotated[FilesHash | None, Field(alias="filesHash")] = None
    force: bool = False


class RegistryLogin(Said):
    type: str
    username: str | None = None
    password: SecretStr | None = None


class BuildTemplate(Said):
    from_image: Annotated[str | None, Field(alias="fromImage", max_length=512)] = None
    from_template: Annotated[TemplateName | None, Field(alias="fromTemplate")] = None
    from_image_registry: Annotated[RegistryLogin | None, Field(alias="fromImageRegistry")] = None
    force: bool = False
    steps: Annotated[list[TemplateStep], Field(max_length=512)] = Field(default_factory=list)
    start_cmd: Annotated[str | None, Field(alias="startCmd", max_length=16 * 1024)] = None
    ready_cmd: Annotated[str | None, Field(alias="readyCmd", max_length=16 * 1024)] = None


class TagTemplate(Said):
    target: TemplateName
    tags: Annotated[list[TagName], Field(min_length=1, max_length=16)]


class UntagTemplate(Said):
    name: TemplateName
    tags: Annotated[list[TagName], Field(min_length=1, max_length=16)]


class TemplateRequested(Told):
    template_id: Annotated[str, Field(alias="templateID")]
    build_id: Annotated[str, Field(alias="buildID")]
    public: bool = False
    aliases: list[str]
    names: list[str]
    tags: list[str]


class FileUpload(Told):
    present: bool
    url: str


class BuildLine(Told):
    timestamp: datetime
    message: str
    level: Literal["info", "error"] = "info"


class BuildReason(Told):
    message: str
    step: str | None = None
    log_entries: Annotated[list[BuildLine], Field(alias="logEntries")] = Field(default_factory=list)


class BuildState(Told):
    template_id: Annotated[str, Field(alias="templateID")]
    build_id: Annotated[str, Field(alias="buildID")]
    status: str
    logs: list[str] = Field(default_factory=list)
    log_entries: Annotated[list[BuildLine], Field(alias="logEntries")]
    reason: BuildReason | None = None


class KnownTemplate(Told):
    template_id: Annotated[str, Field(alias="templateID")]
    public: bool = False


class TemplateTag(Told):
    tag: str
    build_id: Annotated[str, Field(alias="buildID")]
    created_at: Annotated[datetime, Field(alias="createdAt")]


class TaggedTemplate(Told):
    build_id: Annotated[str, Field(alias="buildID")]
    tags: list[str]


class ListedSandbox(Told):
    template_id: Annotated[str, Field(alias="templateID")]
    sandbox_id: Annotated[str, Field(alias="sandboxID")]
    client_id: Annotated[str, Field(alias="clientID")]
    started_at: Annotated[datetime, Field(alias="startedAt")]
    end_at: Annotated[datetime, Field(alias="endAt")]
    cpu_count: Annotated[int, Field(alias="cpuCount")]
    memory_mb: Annotated[int, Field(alias="memoryMB")]
    disk_size_mb: Annotated[int, Field(alias="diskSizeMB")]
    envd_version: Annotated[str, Field(alias="envdVersion")]
    state: StateWord
    metadata: dict[str, str]


class Lifecycle(Told):
    on_timeout: Annotated[Literal["kill", "pause"], Field(alias="onTimeout")]
    auto_resume: Annotated[bool, Field(alias="autoResume")]


class SandboxDetail(ListedSandbox):
    envd_access_token: Annotated[str, Field(alias="envdAccessToken")]
    domain: str | None = None
    lifecycle: Lifecycle
    # Of a paused sandbox: its files were kept, and its processes ended or were kept too.
    pause_mode: Annotated[Literal["filesystem", "full"] | None, Field(alias="pauseMode")] = None


class Metric(Told):
    timestamp: datetime
    timestamp_unix: Annotated[int, Field(alias="timestampUnix")]
    cpu_count: Annotated[int, Field(alias="cpuCount")]
    cpu_used_pct: Annotated[float, Field(alias="cpuUsedPct")]
    mem_used: Annotated[int, Field(alias="memUsed")]
    mem_total: Annotated[int, Field(alias="memTotal")]
    mem_cache: Annotated[int, Field(alias="memCache")]
    disk_used: Annotated[int, Field(alias="diskUsed")]
    disk_total: Annotated[int, Field(alias="diskTotal")]


class LogEntry(Told):
    timestamp: datetime
    message: str
    level: Literal["info"] = "info"
    fields: dict[str, str]


class Logs(Told):
    logs: list[LogEntry]
