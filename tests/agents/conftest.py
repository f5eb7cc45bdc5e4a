"""Fixtures of this folder; they are made in `tests.support`."""

from tests.support.http.real import free, real  # noqa: F401
from tests.support.http.served import served, settings  # noqa: F401
