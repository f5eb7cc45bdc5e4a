"""`sandboxer route`: which backend makes a sandbox, for people and for programs."""

from __future__ import annotations

from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli


def test_it_is_explained_in_a_table_and_as_json(cli: Cli) -> None:
    shown = cli("route", "explain", "agent-dev", "--isolation", "strong")
    assert shown.code == 0, shown.err
    assert "profile.agent-dev: explicit, isolation strong, since the request asks for it" in shown.out
    assert "refused" in shown.out
    assert "container, not strong" in " ".join(shown.out.split())

    found = cli("route", "explain", "agent-dev", "--json").json
    assert [(one["backend"], one["verdict"]) for one in found["considered"]] == [("ext.namespaces", "chosen")]


def test_a_sandbox_says_why_it_stands_where_it_does(cli: Cli, sandbox: Sandbox) -> None:
    shown = cli("route", "show", sandbox.id)
    assert shown.code == 0, shown.err
    assert "made it" in shown.out
    assert cli("route", "show", sandbox.id, "--json").json["strategy"] == "explicit"


def test_a_word_that_is_no_strategy_is_named(cli: Cli) -> None:
    said = cli("route", "explain", "agent-dev", "--strategy", "cheapest")
    assert said.code != 0
    assert "strategy" in said.err


def test_a_create_may_ask_for_more_between_it_and_the_host(cli: Cli) -> None:
    refused = cli("create", "--isolation", "strong")
    assert refused.code != 0
    assert "isolation level strong is not available here" in refused.err
    assert cli("create", "--isolation", "container", "--json").json["state"] == "ready"
