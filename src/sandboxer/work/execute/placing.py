"""A sandbox for a run: within the slots of its key, written down so that somebody always removes it."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxer.accounts.authority import AuthorityBook
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden, NoCapacity, SandboxerError
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.slots import Slots
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.work.execute.ending import Claim
from sandboxer.work.execute.submission import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    sandboxes: SandboxUseCases
    authorities: AuthorityBook
    slots: Slots

    async def make(self, plan: Plan, caller: Caller, claim: Claim) -> Sandbox:
        """Ready. Raises what a create raises, and Forbidden when no slot is left."""
        authority = await self.authorities.of(caller)
        async with self.slots.taken(authority):
            return await self.sandboxes.create(plan.create, caller, also=claim.write)


def will_pass(error: SandboxerError) -> bool:
    """Is it refused only because of what others, or runs before it, still hold?"""
    is_slots = isinstance(error, Forbidden) and error.facts.get("reason") in ("slots", "no_slots")
    is_attached = isinstance(error, Conflict) and error.facts.get("reason") == "attached"
    return is_slots or is_attached or isinstance(error, NoCapacity)
