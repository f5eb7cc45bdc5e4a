"""What a profile promises is kept or refused with a reason, never passed over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.kernel.errors import NotAvailable
from sandboxer.sandboxes.profiles import WorkspaceAccess, load_profiles
from sandboxer.sandboxes.requests import check_promises

PROFILES = load_profiles(Path(__file__).parents[2] / "profiles")
PLAIN = PROFILES.get("profile.agent-dev")


def test_every_shipped_profile_promises_what_can_be_kept() -> None:
    for profile in PROFILES.all():
        check_promises(profile)


@pytest.mark.parametrize("access", [WorkspaceAccess.READ_ONLY, WorkspaceAccess.NONE])
def test_a_workspace_that_cannot_be_walled_off_is_refused(access: WorkspaceAccess) -> None:
    with pytest.raises(NotAvailable, match="workspace"):
        check_promises(replace(PLAIN, workspace_access=access))


def test_a_place_that_does_not_exist_is_refused_and_ours_is_not() -> None:
    check_promises(replace(PLAIN, placement_prefer=("local", PLAIN.backend)))
    with pytest.raises(NotAvailable, match="gpu-farm"):
        check_promises(replace(PLAIN, placement_prefer=("local", "gpu-farm")))


def test_a_place_to_fall_back_on_that_does_not_exist_is_refused_too() -> None:
    check_promises(replace(PLAIN, placement_fallback=("local", PLAIN.backend)))
    with pytest.raises(NotAvailable, match="spare-farm"):
        check_promises(replace(PLAIN, placement_fallback=("spare-farm",)))
