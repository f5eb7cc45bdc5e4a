"""What rooms above put into a sandbox that is not in its record (secrets, a way out): the hook they fill.

A furnisher is asked whenever processes begin anew inside: at the making, at a resume, after a restore.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from sandboxer.backends.guest import Guest
from sandboxer.sandboxes.records import Sandbox

OpenGuest = Callable[[], Awaitable[Guest]]


class Furnisher(Protocol):
    async def check(self, account: str, secret_refs: Sequence[str]) -> None:
        """May a sandbox that needs these be made for this account? Raises what refuses it."""

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        """For every command in it from now on, over the sandbox's own. Costs no database access."""

    async def furnish(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        """Its processes have just begun and it is not ready yet. Raises what keeps it from being ready."""
