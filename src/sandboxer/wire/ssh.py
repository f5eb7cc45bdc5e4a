"""SSH: public keys that open sandboxes, and where to come in."""

from typing import Annotated

from pydantic import Field

from sandboxer.wire.words import Answer, Duration, Moment, Request, SandboxId, SandboxRef, id_field

SshKeyId = Annotated[str, id_field("ssk", "Id of an SSH key.")]


class AddSshKey(Request):
    public_key: Annotated[
        str,
        Field(
            min_length=1,
            max_length=16384,
            description="One line, as in id_ed25519.pub. Never a private key.",
            examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEB3v1m7xDq6MmVdhqYg9Q1b3TtJ0Kk0r2mS5T9uVbXw me"],
        ),
    ]
    name: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="What to call it; its comment if not given."),
    ] = None
    sandbox_id: Annotated[
        SandboxRef | None, Field(description="The one it opens; every one of the account's if not given.")
    ] = None
    ttl: Annotated[Duration | None, Field(description="How long it works; until revoked if not given.")] = (
        None
    )


class SshKey(Answer):
    id: SshKeyId
    name: str
    algorithm: str
    public_key: str
    fingerprint: Annotated[str, Field(description="As ssh-keygen -l shows it.")]
    sandbox_id: SandboxId | None
    created_at: Moment
    expires_at: Moment | None


class SshKeyList(Answer):
    ssh_keys: list[SshKey]


class SshGateway(Answer):
    host: str
    port: int
    host_key: Annotated[str, Field(description="For known_hosts, behind the host's name.")]
    fingerprint: str
