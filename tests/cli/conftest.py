"""Fixtures of this folder; they are made in `tests.support`."""

from tests.support.background import host  # noqa: F401
from tests.support.cli import cli, real_cli, real_sandbox, real_up, sandbox, up  # noqa: F401
