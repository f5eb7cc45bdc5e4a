"""Jobs: code that runs on while nobody waits."""

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    pass
