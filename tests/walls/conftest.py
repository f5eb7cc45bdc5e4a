"""Fixtures of this folder; they are made in `tests.support.walls`."""

from tests.support.walls import attacker, attacks, backend, host_ready, make, neighbour, outside, settings  # noqa: F401
