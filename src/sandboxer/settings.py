"""Everything an operator can set, and the only place that reads the environment.

Defaults < `SANDBOXER_*` variables < command line flags. An unknown `SANDBOXER_*` variable is an error: a
typing slip in a limit must not silently leave the limit off.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SecretStr, ValidationError, field_validator

from sandboxer.artifacts.images.published.policy import ImagePolicy
from sandboxer.artifacts.snapshots.policy import SnapshotPolicy
from sandboxer.artifacts.volumes.policy import VolumePolicy
from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.dryness import GracePolicy
from sandboxer.money.holds import HoldPolicy
from sandboxer.money.price_list import pricing_from_json
from sandboxer.money.pricing import Pricing
from sandboxer.payments.chains.configuration import ChainPlan, chains_from_json
from sandboxer.payments.gift_cards.config import MailServer
from sandboxer.payments.refunding.config import HotWalletPlan, read_hot_wallet
from sandboxer.settings_access import AccessSettings
from sandboxer.settings_work import WorkSettings

PREFIX = "SANDBOXER_"
# Belong to the client (CLI and SDK), which shares the prefix.
CLIENT_VARIABLES = frozenset({"URL", "PUBLIC_KEY", "SECRET_KEY", "CREDENTIALS", "JSON"})
# Set for programs inside a sandbox, where a nested server may run; for Caddy; for the test suite.
FOREIGN_PREFIXES = ("INPUT_", "SANDBOX_ID", "SITE", "UPSTREAM", "TEST_")
# Named by others before us, so without our prefix.
SESSION_SECRET = "SESSION_AUTH_SECRET"
_SOURCE_TREE = Path(__file__).resolve().parents[2]


class Settings(AccessSettings, WorkSettings):
    """Frozen for the life of the server. Paths that are not given lie in `state_dir`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: Annotated[Path, Field(description="All state: database, keys, images, storage pool.")] = Path(
        "/var/lib/sandboxer"
    )
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
    https: Annotated[
        bool,
        Field(description="Run Caddy in front, with certificates of its own authority, on proxy_https_port."),
    ] = False
    proxy_https_port: Annotated[
        int | None,
        Field(ge=1, le=65535, description="Port of the TLS edge before them; then links begin with https."),
    ] = None
    database: Annotated[
        str | None, Field(description="SQLAlchemy URL; SQLite in state_dir if not given.")
    ] = None
    durability: Annotated[
        Literal["normal", "full"],
        Field(
            description="full: what was answered survives a power cut. normal: it survives every crash of the"
            " server; a power cut may take the last moments (SQLite), or as its operator set it (PostgreSQL)."
        ),
    ] = "full"
    images_dir_given: Annotated[Path | None, Field(alias="images_dir", description="Base images.")] = None
    guest_dir: Annotated[Path, Field(description="Where supervisor and launcher are.")] = (
        _SOURCE_TREE / "guest" / "build"
    )
    profiles_dir: Annotated[Path, Field(description="Profiles (YAML).")] = _SOURCE_TREE / "profiles"
    backends: Annotated[tuple[str, ...], Field(description="Backends to open.")] = ("ext.namespaces",)
    default_profile: Annotated[str, Field(description="Profile of a create that names none.")] = (
        "profile.agent-dev"
    )
    pool_size_mb: Annotated[
        int | None,
        Field(
            ge=256,
            description="Size of the storage pool's file; if not given half the free disk, up to 32 GB",
        ),
    ] = None
    warm_pool: Annotated[
        dict[str, int],
        Field(description='Sandboxes kept ready per profile, as JSON: {"profile.agent-dev": 2}.'),
    ] = Field(default_factory=dict)
    overcommit_memory: Annotated[
        float, Field(gt=0, le=1000, description="How many times over the host's memory may be promised.")
    ] = 4.0
    overcommit_cpu: Annotated[
        float, Field(gt=0, le=1000, description="How many times over the host's CPUs may be promised.")
    ] = 128.0
    overcommit_pids: Annotated[
        float, Field(gt=0, le=1000, description="How many times over the host's process ids may be promised.")
    ] = 8.0
    metrics_public: Annotated[bool, Field(description="Serve /metrics to others than loopback.")] = False
    retention: Annotated[str, Field(description="How long stopped and failed sandboxes are kept.")] = "7d"
    garbage_grace: Annotated[
        str, Field(description="How long what nobody needs stays (older builds of images).")
    ] = "1d"
    events_retention: Annotated[
        str, Field(description="How long events are kept; those that webhooks have not read stay longer.")
    ] = "30d"
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
    volumes_per_account: Annotated[
        int, Field(ge=0, le=1_000_000, description="Volumes that one account may have.")
    ] = 100
    volumes_mb_per_account: Annotated[
        int, Field(ge=0, le=1 << 40, description="What the volumes of one account may be together.")
    ] = 100 * 1024
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
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
    webhook_allow_private: Annotated[
        bool,
        Field(
            description="Let webhooks go to private and loopback addresses, and by http; for one's own use."
        ),
    ] = False
    trusted_proxies: Annotated[
        tuple[str, ...], Field(description="Networks whose X-Forwarded-For is believed; comma-separated.")
    ] = ()
    limit_bucket_only: Annotated[
        int, Field(ge=1, description="Requests a minute of an account without a tier.")
    ] = 120
    limit_address: Annotated[int, Field(ge=1, description="Requests a minute from one address.")] = 1200
    limit_auth: Annotated[
        int, Field(ge=1, description="Requests a minute on auth routes, by address and by key.")
    ] = 10
    charging: Annotated[
        bool, Field(description="Sandboxes of all but the owner pay while they live; off: nobody pays.")
    ] = True
    pricing: Annotated[
        dict[str, dict[str, Any]],
        Field(
            description='Prices that differ from the defaults, as JSON: {"rates": {"running_msats": 10},'
            ' "profiles": {"profile.agent-dev": {"vcpu_msats": 20}}, "tiers": {"cents_per_month": 700,'
            ' "discounts": {"1": 0, "3": 70, "6": 100, "12": 150, "24": 200}},'
            ' "quotes": {"lifetime": "10m"}}. Discounts are thousandths by months.'
        ),
    ] = Field(default_factory=dict)
    x402: Annotated[
        dict[str, Any],
        Field(
            description='Payments by x402 that are taken, as JSON: {"networks": [{"network": "eip155:8453",'
            ' "pay_to": "0x…", "rpc_url": "https://…", "facilitator": "in_process",'
            ' "assets": [{"code": "USDC", "id": "0x…", "name": "USD Coin", "version": "2"}]}]};'
            " see docs/guides/x402.md."
        ),
    ] = Field(default_factory=dict)
    x402_signer_key: Annotated[
        SecretStr | None,
        Field(description="Private key that pays for gas where payments are settled in process."),
    ] = None
    fixed_rates: Annotated[
        dict[str, str],
        Field(description='Rates in US dollars instead of asking for them, as JSON: {"BTC": "100000"}.'),
    ] = Field(default_factory=dict)
    chains: Annotated[
        dict[str, dict[str, Any]],
        Field(
            description='Chains that invoices are paid on, as JSON: {"LTC": {"rpc": "http://127.0.0.1:9332",'
            ' "user": "u", "password_file": "/etc/sandboxer/litecoin", "xpub": "zpub…"}};'
            " see docs/guides/chains.md."
        ),
    ] = Field(default_factory=dict)
    rates: Annotated[
        dict[str, Any],
        Field(
            description='Whom to ask for rates, as JSON: {"sources": ["kraken", "coinbase"],'
            ' "quorum": {"*": 2}, "stale_after": "10m", "tolerance": 30} (thousandths from the median).'
        ),
    ] = Field(default_factory=dict)
    invoices: Annotated[
        dict[str, Any],
        Field(
            description='Terms of invoices, as JSON: {"expires_after": "1h", "restocking_percent": 9,'
            ' "dust_sats": 100, "open_per_address": 20, "poll_s": 10}.'
        ),
    ] = Field(default_factory=dict)
    hot_wallet: Annotated[
        dict[str, Any],
        Field(
            description='Wallet that pays refunds by itself, as JSON: {"file": "/etc/sandboxer/hot.wallet",'
            ' "password_file": "/etc/sandboxer/hot.password", "caps": {"LTC": {"payment": "1", "day": "5"}}};'
            " without it they wait for the operator; see docs/guides/chains.md."
        ),
    ] = Field(default_factory=dict)
    gift_cards: Annotated[
        dict[str, Any],
        Field(
            description='Terms of gift cards, as JSON: {"min_cents": 700, "max_cents": 100000,'
            ' "attempts_per_minute": 120, "approve_within": "3d"}; see docs/guides/gift-cards.md.'
        ),
    ] = Field(default_factory=dict)
    smtp_host: Annotated[
        str | None, Field(description="Mail server for approvals; without it none are sent by mail.")
    ] = None
    smtp_port: Annotated[int, Field(ge=1, le=65535, description="Its port.")] = 587
    smtp_from: Annotated[str | None, Field(description="The sender's address; needed with smtp_host.")] = None
    smtp_user: Annotated[str | None, Field(description="Who signs in there; without it nobody does.")] = None
    smtp_password: Annotated[SecretStr | None, Field(description="And the password.")] = None
    smtp_tls: Annotated[
        Literal["none", "starttls", "tls"], Field(description="How the way there is encrypted.")
    ] = "starttls"
    smtp_ca_file: Annotated[
        Path | None, Field(description="Certificate of a private authority, for a mail server of one's own.")
    ] = None
    free_profiles: Annotated[
        tuple[str, ...], Field(description="Profiles that cost nothing; comma-separated.")
    ] = ()
    hold_slice: Annotated[str, Field(description="How much of its rate a create sets aside.")] = "10m"
    grace_window: Annotated[
        str, Field(description="How long sandboxes run on when their account is out of sats.")
    ] = "60s"
    grace_cap: Annotated[str, Field(description="The longest grace, however many receipts come.")] = "10m"

    @field_validator("state_dir", "images_dir_given", "guest_dir", "profiles_dir", mode="after")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        # The launcher and mounts see other working folders than the one `up` was started in.
        return None if path is None else path.absolute()

    @property
    def images_dir(self) -> Path:
        return self.images_dir_given or self.state_dir / "images"

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.state_dir / 'sandboxer.db'}"

    @property
    def chain_plans(self) -> tuple[ChainPlan, ...]:
        return chains_from_json(self.chains)

    @property
    def hot_wallet_plan(self) -> HotWalletPlan | None:
        return read_hot_wallet(self.hot_wallet, frozenset(self.chains))

    @property
    def mail_server(self) -> MailServer | None:
        if self.smtp_host is None:
            return None
        if self.smtp_from is None:
            raise InvalidRequest(field="smtp_from", why="a mail server needs a sender's address")
        password = self.smtp_password
        return MailServer(
            host=self.smtp_host,
            port=self.smtp_port,
            sender=self.smtp_from,
            tls=self.smtp_tls,
            user=self.smtp_user,
            password=None if password is None else password.get_secret_value(),
            ca_file=None if self.smtp_ca_file is None else str(self.smtp_ca_file),
        )

    @property
    def url(self) -> str:
        """Where callers find it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def proxy_address(self) -> tuple[str, int] | None:
        """Where the proxy listens; None: nowhere."""
        if self.proxy_listen is None:
            # A free port of the API's is one of the proxy's too.
            return self.host, self.port and self.port % 65535 + 1
        if self.proxy_listen == "none":
            return None
        host, _, port = self.proxy_listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def ssh_address(self) -> tuple[str, int] | None:
        """Where the SSH gateway listens; None: nowhere."""
        if self.ssh_listen is None:
            return None
        host, _, port = self.ssh_listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def run_dir(self) -> Path:
        return self.state_dir / "run"

    @property
    def owner_file(self) -> Path:
        return self.state_dir / "owner.json"

    @property
    def master_key_file(self) -> Path:
        return self.state_dir / "master.key"

    @property
    def session_secret(self) -> str | None:
        return None if self.session_auth_secret is None else self.session_auth_secret.get_secret_value()

    @property
    def prices(self) -> Pricing:
        return pricing_from_json(self.pricing, free_profiles=self.free_profiles)

    @property
    def holds(self) -> HoldPolicy:
        return HoldPolicy(slice=parse_duration(self.hold_slice, field="hold_slice"))

    @property
    def grace(self) -> GracePolicy:
        return GracePolicy(
            window=parse_duration(self.grace_window, field="grace_window"),
            hard_cap=parse_duration(self.grace_cap, field="grace_cap"),
        )

    @property
    def events_kept_for(self) -> timedelta:
        return parse_duration(self.events_retention, field="events_retention")

    @property
    def garbage_kept_for(self) -> timedelta:
        return parse_duration(self.garbage_grace, field="garbage_grace")

    @property
    def retention_time(self) -> timedelta:
        return parse_duration(self.retention, field="retention")

    @property
    def snapshot_policy(self) -> SnapshotPolicy:
        return SnapshotPolicy(
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
    def volume_policy(self) -> VolumePolicy:
        return VolumePolicy(
            per_account=self.volumes_per_account,
            mb_per_account=self.volumes_mb_per_account,
            retention=self.retention_time,
        )


def load_settings(environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
    """Settings from the environment and flags (None: not given). Raises InvalidRequest naming the key."""
    values = _from_environment(os.environ if environment is None else environment)
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = Settings.model_validate(values)
        # A bad duration or price must be refused here, not at the first stop.
        _ = settings.events_kept_for, settings.garbage_kept_for
        _ = settings.retention_time, settings.prices, settings.holds, settings.grace, settings.chain_plans
        _ = settings.mail_server, settings.hot_wallet_plan, settings.job_policy
        _ = settings.records_kept_for, settings.domain_policy
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise InvalidRequest(field=name, why=f"{first['msg']} (also {PREFIX}{name.upper()})") from None
    return settings


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable, text in environment.items():
        word = variable.removeprefix(PREFIX)
        if word == variable or word in CLIENT_VARIABLES or word.startswith(FOREIGN_PREFIXES):
            continue
        name = word.lower()
        if name not in KNOWN:
            raise InvalidRequest(field=variable, why="no such setting" + _nearest(name))
        values[name] = _parse(name, text)
    if secret := environment.get(SESSION_SECRET):
        values["session_auth_secret"] = secret
    return values


def _names() -> dict[str, str]:
    return {field.alias or name: name for name, field in Settings.model_fields.items()}


KNOWN = _names()


_JSON_EXAMPLES = {
    "warm_pool": '{"profile.agent-dev": 2}',
    "pricing": '{"rates": {"running_msats": 10}}',
    "x402": '{"networks": []}',
    "chains": '{"BTC": {"esplora": "https://…/api", "xpub": "zpub…"}}',
    "fixed_rates": '{"BTC": "100000", "USDC": "1"}',
    "rates": '{"sources": ["kraken", "coinbase"]}',
    "invoices": '{"expires_after": "1h"}',
    "hot_wallet": '{"file": "/…", "password_file": "/…", "caps": {"LTC": {"payment": "1", "day": "5"}}}',
    "gift_cards": '{"max_cents": 50000}',
}


def _parse(name: str, text: str) -> object:
    if name in _JSON_EXAMPLES:
        try:
            return json.loads(text)
        except ValueError:
            raise InvalidRequest(field=name, why=f"it must be JSON like {_JSON_EXAMPLES[name]}") from None
    if name in ("backends", "trusted_proxies", "free_profiles", "egress_never"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, KNOWN, n=1)
    return (
        f"; did you mean {PREFIX}{close[0].upper()}?" if close else f"; known are {', '.join(sorted(KNOWN))}"
    )
