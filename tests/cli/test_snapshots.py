"""`snapshot` as users run it."""

from __future__ import annotations

from sandboxer.edges.cli.exits import Exit
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli


def test_a_disk_is_kept_shown_restored_cloned_and_dropped(cli: Cli, sandbox: Sandbox) -> None:
    sandbox.files.write("/root/file", b"old")
    words = ("--name", "first", "--ttl", "1d", "--label", "run=17", "--json")
    made = cli("snapshot", "create", sandbox.id, *words).json
    assert (made["state"], made["labels"]) == ("kept", {"run": "17"})
    sandbox.files.write("/root/file", b"new")
    second = cli("snapshot", "create", sandbox.id)
    assert "kept" in second.out
    assert made["id"] in cli("snapshot", "list", "--sandbox", sandbox.id).out
    shown = cli("snapshot", "show", made["id"]).out
    assert "first" in shown
    assert "files" in shown
    assert "ready" in cli("snapshot", "restore", made["id"]).out
    assert sandbox.files.read("/root/file") == b"old"
    clones = cli("snapshot", "clone", made["id"], "--count", "2", "--json").json["sandboxes"]
    tree = cli("snapshot", "tree").out
    lines = [line.rstrip() for line in tree.splitlines()]
    assert any(line.startswith(f"{made['id']} first kept") for line in lines)
    assert any(line.startswith("└── snp_") for line in lines)
    assert all(clone["id"] in tree for clone in clones)
    again = cli("create", "--snapshot", made["id"], "--json").json
    assert again["snapshot"] == made["id"]
    refused = cli("snapshot", "lock", made["id"], "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "conflict")
    assert cli("snapshot", "unlock", made["id"], "--json").json["locked_at"] is None
    assert "dropped" in cli("snapshot", "delete", made["id"]).out
    assert cli("snapshot", "clone", made["id"]).code == Exit.REFUSED
    cli("delete", again["id"], *(clone["id"] for clone in clones))


def test_what_is_published_may_be_called_by_its_name(cli: Cli) -> None:
    made = cli("create", "--name", "My box", "--json").json
    kept = cli("snapshot", "create", "My box", "--name", "first", "--json").json
    assert cli("image", "publish", "My box", "--name", "tool", "--json").json["source"] == made["id"]
    assert cli("image", "publish", "first", "--name", "tool-2", "--json").json["source"] == kept["id"]
    missing = cli("image", "publish", "nobody", "--name", "tool-3")
    assert (missing.code, "No such sandbox: nobody" in missing.err) == (Exit.REFUSED, True)
    cli("delete", made["id"])
