"""Services: long-running processes with a name."""

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    pass
