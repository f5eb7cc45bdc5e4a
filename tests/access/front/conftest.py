"""Fixtures of this folder; they are made in `tests.support`."""

from tests.support.background import host  # noqa: F401
from tests.support.http.served import served, settings  # noqa: F401
