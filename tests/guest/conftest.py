"""Fixtures of this folder; they are made in `tests.support.guest`."""

from tests.support.guest import box, cgroup, old_box, old_supervisor, supervisor  # noqa: F401
