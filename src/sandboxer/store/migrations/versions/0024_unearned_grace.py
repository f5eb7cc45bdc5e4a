"""What ran on payments that went back was not paid, and has earned no grace."""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.execute(
        "UPDATE money_buckets SET collected_sats = collected_sats - COALESCE((SELECT SUM(amount)"
        " FROM ledger_transfers WHERE debit = 'debt:' || owner AND kind = 'reversal'), 0)"
    )
