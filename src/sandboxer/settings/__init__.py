"""Everything an operator can set. Each package's settings are a part of `Settings`.

Command line flags win over `SANDBOXER_*` variables, which win over defaults. An unknown variable is an error:
a typing slip in a limit must not silently leave the limit off.
"""

import difflib
import json
import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator

from sandboxer.accounts.limits import LimitPolicy
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest, in_plain_words
from sandboxer.kernel.program import GUEST, PROFILES
from sandboxer.sandboxes.routes import RoutePolicy, policy_from_json
from sandboxer.settings.edges import EdgeSettings, IdentitySettings
from sandboxer.settings.payments import PaymentSettings
from sandboxer.settings.work import (
    AccessSettings,
    ArtifactSettings,
    ComposeHost,
    WorkSettings,
    host_mirrors,
)

__all__ = ["KNOWN", "NOTIFY", "PREFIX", "Settings", "load_settings", "take_notify_address"]


class Settings(
    EdgeSettings,
    IdentitySettings,
    PaymentSettings,
    AccessSettings,
    ArtifactSettings,
    WorkSettings,
):
    """Holds every setting, frozen for the life of the server. Paths that are not given lie in `state_dir`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: Annotated[Path, Field(description="All state: database, keys, images, storage pool.")] = Path(
        "/var/lib/sandboxer"
    )
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
    guest_dir: Annotated[Path, Field(description="Where supervisor and launcher are.")] = GUEST
    profiles_dir: Annotated[Path, Field(description="Profiles (YAML).")] = PROFILES
    backends: Annotated[tuple[str, ...], Field(description="Backends to open.")] = ("ext.namespaces",)
    extensions_dir: Annotated[
        Path | None, Field(description="Backends of your own, a YAML file each (docs/guides/extensions.md).")
    ] = None
    host_names: Annotated[
        tuple[str, ...],
        Field(description="What `placement` of profiles and creates may call this host, beside `local`."),
    ] = ()
    routing: Annotated[
        dict[str, Any],
        Field(
            description='How backends are chosen, as JSON: {"strategy": "explicit", "fallback":'
            ' {"profile.agent-dev": ["ext.oci"]}, "regions": {"ext.docker": "eu"}};'
            " see docs/guides/routing.md."
        ),
    ] = Field(default_factory=dict)
    strangers_wall: Annotated[
        Literal["auto", "strong", "profile"],
        Field(
            description="Wall of accounts that you did not open. auto: a kernel of its own (ext.oci with"
            " runsc) where this host has it. strong: that, or nothing is made. profile: as the profile says."
        ),
    ] = "auto"
    oci_runtime: Annotated[
        str, Field(description="Runtime of ext.oci (experimental): runsc, runc or crun, or a path of one.")
    ] = "runsc"
    docker_host: Annotated[
        str,
        Field(
            description="Engine of ext.docker, Docker's or Podman's: unix:///path,"
            " tcp://host:port (by TLS) or ssh://user@host:port/path; only the host must be there."
        ),
    ] = "unix:///var/run/docker.sock"
    docker_keys: Annotated[
        Path | None,
        Field(
            description="Folder with ca.pem, cert.pem and key.pem for an engine by tcp://; with key and"
            " known_hosts for one by ssh://, which without it takes those of the user."
        ),
    ] = None
    compose_ssh: Annotated[
        ComposeHost | None,
        Field(
            description="Host of ext.compose-ssh, as JSON: `host`, `key` and `known_hosts` (files of this"
            " machine), `user`, `port`, `remote_dir`, `image`, `ready_within`, `at_most`, `accounts`."
        ),
    ] = None
    default_profile: Annotated[str, Field(description="Profile of a create that names none.")] = (
        "profile.agent-dev"
    )
    pool_size_mb: Annotated[
        int | None,
        Field(
            ge=256,
            description="The most that the storage pool's file may grow to; if not given what its disk has,"
            " less a reserve of a twentieth (10 GB at most). It begins with 1 GB.",
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
    overcommit_disk: Annotated[
        float,
        Field(
            gt=0,
            le=1000,
            description="How many times over the storage pool may be promised. When nine tenths of it are"
            " really used, nothing new is promised.",
        ),
    ] = 4.0
    heavy_gives_way: Annotated[
        bool,
        Field(
            description="Sandboxes of accounts that take most of the processor run when no other sandbox"
            " wants it, while other accounts have sandboxes that run (kernels since 5.15; before, they weigh"
            " least)."
        ),
    ] = True
    uid_base: Annotated[
        int,
        Field(
            ge=65536,
            le=3_700_000_000,
            description="First of the host's uids that sandboxes get, 65,536 each; platforms on one host"
            " share them out by themselves.",
        ),
    ] = 100_000_000
    events_retention: Annotated[
        str, Field(description="How long events are kept; those that webhooks have not read stay longer.")
    ] = "30d"
    log_level: Annotated[
        str, Field(pattern="^(debug|info|warning|error)$", description="The least that the log tells of.")
    ] = "info"
    log_form: Annotated[
        Literal["text", "json"],
        Field(description="Of the log: lines for people, or JSON with the ids of request and trace."),
    ] = "text"
    log_requests: Annotated[bool, Field(description="A line for each answered request.")] = False
    otlp_endpoint: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^\s]+$",
            description="Collector that gets spans of requests and commands by OTLP over HTTP, such as"
            " http://127.0.0.1:4318; needs the extra `otlp`.",
        ),
    ] = None

    @field_validator(
        "state_dir", "images_dir_given", "guest_dir", "profiles_dir", "extensions_dir", mode="after"
    )
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
    def limits(self) -> LimitPolicy:
        return LimitPolicy(
            tiers=self.prices.tiers,
            depths=self.limit_depth,
            bucket_only=self.limit_bucket_only,
            address=self.limit_address,
            auth_address=self.limit_auth,
            auth_key=self.limit_auth,
            port_refusals=self.limit_port_refusals,
            wakes_address=self.limit_wakes,
            wakes_sandbox=self.limit_wakes,
        )

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
    def fixed_usd_per_btc(self) -> Decimal | None:
        """The operator's own rate, for amounts that leave this platform in dollars."""
        return Decimal(self.fixed_rates["BTC"]) if "BTC" in self.fixed_rates else None

    @property
    def route_policy(self) -> RoutePolicy:
        return policy_from_json(self.routing, strangers_wall=self.strangers_wall)

    @property
    def events_kept_for(self) -> timedelta:
        return parse_duration(self.events_retention, field="events_retention")


def _names() -> dict[str, str]:
    return {field.alias or name: name for name, field in Settings.model_fields.items()}


KNOWN = _names()


def load_settings(environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
    """Reads settings from the environment and flags (None: not given). Raises InvalidRequest naming the
    key.
    """
    values = read_environment(os.environ if environment is None else environment, KNOWN)
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = Settings.model_validate(values)
        # A bad duration or price must be refused here, not at the first stop.
        _ = settings.events_kept_for, settings.garbage_kept_for, settings.quarantine_time
        _ = settings.limits, settings.route_policy
        _ = settings.retention_time, settings.prices, settings.holds, settings.grace, settings.chain_plans
        _ = settings.mail_server, settings.hot_wallet_plan, settings.job_policy
        _ = settings.records_kept_for, settings.domain_policy, settings.packages
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        why = in_plain_words(str(first["msg"]))
        raise InvalidRequest(field=name, why=f"{why} (also {PREFIX}{name.upper()})") from None
    return settings


PREFIX = "SANDBOXER_"
# Belong to the client (CLI and SDK), which shares the prefix.
CLIENT_VARIABLES = frozenset({"URL", "PUBLIC_KEY", "SECRET_KEY", "CREDENTIALS", "JSON"})
# Set for programs inside a sandbox, where a nested server may run; for Caddy; for the test suite.
FOREIGN_PREFIXES = ("INPUT_", "SANDBOX_ID", "SITE", "UPSTREAM", "TEST_")
# Named by others before us, so without our prefix.
SESSION_SECRET = "SESSION_AUTH_SECRET"
NOTIFY = "NOTIFY_SOCKET"


def take_notify_address() -> str | None:
    """Returns where systemd, or `up -d`, wants to be told that this process serves. No child of the process
    gets to know it.
    """
    return os.environ.pop(NOTIFY, None)


def read_environment(environment: Mapping[str, str], known: Collection[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable, text in environment.items():
        word = variable.removeprefix(PREFIX)
        if word == variable or word in CLIENT_VARIABLES or word.startswith(FOREIGN_PREFIXES):
            continue
        if (name := word.lower()) not in known:
            raise InvalidRequest(field=variable, why="no such setting" + _nearest(name, known))
        values[name] = _parse(name, text)
    if mirrors := tuple(host_mirrors(environment)):
        # Those that the operator names win.
        named = values.get("package_mirrors", ())
        values["package_mirrors"] = (*mirrors, *named) if isinstance(named, tuple) else mirrors
    if secret := environment.get(SESSION_SECRET):
        values["session_auth_secret"] = secret
    return values


_JSON_EXAMPLES = {
    "limit_depth": '{"0": 1, "8": 2, "16": 4, "32": 8}',
    "warm_pool": '{"profile.agent-dev": 2}',
    "pricing": '{"rates": {"running_msats": 10}}',
    "x402": '{"networks": []}',
    "chains": '{"BTC": {"esplora": "https://…/api", "xpub": "zpub…"}}',
    "fixed_rates": '{"BTC": "100000", "USDC": "1"}',
    "rates": '{"sources": ["kraken", "coinbase"]}',
    "invoices": '{"expires_after": "1h"}',
    "hot_wallet": '{"file": "/…", "password_file": "/…", "caps": {"LTC": {"payment": "1", "day": "5"}}}',
    "gift_cards": '{"max_cents": 50000}',
    "compose_ssh": '{"host": "sandboxer01", "key": "/…/id_ed25519", "known_hosts": "/…/known_hosts"}',
    "routing": '{"strategy": "lowest-cost", "fallback": {"profile.agent-dev": ["ext.oci"]}}',
    "socket_accounts": '{"anna": "search-team"}',
}


_PACKAGES = ("package_hosts", "package_mirrors")


def _parse(name: str, text: str) -> object:
    if name in _JSON_EXAMPLES:
        try:
            return json.loads(text)
        except ValueError:
            raise InvalidRequest(field=name, why=f"it must be JSON like {_JSON_EXAMPLES[name]}") from None
    if name in ("backends", "host_names", "trusted_proxies", "free_profiles", "egress_never", *_PACKAGES):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (
        f"; did you mean {PREFIX}{close[0].upper()}?" if close else f"; known are {', '.join(sorted(known))}"
    )
