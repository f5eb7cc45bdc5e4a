"""Webhooks: who is told of what, and what has been delivered."""

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    pass
