"""Every operation of the API, in one row.

Import a noun's own module where that is enough: this one builds all models.
"""

from __future__ import annotations

from sandboxer.wire.operations import (
    accounts,
    auth,
    catalogue,
    egress,
    execute,
    files,
    gift_cards,
    images,
    invoices,
    keys,
    operators,
    payments,
    platform,
    previews,
    processes,
    sandboxes,
    secrets,
    services,
    sessions,
    snapshots,
    ssh,
    volumes,
    webhooks,
)
from sandboxer.wire.operations.declaration import AnyOperation

OPERATIONS: tuple[AnyOperation, ...] = (
    *accounts.OPERATIONS,
    *auth.OPERATIONS,
    *catalogue.OPERATIONS,
    *egress.OPERATIONS,
    *execute.OPERATIONS,
    *files.OPERATIONS,
    *gift_cards.OPERATIONS,
    *images.OPERATIONS,
    *invoices.OPERATIONS,
    *keys.OPERATIONS,
    *operators.OPERATIONS,
    *payments.OPERATIONS,
    *platform.OPERATIONS,
    *previews.OPERATIONS,
    *processes.OPERATIONS,
    *sandboxes.OPERATIONS,
    *secrets.OPERATIONS,
    *services.OPERATIONS,
    *sessions.OPERATIONS,
    *snapshots.OPERATIONS,
    *ssh.OPERATIONS,
    *volumes.OPERATIONS,
    *webhooks.OPERATIONS,
)
