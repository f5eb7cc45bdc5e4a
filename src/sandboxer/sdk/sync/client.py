# Written by scripts/generate-sync from sdk/aio/client.py. Do not edit.
"""The platform, blocking: the object a program starts with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandboxer.sdk.bodies import VolumesIn, labelled
from sandboxer.sdk.call import Call, lazily, new_idempotency_key
from sandboxer.sdk.calls import catalogue, platform, sandboxes
from sandboxer.sdk.confirmation import Confirmer
from sandboxer.sdk.credentials import Credentials, find_credentials
from sandboxer.sdk.exchange import Payer
from sandboxer.sdk.sync.line import Line, Scope, items
from sandboxer.sdk.sync.sandbox import Sandbox

if TYPE_CHECKING:
    from sandboxer.sdk.sync.access import AccountEgress, Secrets, Ssh
    from sandboxer.sdk.sync.accounts import Operator, OwnAccount, Wallets
    from sandboxer.sdk.sync.artifacts import Images, Snapshots, Volumes
    from sandboxer.sdk.sync.code import Code, Jobs, Languages, Sessions
    from sandboxer.sdk.sync.payments import GiftCards, Invoices, Payments
    from sandboxer.sdk.sync.platform import HostView, Keys, Status, Webhooks
    from sandboxer.sdk.sync.services import Services
    from sandboxer.sdk.sync.tools import Tools
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.catalogue import Profile
    from sandboxer.wire.platform import Capabilities, Discovery
    from sandboxer.wire.routes import RouteExplanation

T = TypeVar("T")
# Imported when it is first asked for: a command that needs one noun should not pay for the models of all.
NOUNS = {
    "keys": "platform:Keys",
    "code": "code:Code",
    "jobs": "code:Jobs",
    "sessions": "code:Sessions",
    "host": "platform:HostView",
    "wallets": "accounts:Wallets",
    "account": "accounts:OwnAccount",
    "operator": "accounts:Operator",
    "secrets": "access:Secrets",
    "egress": "access:AccountEgress",
    "ssh": "access:Ssh",
    "services": "services:Services",
    "webhooks": "platform:Webhooks",
    "snapshots": "artifacts:Snapshots",
    "images": "artifacts:Images",
    "volumes": "artifacts:Volumes",
    "languages": "code:Languages",
    "status": "platform:Status",
    "payments": "payments:Payments",
    "gift_cards": "payments:GiftCards",
    "invoices": "payments:Invoices",
    "tools": "tools:Tools",
}


class Sandboxer(Scope):
    """A program starts with this: it speaks to one platform, with one key.

    Examples:
        >>> with Sandboxer() as client, client.create(ttl="10m") as sandbox:
        ...     print(sandbox.exec("echo hi").stdout)
    """

    keys: Keys
    code: Code
    jobs: Jobs
    sessions: Sessions
    host: HostView
    wallets: Wallets
    account: OwnAccount
    operator: Operator
    secrets: Secrets
    egress: AccountEgress
    ssh: Ssh
    services: Services
    webhooks: Webhooks
    snapshots: Snapshots
    images: Images
    volumes: Volumes
    languages: Languages
    status: Status
    payments: Payments
    gift_cards: GiftCards
    invoices: Invoices
    tools: Tools

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
        self._line = Line(credentials, timeout_s=timeout_s, confirm=confirm, payer=wallet)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            made = lazily(self, name, NOUNS, __package__)(self._line)
            setattr(self, name, made)
            return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._line.url}>"

    def _leave(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; sandboxes go on."""
        self._line.close()

    @property
    def credentials(self) -> Credentials:
        """Calls are signed with these. A key that came with a payment is shown once: keep it."""
        return self._line.signer.credentials

    def send(self, call: Call[T]) -> T:
        """Sends any call of `sandboxer.sdk.calls` and returns the model of its answer."""
        return self._line.send(call)

    def create(
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
    ) -> Sandbox:
        """Makes a sandbox, ready unless `wait` is False; `quote_id` of `account.quote` locks its rates.

        `network` is `none`, `packages` (what pip, npm and their kin need), `open`, or `allow:` and hosts.
        With a `snapshot` it begins as a copy of that; `volumes` has `volume`, `path` and `mode` of each.
        `inception` lets programs in it make sandboxes: `budget_sats`, `depth`, `slots`, `scopes` and
        `on_parent_end`. The rest are promises: each is kept or refused, or answered in `info.answered`.

        Examples:
            >>> printclient.create(name="dev", profile="profile.agent-dev", ttl="2h")
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
        info = self._line.send(call)
        return Sandbox(self._line, info.id, info)

    def get(self, name_or_id: str) -> Sandbox:
        """Finds a sandbox by its name, its id, or as much of its id as no other has.

        Examples:
            >>> sandbox = client.get("dev")
            >>> print(sandbox)
        """
        info = self._line.send(sandboxes.get_sandbox(name_or_id))
        return Sandbox(self._line, info.id, info)

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """Returns the sandbox with this id, without asking the platform first."""
        return Sandbox(self._line, sandbox_id)

    def list(
        self, *, state: str | None = None, labels: Mapping[str, str] | None = None, limit: int | None = None
    ) -> Iterator[wire.Sandbox]:
        """Yields all of them, page by page; `limit` is the size of a page."""
        label = labelled(labels)
        return items(
            self._line,
            lambda cursor: sandboxes.list_sandboxes(state=state, label=label, cursor=cursor, limit=limit),
            lambda page: page.sandboxes,
        )

    def tree(self) -> Sequence[wire.TreeEntry]:
        """Returns the sandboxes of this account and those made from inside them, each before what it made."""
        return self._line.send(sandboxes.get_sandbox_tree()).sandboxes

    def profiles(self) -> Sequence[Profile]:
        """Returns the recipes that `create(profile=…)` takes."""
        return self._line.send(catalogue.list_profiles()).profiles

    def explain_route(
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
            >>> for one in client.explain_route("agent-dev", isolation="strong").considered:
            ...     print(one.backend, one.verdict, one.reason)
        """
        return self._line.send(
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

    def capabilities(self) -> Capabilities:
        """Returns what this platform can do, and where."""
        return self._line.send(platform.get_capabilities())

    def discover(self) -> Discovery:
        """Returns what a stranger finds: documents, prices and how requests are signed. Needs no key."""
        return self._line.send(platform.discover())
