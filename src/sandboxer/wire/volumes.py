"""Volumes: named disks that outlive sandboxes, written by one or read by many."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.sandboxes import VolumeMode
from sandboxer.wire.words import (
    Answer,
    Cursor,
    Labels,
    Moment,
    Request,
    SandboxId,
    SnapshotId,
    SnapshotRef,
    VolumeId,
    VolumeName,
)

VolumeState = Literal["making", "ready", "unpaid", "dropping", "dropped", "failed", "lost"]
VolumeSize = Annotated[
    int, Field(ge=16, le=16_777_216, description="What it may hold, in MiB.", examples=[1024])
]


class CreateVolume(Request):
    name: VolumeName
    size_mb: Annotated[
        VolumeSize | None, Field(description="Left out: as the volume that the snapshot was taken of.")
    ] = None
    from_snapshot: Annotated[
        SnapshotRef | None, Field(description="Begin as a copy of this snapshot of a volume; else empty.")
    ] = None
    labels: Labels = Field(default_factory=dict)


class ChangeVolume(Request):
    """What is left out stays as it is."""

    name: Annotated[VolumeName | None, Field(description="Another name; its id stays.")] = None
    size_mb: Annotated[
        VolumeSize | None, Field(description="At once, also while it is attached; not below what it holds.")
    ] = None
    labels: Labels | None = None


class RestoreVolume(Request):
    snapshot: Annotated[
        SnapshotRef, Field(description="A snapshot of this volume, or of another one of the same account.")
    ]


class VolumeAttachment(Answer):
    sandbox_id: SandboxId
    path: Annotated[str, Field(description="Where it is seen inside.", examples=["/data"])]
    mode: VolumeMode
    attached_at: Moment


class Volume(Answer):
    id: VolumeId
    name: VolumeName
    state: VolumeState
    reason: Annotated[str | None, Field(description="Why it is in this state.", examples=["made"])] = None
    backend: Annotated[str, Field(examples=["ext.namespaces"])]
    size_mb: int
    used_bytes: Annotated[
        int | None, Field(description="What it holds now, or at most that; told for one volume.")
    ] = None
    from_snapshot: SnapshotId | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    attachments: Annotated[
        list[VolumeAttachment], Field(description="The sandboxes that have it, until they are destroyed.")
    ] = Field(default_factory=list)
    rate_msats_per_s: Annotated[
        int, Field(description="What having it costs, in thousandths of a sat a second.", examples=[0])
    ] = 0
    created_at: Moment
    expires_at: Annotated[
        Moment | None, Field(description="When it is dropped unless somebody pays; none: never.")
    ] = None
    ended_at: Moment | None = None
    locked_at: Annotated[
        Moment | None, Field(description="Since when dropping and unlocking it need a second proof.")
    ] = None


class VolumePage(Answer):
    volumes: list[Volume]
    next_cursor: Cursor | None = None
