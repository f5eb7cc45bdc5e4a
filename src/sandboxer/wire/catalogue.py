"""What a sandbox can be made of: images and profiles."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.images import PublishedImage
from sandboxer.wire.sandboxes import Resources
from sandboxer.wire.words import Answer, Moment, Trust


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
