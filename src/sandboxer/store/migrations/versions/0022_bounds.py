"""What keeps growing tables bounded."""

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    pass
