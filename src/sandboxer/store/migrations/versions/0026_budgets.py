"""The bucket of a delegated key is a budget: the ledger itself knows what may leave it."""

from alembic import op

revision = "0026"
down_revision = "0025"

BUDGETS = (
    "UPDATE ledger_accounts SET kind = 'budget' WHERE kind = 'bucket'"
    " AND id IN (SELECT 'bucket:' || account FROM delegated_keys)"
)


def upgrade() -> None:
    op.execute(BUDGETS)
