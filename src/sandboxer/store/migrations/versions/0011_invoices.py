"""Invoices: an address, an amount, and the outputs that paid it."""

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    pass
