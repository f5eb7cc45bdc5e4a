"""Payments: one record before anything is broadcast, and credit that is still pending."""

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    pass
