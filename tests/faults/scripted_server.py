"""`sandboxer …` with sandboxes in memory under the name that the profiles ask for. Run with `python -m`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxer.backends import registry
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.cli.main import main


@asynccontextmanager
async def open_backend(_: object) -> AsyncIterator[Scripted]:
    yield Scripted(name="ext.namespaces")


if __name__ == "__main__":
    registry.SHIPPED = {"ext.namespaces": "tests.faults.scripted_server:open_backend"}
    main()
