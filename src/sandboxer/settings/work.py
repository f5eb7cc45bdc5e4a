"""Settings of what runs in sandboxes (jobs, sessions, services), of what it may reach outside, and of what is
kept: snapshots, images and volumes, and how long garbage stays.
"""

import configparser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sandboxer.access.egress.policy import Packages, hosts_of
from sandboxer.artifacts.policy import ImagePolicy, KeepPolicy
from sandboxer.backends.contract import Trust
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.work.jobs.records import JobPolicy
from sandboxer.work.services.lifecycle import DomainPolicy

# What tools read for the address of their registry, alike on this machine and in a sandbox.
_MIRRORS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "NPM_CONFIG_REGISTRY", "GOPROXY")


def host_mirrors(environment: Mapping[str, str]) -> Iterator[str]:
    """Finds the mirrors that this machine itself uses. One with a password is not handed to sandboxes."""
    pip = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, OSError, UnicodeError):
        pip.read("/etc/pip.conf")
    known = {"PIP_INDEX_URL": pip.get("global", "index-url", fallback=""), **environment}
    for name in _MIRRORS:
        with suppress(InvalidRequest, ValueError):
            if hosts_of(known.get(name, "")):
                yield f"{name}={known[name]}"


class ComposeHost(BaseModel, frozen=True, extra="forbid"):
    """Says where `ext.compose-ssh` makes its sandboxes. Secrets are named by the paths of their files."""

    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]{1,255}$")]
    key: Path
    # Only a host whose key stands there is spoken to.
    known_hosts: Path
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = "root"
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    remote_dir: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._-]+)+$", max_length=50)] = (
        "/var/lib/sandboxer-stacks"
    )
    # Of the host's engine; None: this platform's own base images are sent there.
    image: str | None = None
    ready_within: str = "5m"
    at_most: Annotated[int, Field(ge=1, le=1000)] = 20
    # Whoever may write a compose file can have the host by it: whom the operator trusts with it; `*`: all.
    accounts: tuple[str, ...] = ()


class WorkSettings(BaseModel, defer_build=True):
    jobs_running: Annotated[
        int, Field(ge=1, le=10_000, description="Jobs of one account that run at once; others wait.")
    ] = 4
    jobs_running_total: Annotated[
        int, Field(ge=1, le=10_000, description="Jobs of all that run at once.")
    ] = 64
    jobs_queued: Annotated[
        int, Field(ge=1, le=100_000, description="Jobs of one account that may wait; more are refused.")
    ] = 100
    jobs_queued_total: Annotated[
        int, Field(ge=1, le=1_000_000, description="Jobs of all that may wait; more are refused.")
    ] = 10_000
    jobs_queued_mb: Annotated[
        int, Field(ge=1, le=1 << 20, description="What the waiting jobs of one account may hold together.")
    ] = 64
    jobs_queued_total_mb: Annotated[
        int, Field(ge=1, le=1 << 20, description="What all waiting jobs may hold together.")
    ] = 1024
    jobs_retention: Annotated[str, Field(description="How long ended jobs and their output are kept.")] = "7d"
    records_retention: Annotated[
        str, Field(description="How long the records of ended sessions and removed services are kept.")
    ] = "30d"
    domain_proof_port: Annotated[
        int, Field(ge=1, le=65535, description="Port at which a customer's own domain must serve its token.")
    ] = 80
    domain_recheck: Annotated[
        str, Field(description="How often a proven domain is asked for its token again.")
    ] = "24h"
    domain_grace: Annotated[
        str, Field(description="How long a domain may fail that before it leads here no more.")
    ] = "72h"

    @property
    def job_policy(self) -> JobPolicy:
        return JobPolicy(
            running_per_account=self.jobs_running,
            running=self.jobs_running_total,
            queued_per_account=self.jobs_queued,
            queued=self.jobs_queued_total,
            queued_bytes_per_account=self.jobs_queued_mb << 20,
            queued_bytes=self.jobs_queued_total_mb << 20,
            retention=parse_duration(self.jobs_retention, field="jobs_retention"),
        )

    @property
    def domain_policy(self) -> DomainPolicy:
        return DomainPolicy(
            every=parse_duration(self.domain_recheck, field="domain_recheck"),
            grace=parse_duration(self.domain_grace, field="domain_grace"),
        )

    @property
    def records_kept_for(self) -> timedelta:
        return parse_duration(self.records_retention, field="records_retention")


class AccessSettings(BaseModel, defer_build=True):
    trust_max: Annotated[
        Literal["zero", "semi"],
        Field(description="The highest trust level there is here; `zero`: no sandbox has a way out."),
    ] = "semi"
    egress_never: Annotated[
        tuple[str, ...],
        Field(
            description="Networks that no sandbox reaches, whatever its rules say, beside private ones and"
            " this host's own addresses: say, the public address of a router before it. Comma-separated."
        ),
    ] = ()

    package_hosts: Annotated[
        tuple[str, ...],
        Field(
            description="Hosts that serve packages beside the usual registries, for network `packages`."
            " Comma-separated."
        ),
    ] = ()
    package_mirrors: Annotated[
        tuple[str, ...],
        Field(
            description="Mirrors of packages, as the variables that tools inside read:"
            " PIP_INDEX_URL=https://…/simple. Comma-separated. Beside them those of this server's own"
            " environment and /etc/pip.conf hold."
        ),
    ] = ()

    @property
    def packages(self) -> Packages:
        mirrors: dict[str, str] = {}
        for text in self.package_mirrors:
            name, _, address = text.partition("=")
            if not hosts_of(address):
                raise InvalidRequest(
                    field="package_mirrors",
                    why=f"{text!r} is not NAME=https://…, as in PIP_INDEX_URL=https://…",
                )
            mirrors[name] = address
        found = Packages(hosts=self.package_hosts, mirrors=mirrors)
        # Said now, and not to the first who wants packages.
        assert found.rules
        return found

    @property
    def highest_trust(self) -> Trust:
        return Trust(self.trust_max)

    @property
    def never_reached(self) -> tuple[IPv4Network | IPv6Network, ...]:
        try:
            return tuple(ip_network(text) for text in self.egress_never)
        except ValueError as error:
            raise InvalidRequest(field="egress_never", why=str(error)) from None


class ArtifactSettings(BaseModel, defer_build=True):
    retention: Annotated[str, Field(description="How long stopped and failed sandboxes are kept.")] = "7d"
    garbage_grace: Annotated[
        str, Field(description="How long what nobody needs stays (older builds of images).")
    ] = "1d"
    quarantine_grace: Annotated[
        str,
        Field(
            description="How long disks and processes without a record stay (another database's, a crash's)"
            " before they are removed; time in which no server ran does not count."
        ),
    ] = "7d"
    snapshots_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Snapshots that one account may keep.")
    ] = 100
    snapshots_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the snapshots of one account may hold together.")
    ] = 100 * 1024
    images_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Images that one account may publish.")
    ] = 100
    images_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the images of one account may hold together.")
    ] = 100 * 1024
    image_upload_mb: Annotated[
        int, Field(ge=1, le=1 << 20, description="Largest archive that may be imported as an image.")
    ] = 8 * 1024
    image_makers: Annotated[
        Literal["nobody", "owner", "everyone"],
        Field(description="Who may build images from Dockerfiles and fetch them from registries."),
    ] = "owner"
    default_registry: Annotated[
        str,
        Field(description="Where images whose names say no registry (`python:3.12`) are; empty: nowhere."),
    ] = "docker.io"
    build_cache_mb: Annotated[
        int,
        Field(
            ge=0,
            le=1 << 20,
            description="Size of the volume that keeps an account's layers between builds; 0: none is kept.",
        ),
    ] = 8 * 1024
    build_disk_mb: Annotated[
        int,
        Field(ge=256, le=262_144, description="Disk of the sandbox in which an image is built or fetched."),
    ] = 8 * 1024
    volumes_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Volumes that one account may have.")
    ] = 100
    volumes_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the volumes of one account may be together.")
    ] = 100 * 1024

    @property
    def retention_time(self) -> timedelta:
        return parse_duration(self.retention, field="retention")

    @property
    def garbage_kept_for(self) -> timedelta:
        return parse_duration(self.garbage_grace, field="garbage_grace")

    @property
    def quarantine_time(self) -> timedelta:
        return parse_duration(self.quarantine_grace, field="quarantine_grace")

    @property
    def snapshot_policy(self) -> KeepPolicy:
        return KeepPolicy(
            per_account=self.snapshots_per_account,
            bytes_per_account=self.snapshots_mb_per_account << 20,
            retention=self.retention_time,
        )

    @property
    def image_policy(self) -> ImagePolicy:
        return ImagePolicy(
            per_account=self.images_per_account,
            bytes_per_account=self.images_mb_per_account << 20,
            retention=self.retention_time,
            upload_bytes=self.image_upload_mb << 20,
        )

    @property
    def volume_policy(self) -> KeepPolicy:
        return KeepPolicy(
            per_account=self.volumes_per_account,
            bytes_per_account=self.volumes_mb_per_account << 20,
            retention=self.retention_time,
        )
