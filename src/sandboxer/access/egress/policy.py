"""Decides whether a sandbox may reach something. Pure, and fast with ten thousand rules, because they are
found by name.

A matching deny wins over every allow; what nothing matches gets the default. An address must be named
exactly, or by `*`; where names are denied, `*` and the default are not about addresses, which have no name
that could be compared. If the rules of a host look at methods or paths, its TLS is opened and each request in
it is decided again.

`Denials` keep what a sandbox was recently refused: the list is bounded, and repetitions are one entry.

Which hosts serve packages, and what a sandbox's network is, said by intent: `none`, `packages`, `open`, or
`allow:` and hosts. Decisions only.

An operator adds hosts to the table, and mirrors: variables such as PIP_INDEX_URL, which tools inside read.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from sandboxer.access.egress.rules import (
    EVERY_PORT,
    WEB_PORTS,
    Action,
    BadName,
    Injection,
    Limits,
    Policy,
    Rule,
    check_policy,
    host_of,
    is_address,
    is_plain,
    parse_entry,
    readings,
)
from sandboxer.kernel.addresses import permitted
from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.sandboxes.profiles import NetworkDefault, Profile

# By the tool that asks them.
REGISTRIES: Mapping[str, tuple[str, ...]] = {
    "pip": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("*.npmjs.org", "registry.yarnpkg.com"),
    "apt": (
        "deb.debian.org",
        "security.debian.org",
        "archive.ubuntu.com",
        "*.archive.ubuntu.com",
        "security.ubuntu.com",
        "ports.ubuntu.com",
    ),
    "cargo": ("crates.io", "*.crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "maven": ("repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org"),
    "gem": ("rubygems.org", "*.rubygems.org"),
    "composer": ("packagist.org", "repo.packagist.org"),
    "nuget": ("api.nuget.org",),
    "apk": ("dl-cdn.alpinelinux.org",),
    "conda": ("conda.anaconda.org", "repo.anaconda.com"),
    "R": ("cloud.r-project.org",),
}
MAX_HOSTS = 64
HOW = "Write none, packages, open, or allow: and hosts, as in allow:example.com,*.example.org:8443."
# Every host on every port.
_OPEN = Rule(action=Action.ALLOW, host="*", ports=EVERY_PORT, note="open")
# Names that never lead anywhere public.
_NEAR = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".localdomain")


@dataclass(frozen=True)
class Packages:
    # Hosts as a profile writes them, and variables with the addresses of mirrors.
    hosts: tuple[str, ...] = ()
    mirrors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Returns an allow for every host that serves packages here. Raises InvalidRequest."""
        table = [(host, tool) for tool, hosts in REGISTRIES.items() for host in hosts]
        table += [(host, "operator") for host in self.hosts]
        table += [(host, name) for name, value in self.mirrors.items() for host in hosts_of(value)]
        return tuple(
            replace(parse_entry(host, "package_hosts"), note=f"packages: {tool}") for host, tool in table
        )

    def has(self, host: str, port: int) -> bool:
        """Says whether packages are served there."""
        return any(rule.is_about(port) for rule in self._found.about(host))

    @cached_property
    def _found(self) -> Rules:
        return Rules(Policy(rules=self.rules))


def hosts_of(mirror: str) -> list[str]:
    """Returns the hosts that a mirror's variable names, which may list several addresses.

    Raises InvalidRequest for one with a password: everything inside a sandbox can read it.
    """
    found = []
    for text in mirror.replace("|", ",").split(","):
        parts = urlsplit(text.strip())
        if parts.scheme not in ("https", "http") or not parts.hostname:
            continue
        if "@" in parts.netloc:
            raise InvalidRequest(
                field="package_mirrors",
                why=f"the address at {parts.hostname} has a password in it, which every sandbox could read",
            )
        found.append(parts.hostname if parts.port in (None, 443, 80) else f"{parts.hostname}:{parts.port}")
    return found


def policy_of(network: str | None, profile: Profile | None, packages: Packages) -> Policy:
    """Returns the rules that a new sandbox begins with: those of its network, or else of its profile.

    Raises InvalidRequest that names the host and why it is none.
    """
    if network is None:
        return Policy() if profile is None else _of_profile(profile, packages)
    if network == "packages":
        return Policy(rules=packages.rules)
    if network == "open":
        return Policy(default=Action.ALLOW, rules=(_OPEN,))
    if not network.startswith("allow:"):
        raise InvalidRequest(field="network", why=f"{network!r} is no network", hint=HOW)
    entries = network.removeprefix("allow:").split(",")
    if len(entries) > MAX_HOSTS:
        raise InvalidRequest(field="network", why=f"it names more than {MAX_HOSTS} hosts", hint=HOW)
    return check_policy(Policy(rules=tuple(dict.fromkeys(_entry(entry.strip()) for entry in entries))))


def refuse_denied(policy: Policy, wider: Sequence[Policy]) -> None:
    """Raises Forbidden if the account's rules deny what is asked for by name; `open` never does."""
    rules = Rules(policy, *wider)
    for one in policy.rules:
        if one.host == "*":
            continue
        host = one.host.replace("*.", "any-name-below.", 1)
        for port in one.ports or WEB_PORTS:
            verdict = decide(rules, Ask(host, port, is_tls=port == 443))
            if isinstance(verdict, Deny) and verdict.rule is not None:
                raise Forbidden(
                    why=f"the account's rules deny {one.host} (`{verdict.rule.words()}`)",
                    reason="denied_by_rule",
                    hint="Take that rule of the account away, or ask for a network without this host.",
                )


def _of_profile(profile: Profile, packages: Packages) -> Policy:
    own = tuple(parse_entry(entry, "network.egress") for entry in profile.egress)
    if profile.network_default is NetworkDefault.PACKAGES:
        own = (*packages.rules, *own)
    is_open = profile.network_default is NetworkDefault.ALLOW
    if is_open:
        own = (*own, _OPEN)
    return Policy(default=Action.ALLOW if is_open else Action.DENY, rules=own)


def _entry(text: str) -> Rule:
    try:
        rule = parse_entry(text, "network")
    except InvalidRequest as error:
        raise InvalidRequest(**{**error.facts, "hint": HOW}) from None
    if why := _why_not(rule.host):
        raise InvalidRequest(field="network", why=f"{text!r} {why}", hint=HOW)
    return rule


def _why_not(host: str) -> str | None:
    """Says why nobody could mean this host, or reach it; the proxy refuses its address in any case."""
    if host == "*":
        return "is every host: say open"
    name = host.removeprefix("*.")
    if is_address(host):
        return None if permitted(ipaddress.ip_address(host), allow_private=False) else "is no public address"
    if "." not in name:
        return "would be a whole top-level domain" if host != name else "is no public name: it has no dot"
    return "never leads to a public address" if f".{name}".endswith(_NEAR) else None


# Methods whose answer echoes the request.
_ECHOES = frozenset({"TRACE", "TRACK"})
KEPT = 200
_CUT = 300


@brief_value_class
class Ask:
    """What is to be reached. Without a method only host and port are known (TLS that nobody opened)."""

    host: str
    port: int
    is_tls: bool
    method: str | None = None
    path: str | None = None
    # A header that makes many servers act on another method or path than the request line says.
    override: str | None = None

    def url(self) -> str:
        scheme = "https" if self.is_tls else "http"
        default = 443 if self.is_tls else 80
        where = self.host if self.port == default else f"{self.host}:{self.port}"
        return f"{scheme}://{where}{self.path or '/'}"


@brief_value_class
class Allow:
    rule: Rule | None
    # Whether its TLS is opened, because a rule looks inside or a secret is inserted.
    is_opened: bool = False


@brief_value_class
class Deny:
    # The reason in one word, for programs.
    reason: str
    why: str
    rule: Rule | None = None


@value_class
class Explained:
    ask: Ask
    verdict: Allow | Deny


@value_class
class Denial:
    first_at: datetime
    last_at: datetime
    count: int
    host: str
    # 0 if there was none.
    port: int
    method: str
    path: str
    reason: str
    why: str
    rule: str


class Rules:
    """Policies joined and sorted by name. What any of them denies is denied."""

    __slots__ = ("_by_host", "_injections", "default", "denies_names", "limits")

    def __init__(self, policy: Policy, *wider: Policy) -> None:
        self.default = policy.default
        self.limits: Limits = policy.limits
        self._by_host: dict[str, list[Rule]] = {}
        self._injections: dict[str, list[Injection]] = {}
        for one in (policy, *wider):
            for rule in one.rules:
                self._by_host.setdefault(rule.host, []).append(rule)
            for injection in one.secrets:
                self._injections.setdefault(injection.host, []).append(injection)
        self.denies_names = any(
            rule.action is Action.DENY
            for host, about in self._by_host.items()
            if host != "*" and not is_address(host)
            for rule in about
        )

    def about(self, host: str) -> Iterator[Rule]:
        """Returns rules that could match, the nearest name first."""
        yield from self._by_host.get(host, ())
        if not is_address(host):
            at = host.find(".")
            while at >= 0:
                yield from self._by_host.get("*" + host[at:], ())
                at = host.find(".", at + 1)
        yield from self._by_host.get("*", ())

    def tells_names_apart(self, port: int) -> bool:
        """Tells whether it matters at this port by which name a host is asked for."""
        everywhere = self._by_host.get("*", ())
        is_open = any(rule.action is Action.ALLOW and rule.is_about(port) for rule in everywhere)
        return self.denies_names or not is_open

    def injections(self, host: str) -> Iterable[Injection]:
        return self._injections.get(host, ())


def decide(rules: Rules, ask: Ask) -> Allow | Deny:
    allowing: Rule | None = None
    looks_inside = False
    for rule in rules.about(ask.host):
        if not rule.is_about(ask.port):
            continue
        looks_inside = looks_inside or rule.looks_inside
        if rule.looks_inside and ask.method is None:
            # Decided when its requests are seen; such an allow lets the connection get that far.
            if rule.action is Action.ALLOW:
                allowing = allowing or rule
            continue
        if not _matches(rule, ask):
            continue
        if rule.action is Action.DENY:
            return Deny("denied_by_rule", f"the rule `{rule.words()}` denies it", rule)
        allowing = allowing or rule
    if allowing is None:
        if rules.default is Action.DENY:
            return Deny("no_rule", _no_rule(rules, ask))
        if ask.port not in WEB_PORTS:
            return Deny("port", f"port {ask.port} needs a rule that names it; 443 and 80 do not")
    if rules.denies_names and is_address(ask.host) and (allowing is None or allowing.host == "*"):
        why = "rules deny hosts by their names, which an address does not tell: it needs a rule of its own"
        return Deny("address", why, allowing)
    has_secret = bool(rules.injections(ask.host))
    if (looks_inside or has_secret) and (misread := _misread(ask, allowing)):
        return misread
    return Allow(allowing, is_opened=ask.is_tls and ask.port == 443 and (looks_inside or has_secret))


def denial_of_address(rules: Rules, address: str, port: int) -> Deny | None:
    """Returns why an address that a name leads to is denied, if a rule denies that very address."""
    for rule in rules.about(address):
        is_deny = rule.action is Action.DENY and not rule.looks_inside
        if is_deny and rule.host == address and rule.is_about(port):
            return Deny("denied_by_rule", f"it is {address}, which the rule `{rule.words()}` denies", rule)
    return None


def _misread(ask: Ask, allowing: Rule | None) -> Deny | None:
    """Finds requests that a server may understand differently, or whose answer would repeat their secret."""
    if ask.method in _ECHOES:
        return Deny("echo", f"{ask.method} would send back the headers put into the request", allowing)
    if ask.override is not None:
        why = f"its header {ask.override} can name another method or path than the rules were asked about"
        return Deny("override_header", why, allowing)
    return None


def _matches(rule: Rule, ask: Ask) -> bool:
    if rule.methods and ask.method not in rule.methods:
        return False
    return rule.path is None or _is_below(rule, ask.path or "/")


def _is_below(rule: Rule, path: str) -> bool:
    path = path.partition("?")[0]
    whole = (rule.path or "/").rstrip("/")
    if rule.action is Action.ALLOW:
        # Servers interpret dots and escapes differently, so only a plain path is surely below another.
        return is_plain(path) and (path == whole or path.startswith(whole + "/"))
    # A deny covers every way in which the path could be read; an ambiguous path could be anything.
    found, whole = readings(path), whole.lower()
    return not found or any(one == whole or one.startswith(whole + "/") for one in found)


def _no_rule(rules: Rules, ask: Ask) -> str:
    near = [rule for rule in rules.about(ask.host) if rule.action is Action.ALLOW]
    if not near:
        return f"no rule allows {ask.host}"
    if not any(rule.is_about(ask.port) for rule in near):
        return f"{ask.host} is allowed, but not on port {ask.port}"
    return f"{ask.host} is allowed, but not {ask.method} {ask.path}"


def ask_of(url: str, method: str) -> Ask:
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port
    except ValueError:
        raise InvalidRequest(field="url", why="it is not a URL") from None
    if parts.scheme not in ("https", "http") or "@" in parts.netloc or "[" in parts.netloc:
        raise InvalidRequest(field="url", why="it must be an http or https URL without a user or brackets")
    try:
        host = host_of(parts.hostname or "")
    except BadName as error:
        raise InvalidRequest(field="url", why=str(error)) from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_tls = parts.scheme == "https"
    return Ask(host, port or (443 if is_tls else 80), is_tls, method.upper(), path)


class Denials:
    def __init__(self, kept: Sequence[Denial] = ()) -> None:
        self._kept = OrderedDict((_key(one), one) for one in kept)
        self.is_new = False

    def add(self, deny: Deny, ask: Ask | None, said: str, now: datetime) -> None:
        one = Denial(
            first_at=now,
            last_at=now,
            count=1,
            host=said[:_CUT] if ask is None else ask.host,
            port=0 if ask is None else ask.port,
            method="" if ask is None else ask.method or "CONNECT",
            path="" if ask is None else (ask.path or "").partition("?")[0][:_CUT],
            reason=deny.reason,
            why=deny.why[:_CUT],
            rule="" if deny.rule is None else deny.rule.words(),
        )
        known = self._kept.pop(_key(one), None)
        if known is not None:
            one = replace(one, first_at=known.first_at, count=known.count + 1)
        self._kept[_key(one)] = one
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        self.is_new = True

    def latest(self) -> list[Denial]:
        return list(reversed(self._kept.values()))


def _key(one: Denial) -> tuple[str, int, str, str]:
    return one.host, one.port, one.method, one.reason


def to_json(denials: Denials) -> list[dict[str, Any]]:
    """Returns the entries, oldest first."""
    return [
        {
            "first_at": one.first_at.isoformat(),
            "last_at": one.last_at.isoformat(),
            "count": one.count,
            "host": one.host,
            "port": one.port,
            "method": one.method,
            "path": one.path,
            "reason": one.reason,
            "why": one.why,
            "rule": one.rule,
        }
        for one in reversed(denials.latest())
    ]


def from_json(kept: Sequence[Mapping[str, Any]]) -> Denials:
    return Denials(
        [
            Denial(
                **{
                    **one,
                    "first_at": datetime.fromisoformat(one["first_at"]),
                    "last_at": datetime.fromisoformat(one["last_at"]),
                }
            )
            for one in kept
        ]
    )
