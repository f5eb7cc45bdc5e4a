"""The words and bounds that several nouns share: identifiers, durations, labels, environment, paths.

Requests are strict (no coercion, no unknown field), so that a typing slip is refused instead of ignored.
Answers are tolerant, so that an older client can read a newer server. What checks a model is built when it is
first used: a command line that lists sandboxes need not build those of every other noun.

A `Problem` is what went wrong, as RFC 9457 says it: machine-readable, with whose fault it is and what to do
next.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

# The kernel would end a string at a NUL, so that what is checked would not be what is used.
NO_NUL = r"^[^\x00]*$"
# What a person reads must be what is there: nothing that turns the text around it, and nothing unseen.
_TURNING = r"\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
ONE_LINE = rf"^[^\x00-\x1f{_TURNING}]*$"
PLAIN_TEXT = rf"^[^\x00-\x08\x0b\x0c\x0e-\x1f{_TURNING}]*$"
MAX_PATH_BYTES = 4096
MAX_ENV_ENTRIES = 256
MAX_LABELS = 64
PAGE_LIMIT_DEFAULT = 50
PAGE_LIMIT_MAX = 500
PROBLEM_TYPE_PREFIX = "urn:sandboxer:problem:"
QuoteId = Annotated[
    str,
    Field(
        pattern=r"^quo_[0-9a-hjkmnp-tv-z]{26}$",
        max_length=30,
        description="Of a quote (POST /v1/quotes) that was not used yet; its rates hold from now on.",
        examples=["quo_0123456789abcdefghjkmnpqrs"],
    ),
]
SandboxId = Annotated[
    str,
    Field(
        pattern=r"^sbx_[0-9a-hjkmnp-tv-z]{26}$",
        description="Id of a sandbox.",
        examples=["sbx_0123456789abcdefghjkmnpqrs"],
    ),
]
SnapshotId = Annotated[
    str,
    Field(
        pattern=r"^snp_[0-9a-hjkmnp-tv-z]{26}$",
        max_length=30,
        description="Id of a snapshot.",
        examples=["snp_0123456789abcdefghjkmnpqrs"],
    ),
]
ImageId = Annotated[
    str,
    Field(
        pattern=r"^img_[0-9a-hjkmnp-tv-z]{26}$",
        max_length=30,
        description="Id of a published image.",
        examples=["img_0123456789abcdefghjkmnpqrs"],
    ),
]
VolumeId = Annotated[
    str,
    Field(
        pattern=r"^vol_[0-9a-hjkmnp-tv-z]{26}$",
        max_length=30,
        description="Id of a volume.",
        examples=["vol_0123456789abcdefghjkmnpqrs"],
    ),
]
VolumeName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
        max_length=63,
        description="Unique among the volumes of an account.",
        examples=["models"],
    ),
]
VolumeRef = Annotated[
    str,
    Field(
        pattern=r"^(vol_[0-9a-hjkmnp-tv-z]{26}|[a-z0-9][a-z0-9-]{0,62})$",
        max_length=63,
        description="Id of a volume, or the name of one's own.",
        examples=["models"],
    ),
]
Duration = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,9}[smhd]$",
        max_length=10,
        description="A whole number and a unit: s, m, h or d.",
        examples=["30s", "15m", "4h", "2d"],
    ),
]
Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,62}$",
        max_length=63,
        description="A name for people; needs not be unique.",
        examples=["nightly-build"],
    ),
]
Trust = Annotated[
    Literal["zero", "semi"],
    Field(description="Which network the sandbox gets: `zero` none at all, `semi` through the egress proxy."),
]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/-]{0,62}$", max_length=63)]
LabelValue = Annotated[str, StringConstraints(max_length=255, pattern=ONE_LINE)]
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Field(
        max_length=MAX_LABELS,
        description="Words to find it by; lists can filter on them.",
        examples=[{"team": "search"}],
    ),
]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$", max_length=255)]
EnvValue = Annotated[str, StringConstraints(max_length=131_072 - 512, pattern=NO_NUL)]
Env = Annotated[
    dict[EnvName, EnvValue],
    Field(max_length=MAX_ENV_ENTRIES, description="Environment variables.", examples=[{"LANG": "C.UTF-8"}]),
]
User = Annotated[
    str,
    Field(
        pattern=r"^[a-z_][a-z0-9_-]{0,31}$|^[0-9]{1,5}$",
        max_length=32,
        description="A user name or numeric uid known inside the sandbox.",
        examples=["root"],
    ),
]
Moment = Annotated[datetime, Field(description="RFC 3339, UTC.", examples=["2026-11-15T12:00:00Z"])]
When = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$",
        max_length=40,
        description="RFC 3339, with its offset.",
        examples=["2027-01-01T00:00:00Z"],
    ),
]
Encoding = Annotated[
    Literal["utf-8", "base64"],
    Field(
        description=(
            "How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; "
            "`base64`: exactly, as standard base 64."
        )
    ),
]
Cursor = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]{1,1024}$",
        max_length=1024,
        description="Opaque; take it from the previous page.",
    ),
]
LabelFilter = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,62}=[^\x00]{0,255}$", examples=["team=search"])
]


class Request(BaseModel):
    """A body that a caller sends."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class Answer(BaseModel):
    """A body that the platform sends."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


def _absolute_path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be absolute (start with /)")
    # "replace" only so that counting never fails; the kernel sees the exact bytes.
    if len(text.encode("utf-8", "replace")) >= MAX_PATH_BYTES:
        raise ValueError(f"must be shorter than {MAX_PATH_BYTES} bytes")
    return text


AbsolutePath = Annotated[
    str,
    AfterValidator(_absolute_path),
    Field(
        min_length=1,
        max_length=MAX_PATH_BYTES - 1,
        pattern=r"^/[^\x00]*$",
        description="Absolute path inside the sandbox.",
        examples=["/workspace/main.py"],
    ),
]


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
