"""Previews: addresses that open a port inside a sandbox."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.words import Answer, Duration, Moment, Request, SandboxId, id_field

MAX_HOLD_S = 60
PreviewId = Annotated[str, id_field("prv", "Id of a preview.")]
Port = Annotated[int, Field(ge=1, le=65535, description="Port inside the sandbox.", examples=[3000])]
Inspect = Annotated[
    Literal["refuse", "warn", "no"],
    Field(
        description=(
            "Look first for secrets and `.git` folders that everyone inside may read: `refuse` does not open"
            " if there are any, `warn` names them in the answer, `no` does not look. Left out: `warn` where"
            " everyone is let in, else `no`."
        )
    ),
]


class ExposedFile(Answer):
    path: Annotated[str, Field(examples=["/workspace/.env"])]
    kind: Annotated[
        Literal["secret", "git"],
        Field(
            description="A file that holds a secret by its name or content; or the insides of a git folder."
        ),
    ]
    mode: Annotated[int, Field(description="Permission bits.", examples=[0o644])]
    permissions: Annotated[str, Field(description="The same as `chmod` takes it.", examples=["644"])] = ""


class Exposure(Answer):
    """What a program that serves files would show to whoever reaches it."""

    findings: Annotated[
        list[ExposedFile], Field(description="By path; `chmod o-rwx` takes one from the list.")
    ]
    folders: Annotated[list[str], Field(description="Where was looked, and below.")]
    looked_at: Annotated[int, Field(description="Files and folders.")]
    complete: Annotated[bool, Field(description="False: not everything was looked at; `why` says why.")]
    why: str | None = None


class CreatePreview(Request):
    port: Port
    ttl: Annotated[
        Duration | None,
        Field(
            description="How long it opens the port, at most 90d; 24h, and for a public one until revoked."
        ),
    ] = None
    public: Annotated[bool, Field(description="Open to everyone who knows the address, no token.")] = False
    one_time: Annotated[
        bool, Field(description="The link works once; the browser that used it goes on by a cookie.")
    ] = False
    wakes: Annotated[
        bool | None,
        Field(
            description=(
                "A request thaws or resumes a sleeping sandbox, which then costs again: "
                "needs `sandboxes:manage`, and is so by default for a key that has it."
            )
        ),
    ] = None
    hold_s: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_HOLD_S,
            description="How long a request waits while nothing listens there yet; then it is answered 502.",
        ),
    ] = 0
    inspect: Inspect | None = None


class Preview(Answer):
    id: PreviewId
    sandbox_id: SandboxId
    port: Annotated[int, Field(description="Port inside the sandbox; 0 stands for every port.")]
    public: bool
    one_time: bool
    wakes: bool
    hold_s: int
    created_at: Moment
    expires_at: Moment | None
    used_at: Moment | None
    url: Annotated[
        str | None, Field(description="Its address; in a new private one with its token, shown this once.")
    ]


class NewPreview(Preview):
    token: Annotated[
        str | None,
        Field(description="For X-Sandboxer-Preview, or `?sandboxer_token=`; none for a public one."),
    ]
    exposure: Annotated[Exposure | None, Field(description="Null: nobody looked.")] = None


class PreviewList(Answer):
    previews: list[Preview]


class KnownName(Answer):
    domain: Annotated[str, Field(description="The name, which is served here.")]
