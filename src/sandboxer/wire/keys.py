"""Keys that sign requests. A secret is shown once, when the key is made."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.words import Answer, Moment, Name, Request


class CreateKey(Request):
    name: Name
    account: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
            max_length=63,
            description="Whose sandboxes this key sees. Keys of one account share them.",
            examples=["search-team"],
        ),
    ]
    accepts_v1: Annotated[
        bool,
        Field(
            description="Also accept version 1 signatures, which cannot tell a replay from an honest repeat."
        ),
    ] = False


class Key(Answer):
    public_key: Annotated[str, Field(examples=["sbx-pk-…"])]
    name: str
    account: str
    is_owner: bool
    accepts_v1: bool
    created_at: Moment
    revoked_at: Moment | None = None


class NewKey(Answer):
    """The only answer that ever holds the secret; it is never stored, also not for an Idempotency-Key."""

    public_key: str
    secret_key: str
    name: str
    account: str
    accepts_v1: bool


class KeyList(Answer):
    keys: list[Key]
