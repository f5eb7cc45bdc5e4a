"""A profile is a named, versioned recipe for sandboxes, in a YAML file of its own.

Everything in it is checked when it is loaded, so that a create never meets an invalid profile.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from sandboxer.backends.contract import Capability, Resources, Trust, Wall
from sandboxer.hosts.routes.records import ANYTHING, Constraints, IsolationLevel, Strategy
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.yaml_fields import Fields, read_fields


class Checkpoint(StrEnum):
    """What a snapshot of it must be able to keep."""

    NONE = "none"
    FILES = "files"
    MEMORY = "memory"


class NetworkDefault(StrEnum):
    DENY = "deny"
    ALLOW = "allow"
    # What serves packages, and nothing else.
    PACKAGES = "packages"


class NetworkMost(StrEnum):
    # What whoever creates a sandbox may ask for, at most.
    NONE = "none"
    OPEN = "open"


class WorkspaceMode(StrEnum):
    # A copy of the caller's files, or the sandbox's disk is the original.
    MIRROR = "mirror"
    REMOTE_CANONICAL = "remote-canonical"

    @classmethod
    def _missing_(cls, value: object) -> WorkspaceMode | None:
        # As callers say it.
        return cls.REMOTE_CANONICAL if value == "remote" else None


class WorkspaceAccess(StrEnum):
    NONE = "none"
    READ_ONLY = "ro"
    READ_WRITE = "rw"


class Scope(StrEnum):
    SESSION = "session"
    AGENT = "agent"
    SHARED = "shared"


class Genesis(StrEnum):
    # Whether whoever creates or extends must prove two registered wallets, beside the operator's switch.
    NONE = "none"
    REQUIRED = "required"


class Sudo(StrEnum):
    # Who may run everything as root inside by `sudo` (`access/sudo.py`).
    NONE = "none"
    USER = "user"


class Nesting(StrEnum):
    NONE = "none"
    ALLOWED = "allowed"


@value_class
class Setup:
    # Run inside, in order, before the sandbox is ready; each must exit 0.
    commands: tuple[str, ...]
    # Run last; the JSON object it prints becomes the sandbox's `report`.
    report: str
    # A script that runs in the workspace after them (`promises.py`).
    instructions: str
    # Names of the account's secrets, put into the sandbox when it is made (`access/secrets`).
    secret_refs: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.commands or self.report or self.secret_refs)


@value_class
class Profile:
    id: str
    version: str
    title: str
    backend: str
    image: str
    isolation: IsolationLevel
    required_walls: frozenset[Wall]
    network_default: NetworkDefault
    egress: tuple[str, ...]
    workspace_mode: WorkspaceMode
    workspace_access: WorkspaceAccess
    scope: Scope
    ttl_default: timedelta
    ttl_max: timedelta
    # None: never ends for being idle.
    idle_timeout: timedelta | None
    resources: Resources
    resources_max: Resources
    setup: Setup
    placement_prefer: tuple[str, ...]
    placement_fallback: tuple[str, ...]
    reachability: Mapping[str, str]
    metadata: Mapping[str, str]
    genesis: Genesis = Genesis.NONE
    # Programs in it may make namespaces of their own; only who may build images may use it.
    nests: bool = False
    network_most: NetworkMost = NetworkMost.OPEN
    sudo: Sudo = Sudo.NONE
    checkpoint: Checkpoint = Checkpoint.NONE
    # Backends that may make it besides the one above, in order; `any` stands for all that this platform uses.
    fallback: tuple[str, ...] = ()
    constraints: Constraints = ANYTHING

    @property
    def trust(self) -> Trust:
        """The network it needs: `zero` unless it names a way out."""
        return Trust.SEMI if self.network_default is not NetworkDefault.DENY or self.egress else Trust.ZERO


class Profiles:
    """The profiles of this platform."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._by_id = {profile.id: profile for profile in profiles}

    def all(self) -> Sequence[Profile]:
        return sorted(self._by_id.values(), key=lambda profile: profile.id)

    def find(self, profile_id: str) -> Profile | None:
        """None for one that is not in the catalogue any more."""
        return self._by_id.get(profile_id)

    def get(self, profile_id: str) -> Profile:
        """Return a profile. Raises InvalidRequest that suggests the nearest name."""
        if (profile := self._by_id.get(profile_id)) is None:
            # All of them begin alike, which makes no two of them near.
            names = {one.rpartition(".")[2]: one for one in self._by_id}
            close = difflib.get_close_matches(profile_id.rpartition(".")[2], names, n=1)
            known = (
                f"did you mean {names[close[0]]}?" if close else f"known are {', '.join(sorted(self._by_id))}"
            )
            hint = "See which ones there are: GET /v1/profiles."
            raise InvalidRequest(field="profile", why=f"there is no {profile_id}; {known}", hint=hint)
        return profile


def load_profiles(folder: Path) -> Profiles:
    """Load all `*.yaml` of a folder. Raises InvalidRequest naming file:line:column of the first mistake."""
    seen: dict[str, Path] = {}
    profiles = []
    for file in sorted(folder.glob("*.yaml")):
        profile = load_profile(file)
        if profile.id in seen:
            raise InvalidRequest(field=f"{file}:1:1", why=f"{profile.id} is also in {seen[profile.id]}")
        seen[profile.id] = file
        profiles.append(profile)
    return Profiles(profiles)


def load_profile(file: Path) -> Profile:
    top = read_fields(file)
    walls = top.section("isolation")
    network = top.section("network")
    workspace = top.section("workspace", is_optional=True)
    ttl = top.section("ttl")
    resources = top.section("resources", is_optional=True)
    placement = top.section("placement", is_optional=True)
    identity = top.section("identity", is_optional=True)
    default, most, idle = _lifetime(top, ttl)
    least, largest = _sizes(resources)
    fallback, constraints = _route(top.section("route", is_optional=True))
    profile = Profile(
        id=top.text("id", pattern=r"profile\.[a-z0-9][a-z0-9.-]{0,100}"),
        version=top.text("version", pattern=r"[0-9]+(\.[0-9]+){0,2}"),
        title=top.text("title", otherwise=""),
        backend=_backend(top),
        image=top.text("image", pattern=r"[a-z0-9][a-zA-Z0-9._:/@-]{0,254}", otherwise="base"),
        isolation=walls.choice("level", IsolationLevel),
        required_walls=frozenset(walls.choices("require", Wall)),
        network_default=network.choice("default", NetworkDefault),
        egress=network.texts("egress"),
        network_most=network.choice("most", NetworkMost, otherwise=NetworkMost.OPEN),
        workspace_mode=workspace.choice("mode", WorkspaceMode, otherwise=WorkspaceMode.REMOTE_CANONICAL),
        workspace_access=workspace.choice("access", WorkspaceAccess, otherwise=WorkspaceAccess.READ_WRITE),
        scope=_scope(top, workspace),
        ttl_default=default,
        ttl_max=most,
        idle_timeout=idle,
        resources=least,
        resources_max=largest,
        setup=_setup(top.section("setup", is_optional=True)),
        placement_prefer=placement.texts("prefer"),
        placement_fallback=placement.texts("fallback"),
        reachability=top.section("reachability", is_optional=True).words(),
        metadata=top.section("metadata", is_optional=True).words(),
        genesis=identity.choice("genesis", Genesis, otherwise=Genesis.NONE),
        sudo=top.choice("sudo", Sudo, otherwise=Sudo.NONE),
        checkpoint=top.choice("checkpoint", Checkpoint, otherwise=Checkpoint.NONE),
        fallback=fallback,
        constraints=constraints,
        nests=walls.choice("nesting", Nesting, otherwise=Nesting.NONE) is Nesting.ALLOWED,
    )
    for name in excess(profile.resources, profile.resources_max):
        resources.complain_of("default", f"{name} is more than resources.max allows")
    for section in (walls, network, workspace, ttl, resources, placement, identity, top):
        section.finish()
    return profile


def excess(wanted: Resources, most: Resources) -> list[str]:
    """Names of the resources of which more is wanted than allowed."""
    return [name for name in _SIZES if getattr(wanted, name) > getattr(most, name)]


def _backend(top: Fields) -> str:
    # The seeds say `extension`; both words are understood, one at a time.
    name = "extension" if top.has("extension") else "backend"
    return top.text(name, pattern=r"ext\.[a-z0-9-]{1,60}")


def _route(fields: Fields) -> tuple[tuple[str, ...], Constraints]:
    fallback = fields.texts("fallback")
    most = fields.integer("max_sats_per_hour", otherwise=-1)
    constraints = Constraints(
        strategy=fields.choice("strategy", Strategy) if fields.has("strategy") else None,
        region=fields.text("region", otherwise="") or None,
        gpus=fields.integer("gpus", otherwise=0),
        gpu=fields.text("gpu", otherwise="") or None,
        max_msats_per_hour=None if most < 0 else most * 1000,
        capabilities=frozenset(fields.choices("capabilities", Capability)),
    )
    fields.finish()
    return fallback, constraints


def _scope(top: Fields, workspace: Fields) -> Scope:
    """The seeds say `scope_default`, beside the workspace or in it."""
    place = workspace if workspace.has("scope_default") else top
    name = "scope_default" if place.has("scope_default") else "scope"
    return place.choice(name, Scope, otherwise=Scope.SESSION)


def _lifetime(top: Fields, ttl: Fields) -> tuple[timedelta, timedelta, timedelta | None]:
    default, most = ttl.duration("default"), ttl.duration("max")
    assert default is not None
    assert most is not None
    if default > most:
        ttl.complain_of("default", "is longer than ttl.max")
    # The seeds say `idle_reap`, beside the TTL or in it.
    if top.has("idle_reap"):
        return default, most, top.duration("idle_reap", is_optional=True)
    return default, most, ttl.duration("idle_reap" if ttl.has("idle_reap") else "idle", is_optional=True)


# What a sandbox has, and may ask for at most, where its profile says nothing of it.
_USUAL = Resources(vcpus=1, memory_mb=512, disk_mb=1024, pids=256)
_USUAL_MAX = Resources(vcpus=8, memory_mb=16384, disk_mb=65536, pids=4096)
_SIZES = ("vcpus", "memory_mb", "disk_mb", "pids")


def _sizes(fields: Fields) -> tuple[Resources, Resources]:
    """Return what a sandbox has and what it may ask for at most. The seeds name one size for both; null is
    as usual.
    """
    if fields.has("default") or fields.has("max"):
        return _resources(fields.section("default")), _resources(fields.section("max"))
    given: dict[str, float] = {
        "vcpus": fields.number("cpu" if fields.has("cpu") else "vcpus", otherwise=_USUAL.vcpus),
        **{name: fields.integer(name, otherwise=getattr(_USUAL, name)) for name in _SIZES[1:]},
    }
    fields.finish()
    largest = {name: max(value, getattr(_USUAL_MAX, name)) for name, value in given.items()}
    return Resources(**given), Resources(**largest)  # type: ignore[arg-type]


def _resources(fields: Fields) -> Resources:
    resources = Resources(
        vcpus=fields.number("vcpus"),
        memory_mb=fields.integer("memory_mb"),
        disk_mb=fields.integer("disk_mb"),
        pids=fields.integer("pids"),
    )
    fields.finish()
    for name in _SIZES:
        if getattr(resources, name) <= 0:
            fields.complain_of(name, "must be more than 0")
    return resources


def _setup(fields: Fields) -> Setup:
    setup = Setup(
        commands=fields.texts("commands"),
        report=fields.text("report", otherwise=""),
        instructions=fields.text("instructions", otherwise=""),
        secret_refs=fields.texts("secret_refs"),
    )
    fields.finish()
    return setup
