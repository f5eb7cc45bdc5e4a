"""What went wrong, as RFC 9457 says it: machine-readable, with whose fault it is and what to do next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from sandboxer.wire.words import Answer

PROBLEM_TYPE_PREFIX = "urn:sandboxer:problem:"


class Problem(Answer):
    """Further members are facts of this very error (RFC 9457, section 3.2)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    type: Annotated[str, Field(description="Stable.", examples=[PROBLEM_TYPE_PREFIX + "not_found"])]
    title: Annotated[str, Field(examples=["Not found"])]
    status: Annotated[int, Field(ge=400, le=599)]
    detail: Annotated[str, Field(examples=["No such sandbox: sbx_0123456789abcdefghjkmnpqrs"])]
    code: Annotated[str, Field(description="Stable; meant for programs.", examples=["not_found"])]
    fault: Annotated[
        Literal["caller", "platform"],
        Field(description="`caller`: change something and retry. `platform`: ours; retry later."),
    ]
    next_step: Annotated[str, Field(description="What to do now.")]
    request_id: Annotated[str, Field(examples=["req_0123456789abcdefghjkmnpqrs"])]
