"""Gift cards: a keyed look-up of a code, and what is left on it."""

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    pass
