"""Fixtures of this folder; they are made in `tests.support.payments.x402`."""

from tests.support.chains.evm import evm  # noqa: F401
from tests.support.payments.x402 import sqlite_store, use_cases, wallet  # noqa: F401
