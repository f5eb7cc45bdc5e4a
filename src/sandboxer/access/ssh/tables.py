"""Public keys that open sandboxes by SSH."""

from __future__ import annotations

from sqlalchemy import Column, Index, Table, Text

from sandboxer.store.metadata import UtcDateTime, metadata

ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", Text, nullable=False),
    # Who added it: its rights are this caller's, for as long as that one has them.
    Column("created_by", Text, nullable=False),
    Column("name", Text, nullable=False),
    # None: every sandbox of the account.
    Column("sandbox_id", Text),
    Column("algorithm", Text, nullable=False),
    # As in authorized_keys, without the comment.
    Column("public_key", Text, nullable=False),
    # SHA256:…, as ssh-keygen prints it.
    Column("fingerprint", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("revoked_at", UtcDateTime),
    Index(None, "account", "created_at"),
    Index(None, "fingerprint"),
)
