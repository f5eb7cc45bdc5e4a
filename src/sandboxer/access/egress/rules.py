"""An egress policy consists of rules, headers that carry secrets, and limits. It is checked before it is
kept. Also here: names of hosts as rules and requests may write them, and how servers may interpret a path.
Decisions only.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote, unquote_to_bytes

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class

MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


class BadName(Exception):
    """Why it is not the name of a host."""


def host_of(text: str) -> str:
    """Returns the canonical name: lower case, no trailing dot. Raises BadName."""
    if not (name := text.lower().removesuffix(".")) or len(name) > MAX_NAME:
        raise BadName("it is empty or longer than 253 characters")
    labels = name.split(".")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        raise BadName("it is no domain name; write international names in punycode, addresses as plain IPv4")
    if _NUMBER.fullmatch(labels[-1]) and not is_address(text):
        raise BadName("it ends in a number without being an IPv4 address in its usual form")
    return name


@lru_cache(maxsize=4096)
def is_address(name: str) -> bool:
    try:
        return str(ipaddress.IPv4Address(name)) == name
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def authority_of(text: str, *, default_port: int | None) -> tuple[str, int]:
    """Returns host and port of `host:port`; without a port the default, if there is one. Raises BadName."""
    host, colon, digits = text.rpartition(":")
    if not colon:
        host, digits = text, "" if default_port is None else str(default_port)
    if _PORT.fullmatch(digits) is None or int(digits) > 65535:
        raise BadName("its port is missing or is none")
    return host_of(host), int(digits)


# Characters that every server reads alike: letters, digits and marks without special meaning.
_SEGMENT = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,=:@;]|%[0-9A-Fa-f]{2})*")
# Escapes that some servers decode before they split: dots, slashes, parameters, queries, escapes themselves.
_MEANS_SOMETHING = frozenset(b"./\\%;?#")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
# `%u002e` of old servers, escapes cut short, and control characters that end or split a path.
_UNREADABLE = re.compile(r"%(?![0-9A-Fa-f]{2})|[\x00-\x1f\x7f]")


def is_plain(path: str) -> bool:
    """Tells whether all servers read the path as it is written."""
    return path.startswith("/") and "//" not in path and all(map(_is_plain, path.split("/")))


def _is_plain(segment: str) -> bool:
    if _SEGMENT.fullmatch(segment) is None:
        return False
    codes = [int(code, 16) for code in _ESCAPED.findall(segment)]
    if any(code in _MEANS_SOMETHING or code < 0x20 or code == 0x7F for code in codes):
        return False
    try:
        # Overlong forms of a dot or a slash are not UTF-8.
        decoded = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return False
    name = decoded.partition(";")[0]
    # `. .`, or `..` followed by spaces, mean dots to servers on some systems.
    return not name or name.strip(" .") != ""


def readings(path: str) -> tuple[str, ...]:
    """Returns how servers may read a path, in lower case; empty if they may read anything into it."""
    for _ in range(3):
        if _UNREADABLE.search(path):
            return ()
        try:
            path = unquote(path, errors="strict")
        except UnicodeDecodeError:
            return ()
    if "%" in path or _UNREADABLE.search(path):
        return ()
    parts = [part for part in path.replace("\\", "/").lower().split("/") if part]
    if any(part.strip(" .") == "" and part not in (".", "..") for part in _names(parts)):
        return ()
    return _joined(_names(parts)), _joined(parts), _joined(_folded(_names(parts)))


def _names(parts: list[str]) -> list[str]:
    """Returns the parts without parameters: `..;x` is `..` to servers that know parameters, and a name to
    others.
    """
    return [part.partition(";")[0] for part in parts]


def _folded(parts: list[str]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return kept


def _joined(parts: list[str]) -> str:
    return "/" + "/".join(parts)


MAX_RULES = 10_000
MAX_FOR_ONE_HOST = 100
MAX_SECRETS = 100
# The ports of a rule that names none; see `Rule.is_about`.
WEB_PORTS = (443, 80)
# The ports of a rule about all of them but one: whoever may send mail to strangers has the host blocked by
# the world, so that port wants a rule that names it.
EVERY_PORT: tuple[int, ...] = ()
MAIL_PORT = 25
_METHOD = re.compile(r"[A-Z]{1,20}")
_PATH = re.compile(r"/[\x21-\x22\x24-\x3e\x40-\x7e]{0,1000}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
# The name of one, or one that has its value in itself (`Vault.sealed`).
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}|sealed:[A-Za-z0-9_=-]{1,8192}")
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


@value_class
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
        if self.action is Action.DENY and self.ports in (WEB_PORTS, EVERY_PORT) and not self.looks_inside:
            return True
        return port in self.ports or (self.ports == EVERY_PORT and port != MAIL_PORT)

    def words(self) -> str:
        """Returns the rule as a person would say it."""
        what = f"{self.action.value} {self.host}"
        if self.ports == EVERY_PORT:
            what += " every port"
        elif self.ports != WEB_PORTS:
            what += " port " + ", ".join(map(str, self.ports))
        if self.methods:
            what += " " + "|".join(self.methods)
        return what + (f" {self.path}" if self.path is not None else "")


@value_class
class Injection:
    """A header that is put into requests to a host outside the sandbox, with the value of a secret."""

    host: str
    header: str
    # The secret's name in the account's vault, or its value, sealed.
    secret: str
    # `{}` stands for the value.
    form: str = "{}"


@value_class
class Limits:
    # Bytes in both directions over its whole life; None: unlimited.
    max_bytes: int | None = None
    bytes_per_s: int | None = None
    connections: int = 64


@value_class
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
    """Parses an `allow` as profiles and the command line write it: `host`, `host:port` or `host:*`."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return Rule(action=Action.ALLOW, host=pattern_of(text, field))
    if port == "*":
        return Rule(action=Action.ALLOW, host=pattern_of(host, field), ports=EVERY_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidRequest(field=field, why=f"{text!r} has no port after its colon")
    return Rule(action=Action.ALLOW, host=pattern_of(host, field), ports=(int(port),))


def _rule(rule: Rule, field: str) -> Rule:
    host = pattern_of(rule.host, f"{field}.host")
    if any(not 0 < port < 65536 for port in rule.ports) or len(rule.ports) > 32:
        raise InvalidRequest(
            field=f"{field}.ports", why="at most 32 ports between 1 and 65535; none: every one"
        )
    if any(_METHOD.fullmatch(method) is None for method in rule.methods) or len(rule.methods) > 16:
        raise InvalidRequest(field=f"{field}.methods", why="at most 16, in capital letters")
    if rule.path is not None and (_PATH.fullmatch(rule.path) is None or _is_winding(rule.path)):
        raise InvalidRequest(
            field=f"{field}.path", why="a path begins with / and holds no query, %, // or dots"
        )
    if rule.looks_inside and not (rule.ports and set(rule.ports) <= set(WEB_PORTS)):
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
