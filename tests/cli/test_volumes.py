"""`volume` as users run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import mounts
from tests.support.cli import Cli


def test_a_volume_is_made_attached_resized_copied_and_dropped(cli: Cli) -> None:
    made = cli("volume", "create", "data", "--size", "64m", "--label", "run=17", "--json").json
    assert (made["state"], made["labels"]) == ("ready", {"run": "17"})
    sandbox = cli("create", "--volume", "data:/data", "--json").json
    assert sandbox["volumes"] == [{"volume_id": made["id"], "path": "/data", "mode": "rw"}]
    refused = cli("create", "--volume", "data:/data:ro", "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "conflict")
    assert f"{sandbox['id']}:/data:rw" in cli("volume", "show", "data").out
    assert "64.0 MiB" in cli("volume", "show", "data").out
    assert cli("volume", "update", "data", "--size", "128m", "--json").json["size_mb"] == 128
    kept = cli("volume", "snapshot", "data", "--name", "first", "--json").json
    assert (kept["volume_id"], kept["sandbox_id"]) == (made["id"], None)
    assert kept["id"] in cli("snapshot", "list").out
    assert "ready" in cli("volume", "create", "copy", "--from-snapshot", kept["id"]).out
    assert cli("volume", "delete", "data").code == Exit.REFUSED
    cli("delete", sandbox["id"])
    refused = cli("volume", "lock", "data", "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "conflict")
    assert cli("volume", "unlock", "data", "--json").json["locked_at"] is None
    assert "dropped" in cli("volume", "delete", "data", "copy").out
    cli("snapshot", "delete", kept["id"])


def test_a_volume_is_put_back_shown_in_the_tree_and_renamed(cli: Cli) -> None:
    made = cli("volume", "create", "back", "--size", "16m", "--json").json
    kept = cli("volume", "snapshot", "back", "--json").json["id"]
    assert "ready" in cli("volume", "restore", "back", kept).out
    tree = cli("snapshot", "tree").out
    assert kept in tree
    assert made["id"] in tree
    assert cli("volume", "update", "back", "--name", "weights", "--json").json["name"] == "weights"
    # Nothing is put back under what runs.
    sandbox = cli("create", "--volume", "weights:/data", "--json").json["id"]
    refused = cli("volume", "restore", "weights", kept, "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "conflict")
    cli("delete", sandbox)
    cli("volume", "delete", "weights")
    cli("snapshot", "delete", kept)


def test_runs_and_clones_take_volumes_by_the_same_option(cli: Cli, tmp_path: Path) -> None:
    cli("volume", "create", "shared", "--size", "16m")
    program = tmp_path / "write.sh"
    program.write_text("#!/bin/bash\necho one > /data/file\n")
    assert cli("run", str(program), "--volume", "shared:/data").code == 0
    program.write_text("#!/bin/bash\ncat /data/file\n")
    assert cli("run", str(program), "--volume", "shared:/data:ro").out == "one\n"
    sandbox = cli("create", "--volume", "shared:/data", "--json").json["id"]
    kept = cli("snapshot", "create", sandbox, "--json").json["id"]
    without = cli("snapshot", "clone", kept)
    assert "without volume" in without.err
    refused = cli("snapshot", "clone", kept, "--count", "2", "--volume", "shared:/data", "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "invalid_request")
    cli("delete", sandbox)
    having = cli("snapshot", "clone", kept, "--count", "2", "--volume", "shared:/data:ro", "--json").json
    assert [len(each["volumes"]) for each in having["sandboxes"]] == [1, 1]
    cli("delete", *[each["id"] for each in having["sandboxes"]], without.out.split()[0])
    cli("volume", "delete", "shared")


@pytest.mark.parametrize("word", ["data", "data:relative", ":/data", "data:/data:wo"])
def test_what_is_no_volume_and_path_is_refused_before_anything_is_asked(word: str) -> None:
    assert mounts(["a:/a", "b:/b:ro"])[1] == {"volume": "b", "path": "/b", "mode": "ro"}
    with pytest.raises(CommandFailed):
        mounts([word])
