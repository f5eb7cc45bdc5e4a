"""Which scope a request needs, for keys that have not all of them. What is not in the table is refused.

Only delegated keys are asked: every other key may do what its account may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from sandboxer.accounts.scopes import Scope
from sandboxer.kernel.errors import Forbidden

READ = frozenset({"GET", "HEAD"})
# "nothing": needs no scope (prices, what there is, one's own session). None: not for delegated keys.
Needed = Scope | Literal["nothing"] | None
# By method where a change is not like a removal.
ByMethod = Mapping[str, Needed]
_A_SANDBOX = r"/v1/sandboxes/[^/]+"
_ROWS: tuple[tuple[str, Needed, Needed | ByMethod], ...] = (
    (r"/v1/sandboxes", Scope.SANDBOXES_READ, Scope.SANDBOXES_CREATE),
    (_A_SANDBOX + r"/(exec|processes|terminals?)(/.*)?", Scope.EXEC, Scope.EXEC),
    # It makes a sandbox; the route asks for `exec` too.
    (r"/v1/execute(/async)?", None, Scope.SANDBOXES_CREATE),
    (r"/v1/jobs(/.*)?", Scope.EXEC, Scope.EXEC),
    (r"/v1/sessions/[^/]+/(freeze|thaw|boost|unboost|lock|unlock)", None, Scope.SANDBOXES_MANAGE),
    (r"/v1/sessions(/.*)?", Scope.EXEC, Scope.EXEC),
    # As a create and what runs in it: the routes that run something ask for `exec` too.
    (r"/v1/services", Scope.SANDBOXES_READ, Scope.SANDBOXES_CREATE),
    (r"/v1/services/[^/]+/logs", Scope.EXEC, None),
    (r"/v1/services/[^/]+/(env|redeploy)", Scope.SANDBOXES_READ, Scope.EXEC),
    (r"/v1/services/[^/]+/.+", Scope.SANDBOXES_READ, Scope.SANDBOXES_MANAGE),
    (
        r"/v1/services/[^/]+",
        Scope.SANDBOXES_READ,
        {"PATCH": Scope.SANDBOXES_MANAGE, "DELETE": Scope.SANDBOXES_DESTROY},
    ),
    # What listens there can do whatever a command can.
    (_A_SANDBOX + r"/ports/.*", Scope.EXEC, Scope.EXEC),
    (_A_SANDBOX + r"/previews(/.*)?", Scope.SANDBOXES_READ, Scope.EXEC),
    # Code inside may hold a key that can do much with its sandbox: its walls are not among that.
    (r"/v1/egress", Scope.ACCOUNT_READ, Scope.ACCOUNT_MANAGE),
    (r"/v1/egress/explain", None, Scope.ACCOUNT_READ),
    (_A_SANDBOX + r"/egress/explain", None, Scope.SANDBOXES_READ),
    (_A_SANDBOX + r"/egress(/denials)?", Scope.SANDBOXES_READ, Scope.ACCOUNT_MANAGE),
    # Who may run something inside can read them there.
    (_A_SANDBOX + r"/secrets(/.*)?", Scope.SANDBOXES_READ, Scope.EXEC),
    # It opens a shell.
    (r"/v1/ssh-keys(/.*)?", Scope.SANDBOXES_READ, Scope.EXEC),
    (r"/v1/ssh", "nothing", None),
    (r"/v1/secrets(/.*)?", Scope.ACCOUNT_READ, Scope.ACCOUNT_MANAGE),
    (_A_SANDBOX + r"/files(/.*)?", Scope.FILES_READ, Scope.FILES_WRITE),
    (_A_SANDBOX + r"/[a-z-]+", Scope.SANDBOXES_READ, Scope.SANDBOXES_MANAGE),
    (_A_SANDBOX, Scope.SANDBOXES_READ, Scope.SANDBOXES_DESTROY),
    (r"/v1/volumes", Scope.SANDBOXES_READ, Scope.SANDBOXES_CREATE),
    (r"/v1/volumes/[^/]+/[a-z]+", None, Scope.SANDBOXES_MANAGE),
    (r"/v1/volumes/[^/]+", Scope.SANDBOXES_READ, Scope.SANDBOXES_DESTROY),
    (r"/v1/snapshots/[^/]+/clone", None, Scope.SANDBOXES_CREATE),
    (r"/v1/snapshots/[^/]+/[a-z]+", None, Scope.SANDBOXES_MANAGE),
    (r"/v1/snapshots(/tree)?", Scope.SANDBOXES_READ, None),
    (r"/v1/snapshots/[^/]+", Scope.SANDBOXES_READ, Scope.SANDBOXES_DESTROY),
    (r"/v1/images/[^/]+/spawn", None, Scope.SANDBOXES_CREATE),
    (r"/v1/images/import", None, Scope.SANDBOXES_CREATE),
    # What is in it could be read by a command.
    (r"/v1/images/[^/]+/export", Scope.FILES_READ, None),
    (r"/v1/images/[^/]+/.+", Scope.SANDBOXES_READ, Scope.SANDBOXES_MANAGE),
    (r"/v1/images/[^/]+", Scope.SANDBOXES_READ, Scope.SANDBOXES_MANAGE),
    (r"/v1/images", "nothing", Scope.SANDBOXES_MANAGE),
    (r"/v1/accounts/me(/events)?|/v1/usage(/segments)?", Scope.ACCOUNT_READ, None),
    (r"/v1/webhooks(/.*)?", Scope.ACCOUNT_READ, Scope.ACCOUNT_MANAGE),
    (r"/v1/transfers", Scope.ACCOUNT_READ, Scope.ACCOUNT_MANAGE),
    (r"/v1/keys(/tree)?", Scope.ACCOUNT_READ, Scope.ACCOUNT_MANAGE),
    (r"/v1/keys/[^/]+/regenerate", None, Scope.ACCOUNT_MANAGE),
    (r"/v1/keys/purchase", None, Scope.ACCOUNT_MANAGE),
    (r"/v1/keys/.*", None, Scope.KEYS_DELEGATE),
    (r"/v1/auth/session", None, "nothing"),
    (r"/v1/auth/.*", Scope.ACCOUNT_READ, Scope.ACCOUNT_MANAGE),
    (r"/v1/(profiles|cluster|pools|limits)", "nothing", None),
    (r"/v1/stats", Scope.SANDBOXES_READ, None),
    (r"/v1/quotes", None, "nothing"),
    # It brings money and takes none.
    (r"/v1/invoices", None, "nothing"),
    (r"/v1/(invoices|refunds)(/.*)?", None, None),
    (r"/v1/payments", Scope.ACCOUNT_READ, None),
    (r"/v1/gift-cards/redeem", None, "nothing"),
    (r"/v1/gift-cards(/[^/]+/[a-z]+)?", None, Scope.ACCOUNT_MANAGE),
    # It brings money and takes none.
    (r"/v1/topups", None, "nothing"),
)
_TABLE = tuple((re.compile(path), to_read, to_change) for path, to_read, to_change in _ROWS)


def _changing(needed: Needed | ByMethod, method: str) -> Needed:
    return needed.get(method) if isinstance(needed, Mapping) else needed


def scope_for(method: str, path: str) -> Scope | None:
    """The scope; None: any key may. Raises Forbidden for what delegated keys may never do."""
    for pattern, to_read, to_change in _TABLE:
        if pattern.fullmatch(path):
            needed = to_read if method in READ else _changing(to_change, method)
            if needed is not None:
                return None if needed == "nothing" else needed
            break
    raise Forbidden(
        why="delegated keys may not do this, or there is no such route",
        reason="missing_scope",
        hint="Use a key of the account itself.",
    )
