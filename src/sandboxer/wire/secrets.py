"""Secrets: only names, sizes and moments ever come back."""

from typing import Annotated

from pydantic import Field, SecretStr

from sandboxer.wire.words import Answer, Moment, Request

MAX_VALUE = 65536
MAX_AT_ONCE = 64
SecretName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        max_length=128,
        description="A variable's and a file's name at once.",
        examples=["GITHUB_TOKEN"],
    ),
]
SecretValue = Annotated[
    SecretStr,
    Field(
        min_length=1,
        max_length=MAX_VALUE,
        description="Text without NUL, at most 64 KiB as UTF-8; never shown again.",
        examples=["s3cr3t"],
    ),
]


class PutSecret(Request):
    value: SecretValue


class Secret(Answer):
    name: SecretName
    size_bytes: Annotated[int, Field(description="Of the value, as UTF-8.")]
    created_at: Moment
    updated_at: Moment


class SecretList(Answer):
    secrets: list[Secret]


class InjectSecrets(Request):
    names: list[SecretName] = Field(
        default_factory=list, max_length=MAX_AT_ONCE, description="Of the account, as they are now."
    )
    values: dict[SecretName, SecretValue] = Field(
        default_factory=dict, max_length=MAX_AT_ONCE, description="For this sandbox alone, by name."
    )
    env: Annotated[bool, Field(description="As variables of every command started from now on.")] = True
    files: Annotated[
        bool, Field(description="As /run/secrets/NAME: in memory, mode 0400, never on the disk.")
    ] = False


class InjectedSecret(Answer):
    name: SecretName
    size_bytes: int
    env: Annotated[bool, Field(description="Commands find it in their environment.")]
    file: Annotated[str | None, Field(description="Its file inside; null: it has none.")]
    injected_at: Moment


class InjectedSecretList(Answer):
    secrets: list[InjectedSecret]


class WipedSecrets(Answer):
    wiped: list[SecretName]
    may_still_hold: Annotated[
        list[str],
        Field(
            description="Running processes that were started meanwhile: a variable cannot be taken back from"
            " them, so end them if it matters."
        ),
    ]
