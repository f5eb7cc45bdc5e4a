"""Models of unsandbox's API, as its clients ask and read."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

# What each client calls the two networks; the paper has a hyphen, a few write `network`.
NetworkMode = Literal["zerotrust", "zero-trust", "zero", "semitrusted", "semi-trusted", "semi"]
_MODE: Any = Field(validation_alias=AliasChoices("network_mode", "network"))
Seconds = Annotated[int, Field(ge=1, le=10**9)]
Vcpu = Annotated[int, Field(ge=1, le=256)]
Ports = Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(max_length=16)]
Text = Annotated[str, Field(max_length=8 * 1024 * 1024)]
Word = Annotated[str, Field(min_length=1, max_length=255)]


class Said(BaseModel):
    """What a client says. Newer clients say more than we know: that is passed over."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore", frozen=True, defer_build=True)


class Told(BaseModel):
    """What a client is told; what is not known is left out."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class InputFile(Said):
    filename: Word
    # Base 64; older clients say `content_base64`.
    content: Annotated[
        str,
        Field(
            max_length=12 * 1024 * 1024, validation_alias=AliasChoices("content", "content_base64", "data")
        ),
    ]


InputFiles = Annotated[list[InputFile], Field(max_length=256)]


class Execute(Said):
    code: Text
    language: Word | None = None
    network_mode: Annotated[NetworkMode, _MODE] = "zerotrust"
    ttl: Annotated[int, Field(ge=1, le=900)] = 60
    env: dict[str, str] = Field(default_factory=dict)
    vcpu: Annotated[Vcpu | None, Field(validation_alias=AliasChoices("vcpu", "vcpus"))] = None
    input_files: InputFiles = Field(default_factory=list)
    argv: list[str] = Field(default_factory=list)
    stdin: Text | None = None
    return_artifact: Annotated[
        bool, Field(validation_alias=AliasChoices("return_artifact", "return_artifacts"))
    ] = False
    return_wasm_artifact: bool = False


class NewSession(Said):
    language: Word | None = None
    shell: Word | None = None
    network_mode: Annotated[NetworkMode, _MODE] = "zerotrust"
    ttl: Seconds | None = None
    vcpu: Vcpu | None = None
    multiplexer: str | None = None
    input_files: InputFiles = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    audit: bool = False


class Command(Said):
    command: Annotated[str, Field(min_length=1, max_length=100_000)]
    # Milliseconds.
    timeout: Annotated[int, Field(ge=1, le=3_600_000)] = 30_000
    input_files: InputFiles = Field(default_factory=list)


class Resize(Said):
    vcpu: Vcpu = 2


class NewService(Said):
    name: Word
    ports: Ports = Field(default_factory=list)
    bootstrap: Text | None = None
    bootstrap_content: Text | None = None
    network_mode: Annotated[NetworkMode, _MODE] = "semitrusted"
    custom_domains: Annotated[list[Word], Field(max_length=16)] = Field(default_factory=list)
    vcpu: Vcpu | None = None
    service_type: str | None = None
    unfreeze_on_demand: bool = True
    golden_image: str | None = None
    input_files: InputFiles = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    env_content: Text | None = None


class ChangeService(Said):
    vcpu: Vcpu | None = None
    unfreeze_on_demand: bool | None = None
    show_freeze_page: bool | None = None
    network_mode: Annotated[NetworkMode | None, _MODE] = None


class Redeploy(Said):
    bootstrap: Text | None = None
    bootstrap_content: Text | None = None
    input_files: InputFiles = Field(default_factory=list)


class ChangeDomains(Said):
    custom_domains: Annotated[list[Word] | None, Field(max_length=16)] = None
    add: Annotated[list[Word], Field(max_length=16)] = Field(default_factory=list)
    remove: Annotated[list[Word], Field(max_length=16)] = Field(default_factory=list)


class EnvKeys(Said):
    keys: Annotated[list[Word] | None, Field(max_length=256)] = None


class NewSnapshot(Said):
    source: Word | None = None
    session_id: Word | None = None
    service_id: Word | None = None
    name: str | None = None
    ttl: Seconds | None = None
    hot: bool = False
    ephemeral: bool = False


class TakeSnapshot(Said):
    name: str | None = None
    ttl: Seconds | None = None


class RestoreFrom(Said):
    snapshot_id: Word


class Clone(Said):
    type: Literal["session", "service"] = "session"
    name: str | None = None
    shell: Word | None = None
    ports: Ports = Field(default_factory=list)
    bootstrap: Text | None = None


class Publish(Said):
    source_type: Literal["service", "snapshot", "session"]
    source_id: Word
    name: str | None = None
    description: str | None = None


class Visibility(Said):
    visibility: Literal["private", "unlisted", "public"]


class Grant(Said):
    trusted_api_key: Annotated[Word, Field(validation_alias=AliasChoices("trusted_api_key", "api_key"))]


class Transfer(Said):
    to_api_key: Word


class Spawn(Said):
    name: str | None = None
    ports: Ports = Field(default_factory=list)
    network_mode: Annotated[NetworkMode, _MODE] = "semitrusted"
    bootstrap: Text | None = None


class CloneImage(Said):
    name: str | None = None
    description: str | None = None


class AskLogs(Said):
    source: str = "all"
    lines: Annotated[int, Field(ge=1, le=10_000)] = 100
    since: Annotated[str, Field(pattern=r"^[0-9]{1,6}[smhd]$")] = "5m"
    grep: str | None = None


class NewGiftCard(Said):
    cents: Annotated[
        int, Field(ge=1, le=10**8, validation_alias=AliasChoices("cents", "amount_cents", "amount"))
    ]
    currency: Annotated[str, Field(validation_alias=AliasChoices("currency", "payment_method"))] = "BTC"
    refund_address: str | None = None
    approval_email: Annotated[str | None, Field(validation_alias=AliasChoices("approval_email", "email"))] = (
        None
    )
    approval_webhook: str | None = None


class RedeemGiftCard(Said):
    code: Annotated[str, Field(min_length=1, max_length=200)]
    tier_level: Annotated[int | None, Field(validation_alias=AliasChoices("tier_level", "tier"))] = None
    months: int | None = None
    request_id: str | None = None


class NewInvoice(Said):
    tier_level: Annotated[int, Field(validation_alias=AliasChoices("tier_level", "tier"))]
    months: int = 1
    payment_method: Annotated[str, Field(validation_alias=AliasChoices("payment_method", "currency"))] = "BTC"
    refund_address: str | None = None


class Execution(Told):
    """How code went; of a job too, under the same names."""

    job_id: str | None = None
    status: str | None = None
    language: str
    network_mode: str | None = None
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    total_time_ms: float | None = None
    execution_time_ms: float | None = None
    success: bool = False
    error: str | None = None
    artifact: dict[str, str] | None = None
    artifacts: list[dict[str, str]] | None = None


class Session(Told):
    id: str
    # The same, for the clients that look for it here.
    session_id: str
    container_name: str
    status: str
    shell: str
    language: str
    created_at: datetime
    expires_at: datetime | None = None


class Service(Told):
    id: str
    service_id: str
    name: str
    state: str
    status: str
    reason: str
    ports: list[int]
    url: str | None = None
    domain: str
    custom_domains: list[str]
    container_name: str
    vcpu: int | None = None
    locked: bool
    unfreeze_on_demand: bool
    created_at: datetime


class Snapshot(Told):
    id: str
    snapshot_id: str
    name: str
    type: str
    source_type: str
    source_id: str
    container_name: str
    status: str
    # It has files, and no processes.
    hot: bool = False
    locked: bool
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None = None


class Image(Told):
    id: str
    image_id: str
    name: str
    description: str
    visibility: str
    fingerprint: str | None = None
    size_bytes: int
    source_type: str
    status: str
    locked: bool
    created_at: datetime


class KeyState(Told):
    valid: bool
    public_key: str
