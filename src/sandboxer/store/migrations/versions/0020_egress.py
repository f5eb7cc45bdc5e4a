"""Egress rules."""

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    pass
