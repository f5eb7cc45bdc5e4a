"""An egress policy consists of rules, headers that carry secrets, and limits. It is checked before it is
kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxer.access.egress.names import BadName, host_of
from sandboxer.kernel.errors import InvalidRequest

MAX_RULES = 10_000
MAX_FOR_ONE_HOST = 100
MAX_SECRETS = 100
# The ports of a rule that names none; see `Rule.is_about`.
WEB_PORTS = (443, 80)
_METHOD = re.compile(r"[A-Z]{1,20}")
_PATH = re.compile(r"/[\x21-\x22\x24-\x3e\x40-\x7e]{0,1000}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_FORM = re.compile(r"[\x20-\x7e]{1,200}")
# Headers that decide how a message is read, or where it goes; they cannot carry secrets.
_NOT_FOR_SECRETS = frozenset(
    [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
    ]
)


class Action(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    action: Action
    # `example.com`, `*.example.com` (below it, not itself), or `*`.
    host: str
    ports: tuple[int, ...] = WEB_PORTS
    # Empty: every method. Methods and paths are visible only in opened TLS, so such a rule opens it.
    methods: tuple[str, ...] = ()
    # A path and what is below it: `/v1` is `/v1` and `/v1/…`; None: all.
    path: str | None = None
    note: str = ""

    @property
    def looks_inside(self) -> bool:
        return bool(self.methods) or self.path is not None

    def is_about(self, port: int) -> bool:
        """Tells whether the rule concerns a port. A deny without ports means all ports; an allow means the
        usual ones.
        """
        is_whole_host = self.action is Action.DENY and self.ports == WEB_PORTS and not self.looks_inside
        return is_whole_host or port in self.ports

    def words(self) -> str:
        """Returns the rule as a person would say it."""
        what = f"{self.action.value} {self.host}"
        if self.ports != WEB_PORTS:
            what += " port " + ", ".join(map(str, self.ports))
        if self.methods:
            what += " " + "|".join(self.methods)
        return what + (f" {self.path}" if self.path is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A header that is put into requests to a host outside the sandbox, with the value of a secret."""

    host: str
    header: str
    # The secret's name in the account's vault.
    secret: str
    # `{}` stands for the value.
    form: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    # Bytes in both directions over its whole life; None: unlimited.
    max_bytes: int | None = None
    bytes_per_s: int | None = None
    connections: int = 64


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    # What happens if no rule matches.
    default: Action = Action.DENY
    rules: tuple[Rule, ...] = ()
    secrets: tuple[Injection, ...] = ()
    limits: Limits = field(default_factory=Limits)


def check_policy(policy: Policy) -> Policy:
    """Returns the policy with canonical names. Raises InvalidRequest that names the field."""
    if len(policy.rules) > MAX_RULES:
        raise InvalidRequest(field="rules", why=f"there are more than {MAX_RULES}")
    if len(policy.secrets) > MAX_SECRETS:
        raise InvalidRequest(field="secrets", why=f"there are more than {MAX_SECRETS}")
    rules = tuple(_rule(rule, f"rules[{at}]") for at, rule in enumerate(policy.rules))
    per_host: dict[str, int] = {}
    for rule in rules:
        per_host[rule.host] = per_host.get(rule.host, 0) + 1
        if per_host[rule.host] > MAX_FOR_ONE_HOST:
            raise InvalidRequest(
                field="rules", why=f"more than {MAX_FOR_ONE_HOST} are about {rule.host}; join their paths"
            )
    secrets = tuple(_injection(one, f"secrets[{at}]") for at, one in enumerate(policy.secrets))
    _limits(policy.limits)
    return Policy(default=policy.default, rules=rules, secrets=secrets, limits=policy.limits)


def pattern_of(text: str, field: str) -> str:
    try:
        if text == "*":
            return text
        return "*." + host_of(text[2:]) if text.startswith("*.") else host_of(text)
    except BadName as error:
        raise InvalidRequest(field=field, why=f"{text!r} is no host: {error}") from None


def parse_entry(text: str, field: str = "egress") -> Rule:
    """Parses an `allow` as profiles and the command line write it: `host` or `host:port`."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return Rule(action=Action.ALLOW, host=pattern_of(text, field))
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidRequest(field=field, why=f"{text!r} has no port after its colon")
    return Rule(action=Action.ALLOW, host=pattern_of(host, field), ports=(int(port),))


def first_policy(*, allows_all: bool, entries: Sequence[str]) -> Policy:
    """Returns the policy that a profile gives a new sandbox."""
    return Policy(
        default=Action.ALLOW if allows_all else Action.DENY,
        rules=tuple(parse_entry(entry, "network.egress") for entry in entries),
    )


def _rule(rule: Rule, field: str) -> Rule:
    host = pattern_of(rule.host, f"{field}.host")
    if not rule.ports or any(not 0 < port < 65536 for port in rule.ports) or len(rule.ports) > 32:
        raise InvalidRequest(field=f"{field}.ports", why="1 to 32 ports between 1 and 65535")
    if any(_METHOD.fullmatch(method) is None for method in rule.methods) or len(rule.methods) > 16:
        raise InvalidRequest(field=f"{field}.methods", why="at most 16, in capital letters")
    if rule.path is not None and (_PATH.fullmatch(rule.path) is None or _is_winding(rule.path)):
        raise InvalidRequest(
            field=f"{field}.path", why="a path begins with / and holds no query, %, // or dots"
        )
    if rule.looks_inside and any(port not in WEB_PORTS for port in rule.ports):
        raise InvalidRequest(field=f"{field}.ports", why="methods and paths are seen on 443 and 80 only")
    if rule.looks_inside and rule.host == "*":
        raise InvalidRequest(field=f"{field}.host", why="methods and paths need a host: TLS is opened for it")
    return Rule(
        action=rule.action,
        host=host,
        ports=tuple(sorted(set(rule.ports), reverse=True)),
        methods=tuple(sorted(set(rule.methods))),
        path=rule.path,
        note=rule.note,
    )


def _is_winding(path: str) -> bool:
    return "%" in path or "//" in path or any(part in (".", "..") for part in path.split("/"))


def _injection(one: Injection, field: str) -> Injection:
    host = pattern_of(one.host, f"{field}.host")
    if "*" in host:
        raise InvalidRequest(field=f"{field}.host", why="a secret goes to one host by its whole name")
    if _HEADER.fullmatch(one.header) is None or one.header.lower() in _NOT_FOR_SECRETS:
        raise InvalidRequest(field=f"{field}.header", why="it is no header that a secret may go into")
    if _SECRET.fullmatch(one.secret) is None:
        raise InvalidRequest(field=f"{field}.secret", why="it is no name of a secret")
    if _FORM.fullmatch(one.form) is None or one.form.count("{}") != 1:
        raise InvalidRequest(field=f"{field}.form", why="printable, with `{}` once for the value")
    return Injection(host=host, header=one.header, secret=one.secret, form=one.form)


def _limits(limits: Limits) -> None:
    if limits.max_bytes is not None and limits.max_bytes < 0:
        raise InvalidRequest(field="limits.max_bytes", why="it is less than nothing")
    if limits.bytes_per_s is not None and limits.bytes_per_s < 1024:
        raise InvalidRequest(field="limits.bytes_per_s", why="at least 1024")
    if not 1 <= limits.connections <= 64:
        raise InvalidRequest(field="limits.connections", why="between 1 and 64")
