"""Requests for sandboxes, and the pure decisions that turn one into the record of a sandbox or a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.backends.contract import Backend, Fingerprint, Resources, Trust, VolumeMount
from sandboxer.backends.shared import ServesSome
from sandboxer.hosts.routes.policy import given
from sandboxer.hosts.routes.records import ANYTHING, LEVELS, Constraints, level_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration, parse_duration
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotAvailable, Unavailable
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import Checkpoint, NetworkMost, Profile, excess
from sandboxer.sandboxes.promises import LOCAL, Wishes, promised, sharing, unshared
from sandboxer.sandboxes.records import AtEnd, Inception, Sandbox
from sandboxer.sandboxes.terms import Terms


@value_class
class WantedResources:
    """The resources that were asked for. None: as the profile says."""

    vcpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    pids: int | None = None


@value_class
class Origin:
    """A kept disk that a new sandbox's disk is copied from."""

    disk_id: str
    backend: str
    # What the sandbox's record names as its image.
    image: str


@value_class
class WantedVolume:
    """A volume as a caller names it."""

    # Its id, or its name.
    volume: str
    path: str
    is_read_only: bool = False


@value_class
class WantedSandbox:
    """What everyone who needs a sandbox may say of it. None: as the profile says, or the platform for the
    profile itself.
    """

    profile: str | None = None
    trust: str | None = None
    # `none`, `packages`, `open`, or `allow:` and hosts.
    network: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    # It was checked that the caller may use them; whether they are free is decided in the transaction of the
    # record.
    volumes: tuple[VolumeMount, ...] = ()


@value_class
class CreateRequest(WantedSandbox):
    """What a caller asks for. Durations are texts such as `30s` and `4h`."""

    name: str | None = None
    image: str | None = None
    ttl: str | None = None
    idle_timeout: str | None = None
    resources: WantedResources = field(default_factory=WantedResources)
    labels: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    consumer: Mapping[str, object] = field(default_factory=dict)
    # The id of a quote whose rates it shall have.
    quote_id: str | None = None
    # These names are looked up at admission and become `origin` and `volumes`.
    snapshot: str | None = None
    wanted_volumes: tuple[WantedVolume, ...] = ()
    # Used instead of an image; it was checked that the caller may use it.
    origin: Origin | None = None
    at_end: AtEnd = AtEnd.DESTROY
    # What it may do from inside; it is granted in the transaction of the record.
    inception: Inception | None = None
    wishes: Wishes = field(default_factory=Wishes)
    # What it wants of the backend that makes it.
    route: Constraints = ANYTHING
    # The backend that its volumes lie in; filled in at admission.
    lies_in: str | None = None


_NO_WISHES = Wishes()


def name_within(name: str | None) -> str | None:
    """Return the name of a sandbox that belongs to a session or a service of this name: no two sandboxes of
    an account have the same, and theirs are for their owner to give.
    """
    return None if name is None else f"{name[:56]}-{new_id('sbx')[-6:]}"


def refuse_many_writers(volumes: Sequence[VolumeMount], count: int) -> None:
    """Raise InvalidRequest if several sandboxes want to write to one volume. Pure."""
    for number, one in enumerate(volumes):
        if count > 1 and not one.is_read_only:
            raise InvalidRequest(
                field=f"volumes.{number}.mode",
                why=f"one sandbox alone may write to a volume, not {count}; all of them may read it (ro)",
            )


def plan(
    request: CreateRequest,
    profile: Profile,
    caller: Caller,
    *,
    sandbox_id: str,
    now: datetime,
    host_names: Sequence[str] = (LOCAL,),
) -> Sandbox:
    """Return the record of the requested sandbox. Raises InvalidRequest naming the field."""
    trust = _trust(request, profile)
    planned = Sandbox(
        id=sandbox_id,
        version=0,
        account=caller.account,
        created_by=caller.public_key,
        name=request.name,
        state=State.REQUESTED,
        reason="requested",
        profile=profile.id,
        profile_version=profile.version,
        backend=profile.backend,
        image=_image(request, profile),
        trust=trust,
        network=request.network,
        resources=wanted_resources(request.resources, profile),
        env=dict(request.env),
        labels=dict(request.labels),
        inputs=dict(request.inputs),
        consumer=dict(request.consumer),
        ttl=_ttl(request, profile),
        ttl_max=profile.ttl_max,
        idle_timeout=_idle_timeout(request, profile),
        created_at=now,
        state_since=now,
        terms=Terms(quote_id=request.quote_id),
        origin=None if request.origin is None else request.origin.disk_id,
        volumes=request.volumes,
        at_end=request.at_end,
        inception=request.inception,
        promises=promised(
            request.wishes,
            profile,
            inputs=request.inputs,
            trust=trust,
            is_copy=request.origin is not None,
            volumes=request.volumes,
            host_names=host_names,
        ),
    )
    kind = _kind_of(planned)
    if request.route != ANYTHING:
        kind = {**kind, "route": request.route.as_list()}
    shared_by = sharing(request.wishes, request.consumer, kind)
    answered = (*unshared(request.wishes, shared_by), *planned.promises.answered)
    return replace(planned, promises=replace(planned.promises, shared_by=shared_by, answered=answered))


def _kind_of(sandbox: Sandbox) -> Mapping[str, object]:
    """Return what two requests have to say alike to be answered with one sandbox."""
    alike = ("account", "profile", "image", "trust", "network", "resources", "env", "inputs", "origin")
    lives = ("name", "labels", "ttl", "idle_timeout", "at_end", "inception", "terms")
    return {name: getattr(sandbox, name) for name in (*alike, *lives, "volumes", "promises")}


def check_trust(sandbox: Sandbox, profile: Profile, highest: Trust) -> None:
    """Raise Forbidden for a network that the operator or the profile does not allow."""
    if sandbox.trust is Trust.SEMI and profile.network_most is NetworkMost.NONE:
        raise Forbidden(
            why=f"sandboxes of {profile.id} have no network",
            hint="Ask for network `none`, or choose another profile.",
        )
    if sandbox.trust is Trust.SEMI and highest is Trust.ZERO:
        raise Forbidden(
            why="no sandbox here has a network, and"
            f" {sandbox.network or sandbox.profile} needs one: the highest trust level is `zero`",
            hint="Ask for network `none`; only the operator can allow more (SANDBOXER_TRUST_MAX).",
        )


class Makers(StrEnum):
    """Who may build images from Dockerfiles and fetch them from registries."""

    NOBODY = "nobody"
    OWNER = "owner"
    EVERYONE = "everyone"


def check_maker(caller: Caller, makers: Makers, what: str) -> None:
    """Raise Forbidden unless this caller may make images."""
    if makers is Makers.EVERYONE or (makers is Makers.OWNER and caller.is_owner):
        return
    raise Forbidden(
        why=f"{what} is for {'nobody' if makers is Makers.NOBODY else 'the operator'} here",
        reason="image_makers",
        hint="Ask the operator to publish the image, or to allow it (SANDBOXER_IMAGE_MAKERS=everyone).",
    )


def check_served(caller: Caller, profile: Profile, backend: Backend | None) -> None:
    """Raise Forbidden unless the backend of this profile makes sandboxes for this caller."""
    if isinstance(backend, ServesSome) and not (caller.is_owner or backend.serves(caller.account)):
        raise Forbidden(
            why=f"{profile.id} is made by {profile.backend}, which the operator opens to accounts by name",
            reason="backend_accounts",
            hint="Ask the operator to name your account, or take another profile (GET /v1/profiles).",
        )


def check_backend(profile: Profile, fingerprint: Fingerprint | None, wishes: Wishes = _NO_WISHES) -> None:
    """Raise unless this backend can serve the profile, and what is wished of its walls, on this host now."""
    if fingerprint is None:
        raise NotAvailable(
            what=f"backend {profile.backend}",
            why=f"{profile.id} is made by it, and this platform does not use it",
            capability=profile.backend,
            hint="Its operator adds it (SANDBOXER_BACKENDS). Other profiles: GET /v1/profiles.",
        )
    if not fingerprint.healthy:
        # What it lacks, and where it stands, is told to the operator alone.
        raise Unavailable(
            why=f"backend {profile.backend} cannot work here (its host is not fit)",
            hint="Its operator sees why (GET /v1/host). Other profiles: GET /v1/profiles.",
        )
    words = given(fingerprint, ())
    if missing := sorted(wall.value for wall in profile.required_walls if f"wall:{wall}" not in words):
        why = f"{profile.backend} cannot give these walls on this host: {', '.join(missing)}"
        raise NotAvailable(what=f"profile {profile.id}", why=why)
    best = level_of(fingerprint)
    level = max(profile.isolation, wishes.isolation or profile.isolation, key=LEVELS.index)
    if LEVELS.index(level) > LEVELS.index(best):
        raise NotAvailable(
            what=f"isolation level {level}",
            why=f"{profile.backend} gives {best}",
            promise="isolation",
            hint=f"Ask for `{best}` or less, or for a profile of a stronger backend (GET /v1/profiles).",
        )


def check_checkpoint(
    profile: Profile, wishes: Wishes, fingerprint: Fingerprint | None, *, keeps_files: bool
) -> None:
    """Raise NotAvailable for a snapshot that this backend could not take."""
    wanted = wishes.checkpoint or profile.checkpoint
    keeps_memory = fingerprint is not None and fingerprint.facts.get("checkpoint") == Checkpoint.MEMORY
    if wanted is Checkpoint.NONE or keeps_memory or (wanted is Checkpoint.FILES and keeps_files):
        return
    has = Checkpoint.FILES if keeps_files else Checkpoint.NONE
    raise NotAvailable(
        what=f"checkpoint {wanted}",
        why=f"snapshots of {profile.backend} keep {'files alone' if keeps_files else 'nothing'}",
        promise="checkpoint",
        hint=f"Ask for `{has}`.",
    )


def _image(request: CreateRequest, profile: Profile) -> str:
    if (origin := request.origin) is None:
        return request.image or profile.image
    if request.image not in (None, origin.image):
        raise InvalidRequest(field="image", why=f"what it begins as a copy of has its own, {origin.image}")
    return origin.image


def _trust(request: CreateRequest, profile: Profile) -> Trust:
    try:
        trust = profile.trust if request.trust is None else Trust(request.trust)
    except ValueError:
        raise InvalidRequest(field="trust", why=f"{request.trust!r} is neither zero nor semi") from None
    if request.network is None:
        return trust
    needed = Trust.ZERO if request.network == "none" else Trust.SEMI
    if request.trust is not None and trust is not needed:
        raise InvalidRequest(
            field="network", why=f"it is {needed.value} trust, and `trust` asks for {trust.value}"
        )
    return needed


def wanted_resources(wanted: WantedResources, profile: Profile) -> Resources:
    """Return the resources asked for, with the profile's own as defaults.

    Raises InvalidRequest beyond its maximum.
    """
    names = ("vcpus", "memory_mb", "disk_mb", "pids")
    given = {name: getattr(wanted, name) for name in names if getattr(wanted, name) is not None}
    for name, value in given.items():
        if value <= 0:
            raise InvalidRequest(field=f"resources.{name}", why=f"{value} is not more than 0")
    resources = replace(profile.resources, **given)
    for name in excess(resources, profile.resources_max):
        most = getattr(profile.resources_max, name)
        unit = " MB" if name.endswith("_mb") else ""
        why = f"{getattr(resources, name)}{unit} is more than {profile.id} allows ({most}{unit})"
        raise InvalidRequest(field=f"resources.{name}", why=why)
    return resources


def _ttl(request: CreateRequest, profile: Profile) -> timedelta:
    if request.ttl is None:
        return profile.ttl_default
    if (ttl := parse_duration(request.ttl, field="ttl")) > profile.ttl_max:
        raise InvalidRequest(
            field="ttl",
            why=f"{request.ttl} is more than {profile.id} allows ({format_duration(profile.ttl_max)})",
        )
    return ttl


def _idle_timeout(request: CreateRequest, profile: Profile) -> timedelta | None:
    if request.idle_timeout is None:
        return profile.idle_timeout
    return parse_duration(request.idle_timeout, field="idle_timeout")


def renamed(sandbox: Sandbox, sandbox_id: str) -> Sandbox:
    """Return the same record under the id of a sandbox that exists already."""
    return replace(sandbox, id=sandbox_id)
