"""Every operation of the API, in one row.

Import a noun's own module where that is enough: this one builds all models.
"""

from __future__ import annotations

from sandboxer.wire.operations import (
    access,
    accounts,
    artifacts,
    auth,
    execute,
    inside,
    payments,
    platform,
    sandboxes,
    services,
)
from sandboxer.wire.operations.declaration import AnyOperation, Operation

_MODULES = (access, accounts, artifacts, auth, execute, inside, payments, platform, sandboxes, services)
OPERATIONS: tuple[AnyOperation, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Operation)
)
