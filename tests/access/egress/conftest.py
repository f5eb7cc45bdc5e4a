"""Fixtures of this folder; they are made in `tests.support.egress`."""

from tests.support.egress import proxy, world  # noqa: F401
