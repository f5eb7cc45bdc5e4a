"""Settings of the listeners: where callers reach the platform, how many requests they may make, and who may
call (wallet sessions, the genesis gate).
"""

import resource
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, SecretStr, field_validator

from sandboxer.access.connections import ConnectionBounds
from sandboxer.accounts.limits import DEPTH
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.budget import BudgetBounds


class EdgeSettings(BaseModel, defer_build=True):
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 7777
    public_url: Annotated[str | None, Field(description="How callers reach it, written to owner.json.")] = (
        None
    )
    proxy_listen: Annotated[
        str | None,
        Field(
            pattern=r"^(none|(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+):[0-9]{1,5})$",
            description="Where ports of sandboxes are served by host name, as address:port; the port after"
            " the API's if not given, `none` for nowhere.",
        ),
    ] = None
    proxy_domain: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
            description="Domain below which they are served: {port}-{id}.{domain}, {service}.{domain}.",
        ),
    ] = "localhost"
    ssh_listen: Annotated[
        str | None,
        Field(
            pattern=r"^(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+):[0-9]{1,5}$",
            description="Where the SSH gateway listens, as address:port (0.0.0.0:2222); else nowhere.",
        ),
    ] = None
    socket_group: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z_][a-z0-9_-]{0,31}$",
            description="Group of this machine whose members reach the API by a socket without a key, each"
            " with an account of its own; else nobody does.",
        ),
    ] = None
    socket_path: Annotated[
        Path, Field(description="Where that socket is; only root may write to the folders above it.")
    ] = Path("/run/sandboxer/api.sock")
    socket_accounts: Annotated[
        dict[str, str],
        Field(
            description="Accounts of users who come by it and shall not have one of their own, as JSON:"
            ' {"anna": "search-team"}. Nobody can be the owner.'
        ),
    ] = Field(default_factory=dict)
    https: Annotated[
        bool,
        Field(description="Run Caddy in front, with certificates of its own authority, on proxy_https_port."),
    ] = False
    proxy_https_port: Annotated[
        int | None,
        Field(ge=1, le=65535, description="Port of the TLS edge before them; then links begin with https."),
    ] = None
    unsandbox_names: Annotated[
        bool,
        Field(
            description="With `https`, also answer as api.unsandbox.com and unsandbox.com, which are written"
            " into unsandbox's clients, for machines that resolve these names to this one."
        ),
    ] = False
    metrics_public: Annotated[bool, Field(description="Serve /metrics to others than loopback.")] = False
    bearer_tokens: Annotated[
        bool,
        Field(description="Take `Authorization: Bearer sk_…` from callers on this host or behind TLS."),
    ] = True
    trusted_proxies: Annotated[
        tuple[str, ...], Field(description="Networks whose X-Forwarded-For is believed; comma-separated.")
    ] = ()
    limit_bucket_only: Annotated[
        int, Field(ge=1, description="Requests a minute of an account without a tier.")
    ] = 120
    limit_depth: Annotated[
        dict[int, int],
        Field(
            description="How many generations of delegated keys, and of sandboxes that make sandboxes, may"
            ' follow below an account, from each tier on (0: without a tier), as JSON: {"0": 1, "8": 2,'
            ' "16": 4, "32": 8}. The owner has the most of them, and 8 at least.'
        ),
    ] = Field(default_factory=lambda: {0: DEPTH})
    limit_address: Annotated[int, Field(ge=1, description="Requests a minute from one address.")] = 1200
    limit_auth: Annotated[
        int, Field(ge=1, description="Requests a minute on auth routes, by address and by key.")
    ] = 10
    limit_port_refusals: Annotated[
        int, Field(ge=1, description="Requests a minute from one address that ports may refuse.")
    ] = 120
    limit_refusals: Annotated[
        int,
        Field(
            ge=1,
            description="Requests a minute from one address that may be refused at the door; beyond that its"
            " next ones wait.",
        ),
    ] = 240
    limit_wakes: Annotated[
        int,
        Field(
            ge=1,
            description="Wakes a minute by requests to ports: from one address, and of one sandbox.",
        ),
    ] = 6
    connections: Annotated[
        int,
        Field(
            ge=16,
            le=1_000_000,
            description="Connections that may be open at once, of all listeners together; never more than"
            " half of the descriptors this process may have.",
        ),
    ] = 8192
    connections_per_address: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="Connections from one address (IPv6: one /64) that have not said who they are.",
        ),
    ] = 256
    connections_per_account: Annotated[
        int, Field(ge=1, le=1_000_000, description="Connections that count for one account.")
    ] = 512
    budget_mb: Annotated[
        int,
        Field(
            ge=64,
            le=1 << 20,
            description="What requests of all callers together may make this process hold: bodies, kept"
            " output, answers.",
        ),
    ] = 1024
    budget_mb_per_account: Annotated[
        int, Field(ge=16, le=1 << 20, description="And those of one account, its children's keys included.")
    ] = 256
    state_hub_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[\x21-\x7e]+$",
            description="State Hub that hears of every change of a sandbox's state: POST /progress/ there.",
        ),
    ] = None
    fin_hub_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[\x21-\x7e]+$",
            description="fin-hub that hears what each ended sandbox cost, by POST /usage/sandbox there.",
        ),
    ] = None
    webhook_allow_private: Annotated[
        bool,
        Field(
            description="Let webhooks go to private and loopback addresses, and by http; for one's own use."
        ),
    ] = False

    @field_validator("socket_accounts", mode="after")
    @classmethod
    def _nobody_is_owner(cls, accounts: dict[str, str]) -> dict[str, str]:
        if OWNER_ACCOUNT in accounts.values():
            raise ValueError("nobody becomes the owner by the socket: give that person the owner's key")
        return accounts

    @property
    def url(self) -> str:
        """Returns the address where callers reach the platform."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def proxy_address(self) -> tuple[str, int] | None:
        """Returns where the proxy listens; None if it does not."""
        if self.proxy_listen is None:
            # A free port of the API's is one of the proxy's too.
            return self.host, self.port and self.port % 65535 + 1
        if self.proxy_listen == "none":
            return None
        return _address(self.proxy_listen)

    @property
    def budget_bounds(self) -> BudgetBounds:
        return BudgetBounds(
            host_bytes=self.budget_mb << 20,
            account_bytes=min(self.budget_mb_per_account, self.budget_mb) << 20,
        )

    @property
    def connection_bounds(self) -> ConnectionBounds:
        """Limits connections to what this process has descriptors for."""
        bounds = ConnectionBounds(
            most=self.connections,
            per_address=self.connections_per_address,
            per_account=self.connections_per_account,
            refusals=self.limit_refusals,
        )
        return bounds.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    @property
    def ssh_address(self) -> tuple[str, int] | None:
        """Returns where the SSH gateway listens; None if it does not."""
        return None if self.ssh_listen is None else _address(self.ssh_listen)


class IdentitySettings(BaseModel, defer_build=True):
    production: Annotated[
        bool, Field(description="Refuse to start without what must not be improvised (SESSION_AUTH_SECRET).")
    ] = False
    session_auth_secret: Annotated[
        SecretStr | None,
        Field(
            description="Key of wallet sessions, 32 bytes or more; read from SESSION_AUTH_SECRET, no prefix."
        ),
    ] = None
    allow_test_networks: Annotated[bool, Field(description="Let wallets of test networks sign in.")] = False
    genesis_registry_url: Annotated[
        str | None, Field(pattern="^https?://", description="The registry of agents that the gate asks.")
    ] = None
    genesis_level: Annotated[int, Field(ge=0, le=100, description="Level an agent must have there.")] = 2
    genesis_demanded: Annotated[
        bool, Field(description="Every create and extend needs a genesis proof (not the owner's).")
    ] = False

    @property
    def session_secret(self) -> str | None:
        return None if self.session_auth_secret is None else self.session_auth_secret.get_secret_value()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)
