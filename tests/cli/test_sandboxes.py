"""Verbs on sandboxes: what they print, as JSON and for people, and what they return."""

from __future__ import annotations

import re

import pytest

from sandboxer.edges.cli.exits import Exit
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli
from tests.support.platforms import Up

ABSENT = "sbx_" + "0" * 26


def test_create_get_list_and_destroy_speak_json(cli: Cli) -> None:
    made = cli("create", "--profile", "profile.agent-dev", "--label", "t=json", "--ttl", "1h", "--json").json
    assert re.fullmatch(r"sbx_[0-9a-z]{26}", made["id"])
    assert made["state"] == "ready"
    assert cli("get", made["id"], "--json").json["ttl"] == "1h"
    assert [one["id"] for one in cli("list", "--label", "t=json", "--json").json] == [made["id"]]
    assert cli("destroy", made["id"], "--json").json["state"] == "destroyed"
    assert cli("destroy", made["id"]).code == Exit.OK
    assert cli("list", "--label", "t=json", "--json").json == []


def test_people_get_a_table_with_whole_ids(cli: Cli, sandbox: Sandbox) -> None:
    said = cli("list")
    assert sandbox.id in said.out
    assert "STATE" in said.out
    assert sandbox.id in cli("get", sandbox.id, "--usage").out


@pytest.mark.parametrize(
    ("verbs", "state"),
    [
        (["freeze"], "frozen"),
        (["freeze", "thaw"], "ready"),
        (["stop"], "stopped"),
        (["stop", "resume"], "ready"),
    ],
)
def test_changing_verbs_bring_a_sandbox_into_their_state(
    cli: Cli, sandbox: Sandbox, verbs: list[str], state: str
) -> None:
    said = [cli(verb, sandbox.id, "--json").json for verb in verbs]
    assert said[-1]["state"] == state


def test_extend_ttl_moves_the_end(cli: Cli, sandbox: Sandbox) -> None:
    before = sandbox.info.expires_at
    assert cli("extend-ttl", sandbox.id, "1h").code == Exit.OK
    after = sandbox.refresh().expires_at
    assert before is not None
    assert after is not None
    assert (after - before).total_seconds() == 3600


def test_logs_tell_each_step(cli: Cli, sandbox: Sandbox) -> None:
    lines = cli("logs", sandbox.id, "--json").out.splitlines()
    assert '"sandbox.ready"' in lines[-1] or "ready" in lines[-1]
    assert "ready" in cli("logs", sandbox.id).out


def test_upkeep_verbs_answer(cli: Cli) -> None:
    assert cli("expire", "--json").json["applied"] is False
    assert cli("inspect", "stale", "--json").json == []
    assert cli("inspect", "host", "--json").json["version"]
    assert cli("inspect", "host").code == Exit.OK
    assert cli("reap-stale", "--json").json == {"removed": []}
    assert cli("image", "gc", "--dry-run", "--json").json["grace"] == "1d"
    assert "nobody needs these" in cli("image", "gc", "--dry-run").out
    assert cli("image", "gc", "--json").json == {"removed": []}


def test_keys_are_made_listed_and_revoked(cli: Cli) -> None:
    key = cli("keys", "create", "laptop", "--account", "team-b", "--json").json
    assert key["secret_key"].startswith("sbx-sk-")
    listed = cli("keys", "list")
    assert key["public_key"] in listed.out
    assert key["secret_key"] not in listed.out
    assert cli("keys", "revoke", key["public_key"]).code == Exit.OK


def test_a_refusal_exits_4_and_says_what_whose_fault_and_what_next(cli: Cli) -> None:
    said = cli("get", ABSENT)
    assert said.code == Exit.REFUSED
    assert "not_found" in said.err
    assert "your side" in said.err
    assert "Traceback" not in said.err
    error = cli("get", ABSENT, "--json").error
    assert (error["code"], error["fault"], error["status"]) == ("not_found", "caller", 404)
    assert error["next_step"]
    assert error["request_id"]


def test_wrong_or_missing_keys_exit_3(cli: Cli, up: Up) -> None:
    wrong = Cli({"SANDBOXER_PUBLIC_KEY": "sbx-pk-no", "SANDBOXER_SECRET_KEY": "no", "SANDBOXER_URL": up.url})
    assert wrong("list").code == Exit.AUTH
    assert Cli({"SANDBOXER_STATE_DIR": "/nowhere"})("list").code == Exit.AUTH


def test_no_platform_exits_5(cli: Cli) -> None:
    said = cli("list", "--url", "http://127.0.0.1:1")
    assert said.code == Exit.UNAVAILABLE
    assert "sandboxer up" in said.err


def test_a_label_without_a_value_is_explained(cli: Cli) -> None:
    said = cli("create", "--label", "oops")
    assert said.code == Exit.ERROR
    assert "NAME=VALUE" in said.err
