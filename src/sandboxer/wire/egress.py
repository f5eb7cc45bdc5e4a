"""What a sandbox of trust level `semi` may reach: rules, secrets in headers, limits, and what was refused."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.words import Answer, Moment, Request, SandboxId

MAX_RULES = 10_000
Action = Literal["allow", "deny"]
Host = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        description="`example.com`; `*.example.com` for all names below it; `*` for every one.",
        examples=["pypi.org"],
    ),
]
Ports = Annotated[
    list[Annotated[int, Field(ge=1, le=65535)]],
    Field(
        max_length=32,
        description="443 and 80 unless given; a deny without methods and path then holds on every port. "
        "Empty: every port but 25.",
    ),
]
Methods = Annotated[
    list[Annotated[str, Field(pattern=r"^[A-Z]{1,20}$")]],
    Field(max_length=16, description="Empty: every one. A rule with methods or a path has TLS opened."),
]
Path = Annotated[
    str, Field(max_length=1001, description="This path and what is below it.", examples=["/v1/messages"])
]


class RuleFacts(Answer):
    action: Action
    host: Host
    ports: list[int]
    methods: list[str]
    path: str | None
    note: str


class Rule(Request):
    action: Action
    host: Host
    ports: Ports = Field(default=[443, 80])
    methods: Methods = Field(default=[])
    path: Path | None = None
    note: Annotated[str, Field(max_length=200, description="For whoever reads the rules.")] = ""


class HeaderSecret(Request):
    """A secret of the account's vault that is put into requests to a host, outside of the sandbox."""

    host: Annotated[str, Field(min_length=1, max_length=253, description="One host by its whole name.")]
    header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$", examples=["Authorization"])]
    secret: Annotated[str, Field(min_length=1, max_length=128, description="Its name; see /v1/secrets.")]
    form: Annotated[
        str,
        Field(min_length=2, max_length=200, description="`{}` stands for the value.", examples=["Bearer {}"]),
    ] = "{}"


class HeaderSecretFacts(Answer):
    host: str
    header: str
    secret: str
    form: str


class Limits(Request):
    max_bytes: Annotated[
        int | None, Field(ge=0, le=1 << 60, description="Both ways, over its whole life.")
    ] = None
    bytes_per_s: Annotated[int | None, Field(ge=1024, le=1 << 40)] = None
    connections: Annotated[int, Field(ge=1, le=64, description="At once; more wait inside.")] = 64


class LimitFacts(Answer):
    max_bytes: int | None
    bytes_per_s: int | None
    connections: int


class ReplaceEgress(Request):
    """The whole policy, instead of the one that stands."""

    default: Annotated[Action, Field(description="What happens to hosts that no rule names.")] = "deny"
    rules: Annotated[list[Rule], Field(max_length=MAX_RULES)] = Field(default=[])
    secrets: Annotated[list[HeaderSecret], Field(max_length=100)] = Field(default=[])
    limits: Limits = Limits()
    version: Annotated[int | None, Field(ge=1, description="Only if this version stands.")] = None


class ChangeEgress(Request):
    """Changes to the policy that stands. A rule that is there already is not added twice."""

    default: Action | None = None
    add: Annotated[list[Rule], Field(max_length=1000, description="Rules to add.")] = Field(default=[])
    remove: Annotated[
        list[Rule], Field(max_length=1000, description="Rules to take away, written as they stand.")
    ] = Field(default=[])
    secrets: Annotated[list[HeaderSecret] | None, Field(max_length=100)] = None
    limits: Limits | None = None
    version: Annotated[int | None, Field(ge=1, description="Only if this version stands.")] = None


class Egress(Answer):
    sandbox_id: SandboxId
    version: int
    changed_at: Moment
    default: Action
    rules: list[RuleFacts]
    secrets: list[HeaderSecretFacts]
    limits: LimitFacts
    sent_bytes: Annotated[int, Field(description="From the sandbox outwards, so far.")]
    received_bytes: int
    open_connections: int
    ended_connections: Annotated[int, Field(description="By this very change.")] = 0


class AccountEgress(Answer):
    version: Annotated[int, Field(description="0: there were never any.")]
    rules: list[RuleFacts]
    ended_connections: Annotated[int, Field(description="By this very change.")] = 0


class ReplaceAccountEgress(Request):
    """Rules for all sandboxes of the account, beside each one's own. A deny wins over every allow."""

    rules: Annotated[list[Rule], Field(max_length=MAX_RULES)]
    version: Annotated[int | None, Field(ge=0, description="Only if this version stands.")] = None


class ChangeAccountEgress(Request):
    """Changes to the account's rules. A rule that is there already is not added twice."""

    add: Annotated[list[Rule], Field(max_length=1000, description="Rules to add.")] = Field(default=[])
    remove: Annotated[
        list[Rule], Field(max_length=1000, description="Rules to take away, written as they stand.")
    ] = Field(default=[])
    version: Annotated[int | None, Field(ge=0, description="Only if this version stands.")] = None


class ExplainEgress(Request):
    url: Annotated[str, Field(min_length=1, max_length=4096, examples=["https://pypi.org/simple/"])]
    method: Annotated[str, Field(pattern=r"^[A-Za-z]{1,20}$")] = "GET"


class EgressExplained(Answer):
    url: str
    method: str
    allowed: bool
    reason: str
    why: str
    rule: Annotated[str | None, Field(description="The rule that decided.")]
    tls_opened: Annotated[bool, Field(description="Whether the proxy looks into its TLS.")]


class EgressDenial(Answer):
    first_at: Moment
    last_at: Moment
    count: int
    host: str
    port: int
    method: str
    path: str
    reason: str
    why: str
    rule: str


class EgressDenialList(Answer):
    denials: list[EgressDenial]
