"""Verbs on sandboxes: what they print, as JSON and for people, and what they return."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

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
    assert cli("show", made["id"], "--json").json["ttl"] == "1h"
    assert [one["id"] for one in cli("list", "--label", "t=json", "--json").items] == [made["id"]]
    assert cli("delete", made["id"], "--json").json["state"] == "destroyed"
    assert cli("delete", made["id"]).code == Exit.OK
    assert cli("list", "--label", "t=json", "--json").items == []


def test_people_get_a_table_with_whole_ids(cli: Cli, sandbox: Sandbox) -> None:
    said = cli("list")
    assert sandbox.id in said.out
    assert "STATE" in said.out
    assert sandbox.id in cli("show", sandbox.id, "--usage").out


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
    assert cli("update", sandbox.id, "--ttl", "1h").code == Exit.OK
    after = sandbox.refresh().expires_at
    assert before is not None
    assert after is not None
    assert (after - before).total_seconds() == 3600


def test_update_names_and_labels_it_anew(cli: Cli, sandbox: Sandbox) -> None:
    first = cli("update", sandbox.id, "--name", "one", "--label", "a=1", "-l", "b=2", "--json").json
    assert (first["name"], first["labels"]["a"], first["labels"]["b"]) == ("one", "1", "2")
    said = cli("update", "one", "--name", "two", "--label", "a-", "--label", "b=x-", "--ttl", "1h")
    assert (said.code, said.out.split()[:2]) == (Exit.OK, [sandbox.id, "two"])
    now = sandbox.refresh()
    assert (now.name, now.labels.get("a"), now.labels["b"]) == ("two", None, "x-")
    for nothing in ((), ("--quote", "quo_0123456789abcdefghjkmnpqrs")):
        refused = cli("update", "two", *nothing)
        assert refused.code == Exit.ERROR
        assert "sandboxer update two --ttl 1h" in refused.err


def test_logs_tell_each_step(cli: Cli, sandbox: Sandbox) -> None:
    assert cli("events", sandbox.id, "--json").items[-1]["kind"] == "sandbox.ready"
    assert "ready" in cli("events", sandbox.id).out


def test_create_says_what_to_type_next_by_the_name_that_was_given(cli: Cli) -> None:
    said = cli("create", "--name", "my box")
    assert said.err.strip() == "next: sandboxer shell 'my box'"
    assert "probe_passed" not in said.out
    assert cli("delete", "my box").code == Exit.OK


def test_create_makes_the_default_profile_and_prints_the_id_alone_when_quiet(cli: Cli) -> None:
    ids = [cli("create", "-q").out.strip(), cli("create", "-q", "--ttl", "1h").out.strip()]
    profiles = {cli("show", one, "--json").json["profile"] for one in ids}
    assert len(profiles) == 1
    assert "canary" not in profiles.pop()
    assert cli("delete", *ids).code == Exit.OK


def test_a_duration_is_a_number_and_a_unit(cli: Cli, sandbox: Sandbox) -> None:
    for wrong in ("90", "soon", "1.5h"):
        said = cli("exec", sandbox.id, "--timeout", wrong, "--", "true", NO_COLOR="1", COLUMNS="200")
        assert (said.code, "90s, 15m, 4h or 2d" in said.err) == (Exit.USAGE, True), said.err
    assert cli("exec", sandbox.id, "--timeout", "90s", "--", "true").code == Exit.OK


def test_upkeep_verbs_answer(cli: Cli) -> None:
    assert cli("expire", "--json").json["applied"] is False
    assert cli("inspect", "stale", "--json").items == []
    assert cli("inspect", "host", "--json").json["version"]
    assert cli("inspect", "host").code == Exit.OK
    assert cli("reap-stale", "--json").json == {"removed": []}
    assert cli("image", "gc", "--dry-run", "--json").json["grace"] == "1d"
    assert "0 to remove" in cli("image", "gc", "--dry-run").out
    assert cli("image", "gc", "--json").json == {"removed": []}


def test_keys_are_made_listed_and_revoked(cli: Cli) -> None:
    key = cli("key", "create", "laptop", "--account", "team-b", "--open", "--json").json
    assert key["secret_key"].startswith("sbx-sk-")
    listed = cli("key", "list")
    assert key["public_key"] in listed.out
    assert key["secret_key"] not in listed.out
    assert cli("key", "delete", key["public_key"]).code == Exit.OK


def test_a_refusal_exits_4_and_says_what_whose_fault_and_what_next(cli: Cli) -> None:
    said = cli("show", ABSENT)
    assert said.code == Exit.REFUSED
    assert said.err.startswith("error: No such sandbox: ")
    assert "sandboxer list" in said.err
    assert "Traceback" not in said.err
    error = cli("show", ABSENT, "--json").error
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


def test_whoever_it_is_for_and_a_preferred_host_are_told(cli: Cli) -> None:
    who = ("--actor", "atm", "--project", "shop", "--host", "sandboxer01")
    made = cli("create", "--input", "depth=1", *who, "--json").json
    try:
        assert made["consumer"] == {"actor": "atm", "project": "shop"}
        assert made["inputs"] == {"depth": "1"}
        assert [one["honoured"] for one in made["answered"]] == [False]
        assert cli("reachability", made["id"], "--json").json["remote_dir"] == "/workspace"
    finally:
        cli("delete", made["id"])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a commit, a change of it, a file that git does not know yet and two that it ignores."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(tmp_path)]
    (tmp_path / "sub").mkdir()
    (tmp_path / ".gitignore").write_text("node_modules/\n.env\n")
    (tmp_path / "README").write_text("first\n")
    (tmp_path / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "sub" / "run").chmod(0o755)
    (tmp_path / "sub" / "link").symlink_to("../README")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "README").write_text("second\n")
    (tmp_path / "new").write_bytes(bytes(range(256)) * 2**16)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x").write_text("x")
    (tmp_path / ".env").write_text("TOKEN=hunter2")
    return tmp_path


def test_a_repository_of_this_machine_is_inside_with_its_history_and_without_what_git_ignores(
    real_cli: Cli, repository: Path
) -> None:
    id_ = real_cli("create", "-q", "--ttl", "10m", "--input", f"repo={repository}").out.strip()
    try:
        look = "git status --porcelain; git log --format=%s; ls -A; sub/run; cat sub/link; sha256sum < new"
        said = real_cli("exec", id_, "--", "sh", "-c", f"cd /workspace; {look}")
        digest = hashlib.sha256((repository / "new").read_bytes()).hexdigest()
        there = [".git", ".gitignore", "README", "new", "sub"]
        assert said.out.split("\n")[:-1] == [
            " M README",
            "?? new",
            "first",
            *there,
            "ran",
            "second",
            f"{digest}  -",
        ]
    finally:
        real_cli("delete", id_)


def test_links_that_lead_out_of_a_folder_are_named_and_nothing_is_made(cli: Cli, repository: Path) -> None:
    (repository / "passwd").symlink_to("/etc/passwd")
    (repository / "sub" / "up").symlink_to("../../etc")
    before = cli("list", "--json").items
    said = cli("create", "--input", f"repo={repository}")
    assert said.code == Exit.ERROR
    assert "passwd, sub/up" in " ".join(said.err.split())
    assert cli("list", "--json").items == before


def test_a_folder_that_does_not_fit_leaves_no_sandbox(real_cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(300 * 2**20)
    said = real_cli("create", "--disk", "128m", "--label", "t=fit", "--input", f"repo={tmp_path}")
    assert said.code == Exit.REFUSED
    assert "disk is full" in " ".join(said.err.split())
    assert real_cli("list", "--label", "t=fit", "--json").items == []


def test_a_folder_that_could_not_be_copied_in_is_refused_before_the_create(cli: Cli, tmp_path: Path) -> None:
    refused = cli("create", "--input", f"repo={tmp_path}", "--workspace", "ro")
    assert refused.code != Exit.OK
    assert "cloned before" in refused.err
