"""What happened to a sandbox, in order, with who did it and why."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from sandboxer.wire.words import Answer, Moment


class Event(Answer):
    id: Annotated[int, Field(description="Grows; give the last one seen as `after` (or Last-Event-ID).")]
    subject: Annotated[str, Field(description="Id of what it happened to.")]
    kind: Annotated[str, Field(examples=["sandbox.ready"])]
    actor: Annotated[str, Field(description="Who caused it: a key, or a part of the platform.")]
    reason: str
    at: Moment
    data: dict[str, JsonValue] = Field(default_factory=dict)
