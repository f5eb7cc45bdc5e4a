# Written by scripts/generate-calls from wire/operations. Do not edit.
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
    network: str | None = None,
    ttl: str | None = None,
    resources: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    quote_id: str | None = None,
    snapshot: str | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    inspect: str | None = None,
    wait: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[Service]:
    """Create a service: a process with a name that is kept running, in a sandbox of its own."""
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
            network=network,
            ttl=ttl,
            resources=resources,
            labels=labels,
            quote_id=quote_id,
            snapshot=snapshot,
            volumes=volumes,
            inspect=inspect,
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
    """Show a service."""
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
    inspect: str | None = None,
    wait: bool | None = None,
) -> Call[Service]:
    """Change a service's settings; a change of env or port starts a new process."""
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
            inspect=inspect,
        ),
        headers=headers_of(content_type="application/json"),
        timeout_s=960.0,
    )


def remove_service(service: str) -> Call[Service]:
    """Delete a service with its sandbox, its disk and its log."""
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
    """Deploy a new program, files or environment; the old process goes on until the new one is healthy."""
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
    """Put a service to sleep: frozen in memory, at the frozen price."""
    return Call(
        operation="freezeService",
        method="POST",
        target=target_of("/v1/services/{}/freeze", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def thaw_service(service: str) -> Call[Service]:
    """Wake a service."""
    return Call(
        operation="thawService",
        method="POST",
        target=target_of("/v1/services/{}/thaw", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def stop_service(service: str) -> Call[Service]:
    """Stop a service: its process ends, its sandbox is stopped, its disk is kept."""
    return Call(
        operation="stopService",
        method="POST",
        target=target_of("/v1/services/{}/stop", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def start_service(service: str, *, wait: bool | None = None) -> Call[Service]:
    """Start a service that was stopped, has failed, or was given up."""
    return Call(
        operation="startService",
        method="POST",
        target=target_of("/v1/services/{}/start", service, wait=wait),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def lock_service(service: str) -> Call[Service]:
    """Lock a service: deleting and unlocking it then need a second proof."""
    return Call(
        operation="lockService",
        method="POST",
        target=target_of("/v1/services/{}/lock", service),
        answer="sandboxer.wire.services:Service",
        is_repeatable=True,
        timeout_s=960.0,
    )


def unlock_service(service: str) -> Call[Service]:
    """Unlock a service."""
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
    """Read a service's log: the last lines, or as it comes."""
    return Call(
        operation="readServiceLogs",
        method="GET",
        target=target_of("/v1/services/{}/logs", service, tail=tail, follow=follow, after=after),
        answer="sandboxer.wire.services:LogPage",
        headers=headers_of(last_event_id=last_event_id),
    )


def get_service_vault(service: str) -> Call[Vault]:
    """List the names in a service's vault; values are never shown."""
    return Call(
        operation="getServiceVault",
        method="GET",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
    )


def set_service_vault(service: str, *, secrets: Mapping[str, str]) -> Call[Vault]:
    """Replace a service's vault; its next process has it."""
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
    """Set or remove single names of a service's vault."""
    return Call(
        operation="changeServiceVault",
        method="PATCH",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
        body=json_body({"secrets": secrets}),
        headers=headers_of(content_type="application/json"),
    )


def wipe_service_vault(service: str) -> Call[Vault]:
    """Empty a service's vault."""
    return Call(
        operation="wipeServiceVault",
        method="DELETE",
        target=target_of("/v1/services/{}/env", service),
        answer="sandboxer.wire.services:Vault",
    )


def list_service_domains(service: str) -> Call[DomainList]:
    """List a service's domains, verified or not."""
    return Call(
        operation="listServiceDomains",
        method="GET",
        target=target_of("/v1/services/{}/domains", service),
        answer="sandboxer.wire.services:DomainList",
    )


def claim_service_domain(service: str, *, domain: str) -> Call[Domain]:
    """Add a domain to a service; says what it must serve to prove that it is yours."""
    return Call(
        operation="claimServiceDomain",
        method="POST",
        target=target_of("/v1/services/{}/domains", service),
        answer="sandboxer.wire.services:Domain",
        body=json_body({"domain": domain}),
        headers=headers_of(content_type="application/json"),
    )


def verify_service_domain(service: str, domain: str) -> Call[Domain]:
    """Verify a domain: once it serves the token, it leads to the service."""
    return Call(
        operation="verifyServiceDomain",
        method="POST",
        target=target_of("/v1/services/{}/domains/{}/verify", service, domain),
        answer="sandboxer.wire.services:Domain",
    )


def remove_service_domain(service: str, domain: str) -> Call[None]:
    """Remove a domain from a service."""
    return Call(
        operation="removeServiceDomain",
        method="DELETE",
        target=target_of("/v1/services/{}/domains/{}", service, domain),
        answer=NOTHING,
    )
