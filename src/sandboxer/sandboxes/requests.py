"""What a caller may ask of this room, in words that no edge owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxer.backends.contract import VolumeMount


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
    # The same; and whoever names them writes down with the record that they are attached.
    volumes: tuple[VolumeMount, ...] = ()
