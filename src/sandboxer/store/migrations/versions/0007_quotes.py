"""Quotes: a price promised for a while, named when a sandbox is created."""

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    pass
