"""Fixtures of this folder; they are made in `tests.support`."""

from tests.support.chains.evm import evm  # noqa: F401
from tests.support.flows import charging, selling  # noqa: F401
