"""`egress` as users run it, for one sandbox and for all of the account."""

from __future__ import annotations

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli


def test_rules_are_set_explained_and_taken_away_for_one_and_for_all(cli: Cli) -> None:
    sandbox = cli("create", "--network", "allow:example.org", "--json").json["id"]
    try:
        assert "pypi.org" in cli("egress", "allow", sandbox, "pypi.org").out
        denied = cli("egress", "explain", sandbox, "https://files.example.com/", "--json").json
        assert denied["allowed"] is False
        assert "*.example.com" in cli("egress", "allow", "account", "*.example.com").out
        shown = cli("egress", "deny", "account", "pypi.org:443", "--json").json
        assert [(one["action"], one["host"]) for one in shown["rules"]] == [
            ("allow", "*.example.com"),
            ("deny", "pypi.org"),
        ]
        assert cli("egress", "explain", sandbox, "https://files.example.com/", "--json").json["allowed"]
        answer = cli("egress", "explain", sandbox, "https://pypi.org/", "--json").json
        assert (answer["allowed"], answer["rule"]) == (False, "deny pypi.org port 443")
        said = cli("egress", "explain", "account", "https://other.test/").out
        assert "no rule allows other.test in all sandboxes" in said
        for nowhere in ("other.test", "pypi.org:8443"):
            refused = cli("egress", "delete", "account", nowhere)
            assert refused.code == Exit.REFUSED
            assert nowhere in refused.err
        for host in ("*.example.com", "pypi.org:443"):
            left = cli("egress", "delete", "account", host)
        assert "in all sandboxes of the account" in left.out
        assert cli("egress", "show", "account", "--json").json["rules"] == []
        assert "pypi.org" in cli("egress", "show", sandbox).out
        assert cli("egress", "show", "sbx_nobody").code == Exit.REFUSED
    finally:
        cli("delete", sandbox)
