"""Fixtures of this folder; they are made in `tests.support.payments.stacks`."""

from tests.support.chains.stacks import stacks  # noqa: F401
from tests.support.payments.stacks import till  # noqa: F401
