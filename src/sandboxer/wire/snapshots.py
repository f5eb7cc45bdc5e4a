"""Snapshots: a sandbox's disk as it was at one moment, to go back to or to fork from."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.sandboxes import (
    AttachedVolume,
    ProfileId,
    Resources,
    Sandbox,
    WantedResources,
    WantedVolumes,
)
from sandboxer.wire.words import (
    Answer,
    Cursor,
    Duration,
    Env,
    Labels,
    Moment,
    Name,
    Network,
    Problem,
    Request,
    SandboxId,
    SnapshotId,
    Trust,
    VolumeId,
)

SnapshotState = Literal["taking", "kept", "unpaid", "dropping", "dropped", "failed", "lost"]
Content = Annotated[
    Literal["files", "files_and_memory"],
    Field(description="`files`: processes start anew; `files_and_memory`: they go on where they were."),
]
KeepFor = Annotated[
    Duration | None, Field(description="Dropped after this long; left out: kept until it is dropped.")
]


class TakeVolumeSnapshot(Request):
    """Everything is optional."""

    name: Annotated[Name | None, Field(description="For people; needs not be unique.")] = None
    ttl: KeepFor = None
    labels: Labels = Field(default_factory=dict)


class TakeSnapshot(TakeVolumeSnapshot):
    """Everything is optional."""

    memory: Annotated[
        bool,
        Field(
            description="Keep what runs too: processes, memory, open files and listening ports go on in what"
            " begins as a copy. Refused where its backend keeps files alone."
        ),
    ] = False


class ChangeSnapshot(Request):
    """What is left out stays as it is."""

    name: Name | None = None
    labels: Labels | None = None
    ttl: Annotated[Duration | None, Field(description="Dropped so long from now.")] = None


class WantedClones(Request):
    """What every request for several sandboxes of one disk has."""

    count: Annotated[int, Field(ge=1, le=100, description="How many, all at once.")] = 1
    name: Annotated[Name | None, Field(description="With a number behind it if there are several.")] = None
    profile: ProfileId | None = None
    trust: Trust | None = None
    network: Network | None = None
    ttl: Annotated[Duration | None, Field(description="How long each lives once ready.")] = None
    idle_timeout: Duration | None = None
    resources: WantedResources | None = None
    env: Env = Field(default_factory=dict)
    labels: Labels = Field(default_factory=dict)
    volumes: WantedVolumes = Field(default_factory=list)


class CloneSnapshot(WantedClones):
    """What new sandboxes shall be like; what is left out is as it was when the snapshot was taken."""

    volumes: Annotated[
        WantedVolumes,
        Field(description="Disks to attach to each. Several clones can have one only to read (`ro`)."),
    ] = Field(default_factory=list)


class Snapshot(Answer):
    id: SnapshotId
    name: str | None = None
    state: SnapshotState
    reason: Annotated[str | None, Field(description="Why it is in this state.", examples=["taken"])] = None
    sandbox_id: Annotated[SandboxId | None, Field(description="Of which it was taken; that may be gone.")] = (
        None
    )
    volume_id: Annotated[
        VolumeId | None, Field(description="Of which it was taken, if not of a sandbox.")
    ] = None
    parent_id: Annotated[
        SnapshotId | None, Field(description="The snapshot that the sandbox's disk descended from then.")
    ] = None
    content: Content
    backend: Annotated[str, Field(examples=["ext.namespaces"])]
    image: Annotated[str, Field(description="What its files are a layer over.", examples=["base"])]
    profile: Annotated[str, Field(examples=["profile.agent-dev"])]
    resources: Resources
    labels: dict[str, str] = Field(default_factory=dict)
    size_bytes: Annotated[
        int,
        Field(description="What it holds, shared with others or not; see `size_is_exact`.", examples=[4096]),
    ]
    size_is_exact: Annotated[
        bool, Field(description="False: at most that much, nobody has looked at every file yet.")
    ] = False
    exclusive_bytes: Annotated[
        int | None,
        Field(description="What would come free at least if it alone were dropped; told for one snapshot."),
    ] = None
    rate_msats_per_s: Annotated[
        int, Field(description="What keeping it costs, in thousandths of a sat a second.", examples=[0])
    ] = 0
    created_at: Moment
    expires_at: Annotated[Moment | None, Field(description="When it is dropped; none: never.")] = None
    ended_at: Moment | None = None
    locked_at: Annotated[
        Moment | None, Field(description="Since when dropping and unlocking it need a second proof.")
    ] = None
    took_ms: Annotated[dict[str, float], Field(description="How long it took.", examples=[{"take": 4.2}])] = (
        Field(default_factory=dict)
    )


class SnapshotPage(Answer):
    snapshots: list[Snapshot]
    next_cursor: Cursor | None = None


class FailedClone(Answer):
    number: Annotated[int, Field(description="Which of the clones, from 0.")]
    problem: Problem


class Clones(Answer):
    """Each was made, or not, by itself."""

    sandboxes: list[Sandbox]
    failed: list[FailedClone] = Field(default_factory=list)
    volumes_left_out: Annotated[
        list[AttachedVolume],
        Field(description="What the sandbox had attached of which they are clones, and they have not."),
    ] = Field(default_factory=list)


class SnapshotLine(Answer):
    """One line of the lineage: parents come before their children."""

    id: SnapshotId
    parent_id: Annotated[SnapshotId | None, Field(description="None for the oldest that is known.")] = None
    depth: Annotated[int, Field(description="How far from its root.")]
    name: str | None = None
    state: SnapshotState
    sandbox_id: SandboxId | None = None
    volume_id: VolumeId | None = None
    size_bytes: int
    created_at: Moment
    locked_at: Moment | None = None
    sandbox_ids: Annotated[
        list[str], Field(description="Living sandboxes whose disk descends from this one, and no later one.")
    ]
    volume_ids: Annotated[list[str], Field(description="Volumes that descend from it in the same way.")] = (
        Field(default_factory=list)
    )


class SnapshotTree(Answer):
    lines: list[SnapshotLine]
