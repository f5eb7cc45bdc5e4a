"""Verbs that send one call and print its answer, as users run them."""

from __future__ import annotations

import json
from pathlib import Path

from sandboxer.edges.cli.exits import Exit
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli
from tests.support.platforms import Up


def test_files_are_listed_moved_and_removed(cli: Cli, sandbox: Sandbox) -> None:
    sandbox.files.write("/workspace/a", b"1")
    assert cli("file", "move", sandbox.id, "/workspace/a", "/workspace/b").code == Exit.OK
    assert [one["name"] for one in cli("file", "list", sandbox.id, "/workspace", "--json").items] == ["b"]
    assert "/workspace/b" in cli("file", "list", sandbox.id, "/workspace").out
    assert cli("file", "delete", sandbox.id, "/workspace/b", "--json").json["deleted"] is True
    assert cli("file", "delete", sandbox.id, "/workspace/b").code == Exit.REFUSED


def test_processes_are_looked_at_signalled_waited_for_and_ended(cli: Cli, sandbox: Sandbox) -> None:
    begun = sandbox.processes.start("cat", has_stdin=True)
    which = (sandbox.id, begun.process_id)
    assert [one["process_id"] for one in cli("process", "list", sandbox.id, "--json").items] == [which[1]]
    assert cli("process", "show", *which, "--json").json["process_id"] == begun.process_id
    assert cli("process", "signal", *which, "TERM").code == Exit.OK
    assert cli("process", "wait", *which, "--timeout", "20s", "--json").json["exit_code"] is not None
    assert cli("process", "delete", *which, "--json").json["deleted"] is True
    assert cli("terminal", "list", sandbox.id, "--json").items == []


def test_a_sandbox_is_boosted_and_says_how_it_is_reached(cli: Cli, sandbox: Sandbox) -> None:
    assert cli("boost", sandbox.id, "2", "--json").json["id"] == sandbox.id
    assert cli("unboost", sandbox.id, "--json").json["id"] == sandbox.id
    assert cli("reachability", sandbox.id).code == Exit.OK


def test_accounts_are_opened_capped_suspended_and_closed(cli: Cli) -> None:
    why = ("--reason", "a test")
    made = cli("account", "create", "--id", "plain-team", *why, "--json").json
    assert made["id"] == "plain-team"
    assert "plain-team" in cli("account", "list").out
    assert cli("account", "cap", "plain-team", "--per-day", "5", *why).code == Exit.OK
    shown = cli("account", "show", "plain-team", "--json").json
    assert shown["account"]["caps"]["per_day_sats"] == 5
    for verb in ("entitle", "suspend", "reinstate", "delete"):
        assert cli("account", verb, "plain-team", *why).code == Exit.OK, verb
    acts = cli("audit", "list", "--subject", "plain-team", "--json").items
    assert {"account.create", "account.cap", "account.close"} <= {one["action"] for one in acts}
    assert cli("ledger", "show", "--json").code == Exit.OK
    assert "balances" in cli("ledger", "show").out


def test_keys_are_checked_and_topped_up(cli: Cli) -> None:
    key = cli("key", "delegate", "child", "--scope", "exec", "--json").json["public_key"]
    assert cli("key", "check", key, "--json").json["public_key"] == key
    # The operator's own bucket is empty here.
    topped = cli("key", "top-up", key, "1", "--id", "plain-1")
    assert (topped.code, "Not enough credit" in topped.err) == (Exit.REFUSED, True)


def test_a_bearer_token_is_of_the_own_key_unless_another_is_named(cli: Cli, up: Up) -> None:
    made = cli("key", "bearer", "--json").json
    assert made["public_key"] == json.loads(up.owner_file.read_text())["public_key"]
    by_token = Cli({"SANDBOXER_URL": up.url, "SANDBOXER_API_KEY": made["bearer_token"]})
    refused = by_token("key", "bearer")
    assert (refused.code, "sandboxer key list" in refused.err) == (Exit.ERROR, True)
    assert cli("key", "bearer", "--end").code == Exit.OK


def test_a_tree_of_keys_has_no_figures_where_nobody_pays(cli: Cli) -> None:
    heading = cli("key", "tree").out.splitlines()[0]
    assert heading.split() == ["NAME", "ID", "STATE"]


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
    assert "profile." in cli("profile", "list").out
    for words in (
        ("capabilities",),
        ("credit", "usage"),
        ("credit", "segments"),
        ("credit", "events"),
        ("gift", "pricing"),
        ("wallet", "offer"),
    ):
        assert cli(*words).code == Exit.OK, words


def test_logs_are_what_processes_printed(real_cli: Cli, real_sandbox: Sandbox) -> None:
    ended = real_sandbox.processes.start("echo said; echo warned >&2")
    real_sandbox.processes.wait(ended.process_id)
    running = real_sandbox.processes.start("echo still here; exec sleep 100")
    real_sandbox.exec("while ! grep -q sleep /proc/[0-9]*/comm; do :; done")
    said = real_cli("logs", real_sandbox.id)
    assert (said.out, said.err) == ("said\nstill here\n", "warned\n")
    assert real_cli("logs", real_sandbox.id, ended.process_id, "-f").out == "said\n"
    (line,) = real_cli("logs", real_sandbox.id, running.process_id, "--json").items
    assert (line["stream"], line["text"]) == ("stdout", "still here\n")
    assert real_cli("logs", "no-such-thing").code == Exit.REFUSED
