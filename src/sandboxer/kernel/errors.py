"""
The one error tree. A class says whose fault it is; its `code`, which is its name in small letters, is stable
and goes to the wire.

SandboxerError
├── Refused                 the caller may change something and retry
│   ├── InvalidRequest      a field is wrong: `field`, `why`
│   ├── Unauthenticated     who are you? `why`, `hint`
│   ├── Forbidden           known, but not allowed: `why`
│   ├── NotFound            `what`, `id`
│   ├── Conflict            `why`
│   │   ├── Ambiguous       a word fits several things: `what`, `word`, `fits`, `listed`
│   │   ├── IllegalTransition   the sandbox's state does not allow this
│   │   ├── StdinNotTaken   a process took not all of its input: `taken_bytes`, `offered_bytes`, `why`
│   │   ├── SessionDied     the interpreter of a session is gone: `id`, `reason`
│   │   ├── IdempotencyConflict same Idempotency-Key, other body
│   │   ├── QuoteUnusable       expired, used, or for something else: `id`, `why`
│   │   └── AddressUsed     a deposit address has history already: `chain`, `index`
│   ├── InsufficientCredit  funding needed: `required`, `available` (sats)
│   ├── PaymentRefused      the payment that came with the request is not taken: `why`, `reason`
│   ├── PaymentNeeded       nobody said who pays: `pricing`, `sats`, `sign_in`
│   ├── SecondProofNeeded   sign the challenge with the other factor: `challenge`, `message`
│   ├── WorkNeeded          solve the puzzle first, guesses run high: `challenge`, `bits`
│   ├── NotAvailable        exists in the design, not on this platform (yet): `what`, `why`
│   ├── TooLarge            `what`, `limit`
│   ├── TooManyRequests     slow down: `limit` a minute, `retry_after_s`
│   │   ├── QueueFull       no more may wait: `why`, `retry_after_s`
│   │   └── OverBudget      the account's requests hold too much already: `why`, `retry_after_s`
│   └── GuestRefused        the sandbox's own file system or kernel said no: `errno_name`
│       ├── PathNotFound  ├── PathExists  ├── NotADirectory  ├── IsADirectory
│       ├── NotARegularFile ├── PermissionDenied ├── DirectoryNotEmpty └── DiskFull
├── Unavailable             ours; retry later, never shown as the command's output
│   ├── FateUnknown         the database went away during a commit: it was done, or it was not: `why`
│   ├── Superseded          another server has taken over our database; this one ends: `why`
│   ├── NoCapacity          the host is full: `resource`, `why`
│   ├── BackendLost         the sandbox or its backend stopped answering: `why`
│   ├── ProvisionFailed     the sandbox could not be made: `step`, `why`
│   ├── ChainUnavailable    a coin's node is down, slow, or says what cannot be: `chain`, `why`
│   ├── ImageBuildFailed    a base image could not be built: `why`
│   ├── NoRate              too few agree on what an asset is worth: `asset`, `why`
│   └── GuestMisbehaved     the supervisor inside broke the protocol: `why`
└── Broken                  ours, and retrying does not help; page someone: `why`
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

_T = TypeVar("_T")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class SandboxerError(Exception):
    """Something went wrong: {why}"""

    code: ClassVar[str] = "error"
    # What the caller should do next; shown on the wire beside the message.
    next_step: ClassVar[str] = "Look at the facts of this error."
    # The same where it is known which sandbox it is about; empty: in no other words.
    next_step_of_sandbox: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Names the code of an error after its class: `NotFound` is `not_found`."""
        cls.code = _CAPITAL.sub("_", cls.__name__).lower()
        if "next_step" in cls.__dict__ and "next_step_of_sandbox" not in cls.__dict__:
            cls.next_step_of_sandbox = ""

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        template = (type(self).__doc__ or self.code).strip()
        super().__init__(template.format_map(_Lenient(facts)))

    def what_next(self, **place: str) -> str:
        """Returns what the caller should do next; facts that it names are filled in where they are known, or
        from the `place` that was asked for.
        """
        known = place | {name: str(value) for name, value in self.facts.items()}
        text = self._next_step_of_sandbox() if "sandbox_id" in known else ""
        return filled(text or self.next_step, known)

    def _next_step_of_sandbox(self) -> str:
        return self.next_step_of_sandbox


class _Lenient(dict[str, object]):
    """Fills in a message. A missing fact is shown as such instead of failing."""

    def __missing__(self, key: str) -> str:
        return "?"


class Refused(SandboxerError):
    """The request was refused: {why}"""

    next_step = "Change the request and try again."


class InvalidRequest(Refused):
    """Invalid {field}: {why}"""

    next_step = "Correct the named field and try again."


class Unauthenticated(Refused):
    """Not authenticated: {why}"""

    next_step = "Sign the request with a valid key; see docs/reference/auth.md."


class Forbidden(Refused):
    """Not allowed: {why}"""

    next_step = "Use a key that may do this; GET /v1/accounts/me says what yours may."


class NotFound(Refused):
    """No such {what}: {id}"""

    next_step = "Check the id; list what exists."


class Conflict(Refused):
    """Conflict: {why}"""

    next_step = "Look at how it is now and decide again."
    next_step_of_sandbox = "Look at how it is now (GET /v1/sandboxes/{sandbox_id}) and decide again."


class Ambiguous(Conflict):
    """{word} could be more than one {what}: {listed}."""

    next_step = "Name one of them by its id, or by more of it."


class IllegalTransition(Conflict):
    """It is {state}, which does not allow {signal}."""

    next_step = "Look at its state, and change that first: thaw what is frozen, resume what is stopped."
    next_step_of_sandbox = "See how it is: GET /v1/sandboxes/{sandbox_id}."

    def _next_step_of_sandbox(self) -> str:
        return _WAYS_OUT.get(str(self.facts.get("state")), self.next_step_of_sandbox)


_RECREATE = (
    "Give it a new disk (POST /v1/sandboxes/{sandbox_id}/recreate), or remove it"
    " (DELETE /v1/sandboxes/{sandbox_id})."
)
_WAIT = "Wait until it is ready: GET /v1/sandboxes/{sandbox_id}."
_OVER = "Nothing is left of it; make another: POST /v1/sandboxes."
_PAY = "Give the account credit (GET /v1/accounts/me), then POST /v1/sandboxes/{sandbox_id}/resume."
# By the state in which a sandbox refuses something.
_WAYS_OUT: Mapping[str, str] = {
    "requested": _WAIT,
    "provisioning": _WAIT,
    "frozen": "Let it go on first: POST /v1/sandboxes/{sandbox_id}/thaw.",
    "stopped": "Start it first: POST /v1/sandboxes/{sandbox_id}/resume.",
    "failed": _RECREATE,
    "reaped": _PAY,
    "expired": _OVER,
    "destroying": _OVER,
    "destroyed": _OVER,
}


class StdinNotTaken(Conflict):
    """The process took {taken_bytes} of {offered_bytes} bytes of its input: {why}."""

    next_step = "Look at the process: it ended, or closed its stdin; what it did not take reached nobody."
    next_step_of_sandbox = (
        "Look at the process (GET /v1/sandboxes/{sandbox_id}/processes): it ended, or closed its stdin."
    )


class SessionDied(Conflict):
    """The interpreter of {id} is gone: {why}"""

    next_step = "Restart it (POST /v1/sessions/{id}/restart): what it knew is lost, files are not."


class IdempotencyConflict(Conflict):
    """The idempotency key {key} was already used with another request."""

    next_step = "Use a new Idempotency-Key for a new request."


class AddressUsed(Conflict):
    """Address {index} of {chain} has received something before."""

    next_step = "Take the next index."


class QuoteUnusable(Conflict):
    """The quote {id} cannot be used: {why}"""

    next_step = "Ask for a new quote (POST /v1/quotes), for exactly what you create."


class InsufficientCredit(Refused):
    """Not enough credit: {required} sats needed, {available} available."""

    next_step = (
        "Add credit, or ask for something cheaper: GET /v1/pricing says what is taken, and the operator gives"
        " sats by POST /v1/accounts/{account_id}/adjust."
    )


class PaymentNeeded(Refused):
    """Funding is needed: {why}."""

    next_step = "Pay in one of the offered ways, or sign in with an account that has credit (see `sign_in`)."


class PaymentRefused(Refused):
    """The payment was not taken: {why}"""

    next_step = "Pay one of the offers in `accepts`, or see GET /v1/payments for what became of it."


class SecondProofNeeded(Refused):
    """A second proof is needed: {why}"""

    next_step = "Sign the message with the named factor and repeat the request with the answer."


class WorkNeeded(Refused):
    """A proof of work is needed: {why}"""

    next_step = (
        "Find a text for which SHA-256 of `<challenge>:<text>` begins with `bits` zero bits, and repeat the"
        " request with both as `work`; the SDK and the command line do so by themselves."
    )


class NotAvailable(Refused):
    """{what} is not available here: {why}"""

    next_step = "Ask for something listed in GET /v1/capabilities."


class TooLarge(Refused):
    """{what} is larger than the limit of {limit}."""

    next_step = "Send less, or use a streaming route."


class TooManyRequests(Refused):
    """Too many requests: {limit} a minute are allowed; try again in {retry_after_s} s."""

    next_step = "Wait as long as that, then go on more slowly."


class QueueFull(TooManyRequests):
    """The queue is full: {why}. Try again in {retry_after_s} s."""

    next_step = "Wait until some of what is queued has run (GET /v1/jobs), or cancel some of it."


class OverBudget(TooManyRequests):
    """Your account's requests hold too much at once: {why}. Try again in {retry_after_s} s."""

    next_step = "Wait until some of your requests are answered, ask for less, or use a streaming route."


class GuestRefused(Refused):
    """The sandbox's system answered {errno_name} for {path}."""

    next_step_of_sandbox = "Try it from inside to see more: POST /v1/sandboxes/{sandbox_id}/exec."


class PathNotFound(GuestRefused):
    """No such file or directory in the sandbox: {path}"""

    next_step_of_sandbox = "See what is there: GET /v1/sandboxes/{sandbox_id}/files."


class PathExists(GuestRefused):
    """Already exists in the sandbox: {path}"""

    next_step_of_sandbox = (
        "Choose another path, or remove it first: POST /v1/sandboxes/{sandbox_id}/files/remove."
    )


class NotADirectory(GuestRefused):
    """Not a directory in the sandbox: {path}"""

    next_step_of_sandbox = "Name a folder; see what is there: GET /v1/sandboxes/{sandbox_id}/files."


class IsADirectory(GuestRefused):
    """Is a directory in the sandbox: {path}"""

    next_step_of_sandbox = "Name a file, or take the folder: GET /v1/sandboxes/{sandbox_id}/files/tar."


class NotARegularFile(GuestRefused):
    """Not a regular file in the sandbox: {path}"""


class PermissionDenied(GuestRefused):
    """Permission denied in the sandbox: {path}"""


class DirectoryNotEmpty(GuestRefused):
    """Directory not empty in the sandbox: {path}"""

    next_step = "Remove it recursively, or empty it first."
    next_step_of_sandbox = "Remove it with all it holds: POST /v1/sandboxes/{sandbox_id}/files/remove."


class DiskFull(GuestRefused):
    """The sandbox's disk is full: {path}"""

    next_step = "Remove files, or create a sandbox with more disk_mb."


class Unavailable(SandboxerError):
    """Not possible right now: {why}"""

    next_step = "Retry later."


class FateUnknown(Unavailable):
    """It is not known whether this was done: {why}"""

    next_step = (
        "Repeat the request with the same Idempotency-Key: what was done is not done twice."
        " Without one, look before you repeat it."
    )


class Superseded(Unavailable):
    """This server has been replaced: {why}"""

    next_step = (
        "Retry: the server that took over answers at the same address once the operator points it there."
    )


class NoCapacity(Unavailable):
    """This host has no {resource} left: {why}"""

    next_step = "Retry when other sandboxes have ended, ask for less, or remove one (GET /v1/sandboxes)."


class BackendLost(Unavailable):
    """The sandbox no longer answers: {why}"""

    next_step = "Look at its state (GET /v1/sandboxes/{sandbox_id}); resume or recreate it."
    next_step_of_sandbox = "Look at its state (GET /v1/sandboxes/{sandbox_id}). " + _RECREATE


class ProvisionFailed(Unavailable):
    """The sandbox could not be made ({step}): {why}"""

    next_step = "Retry; if it persists, ask the operator to run `sandboxer doctor`."


class ImageBuildFailed(Unavailable):
    """The image could not be built: {why}"""

    next_step = "Remove the named obstacle and build again."


class ChainUnavailable(Unavailable):
    """The {chain} node cannot be relied on right now: {why}"""

    next_step = "Retry later; payments already sent are not lost."


class NoRate(Unavailable):
    """There is no rate for {asset} right now: {why}"""

    next_step = "Retry in a minute, or pay in BTC or sBTC, which need none."


class GuestMisbehaved(Unavailable):
    """The supervisor in the sandbox broke its protocol: {why}"""

    next_step = "Delete or recreate the sandbox."
    next_step_of_sandbox = _RECREATE


class Broken(SandboxerError):
    """The platform is broken here: {why}"""

    next_step = "Tell the operator, with the x-request-id of the answer."


def filled(text: str, known: Mapping[str, str]) -> str:
    """Returns the text with what is known in the place of `{name}`."""
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], found[0]), text)


def or_not_found(thing: _T | None, **facts: Any) -> _T:
    """Returns the thing that was looked for. Raises NotFound with these facts if there is none."""
    if thing is None:
        raise NotFound(**facts)
    return thing


_REASONS: Mapping[int, tuple[str, str]] = {
    errno.EMFILE: ("descriptors_exhausted", "the server has no file descriptors left"),
    errno.ENFILE: ("descriptors_exhausted", "the host has no file descriptors left"),
    errno.ENOSPC: ("disk_full", "a disk of the host is full"),
    errno.EDQUOT: ("disk_full", "a disk quota of the host is used up"),
    errno.EROFS: ("disk_read_only", "a disk of the host cannot be written to any more"),
    errno.EIO: ("disk_failing", "a disk of the host fails"),
    errno.ENOMEM: ("memory_exhausted", "the host has no memory left"),
    errno.ENOBUFS: ("memory_exhausted", "the host has no memory left for its network"),
}
EXHAUSTED = frozenset(_REASONS)
_NO_THREAD = "can't start new thread"


def host_exhausted(error: BaseException) -> Unavailable | None:
    """Translates an exhausted resource of the host into an error for the caller, without paths. Returns
    None for any other error.
    """
    if isinstance(error, OSError) and (found := _REASONS.get(error.errno or 0)):
        reason, why = found
        return Unavailable(why=why, reason=reason)
    if isinstance(error, MemoryError):
        return Unavailable(why="the server has no memory left", reason="memory_exhausted")
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return Unavailable(why="the host takes no more threads", reason="threads_exhausted")
    return None


# What the library calls a value, and what we do.
_PLAIN = (
    (re.compile(r"^(Input|String|Value|Bytes|Data|List|Dictionary|Set) should "), "it should "),
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"a valid (string|dictionary|integer|number|list|boolean)"), r"a \1"),
    (re.compile(r"\ba string\b"), "text"),
    (re.compile(r"a dictionary.*"), "an object"),
    (re.compile(r"a integer.*"), "a whole number"),
    (re.compile(r"a boolean.*"), "true or false"),
    (re.compile(r", unable to parse.*"), ""),
    (re.compile(r" after validation, not .*"), ""),
    (re.compile(r"greater than or equal to"), "at least"),
    (re.compile(r"less than or equal to"), "at most"),
    (re.compile(r"greater than"), "more than"),
)


def in_plain_words(said: str) -> str:
    """Returns what the library of models says of a wrong value in our words."""
    for pattern, plain in _PLAIN:
        said = pattern.sub(plain, said)
    return said[:1].lower() + said[1:]
