"""What this platform can do, for a caller that has no key yet."""

from __future__ import annotations

from pydantic import Field

from sandboxer.wire.words import Answer


class Lack(Answer):
    what: str
    why: str
    remedy: str


class BackendCapabilities(Answer):
    name: str
    healthy: bool
    capabilities: list[str]
    walls: list[str]
    lacks: list[Lack] = Field(default_factory=list)


class SignatureVersion(Answer):
    name: str
    canonical: str
    headers: list[str]


class Capabilities(Answer):
    name: str = "sandboxer"
    version: str
    api: str = "v1"
    backends: list[BackendCapabilities]
    trust_levels: list[str]
    features: list[str]
    signatures: list[SignatureVersion]
    limits: dict[str, int | float]
