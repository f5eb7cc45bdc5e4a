"""The platform, with asyncio: the object a program starts with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandboxer.sdk.aio.line import AsyncLine, AsyncScope, items
from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.bodies import VolumesIn, labelled
from sandboxer.sdk.call import Call, lazily, new_idempotency_key
from sandboxer.sdk.calls import catalogue, platform, sandboxes
from sandboxer.sdk.confirmation import Confirmer
from sandboxer.sdk.credentials import Credentials, find_credentials
from sandboxer.sdk.exchange import Payer

if TYPE_CHECKING:
    from sandboxer.sdk.aio.access import AsyncAccountEgress, AsyncSecrets, AsyncSsh
    from sandboxer.sdk.aio.accounts import AsyncOperator, AsyncOwnAccount, AsyncWallets
    from sandboxer.sdk.aio.artifacts import AsyncImages, AsyncSnapshots, AsyncVolumes
    from sandboxer.sdk.aio.code import AsyncCode, AsyncJobs, AsyncLanguages, AsyncSessions
    from sandboxer.sdk.aio.payments import AsyncGiftCards, AsyncInvoices, AsyncPayments
    from sandboxer.sdk.aio.platform import AsyncHostView, AsyncKeys, AsyncStatus, AsyncWebhooks
    from sandboxer.sdk.aio.services import AsyncServices
    from sandboxer.sdk.aio.tools import AsyncTools
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.catalogue import Profile
    from sandboxer.wire.platform import Capabilities, Discovery
    from sandboxer.wire.routes import RouteExplanation

T = TypeVar("T")
# Imported when it is first asked for: a command that needs one noun should not pay for the models of all.
NOUNS = {
    "keys": "platform:AsyncKeys",
    "code": "code:AsyncCode",
    "jobs": "code:AsyncJobs",
    "sessions": "code:AsyncSessions",
    "host": "platform:AsyncHostView",
    "wallets": "accounts:AsyncWallets",
    "account": "accounts:AsyncOwnAccount",
    "operator": "accounts:AsyncOperator",
    "secrets": "access:AsyncSecrets",
    "egress": "access:AsyncAccountEgress",
    "ssh": "access:AsyncSsh",
    "services": "services:AsyncServices",
    "webhooks": "platform:AsyncWebhooks",
    "snapshots": "artifacts:AsyncSnapshots",
    "images": "artifacts:AsyncImages",
    "volumes": "artifacts:AsyncVolumes",
    "languages": "code:AsyncLanguages",
    "status": "platform:AsyncStatus",
    "payments": "payments:AsyncPayments",
    "gift_cards": "payments:AsyncGiftCards",
    "invoices": "payments:AsyncInvoices",
    "tools": "tools:AsyncTools",
}


class AsyncSandboxer(AsyncScope):
    """A program starts with this: it speaks to one platform, with one key.

    Examples:
        >>> async with AsyncSandboxer() as client, await client.create(ttl="10m") as sandbox:
        ...     print((await sandbox.exec("echo hi")).stdout)
    """

    keys: AsyncKeys
    code: AsyncCode
    jobs: AsyncJobs
    sessions: AsyncSessions
    host: AsyncHostView
    wallets: AsyncWallets
    account: AsyncOwnAccount
    operator: AsyncOperator
    secrets: AsyncSecrets
    egress: AsyncAccountEgress
    ssh: AsyncSsh
    services: AsyncServices
    webhooks: AsyncWebhooks
    snapshots: AsyncSnapshots
    images: AsyncImages
    volumes: AsyncVolumes
    languages: AsyncLanguages
    status: AsyncStatus
    payments: AsyncPayments
    gift_cards: AsyncGiftCards
    invoices: AsyncInvoices
    tools: AsyncTools

    def __init__(
        self,
        *,
        url: str | None = None,
        public_key: str | None = None,
        secret_key: str | None = None,
        api_key: str | None = None,
        owner_file: Path | str | None = None,
        timeout_s: float = 60.0,
        confirm: Confirmer | None = None,
        wallet: Payer | None = None,
    ) -> None:
        """Without arguments, the key is found in the environment or in an `owner.json` (`sdk.credentials`).
        `api_key` is a bearer token (sk_…), sent instead of signing.

        `confirm` signs where the platform asks for a second proof (`sdk.confirmation`).

        `wallet` pays what is asked for (`sdk.payers`); the key it is given with that is used from then on.
        """
        credentials = find_credentials(
            url=url,
            public_key=public_key,
            secret_key=secret_key,
            api_key=api_key,
            owner_file=owner_file,
            is_optional=wallet is not None,
        )
        self._line = AsyncLine(credentials, timeout_s=timeout_s, confirm=confirm, payer=wallet)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            made = lazily(self, name, NOUNS, __package__)(self._line)
            setattr(self, name, made)
            return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._line.url}>"

    async def _leave(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; sandboxes go on."""
        await self._line.close()

    @property
    def credentials(self) -> Credentials:
        """Calls are signed with these. A key that came with a payment is shown once: keep it."""
        return self._line.signer.credentials

    async def send(self, call: Call[T]) -> T:
        """Sends any call of `sandboxer.sdk.calls` and returns the model of its answer."""
        return await self._line.send(call)

    async def create(
        self,
        *,
        profile: str | None = None,
        name: str | None = None,
        image: str | None = None,
        trust: str | None = None,
        network: str | None = None,
        ttl: str | None = None,
        idle_timeout: str | None = None,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        consumer: Mapping[str, Any] | None = None,
        quote_id: str | None = None,
        snapshot: str | None = None,
        volumes: VolumesIn | None = None,
        inception: Mapping[str, Any] | None = None,
        scope: str | None = None,
        workspace: Mapping[str, str] | None = None,
        setup: Mapping[str, Any] | None = None,
        setup_metadata: Mapping[str, Any] | None = None,
        placement: Mapping[str, Any] | None = None,
        isolation: str | None = None,
        checkpoint: str | None = None,
        route: Mapping[str, Any] | None = None,
        wait: bool = True,
        idempotency_key: str | None = None,
    ) -> AsyncSandbox:
        """Makes a sandbox, ready unless `wait` is False; `quote_id` of `account.quote` locks its rates.

        `network` is `none`, `packages` (what pip, npm and their kin need), `open`, or `allow:` and hosts.
        With a `snapshot` it begins as a copy of that; `volumes` has `volume`, `path` and `mode` of each.
        `inception` lets programs in it make sandboxes: `budget_sats`, `depth`, `slots`, `scopes` and
        `on_parent_end`. The rest are promises: each is kept or refused, or answered in `info.answered`.

        Examples:
            >>> print(await client.create(name="dev", profile="profile.agent-dev", ttl="2h"))
        """
        call = sandboxes.create_sandbox(
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
            wait=None if wait else False,
            idempotency_key=idempotency_key or new_idempotency_key(),
        )
        info = await self._line.send(call)
        return AsyncSandbox(self._line, info.id, info)

    async def get(self, name_or_id: str) -> AsyncSandbox:
        """Finds a sandbox by its name, its id, or as much of its id as no other has.

        Examples:
            >>> sandbox = await client.get("dev")
            >>> print(sandbox)
        """
        info = await self._line.send(sandboxes.get_sandbox(name_or_id))
        return AsyncSandbox(self._line, info.id, info)

    def sandbox(self, sandbox_id: str) -> AsyncSandbox:
        """Returns the sandbox with this id, without asking the platform first."""
        return AsyncSandbox(self._line, sandbox_id)

    def list(
        self, *, state: str | None = None, labels: Mapping[str, str] | None = None, limit: int | None = None
    ) -> AsyncIterator[wire.Sandbox]:
        """Yields all of them, page by page; `limit` is the size of a page."""
        label = labelled(labels)
        return items(
            self._line,
            lambda cursor: sandboxes.list_sandboxes(state=state, label=label, cursor=cursor, limit=limit),
            lambda page: page.sandboxes,
        )

    async def tree(self) -> Sequence[wire.TreeEntry]:
        """Returns the sandboxes of this account and those made from inside them, each before what it made."""
        return (await self._line.send(sandboxes.get_sandbox_tree())).sandboxes

    async def profiles(self) -> Sequence[Profile]:
        """Returns the recipes that `create(profile=…)` takes."""
        return (await self._line.send(catalogue.list_profiles())).profiles

    async def explain_route(
        self,
        profile: str,
        *,
        isolation: str | None = None,
        strategy: str | None = None,
        region: str | None = None,
        gpus: int = 0,
        gpu: str | None = None,
        max_sats_per_hour: int | None = None,
        capabilities: Sequence[str] = (),
    ) -> RouteExplanation:
        """Says of every backend whether it would make your sandbox of a profile, and why; nothing is made.

        Examples:
            >>> for one in (await client.explain_route("agent-dev", isolation="strong")).considered:
            ...     print(one.backend, one.verdict, one.reason)
        """
        return await self._line.send(
            catalogue.explain_route(
                profile,
                isolation=isolation,
                strategy=strategy,
                region=region,
                gpus=gpus or None,
                gpu=gpu,
                max_sats_per_hour=max_sats_per_hour,
                capability=capabilities or None,
            )
        )

    async def capabilities(self) -> Capabilities:
        """Returns what this platform can do, and where."""
        return await self._line.send(platform.get_capabilities())

    async def discover(self) -> Discovery:
        """Returns what a stranger finds: documents, prices and how requests are signed. Needs no key."""
        return await self._line.send(platform.discover())
