"""Fixtures of this folder; they are made in `tests.support.payments.gift_cards`."""

from tests.support.payments.gift_cards import shop  # noqa: F401
