"""Published images: disks with a name and a digest, to be shared and started from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from sandboxer.wire.accounts import AccountId
from sandboxer.wire.sandboxes import ProfileId, Resources, WantedResources, WantedVolumes
from sandboxer.wire.services import ServiceRef
from sandboxer.wire.words import (
    PLAIN_TEXT,
    Answer,
    Duration,
    Env,
    ImageId,
    Labels,
    Moment,
    Name,
    Request,
    SandboxId,
    SnapshotId,
    Trust,
)

Filter = Literal["all", "owned", "shared", "public"]
ImageState = Literal["taking", "kept", "unpaid", "dropping", "dropped", "failed", "lost"]
Visibility = Annotated[
    Literal["private", "unlisted", "public"],
    Field(
        description="`private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone."
    ),
]
Description = Annotated[str, Field(max_length=2000, pattern=PLAIN_TEXT)]


class PublishImage(Request):
    """Exactly one of `snapshot`, `sandbox` and `service`."""

    snapshot: SnapshotId | None = None
    sandbox: Annotated[SandboxId | None, Field(description="Its disk as it is now.")] = None
    service: Annotated[
        ServiceRef | None, Field(description="Its id or name: the disk of its sandbox as it is now.")
    ] = None
    name: Name
    description: Description = ""
    visibility: Visibility = "private"
    clean: Annotated[bool, Field(description="Leave out files in which something looks like a secret.")] = (
        False
    )


class ChangeImage(Request):
    """What is left out stays as it is."""

    name: Name | None = None
    description: Description | None = None
    visibility: Visibility | None = None


class CloneImage(Request):
    """What is left out is as in the original; a clone is private unless it says otherwise."""

    name: Name | None = None
    description: Description | None = None
    visibility: Visibility = "private"


class GrantImage(Request):
    account: Annotated[AccountId, Field(description="Who may use it: an account's id or public id.")]


class OfferImage(Request):
    account: Annotated[
        AccountId | None, Field(description="Whom it is offered to, by id or public id; null takes it back.")
    ]


class SpawnImage(Request):
    """What new sandboxes shall be like; what is left out is as its source was."""

    count: Annotated[int, Field(ge=1, le=100, description="How many, all at once.")] = 1
    name: Annotated[Name | None, Field(description="With a number behind it if there are several.")] = None
    profile: ProfileId | None = None
    trust: Trust | None = None
    ttl: Annotated[Duration | None, Field(description="How long each lives once ready.")] = None
    idle_timeout: Duration | None = None
    resources: WantedResources | None = None
    env: Env = Field(default_factory=dict)
    labels: Labels = Field(default_factory=dict)
    volumes: Annotated[
        WantedVolumes,
        Field(description="Disks to attach to each. Several sandboxes can have one only to read (`ro`)."),
    ] = Field(default_factory=list)


class Finding(Answer):
    path: Annotated[str, Field(examples=["/root/app/.env"])]
    kind: Annotated[str, Field(examples=["env_file"])]


class PublishedImage(Answer):
    id: ImageId
    name: str
    description: str = ""
    account: Annotated[str, Field(description="Whose it is.")]
    visibility: Visibility
    state: ImageState
    reason: Annotated[str | None, Field(description="Why it is in this state.")] = None
    source: Annotated[
        str,
        Field(
            description="What it was made of: a snapshot, a sandbox, a service, another image, or `import`."
        ),
    ]
    backend: Annotated[str, Field(examples=["ext.namespaces"])]
    base: Annotated[
        str, Field(description="The host's tree that it is a layer over; `scratch`: it brings everything.")
    ]
    profile: Annotated[str, Field(examples=["profile.agent-dev"])]
    resources: Resources
    config: Annotated[
        dict[str, Any],
        Field(description="As an OCI image's: Env, Entrypoint, Cmd, WorkingDir, User. Env holds inside."),
    ] = Field(default_factory=dict)
    digest: Annotated[
        str,
        Field(description="Over all paths, modes, owners and contents.", examples=["sha256:…"]),
    ] = ""
    size_bytes: int = 0
    files: int = 0
    findings: Annotated[
        list[Finding], Field(description="What looks like a secret in it (the first 100); told to its owner.")
    ] = Field(default_factory=list)
    findings_count: int = 0
    stripped: Annotated[
        list[str], Field(description="Files left out of it (the first 100); told to its owner.")
    ] = Field(default_factory=list)
    stripped_count: int = 0
    offered_to: Annotated[str | None, Field(description="Who may accept it as theirs.")] = None
    rate_msats_per_s: Annotated[
        int, Field(description="What keeping it costs, in thousandths of a sat a second.", examples=[0])
    ] = 0
    created_at: Moment
    verified_at: Annotated[Moment | None, Field(description="When every file was last checked.")] = None
    expires_at: Annotated[Moment | None, Field(description="When it goes unless somebody pays.")] = None
    ended_at: Moment | None = None
    locked_at: Moment | None = None


class ImageGrants(Answer):
    accounts: Annotated[list[str], Field(description="Who may use it beside its owner.")]
