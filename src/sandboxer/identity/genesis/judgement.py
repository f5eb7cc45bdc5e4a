"""Is this pair of addresses good enough? Pure: decided on what the registry said."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxer.kernel.errors import Forbidden

LEVEL_NEEDED = 2
_ONBOARDING = "Register both addresses together and reach the level, then try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEntry:
    btc_address: str
    stx_address: str
    # Only the number counts: names of levels have changed over time.
    level: int
    name: str | None = None


def judge(
    entry: RegistryEntry | None, *, btc_address: str, stx_address: str, level_needed: int = LEVEL_NEEDED
) -> RegistryEntry:
    """The entry, or Forbidden. With whom the registry pairs an address is not told."""
    if entry is None:
        raise _refused("not_registered", "the registry does not know this agent", level_needed)
    if (entry.btc_address, entry.stx_address) != (btc_address, stx_address):
        raise _refused("other_pair", "the registry does not know these two addresses as a pair", level_needed)
    if entry.level < level_needed:
        raise Forbidden(
            why=f"level {level_needed} is needed, this agent has {entry.level}",
            reason="level_too_low",
            current_level=entry.level,
            required_level=level_needed,
            hint=_ONBOARDING,
        )
    return entry


def _refused(reason: str, why: str, level_needed: int) -> Forbidden:
    return Forbidden(why=why, reason=reason, required_level=level_needed, hint=_ONBOARDING)
