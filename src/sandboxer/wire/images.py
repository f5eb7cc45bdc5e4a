"""Published images: disks with a name and a digest, to be shared and started from."""

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from sandboxer.wire.accounts import AccountId
from sandboxer.wire.sandboxes import ProfileId, Resources, WantedVolumes
from sandboxer.wire.services import ServiceRef
from sandboxer.wire.snapshots import WantedClones
from sandboxer.wire.words import PLAIN_TEXT, Answer, ImageId, Moment, Name, Request, SandboxRef, SnapshotRef

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

    snapshot: SnapshotRef | None = None
    sandbox: Annotated[SandboxRef | None, Field(description="Its disk as it is now.")] = None
    service: Annotated[
        ServiceRef | None, Field(description="Its id or name: the disk of its sandbox as it is now.")
    ] = None
    name: Name
    description: Description = ""
    visibility: Visibility = "private"
    clean: Annotated[bool, Field(description="Leave out files in which something looks like a secret.")] = (
        False
    )


class RegistryUser(Request):
    username: Annotated[str, Field(min_length=1, max_length=255)]
    password: Annotated[SecretStr, Field(max_length=8192)]


class PullImage(Request):
    """Which image of which registry, and what to make of it."""

    reference: Annotated[
        str,
        Field(
            min_length=1,
            max_length=512,
            description="As `python:3.12`, or `docker://registry.example.com/who/what:1@sha256:…`. What names"
            " no registry is of the operator's default one.",
            examples=["docker://docker.io/library/python:3.12"],
        ),
    ]
    name: Annotated[Name | None, Field(description="A name for people; else the image's.")] = None
    description: Description = ""
    visibility: Visibility = "private"
    clean: Annotated[bool, Field(description="Leave out files that look like secrets.")] = False
    profile: Annotated[ProfileId | None, Field(description="What sandboxes of it are made as.")] = None
    user: Annotated[RegistryUser | None, Field(description="Of the registry; kept nowhere.")] = None
    plain_http: Annotated[bool, Field(description="Ask the registry without TLS.")] = False


class ImageProgress(Answer):
    """What a builder says, as it says it (`output`)."""

    text: str


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


class SpawnImage(WantedClones):
    """What new sandboxes shall be like; what is left out is as its source was."""

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
            description="What it was made of: a snapshot, a sandbox, a service, another image, `import`,"
            " `build@sha256:…`, or a reference with its digest (`docker://…@sha256:…`)."
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
