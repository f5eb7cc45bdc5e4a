"""`credits`, `keys`, `ledger`, `audit` and `pricing` as users run them."""

from __future__ import annotations

import json
from pathlib import Path

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli, account
from tests.support.platforms import Up, scripted_platform


def test_credits_are_added_moved_and_shown(cli: Cli) -> None:
    giver, taker = account(cli, "cli-giver", 1000), account(cli, "cli-taker", 1)
    to = taker("credit", "show", "--json").json["account"]["public_id"]
    assert "gave 400 sats" in giver("credit", "transfer", to, "400", "--id", "g").out
    assert "done before" in giver("credit", "transfer", to, "400", "--id", "g").out
    assert giver("credit", "show", "--json").json["money"]["balance"] == 600
    assert cli("credit", "show", "--account", "cli-taker", "--json").json["money"]["balance"] == 401
    assert "balance" in giver("credit", "show").out
    rows = giver("credit", "statement", "--json").items
    assert [row["change"] for row in rows] == [-400, 1000]
    assert giver("credit", "statement", "--csv").out.startswith("seq,at,id")
    assert "gift" in giver("credit", "statement").out
    assert giver("credit", "transfer", to, "100000").code == Exit.REFUSED
    assert giver("credit", "add", "cli-giver", "5", "--reason", "mine").code == Exit.REFUSED


def test_keys_are_cut_shown_as_a_tree_suspended_rotated_and_ended(cli: Cli) -> None:
    own = account(cli, "cli-root", 1000)
    key = own("key", "delegate", "worker", "--scope", "exec", "--budget", "100", "--json").json
    assert key["budget_sats"] == 100
    tree = own("key", "tree", "--json").json
    assert tree["children"][0]["balance"] == 100
    assert "worker" in own("key", "tree").out
    public = key["public_key"]
    assert own("key", "suspend", public, "--why", "x").code == Exit.REFUSED
    assert cli("key", "suspend", public, "--why", "leaked").code == Exit.OK
    assert cli("key", "reinstate", public, "--json").code == Exit.OK
    assert cli("key", "update", public, "--expires-at", "2100-01-01T00:00:00Z").code == Exit.OK
    # Who forgets to say when must not make it endless.
    assert cli("key", "update", public).code == Exit.USAGE
    assert cli("key", "update", public, "--never-expires").code == Exit.OK
    assert cli("key", "rotate", public, "--json").json["secret_key"] != key["secret_key"]
    assert own("key", "delete", public).code == Exit.OK


def test_the_books_are_proven_through_the_api_and_offline(cli: Cli, up: Up, tmp_path: Path) -> None:
    account(cli, "cli-books", 10)
    state = ("--offline", "--state-dir", str(up.state_dir))
    for words in ((), state):
        proof = cli("ledger", "verify", "--json", *words)
        assert (proof.code, proof.json["is_whole"]) == (Exit.OK, True)
        assert cli("audit", "verify", "--json", *words).json["is_whole"]
    assert "whole" in cli("ledger", "verify").out
    exported = cli("audit", "export").out
    assert exported == cli("audit", "export", *state).out
    file = tmp_path / "audit.jsonl"
    file.write_text(exported)
    last = json.loads(exported.splitlines()[-1])
    anchor = f"{last['seq']}:{last['hash']}"
    assert cli("audit", "verify", "--file", str(file), "--anchor", anchor).code == Exit.OK
    assert cli("audit", "verify", "--anchor", anchor, "--json").json["is_whole"]
    assert cli("audit", "verify", "--anchor", f"{last['seq']}:{'0' * 64}").code == Exit.ERROR
    file.write_text(exported.replace('"reason":"test"', '"reason":"nest"', 1))
    assert cli("audit", "verify", "--file", str(file)).code != Exit.OK
    nowhere = cli("ledger", "verify", "--offline", "--state-dir", str(tmp_path / "none"))
    assert nowhere.code == Exit.ERROR


def test_prices_are_shown(cli: Cli) -> None:
    assert "profile.agent-dev" in cli("pricing", "--json").out
    assert len(cli("pricing", "--json").json["tiers"]) == 160


def test_money_is_not_spoken_of_where_nothing_is_charged(cli: Cli) -> None:
    for words in (("pricing",), ("quote",)):
        said = cli(*words)
        assert (said.code, said.out.partition(".")[0]) == (Exit.OK, "Nothing is charged here")
        assert cli(*words, "--json").json["is_charged"] is False
    owner = cli("credit", "show").out
    assert "balance" in owner
    assert not [word for word in ("held", "reserved", "debt", "spending", "standing") if word in owner]


def test_prices_are_shown_where_sandboxes_pay(tmp_path: Path) -> None:
    with scripted_platform(tmp_path, charging=True) as paid:
        cli = Cli(paid.environment)
        assert "profile.agent-dev" in cli("pricing").out
        assert "sats" in cli("quote").out
        assert cli("pricing", "--json").json["is_charged"] is True
