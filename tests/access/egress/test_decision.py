"""The decision alone: which rule speaks, and on which ports."""

from __future__ import annotations

import pytest

from sandboxer.access.egress.policy import Allow, Ask, Deny, Rules, decide
from sandboxer.access.egress.rules import Action, Policy, Rule, check_policy


def rules(*wanted: Rule, default: Action = Action.DENY) -> Rules:
    return Rules(check_policy(Policy(default=default, rules=wanted)))


def allow(host: str, *ports: int) -> Rule:
    return Rule(action=Action.ALLOW, host=host, ports=ports or (443, 80))


def deny(host: str, *ports: int, path: str | None = None) -> Rule:
    return Rule(action=Action.DENY, host=host, ports=ports or (443, 80), path=path)


def ask(host: str, port: int = 443) -> Ask:
    return Ask(host=host, port=port, is_tls=port == 443)


@pytest.mark.parametrize("port", [443, 80, 8443, 22])
def test_a_deny_without_a_port_holds_on_every_port_that_something_else_allows(port: int) -> None:
    both = rules(allow("*.example.com", 443, 80, 8443, 22), deny("tracker.example.com"))
    refused = decide(both, ask("tracker.example.com", port))
    assert isinstance(refused, Deny)
    assert refused.reason == "denied_by_rule"
    assert isinstance(decide(both, ask("www.example.com", port)), Allow)


def test_a_deny_that_names_a_port_leaves_the_others() -> None:
    both = rules(allow("www.example.com", 443, 8443), deny("www.example.com", 8443))
    assert isinstance(decide(both, ask("www.example.com", 8443)), Deny)
    assert isinstance(decide(both, ask("www.example.com", 443)), Allow)


def test_a_deny_of_a_path_is_about_the_ports_where_paths_are_seen() -> None:
    both = rules(allow("www.example.com", 443, 8443), deny("www.example.com", path="/private"))
    assert isinstance(decide(both, ask("www.example.com", 8443)), Allow)
    inside = Ask(host="www.example.com", port=443, is_tls=True, method="GET", path="/private/x")
    assert isinstance(decide(both, inside), Deny)


def test_an_allow_without_a_port_is_about_443_and_80_only() -> None:
    one = rules(allow("www.example.com"))
    assert isinstance(decide(one, ask("www.example.com", 80)), Allow)
    refused = decide(one, ask("www.example.com", 8443))
    assert isinstance(refused, Deny)
    assert "not on port 8443" in refused.why


def test_where_everything_is_allowed_other_ports_still_need_a_rule() -> None:
    anything = rules(default=Action.ALLOW)
    assert isinstance(decide(anything, ask("www.example.com")), Allow)
    refused = decide(anything, ask("www.example.com", 25))
    assert isinstance(refused, Deny)
    assert refused.reason == "port"


def test_a_rule_about_every_port_leaves_mail_to_one_that_names_it() -> None:
    every = rules(Rule(action=Action.ALLOW, host="*", ports=()))
    assert isinstance(decide(every, ask("www.example.com", 5432)), Allow)
    assert isinstance(decide(every, ask("192.0.2.4", 5432)), Allow)
    assert isinstance(decide(every, ask("www.example.com", 25)), Deny)
    assert isinstance(decide(rules(allow("mx.example.com", 25)), ask("mx.example.com", 25)), Allow)
    nothing = rules(allow("*", 25), Rule(action=Action.DENY, host="www.example.com", ports=()))
    assert isinstance(decide(nothing, ask("www.example.com", 25)), Deny)


@pytest.mark.parametrize("path", [None, "/private"])
def test_where_a_name_is_denied_an_address_needs_a_rule_of_its_own(path: str | None) -> None:
    both = rules(Rule(action=Action.ALLOW, host="*", ports=()), deny("tracker.example.com", path=path))
    refused = decide(both, ask("192.0.2.4", 8443))
    assert isinstance(refused, Deny)
    assert refused.reason == "address"
    named = rules(allow("192.0.2.4", 8443), deny("tracker.example.com", path=path))
    assert isinstance(decide(named, ask("192.0.2.4", 8443)), Allow)
    other = rules(deny("192.0.2.9"), default=Action.ALLOW)
    assert isinstance(decide(other, ask("192.0.2.4")), Allow)


def test_a_name_below_is_not_the_name_itself_and_an_address_is_below_nothing() -> None:
    below = rules(allow("*.example.com"))
    assert isinstance(decide(below, ask("a.b.example.com")), Allow)
    assert isinstance(decide(below, ask("example.com")), Deny)
    assert isinstance(decide(below, ask("notexample.com")), Deny)
    assert isinstance(decide(rules(allow("*.com"), allow("*.example.com")), ask("192.0.2.4")), Deny)
