"""The platform, with asyncio: the object a program starts with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sandboxer.sdk.aio.accounts import AsyncOperator, AsyncOwnAccount
from sandboxer.sdk.aio.code import AsyncCode, AsyncJobs
from sandboxer.sdk.aio.egress import AsyncAccountEgress
from sandboxer.sdk.aio.gift_cards import AsyncGiftCards
from sandboxer.sdk.aio.images import AsyncImages
from sandboxer.sdk.aio.introspection import AsyncStatus
from sandboxer.sdk.aio.invoices import AsyncInvoices
from sandboxer.sdk.aio.languages import AsyncLanguages
from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.payments import AsyncPayments
from sandboxer.sdk.aio.platform import AsyncHostView, AsyncKeys
from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.aio.secrets import AsyncSecrets
from sandboxer.sdk.aio.services import AsyncServices
from sandboxer.sdk.aio.sessions import AsyncSessions
from sandboxer.sdk.aio.snapshots import AsyncSnapshots
from sandboxer.sdk.aio.ssh import AsyncSsh
from sandboxer.sdk.aio.volumes import AsyncVolumes
from sandboxer.sdk.aio.wallets import AsyncWallets
from sandboxer.sdk.aio.webhooks import AsyncWebhooks
from sandboxer.sdk.confirming import Confirmer
from sandboxer.sdk.credentials import find_credentials
from sandboxer.sdk.paying import Payer
from sandboxer.sdk.routes import platform, sandboxes
from sandboxer.sdk.signing import Credentials
from sandboxer.wire import sandboxes as wire
from sandboxer.wire.capabilities import Capabilities
from sandboxer.wire.catalogue import Profile


class AsyncSandboxer:
    """
    >>> async with AsyncSandboxer() as client, await client.create(ttl="10m") as sandbox:
    ...     print((await sandbox.exec("echo hi")).stdout)
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        public_key: str | None = None,
        secret_key: str | None = None,
        owner_file: Path | str | None = None,
        timeout_s: float = 60.0,
        confirm: Confirmer | None = None,
        wallet: Payer | None = None,
    ) -> None:
        """`confirm` signs where the platform asks for a second proof; see `sdk.confirming`."""
        credentials = find_credentials(
            url=url,
            public_key=public_key,
            secret_key=secret_key,
            owner_file=owner_file,
            is_optional=wallet is not None,
        )
        self._line = AsyncLine(credentials, timeout_s=timeout_s, confirm=confirm, payer=wallet)
        self.keys = AsyncKeys(self._line)
        self.code = AsyncCode(self._line)
        self.jobs = AsyncJobs(self._line)
        self.sessions = AsyncSessions(self._line)
        self.host = AsyncHostView(self._line)
        self.wallets = AsyncWallets(self._line)
        self.account = AsyncOwnAccount(self._line)
        self.operator = AsyncOperator(self._line)
        self.secrets = AsyncSecrets(self._line)
        self.egress = AsyncAccountEgress(self._line)
        self.ssh = AsyncSsh(self._line)
        self.services = AsyncServices(self._line)
        self.webhooks = AsyncWebhooks(self._line)
        self.snapshots = AsyncSnapshots(self._line)
        self.images = AsyncImages(self._line)
        self.volumes = AsyncVolumes(self._line)
        self.languages = AsyncLanguages(self._line)
        self.status = AsyncStatus(self._line)
        self.payments = AsyncPayments(self._line)
        self.gift_cards = AsyncGiftCards(self._line)
        self.invoices = AsyncInvoices(self._line)

    async def __aenter__(self) -> AsyncSandboxer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._line.close()

    @property
    def credentials(self) -> Credentials:
        """What calls are signed with. A key that came with a payment is shown once: keep it."""
        return self._line.signer.credentials

    async def create(
        self,
        *,
        profile: str | None = None,
        name: str | None = None,
        image: str | None = None,
        trust: str | None = None,
        ttl: str | None = None,
        idle_timeout: str | None = None,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        consumer: Mapping[str, Any] | None = None,
        quote_id: str | None = None,
        snapshot: str | None = None,
        volumes: sandboxes.VolumesIn | None = None,
        wait: bool = True,
        idempotency_key: str | None = None,
    ) -> AsyncSandbox:
        """A new sandbox, ready unless `wait` is False; `quote_id` of `account.quote` locks its rates.

        With a `snapshot` it begins as a copy of that; `volumes` has `volume`, `path` and `mode` of each.
        """
        wanted: dict[str, Any] = {
            "profile": profile,
            "name": name,
            "image": image,
            "trust": trust,
            "ttl": ttl,
        }
        wanted |= {"idle_timeout": idle_timeout, "resources": resources, "env": env, "labels": labels}
        wanted |= {"inputs": inputs, "consumer": consumer, "quote_id": quote_id, "snapshot": snapshot}
        wanted["volumes"] = sandboxes.volumes_in(volumes)
        info = await self._line.do(sandboxes.create(wanted, wait=wait, idempotency_key=idempotency_key))
        return AsyncSandbox(self._line, info.id, info)

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        info = await self._line.do(sandboxes.get(sandbox_id))
        return AsyncSandbox(self._line, info.id, info)

    def sandbox(self, sandbox_id: str) -> AsyncSandbox:
        """The same without asking the platform first."""
        return AsyncSandbox(self._line, sandbox_id)

    async def list(
        self, *, state: str | None = None, labels: Mapping[str, str] | None = None, limit: int | None = None
    ) -> AsyncIterator[wire.Sandbox]:
        """All of them, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = await self._line.do(sandboxes.page(state=state, labels=labels, cursor=cursor, limit=limit))
            for found in page.sandboxes:
                yield found
            cursor = page.next_cursor
            if cursor is None:
                return

    async def profiles(self) -> Sequence[Profile]:
        return (await self._line.do(platform.profiles())).profiles

    async def capabilities(self) -> Capabilities:
        return await self._line.do(platform.capabilities())
