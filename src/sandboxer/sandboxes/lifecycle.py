"""The lifecycle of a sandbox is one table. Every change of state goes through `next_state`.

The signals of money come from `loops/credit.py`, which follows the standing of an account's bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sandboxer.store.steps import Lifecycle


class State(StrEnum):
    REQUESTED = "requested"
    PROVISIONING = "provisioning"
    READY = "ready"
    ACTIVE = "active"
    FROZEN = "frozen"
    STOPPED = "stopped"
    GRACE = "grace"
    REAPED = "reaped"
    EXPIRED = "expired"
    FAILED = "failed"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"


class Signal(StrEnum):
    # Someone asked for a sandbox; the only signal without a state before it.
    REQUEST = "request"
    # A backend was chosen for it, or none could be.
    PLACED = "placed"
    REFUSED = "refused"
    # The supervisor inside answers and the profile's setup is done; or that failed.
    PROBE_PASSED = "probe_passed"
    FAIL = "fail"
    # Something the API started runs or is connected; nothing does any more.
    WORK_BEGAN = "work_began"
    WORK_ENDED = "work_ended"
    FREEZE = "freeze"
    THAW = "thaw"
    STOP = "stop"
    RESUME = "resume"
    # New disk from the image under the same id.
    RECREATE = "recreate"
    # Its disk is again as it was when a snapshot was taken; what runs starts anew on it.
    RESTORE = "restore"
    # Its processes ended by themselves; the disk is kept (HALTED), or nothing is left (LOST).
    HALTED = "halted"
    LOST = "lost"
    # Out of sats; the account was credited again (a frozen one goes back to frozen); nobody paid in time.
    DRY = "dry"
    PAID = "paid"
    PAID_WHILE_FROZEN = "paid_while_frozen"
    GRACE_OVER = "grace_over"
    # It, its key or its account has spent all it may.
    CAP_REACHED = "cap_reached"
    # TTL or idle time over; the kept disk's time over.
    EXPIRE = "expire"
    RETENTION_OVER = "retention_over"
    DESTROY = "destroy"
    TORN_DOWN = "torn_down"


S, E = State, Signal

# A supervisor inside answers, and TTL counts.
LIVE = frozenset({S.READY, S.ACTIVE, S.FROZEN, S.GRACE})
# No step leads out of it.
FINAL = frozenset({S.DESTROYED})
# It is gone or will be; its slot and its name are free for another.
OVER = frozenset({S.FAILED, S.EXPIRED, S.DESTROYING, S.DESTROYED})

TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (S.REQUESTED, E.PLACED): S.PROVISIONING,
    (S.REQUESTED, E.REFUSED): S.FAILED,
    (S.PROVISIONING, E.PROBE_PASSED): S.READY,
    (S.PROVISIONING, E.FAIL): S.FAILED,
    (S.READY, E.WORK_BEGAN): S.ACTIVE,
    (S.ACTIVE, E.WORK_ENDED): S.READY,
    **{(s, E.FREEZE): S.FROZEN for s in (S.READY, S.ACTIVE)},
    # Back to ready; if work is still under way it is recorded as active a moment later.
    (S.FROZEN, E.THAW): S.READY,
    # Allowed in grace too: who cannot pay may stop owing more.
    **{(s, E.STOP): S.STOPPED for s in (S.READY, S.ACTIVE, S.GRACE)},
    (S.STOPPED, E.RESUME): S.READY,
    **{(s, E.RECREATE): S.PROVISIONING for s in (S.READY, S.ACTIVE, S.FROZEN, S.STOPPED, S.FAILED)},
    **{(s, E.RESTORE): S.READY for s in (S.READY, S.ACTIVE, S.FROZEN)},
    (S.STOPPED, E.RESTORE): S.STOPPED,
    **{(s, E.HALTED): S.STOPPED for s in LIVE},
    **{(s, E.LOST): S.FAILED for s in (*LIVE, S.STOPPED, S.REAPED)},
    **{(s, E.DRY): S.GRACE for s in (S.READY, S.ACTIVE, S.FROZEN)},
    (S.GRACE, E.PAID): S.READY,
    (S.GRACE, E.PAID_WHILE_FROZEN): S.FROZEN,
    (S.GRACE, E.GRACE_OVER): S.REAPED,
    **{(s, E.CAP_REACHED): S.REAPED for s in LIVE},
    # Woken by money: paid, and started again on the kept disk.
    (S.REAPED, E.RESUME): S.READY,
    **{(s, E.EXPIRE): S.EXPIRED for s in LIVE},
    **{(s, E.RETENTION_OVER): S.EXPIRED for s in (S.STOPPED, S.REAPED)},
    **{(s, E.DESTROY): S.DESTROYING for s in S if s not in (S.DESTROYING, S.DESTROYED)},
    (S.DESTROYING, E.TORN_DOWN): S.DESTROYED,
}


LIFECYCLE = Lifecycle(TRANSITIONS)
next_state = LIFECYCLE.next_state
