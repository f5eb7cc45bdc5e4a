"""Jobs: runs of code that outlive their request."""

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    pass
