"""What a caller may ask of a new sandbox besides its size and its image: with whom it is shared, who may
write to its workspace, what runs in it before it is ready, where it stands. Each is kept, or refused with a
reason; what is only preferred is answered in `answered`.
"""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.words import Answer, Request

ScopeName = Annotated[
    Literal["session", "agent", "shared"],
    Field(
        description="With whom it is shared. Another create that asks for the same, of the same session or"
        " agent (named in `consumer`) or of the account, is answered with this sandbox while it lives.",
        examples=["session"],
    ),
]
IsolationName = Annotated[
    Literal["policy", "container", "strong", "microvm"],
    Field(
        description="The least that its wall must be, from the weakest; the profile's if that is stronger."
    ),
]
CheckpointName = Annotated[
    Literal["none", "files", "memory"],
    Field(description="What a snapshot of it must be able to keep: its files, or its processes too."),
]
SecretNames = Annotated[
    list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=128)]],
    Field(
        max_length=64,
        description="Secrets of your account (PUT /v1/secrets/{name}), in the environment of every command"
        " and in /run/secrets; nowhere else.",
        examples=[["REGISTRY_TOKEN"]],
    ),
]
Places = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=16, examples=[["local"]])
]
WorkspaceMode = Annotated[
    Literal["mirror", "remote", "remote-canonical"],
    Field(
        description="`mirror`: a copy of files whose original is elsewhere; `remote` (or `remote-canonical`):"
        " what is in the sandbox is the original."
    ),
]
WorkspaceAccess = Annotated[
    Literal["none", "ro", "rw"],
    Field(
        description="`rw`: everybody inside writes to it; `ro`: from `ready` on nobody does, root included,"
        " nor this API; `none`: it is empty and stays so."
    ),
]


class WantedWorkspace(Request):
    """The folder /workspace."""

    mode: WorkspaceMode | None = None
    access: WorkspaceAccess | None = None


class WantedSetup(Request):
    instructions: Annotated[
        str | None,
        Field(
            max_length=64 * 1024,
            description="A script, for /bin/sh unless it begins with `#!`. It runs in /workspace as root"
            " before the sandbox is ready; unless it exits with 0, the create fails with its output.",
            examples=["make deps"],
        ),
    ] = None
    secret_refs: SecretNames | None = None


class SetupMetadata(Request):
    """As `setup`, by reference."""

    instructions_ref: Annotated[
        str | None,
        Field(
            max_length=1024,
            description="Of a file in the repository that `inputs` names: run as `setup.instructions`. Any"
            " other is handed on as SANDBOXER_SETUP_INSTRUCTIONS_REF.",
            examples=["ci/setup.sh"],
        ),
    ] = None
    secret_refs: SecretNames | None = None


class WantedPlacement(Request):
    """Names of hosts, the first first. Where none of them is there, it stands elsewhere and `answered` says
    so."""

    prefer: Places = Field(default_factory=list)
    fallback: Places = Field(default_factory=list)


class Workspace(Answer):
    path: Annotated[str, Field(examples=["/workspace"])]
    mode: Annotated[str, Field(examples=["remote-canonical"])]
    access: Literal["none", "ro", "rw"]


class Answered(Answer):
    """A wish that nothing depends on, and what came of it."""

    wish: Annotated[str, Field(examples=["placement.prefer"])]
    honoured: bool
    reason: str
