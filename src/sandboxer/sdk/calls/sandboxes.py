# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on sandboxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import EVENT_STREAM, NOTHING, STREAM_TIMEOUT_S, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.sandboxes import (
        DestroyedSandbox,
        Expired,
        Reachability,
        Sandbox,
        SandboxPage,
        SandboxTree,
        Usage,
    )


def create_sandbox(
    *,
    profile: str | None = None,
    name: str | None = None,
    image: str | None = None,
    trust: str | None = None,
    network: str | None = None,
    ttl: str | None = None,
    idle_timeout: str | None = None,
    resources: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    consumer: Mapping[str, Any] | None = None,
    quote_id: str | None = None,
    snapshot: str | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    inception: Mapping[str, Any] | None = None,
    scope: str | None = None,
    workspace: Mapping[str, Any] | None = None,
    setup: Mapping[str, Any] | None = None,
    setup_metadata: Mapping[str, Any] | None = None,
    placement: Mapping[str, Any] | None = None,
    isolation: str | None = None,
    checkpoint: str | None = None,
    route: Mapping[str, Any] | None = None,
    wait: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[Sandbox]:
    """Create a sandbox."""
    return Call(
        operation="createSandbox",
        method="POST",
        target=target_of("/v1/sandboxes", wait=wait),
        answer="sandboxer.wire.sandboxes:Sandbox",
        body=json_body(
            {},
            profile=profile,
            name=name,
            image=image,
            trust=trust,
            network=network,
            ttl=ttl,
            idle_timeout=idle_timeout,
            resources=resources,
            env=env,
            labels=labels,
            inputs=inputs,
            consumer=consumer,
            quote_id=quote_id,
            snapshot=snapshot,
            volumes=volumes,
            inception=inception,
            scope=scope,
            workspace=workspace,
            setup=setup,
            setup_metadata=setup_metadata,
            placement=placement,
            isolation=isolation,
            checkpoint=checkpoint,
            route=route,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=180.0,
    )


def list_sandboxes(
    *,
    state: str | None = None,
    label: Sequence[str] | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[SandboxPage]:
    """List sandboxes, newest first."""
    return Call(
        operation="listSandboxes",
        method="GET",
        target=target_of("/v1/sandboxes", state=state, label=label, cursor=cursor, limit=limit),
        answer="sandboxer.wire.sandboxes:SandboxPage",
    )


def get_sandbox_tree() -> Call[SandboxTree]:
    """Show the sandboxes of this account, those that they made from inside, and what was spent."""
    return Call(
        operation="getSandboxTree",
        method="GET",
        target="/v1/tree",
        answer="sandboxer.wire.sandboxes:SandboxTree",
    )


def expire_sandboxes(*, apply: bool | None = None) -> Call[Expired]:
    """End sandboxes that are past their time (owner)."""
    return Call(
        operation="expireSandboxes",
        method="POST",
        target=target_of("/v1/sandboxes/expire", apply=apply),
        answer="sandboxer.wire.sandboxes:Expired",
    )


def get_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Show a sandbox."""
    return Call(
        operation="getSandbox",
        method="GET",
        target=target_of("/v1/sandboxes/{}", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
    )


def change_sandbox(
    sandbox_id: str, *, name: str | None = None, labels: Mapping[str, str | None] | None = None
) -> Call[Sandbox]:
    """Change the name and the labels of a sandbox."""
    return Call(
        operation="changeSandbox",
        method="PATCH",
        target=target_of("/v1/sandboxes/{}", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        body=json_body({}, name=name, labels=labels),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def destroy_sandbox(sandbox_id: str) -> Call[DestroyedSandbox]:
    """Delete a sandbox; deleted already is success."""
    return Call(
        operation="destroySandbox",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}", sandbox_id),
        answer="sandboxer.wire.sandboxes:DestroyedSandbox",
        is_repeatable=True,
    )


def recreate_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Give a sandbox a new disk from its image; the id stays."""
    return Call(
        operation="recreateSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/recreate", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def lock_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Lock a sandbox: deleting, recreating and unlocking it then need a second proof."""
    return Call(
        operation="lockSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/lock", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def unlock_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Unlock a sandbox."""
    return Call(
        operation="unlockSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/unlock", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def stop_sandbox(sandbox_id: str, *, memory: bool | None = None) -> Call[Sandbox]:
    """Stop a sandbox: its processes end or are kept with its memory, its disk is kept."""
    return Call(
        operation="stopSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/stop", sandbox_id, memory=memory),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def resume_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Start a stopped sandbox again, on its own disk; what was kept of its memory goes on."""
    return Call(
        operation="resumeSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/resume", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def freeze_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Freeze a sandbox: every process is paused in memory."""
    return Call(
        operation="freezeSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/freeze", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def thaw_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Let a frozen sandbox go on."""
    return Call(
        operation="thawSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/thaw", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def extend_ttl(
    sandbox_id: str, *, duration: str, quote_id: str | None = None, idempotency_key: str | None = None
) -> Call[Sandbox]:
    """Give a sandbox more time."""
    return Call(
        operation="extendTtl",
        method="PATCH",
        target=target_of("/v1/sandboxes/{}/ttl", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        body=json_body({"duration": duration}, quote_id=quote_id),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def get_reachability(sandbox_id: str) -> Call[Reachability]:
    """Show whether a sandbox answers, and by which ways."""
    return Call(
        operation="getReachability",
        method="GET",
        target=target_of("/v1/sandboxes/{}/reachability", sandbox_id),
        answer="sandboxer.wire.sandboxes:Reachability",
    )


def get_usage(sandbox_id: str) -> Call[Usage]:
    """Show what a sandbox uses now."""
    return Call(
        operation="getUsage",
        method="GET",
        target=target_of("/v1/sandboxes/{}/usage", sandbox_id),
        answer="sandboxer.wire.sandboxes:Usage",
    )


def boost_sandbox(sandbox_id: str, *, vcpus: int) -> Call[Sandbox]:
    """Give a sandbox more CPUs, and 2 GB of memory with each, at once and without a restart."""
    return Call(
        operation="boostSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/boost", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        body=json_body({"vcpus": vcpus}),
        headers=headers_of(content_type="application/json"),
    )


def unboost_sandbox(sandbox_id: str) -> Call[Sandbox]:
    """Take back what a boost gave a sandbox; not boosted is success."""
    return Call(
        operation="unboostSandbox",
        method="POST",
        target=target_of("/v1/sandboxes/{}/unboost", sandbox_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
    )


def follow_events(
    sandbox_id: str, *, after: int | None = None, follow: bool | None = None, last_event_id: int | None = None
) -> Call[None]:
    """Follow what happens to a sandbox: what is known from an id on, then what comes."""
    return Call(
        operation="followEvents",
        method="GET",
        target=target_of("/v1/sandboxes/{}/events", sandbox_id, after=after, follow=follow),
        answer=NOTHING,
        headers=headers_of(accept=EVENT_STREAM, last_event_id=last_event_id),
        timeout_s=STREAM_TIMEOUT_S,
    )
