"""Fixtures of this folder; they are made in `tests.support.wallets`."""

from tests.support.wallets import door  # noqa: F401
