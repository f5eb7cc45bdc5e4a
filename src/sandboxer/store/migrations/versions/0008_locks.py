"""Locks: what may only be destroyed or unlocked with a second proof."""

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    pass
