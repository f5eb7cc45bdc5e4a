"""Verbs that send one call and print its answer, as users run them."""

from __future__ import annotations

import json
from pathlib import Path

from sandboxer.edges.cli.exits import Exit
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli


def test_files_are_listed_moved_and_removed(cli: Cli, sandbox: Sandbox) -> None:
    sandbox.files.write("/workspace/a", b"1")
    assert cli("files", "move", sandbox.id, "/workspace/a", "/workspace/b").code == Exit.OK
    assert [one["name"] for one in cli("files", "list", sandbox.id, "/workspace", "--json").json] == ["b"]
    assert "/workspace/b" in cli("files", "list", sandbox.id, "/workspace").out
    assert cli("files", "remove", sandbox.id, "/workspace/b", "--json").json == {"removed": "/workspace/b"}
    assert cli("files", "remove", sandbox.id, "/workspace/b").code == Exit.REFUSED


def test_processes_are_looked_at_signalled_waited_for_and_ended(cli: Cli, sandbox: Sandbox) -> None:
    begun = sandbox.processes.start("cat", has_stdin=True)
    which = (sandbox.id, begun.process_id)
    assert [one["process_id"] for one in cli("process", "list", sandbox.id, "--json").json] == [which[1]]
    assert cli("process", "show", *which, "--json").json["process_id"] == begun.process_id
    assert cli("process", "signal", *which, "TERM").code == Exit.OK
    assert cli("process", "wait", *which, "--timeout", "20", "--json").json["exit_code"] is not None
    assert cli("process", "end", *which, "--json").json["ended"] is True
    assert cli("process", "terminals", sandbox.id, "--json").json == []


def test_a_sandbox_is_boosted_and_says_how_it_is_reached(cli: Cli, sandbox: Sandbox) -> None:
    assert cli("boost", sandbox.id, "2", "--json").json["id"] == sandbox.id
    assert cli("unboost", sandbox.id, "--json").json["id"] == sandbox.id
    assert cli("reachability", sandbox.id).code == Exit.OK


def test_accounts_are_opened_capped_suspended_and_closed(cli: Cli) -> None:
    why = ("--reason", "a test")
    made = cli("accounts", "create", "--id", "plain-team", *why, "--json").json
    assert made["id"] == "plain-team"
    assert "plain-team" in cli("accounts", "list").out
    assert cli("accounts", "cap", "plain-team", "--per-day", "5", *why).code == Exit.OK
    shown = cli("accounts", "show", "plain-team", "--json").json
    assert shown["account"]["caps"]["per_day_sats"] == 5
    for verb in ("entitle", "suspend", "reinstate", "close"):
        assert cli("accounts", verb, "plain-team", *why).code == Exit.OK, verb
    acts = cli("accounts", "audit", "--subject", "plain-team", "--json").json["entries"]
    assert {"account.create", "account.cap", "account.close"} <= {one["action"] for one in acts}
    assert cli("accounts", "totals", "--json").code == Exit.OK


def test_keys_are_checked_and_topped_up(cli: Cli) -> None:
    key = cli("keys", "cut", "child", "--scope", "exec", "--json").json["public_key"]
    assert cli("keys", "check", key, "--json").json["public_key"] == key
    # The operator's own bucket is empty here.
    topped = cli("keys", "top-up", key, "1", "--id", "plain-1")
    assert (topped.code, "insufficient_credit" in topped.err) == (Exit.REFUSED, True)


def test_an_egress_policy_is_replaced_from_a_file(cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"rules": [{"action": "deny", "host": "example.com"}]}))
    now = cli("egress", "replace", "account", str(policy), "--json").json
    assert [rule["host"] for rule in now["rules"]] == ["example.com"]
    policy.write_text('{"rules": []}')
    assert cli("egress", "replace", "account", str(policy), "--json").json["rules"] == []
    policy.write_text("{")
    assert cli("egress", "replace", "account", str(policy)).code == Exit.ERROR


def test_what_the_platform_can_do_and_what_was_used_is_shown(cli: Cli) -> None:
    assert "profile." in cli("profiles").out
    for words in (
        ("capabilities",),
        ("credits", "usage"),
        ("credits", "segments"),
        ("credits", "events"),
        ("gift", "pricing"),
        ("wallets", "offer"),
    ):
        assert cli(*words).code == Exit.OK, words
