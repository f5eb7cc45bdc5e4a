"""What a sandbox can be made of: images, profiles, languages and shells, for a caller that wants to know
before it pays."""

from typing import Annotated

from pydantic import Field

from sandboxer.wire.images import PublishedImage
from sandboxer.wire.sandboxes import Resources
from sandboxer.wire.words import Answer, Moment, Trust

LanguageWord = Annotated[
    str,
    Field(
        min_length=1,
        max_length=40,
        pattern=r"^[A-Za-z0-9+#._-]+$",
        description="Name, alias or extension of a language.",
        examples=["fortran", "c++"],
    ),
]


class Image(Answer):
    name: str
    size_bytes: int | None = None
    built_at: Moment | None = None
    facts: dict[str, str] = Field(default_factory=dict)


class ImageList(Answer):
    images: Annotated[list[Image], Field(description="Base images of the host, by name.")]
    published: Annotated[
        list[PublishedImage], Field(description="By accounts, newest first; page by page.")
    ] = Field(default_factory=list)
    next_cursor: str | None = None


class Profile(Answer):
    id: str
    version: str
    title: str = ""
    backend: str
    image: str
    trust: Trust
    resources: Resources
    ttl_default: str
    ttl_max: str
    idle_timeout: str | None = None
    genesis_required: Annotated[
        bool, Field(description="Creating and extending need a genesis proof: POST /v1/auth/genesis.")
    ] = False
    metadata: dict[str, str] = Field(default_factory=dict)


class ProfileList(Answer):
    profiles: list[Profile]


class Language(Answer):
    name: Annotated[str, Field(examples=["fortran"])]
    title: Annotated[str, Field(examples=["Fortran"])]
    aliases: list[str]
    extension: str
    is_shell: bool
    compile: Annotated[
        list[str] | None,
        Field(description="How it is compiled in a folder of its own; null: it runs as it is written."),
    ] = None
    run: Annotated[list[str], Field(description="How it is run in that folder.")]
    image: Annotated[str, Field(description="The smallest of our images that has it.", examples=["base"])]
    images: Annotated[list[str], Field(description="Images on this host that have it.")]
    available: Annotated[bool, Field(description="It runs here: an image on this host has it.")]
    version: Annotated[
        str | None, Field(description="Of its package in the first of these images.", examples=["4:12.2.0-3"])
    ] = None
    hello: Annotated[str, Field(description="A whole program that says hello.")]


class LanguageList(Answer):
    languages: list[Language]
    aliases: Annotated[dict[str, str], Field(description="Other words for them: word to name.")]
    count: Annotated[int, Field(description="How many are listed, all shells together counted as one.")]


class ShellList(Answer):
    shells: list[Language]
    count: int
