"""The platform, blocking: the object a program starts with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sandboxer.sdk.confirming import Confirmer
from sandboxer.sdk.credentials import find_credentials
from sandboxer.sdk.paying import Payer
from sandboxer.sdk.routes import platform, sandboxes
from sandboxer.sdk.signing import Credentials
from sandboxer.sdk.sync.accounts import Operator, OwnAccount
from sandboxer.sdk.sync.code import Code, Jobs
from sandboxer.sdk.sync.egress import AccountEgress
from sandboxer.sdk.sync.gift_cards import GiftCards
from sandboxer.sdk.sync.images import Images
from sandboxer.sdk.sync.introspection import Status
from sandboxer.sdk.sync.invoices import Invoices
from sandboxer.sdk.sync.languages import Languages
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.payments import Payments
from sandboxer.sdk.sync.platform import HostView, Keys
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.sdk.sync.secrets import Secrets
from sandboxer.sdk.sync.services import Services
from sandboxer.sdk.sync.sessions import Sessions
from sandboxer.sdk.sync.snapshots import Snapshots
from sandboxer.sdk.sync.ssh import Ssh
from sandboxer.sdk.sync.volumes import Volumes
from sandboxer.sdk.sync.wallets import Wallets
from sandboxer.sdk.sync.webhooks import Webhooks
from sandboxer.wire import sandboxes as wire
from sandboxer.wire.capabilities import Capabilities
from sandboxer.wire.catalogue import Profile


class Sandboxer:
    """
    >>> with Sandboxer() as client, client.create(ttl="10m") as sandbox:
    ...     print(sandbox.exec("echo hi").stdout)
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
        """`confirm` signs where the platform asks for a second proof; see `sdk.confirming`.

        `wallet` pays what is asked for (`sdk.payers`); the key it is given with that is used from then on.
        """
        credentials = find_credentials(
            url=url,
            public_key=public_key,
            secret_key=secret_key,
            owner_file=owner_file,
            is_optional=wallet is not None,
        )
        self._line = Line(credentials, timeout_s=timeout_s, confirm=confirm, payer=wallet)
        self.keys = Keys(self._line)
        self.code = Code(self._line)
        self.jobs = Jobs(self._line)
        self.sessions = Sessions(self._line)
        self.host = HostView(self._line)
        self.wallets = Wallets(self._line)
        self.account = OwnAccount(self._line)
        self.operator = Operator(self._line)
        self.secrets = Secrets(self._line)
        self.egress = AccountEgress(self._line)
        self.ssh = Ssh(self._line)
        self.services = Services(self._line)
        self.webhooks = Webhooks(self._line)
        self.snapshots = Snapshots(self._line)
        self.images = Images(self._line)
        self.volumes = Volumes(self._line)
        self.languages = Languages(self._line)
        self.status = Status(self._line)
        self.payments = Payments(self._line)
        self.gift_cards = GiftCards(self._line)
        self.invoices = Invoices(self._line)

    def __enter__(self) -> Sandboxer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    @property
    def credentials(self) -> Credentials:
        """What calls are signed with. A key that came with a payment is shown once: keep it."""
        return self._line.signer.credentials

    def create(
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
    ) -> Sandbox:
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
        info = self._line.do(sandboxes.create(wanted, wait=wait, idempotency_key=idempotency_key))
        return Sandbox(self._line, info.id, info)

    def get(self, sandbox_id: str) -> Sandbox:
        info = self._line.do(sandboxes.get(sandbox_id))
        return Sandbox(self._line, info.id, info)

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """The same without asking the platform first."""
        return Sandbox(self._line, sandbox_id)

    def list(
        self, *, state: str | None = None, labels: Mapping[str, str] | None = None, limit: int | None = None
    ) -> Iterator[wire.Sandbox]:
        """All of them, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = self._line.do(sandboxes.page(state=state, labels=labels, cursor=cursor, limit=limit))
            yield from page.sandboxes
            cursor = page.next_cursor
            if cursor is None:
                return

    def profiles(self) -> Sequence[Profile]:
        return self._line.do(platform.profiles()).profiles

    def capabilities(self) -> Capabilities:
        return self._line.do(platform.capabilities())
