"""More CPUs and memory for a while."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.words import Request


class Boost(Request):
    vcpus: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="CPUs in all, more than it has; each brings 2 GB of memory.",
            examples=[4],
        ),
    ]
