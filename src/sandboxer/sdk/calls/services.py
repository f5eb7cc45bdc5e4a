# Written by scripts/generate-calls from wire/operations/services.py. Do not edit.
"""The calls on services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.services import Domain, DomainList, LogPage, Service, ServicePage, Vault


def create_service(
    *,
    name: str,
    bootstrap: str | None = None,
    command: str | None = None,
    files: Sequence[Mapping[str, Any]] | None = None,
    cwd: str | None = None,
    user: str | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    port: int | None = None,
    health: Mapping[str, Any] | None = None,
    restart: Mapping[str, Any] | None = None,
    idle_s: float | None = None,
    wake: bool | None = None,
    public: bool | None = None,
    drain_s: float | None = None,
    stop_timeout_s: float | None = None,
    profile: str | None = None,
    image: str | None = None,
    trust: str | None = None,
    ttl: str | None = None,
    resources: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    quote_id: str | None = None,
    snapshot: str | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    wait: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[Service]:
    """Make a service: a process with a name that is kept running, in a sandbox of its own."""
    return Call(
        operation="createService",
        method="POST",
        target=target_of("/v1/services", wait=wait),
        answer="sandboxer.wire.services:Service",
        body=json_body(
            {"name": name},
            bootstrap=bootstrap,
            command=command,
            files=files,
            cwd=cwd,
            user=user,
            env=env,
            secrets=secrets,
            port=port,
            health=health,
            restart=restart,
            idle_s=idle_s,
            wake=wake,
            public=public,
            drain_s=drain_s,
            stop_timeout_s=stop_timeout_s,
            profile=profile,
            image=image,
            trust=trust,
            ttl=ttl,
            resources=resources,
            labels=labels,
            quote_id=quote_id,
            snapshot=snapshot,
            volumes=volumes,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=960.0,
    )


def list_services(
    *, state: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[ServicePage]:
    """List services, newest first."""
    return Call(
        operation="listServices",
        method="GET",
        target=target_of("/v1/services", state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.services:ServicePage",
    )


def get_service(service: str) -> Call[Service]:
    """Look at a service."""
    return Call(
        operation="getService",
        method="GET",
        target=target_of("/v1/services/{}", service),
        answer="sandboxer.wire.services:Service",
    )


def change_service(
    service: str,
    *,
    env: Mapping[str, str] | None = None,
    port: int | None = None,
    health: Mapping[str, Any] | None = None,
    restart: Mapping[str, Any] | None = None,
    idle_s: float | None = None,
    wake: bool | None = None,
    public: bool | None = None,
    drain_s: float | None = None,
    stop_timeout_s: float | None = None,
    vcpus: int | None = None,
    wait: bool | None = None,
) -> Call[Service]:
    """Change how it is kept; a change of env or port makes a new process."""
    return Call(
        operation="changeService",
        method="PATCH",
        target=target_of("/v1/services/{}", service, wait=wait),
        answer="sandboxer.wire.services:Service",
        body=json_body(
            {},
            env=env,
            port=port,
            health=health,
            restart=restart,
            idle_s=idle_s,
            wake=wake,
            public=public,
            drain_s=drain_s,
            stop_timeout_s=stop_timeout_s,
            vcpus=vcpus,
        ),
        headers=headers_of(content_type="application/json"),
        timeout_s=960.0,
    )


def remove_service(service: str) -> Call[Service]:
    """Remove it with its sandbox, its disk and its log."""
    return Call(
        operation="removeService",
        method="DELETE",
        target=target_of("/v1/services/{}", service),
        answer="sandboxer.wire.services:Service",
    )


def redeploy_service(
    service: str,
    *,
    bootstrap: str | None = None,
    command: str | None = None,
    files: Sequence[Mapping[str, Any]] | None = None,
    env: Mapping[str, str] | None = None,
    wait: bool | None = None,
) -> Call[Service]:
    """Give it a new program, files or environment; the old process goes on until the new one is well."""
    return Call(
        operation="redeployService",
        method="POST",
        target=target_of("/v1/services/{}/redeploy", service, wait=wait),
        answer="sandboxer.wire.services:Service",
        body=json_body({}, bootstrap=bootstrap, command=command, files=files, env=env),
        headers=headers_of(content_type="application/json"),
        timeout_s=960.0,
    )


def freeze_service(service: str) -> Call[Service]:
    """Put it to sleep: frozen in memory, at the frozen price."""
    return Call(
        operation="freezeService",
        method="POST",
        target=target_of("/v1/services/{}/freeze", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def thaw_service(service: str) -> Call[Service]:
    """Wake it."""
    return Call(
        operation="thawService",
        method="POST",
        target=target_of("/v1/services/{}/thaw", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def stop_service(service: str) -> Call[Service]:
    """End its process and stop its sandbox; the disk is kept."""
    return Call(
        operation="stopService",
        method="POST",
        target=target_of("/v1/services/{}/stop", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def start_service(service: str, *, wait: bool | None = None) -> Call[Service]:
    """Start what was stopped, has failed, or was given up."""
    return Call(
        operation="startService",
        method="POST",
        target=target_of("/v1/services/{}/start", service, wait=wait),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def lock_service(service: str) -> Call[Service]:
    """From now on removing and unlocking it need a second proof."""
    return Call(
        operation="lockService",
        method="POST",
        target=target_of("/v1/services/{}/lock", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def unlock_service(service: str) -> Call[Service]:
    """Let it be removed by a request alone again."""
    return Call(
        operation="unlockService",
        method="POST",
        target=target_of("/v1/services/{}/unlock", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def read_service_logs(
    service: str,
    *,
    tail: int | None = None,
    follow: bool | None = None,
    after: int | None = None,
    last_event_id: str | None = None,
) -> Call[LogPage]:
    """What it printed: the last lines, or as it comes."""
    return Call(
        operation="readServiceLogs",
        method="GET",
        target=target_of("/v1/services/{}/logs", service, tail=tail, follow=follow, after=after),
        answer="sandboxer.wire.services:LogPage",
        headers=headers_of(last_event_id=last_event_id),
    )


def get_service_vault(service: str) -> Call[Vault]:
    """Names in its vault; values never come out."""
    return Call(
        operation="getServiceVault",
        method="GET",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
    )


def set_service_vault(service: str, *, secrets: Mapping[str, str]) -> Call[Vault]:
    """Replace what is in its vault; its next process has it."""
    return Call(
        operation="setServiceVault",
        method="PUT",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
        body=json_body({"secrets": secrets}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def change_service_vault(service: str, *, secrets: Mapping[str, str | None]) -> Call[Vault]:
    """Set or take out single names of its vault."""
    return Call(
        operation="changeServiceVault",
        method="PATCH",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
        body=json_body({"secrets": secrets}),
        headers=headers_of(content_type="application/json"),
    )


def wipe_service_vault(service: str) -> Call[Vault]:
    """Empty its vault."""
    return Call(
        operation="wipeServiceVault",
        method="DELETE",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
    )


def list_service_domains(service: str) -> Call[DomainList]:
    """Domains of its own, proven or not."""
    return Call(
        operation="listServiceDomains",
        method="GET",
        target=target_of("/v1/services/{}/domains", service),
        answer="sandboxer.wire.services:DomainList",
    )


def claim_service_domain(service: str, *, domain: str) -> Call[Domain]:
    """Claim a domain; says what it must serve to prove that it is yours."""
    return Call(
        operation="claimServiceDomain",
        method="POST",
        target=target_of("/v1/services/{}/domains", service),
        answer="sandboxer.wire.services:Domain",
        body=json_body({"domain": domain}),
        headers=headers_of(content_type="application/json"),
    )


def verify_service_domain(service: str, domain: str) -> Call[Domain]:
    """Look whether the domain serves the token; from then on it leads here."""
    return Call(
        operation="verifyServiceDomain",
        method="POST",
        target=target_of("/v1/services/{}/domains/{}/verify", service, domain),
        answer="sandboxer.wire.services:Domain",
    )


def remove_service_domain(service: str, domain: str) -> Call[None]:
    """Let a domain go."""
    return Call(
        operation="removeServiceDomain",
        method="DELETE",
        target=target_of("/v1/services/{}/domains/{}", service, domain),
        answer=NOTHING,
    )
