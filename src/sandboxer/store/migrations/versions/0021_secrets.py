"""Secrets and SSH keys."""

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    pass
