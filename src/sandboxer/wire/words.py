"""The words and bounds that several nouns share: identifiers, durations, labels, environment, paths.

Requests are strict (no coercion, no unknown field), so that a typing slip is refused instead of ignored.
Answers are tolerant, so that an older client can read a newer server. What checks a model is built when it is
first used: a command line that lists sandboxes need not build those of every other noun. For the same reason
annotations are values here, not text (`from __future__`), of which pydantic would compile each one again.

A `Problem` is what went wrong, as RFC 9457 says it: machine-readable, with whose fault it is and what to do
next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, get_args

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
# More than there will ever be.
MAX_SATS = 21_000_000 * 100_000_000
PAGE_LIMIT_DEFAULT = 50
PAGE_LIMIT_MAX = 500
PROBLEM_TYPE_PREFIX = "urn:sandboxer:problem:"


def id_field(prefix: str, description: str, *, max_length: int | None = 30) -> Any:
    """How an id looks: its prefix, an underscore, and 26 letters of base 32."""
    return Field(
        pattern=rf"^{prefix}_[0-9a-hjkmnp-tv-z]{{26}}$",
        max_length=max_length,
        description=description,
        examples=[f"{prefix}_0123456789abcdefghjkmnpqrs"],
    )


@dataclass(frozen=True, slots=True)
class Naming:
    """Marks a field by which a caller names a thing. Whoever handles the request sees its whole id."""

    # "sandbox", "volume".
    thing: str
    # The word may be the name of an image of the host, which nobody's own name hides.
    may_be_of_host: bool = False


@cache
def names_in(model: type[BaseModel]) -> Sequence[tuple[str, Naming | None]]:
    """Returns the fields that name something, and how; None for lists of models that do."""
    return [
        (name, mark if isinstance(mark, Naming) else None)
        for name, field in model.model_fields.items()
        for mark in (*field.metadata, *_parts(field.annotation))
        if isinstance(mark, Naming)
        or (isinstance(mark, type) and issubclass(mark, BaseModel) and names_in(mark))
    ]


def _parts(annotation: Any) -> Iterator[Any]:
    """Yields the types and the marks that an annotation is made of."""
    for part in get_args(annotation):
        yield from _parts(part)
    if not get_args(annotation):
        yield annotation


def ref_field(prefix: str, noun: str, *, name: str = r"[A-Za-z0-9][A-Za-z0-9._ -]{0,62}") -> Any:
    """How a caller names a thing: its id, a beginning of it that fits nothing else, or the name of one's own.

    `name` is how names look, where the noun has any: without an underscore, so that none is ever taken for
    the beginning of an id.
    """
    words = f"Id of a {noun}, or its beginning if no other id begins so"
    return Field(
        pattern=rf"^{prefix}_[0-9a-hjkmnp-tv-z]{{1,26}}$" + (f"|^{name}$" if name else ""),
        max_length=63,
        description=words + (f"; or the name of a {noun} of one's own." if name else "."),
        examples=[f"{prefix}_0123456789abcdefghjkmnpqrs"],
    )


QuoteId = Annotated[
    str, id_field("quo", "Of a quote (POST /v1/quotes) that was not used yet; its rates hold from now on.")
]
SandboxId = Annotated[str, id_field("sbx", "Id of a sandbox.", max_length=None)]
SandboxRef = Annotated[str, ref_field("sbx", "sandbox"), Naming("sandbox")]
SnapshotId = Annotated[str, id_field("snp", "Id of a snapshot.")]
SnapshotRef = Annotated[str, ref_field("snp", "snapshot"), Naming("snapshot")]
ImageId = Annotated[str, id_field("img", "Id of a published image.")]
ImageRef = Annotated[str, ref_field("img", "published image"), Naming("image")]
VolumeId = Annotated[str, id_field("vol", "Id of a volume.")]
VolumeName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
        max_length=63,
        description="Unique among the volumes of an account.",
        examples=["models"],
    ),
]
VolumeRef = Annotated[str, ref_field("vol", "volume", name="[a-z0-9][a-z0-9-]{0,62}"), Naming("volume")]
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
Network = Annotated[
    str,
    Field(
        pattern=r"^(none|packages|open|allow:\S+)$",
        max_length=4096,
        description="none, packages, open, or allow: and hosts. What the sandbox may reach: nothing; the"
        " registries of pip, npm, apt, cargo, Go, Maven and their kin; every public host; these hosts alone.",
        examples=["packages", "open", "allow:example.com,*.example.org:8443"],
    ),
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
PageLimit = Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)]
LabelFilter = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,62}=[^\x00]{0,255}$", examples=["team=search"])
]


class Request(BaseModel):
    """A body that a caller sends."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class Answer(BaseModel):
    """A body that the platform sends."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    def __repr__(self) -> str:
        """Says which one it is and how it stands; `print` and `model_dump` say all of it."""
        if "state" not in type(self).model_fields:
            return super().__repr__()
        told = {name: getattr(self, name, None) for name in ("id", "public_key", "name", "state")}
        words = [f"{name}={value!r}" for name, value in told.items() if value]
        return f"{type(self).__name__}({', '.join(words)})"


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
