"""Settings of what runs in sandboxes (jobs, sessions, services) and of what it may reach outside."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sandboxer.backends.contract import Trust
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.work.jobs.policy import JobPolicy
from sandboxer.work.services.specs import DomainPolicy


class WorkSettings(BaseModel):
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


class AccessSettings(BaseModel):
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

    @property
    def highest_trust(self) -> Trust:
        return Trust(self.trust_max)

    @property
    def never_reached(self) -> tuple[IPv4Network | IPv6Network, ...]:
        try:
            return tuple(ip_network(text) for text in self.egress_never)
        except ValueError as error:
            raise InvalidRequest(field="egress_never", why=str(error)) from None
