"""Models of E2B's control plane: sandboxes, as its clients ask for them and read about them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from sandboxer.wire.sandboxes import ImageName
from sandboxer.wire.words import ONE_LINE, Env, VolumeRef

# Longer than any life that a profile allows; what a profile allows is said when it is asked for.
Seconds = Annotated[int, Field(ge=0, le=10**9)]
MetadataValue = Annotated[str, StringConstraints(max_length=255, pattern=ONE_LINE)]
Metadata = Annotated[dict[str, MetadataValue], Field(max_length=32)]


class Said(BaseModel):
    """What a client says. Newer clients say more than we know: that is passed over."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore", frozen=True, defer_build=True)


class Told(BaseModel):
    """What a client is told, under E2B's names; what is not known is left out."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True)


class VolumeMount(Said):
    name: VolumeRef
    path: str


class Network(Said):
    # False: the ports are open to who sends the token of its traffic, and to nobody else.
    allow_public_traffic: Annotated[bool | None, Field(alias="allowPublicTraffic")] = None
    allow_out: Annotated[list[str] | None, Field(alias="allowOut", max_length=64)] = None
    deny_out: Annotated[list[str] | None, Field(alias="denyOut", max_length=64)] = None


class NewSandbox(Said):
    template_id: Annotated[ImageName, Field(alias="templateID")]
    timeout: Seconds = 300
    auto_pause: Annotated[bool | None, Field(alias="autoPause")] = None
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


class SandboxDetail(ListedSandbox):
    envd_access_token: Annotated[str, Field(alias="envdAccessToken")]
    domain: str | None = None
    # Of a paused sandbox: its files were kept, its processes ended.
    pause_mode: Annotated[Literal["filesystem"] | None, Field(alias="pauseMode")] = None


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
