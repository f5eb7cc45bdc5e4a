"""What a caller may ask of services, in words that no edge owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.work.services.specs import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    # Below /workspace unless it is absolute.
    path: str
    content: bytes
    mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewService:
    name: str
    spec: Spec
    sandbox: CreateRequest
    files: tuple[NewFile, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeploy:
    """None: as it is."""

    bootstrap: str | None = None
    command: str | None = None
    env: Mapping[str, str] | None = None
    files: tuple[NewFile, ...] = ()
