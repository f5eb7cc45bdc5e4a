"""What a caller may ask of this room, in words that no edge owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandboxer.backends.contract import VolumeMount
from sandboxer.kernel.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedResources:
    """None: as the profile says."""

    vcpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A kept disk that a sandbox begins as a copy of, and what is known of it."""

    disk_id: str
    backend: str
    # What the sandbox's record names as its image.
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """None: as the profile (or, for the profile, the platform) says. Durations as written: `30s`, `4h`."""

    profile: str | None = None
    name: str | None = None
    image: str | None = None
    trust: str | None = None
    ttl: str | None = None
    idle_timeout: str | None = None
    resources: WantedResources = field(default_factory=WantedResources)
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    consumer: Mapping[str, object] = field(default_factory=dict)
    # Of a quote whose rates it shall have.
    quote_id: str | None = None
    # Instead of an image. Whoever names it has made sure that the caller may use it.
    origin: Origin | None = None
    # The same. Whether they are free is decided in the transaction of the sandbox's record.
    volumes: tuple[VolumeMount, ...] = ()


def refuse_many_writers(volumes: Sequence[VolumeMount], count: int) -> None:
    """Raises InvalidRequest if so many sandboxes at once want to write to one volume. Pure."""
    for number, one in enumerate(volumes):
        if count > 1 and not one.is_read_only:
            raise InvalidRequest(
                field=f"volumes.{number}.mode",
                why=f"one sandbox alone may write to a volume, not {count}; all of them may read it (ro)",
            )
