"""`volume` as users run it."""

from __future__ import annotations

import pytest

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.mounting import mounts
from tests.cli.conftest import Cli


def test_a_volume_is_made_attached_resized_copied_and_dropped(cli: Cli) -> None:
    made = cli("volume", "create", "data", "--size-mb", "64", "--label", "run=17", "--json").json
    assert (made["state"], made["labels"]) == ("ready", {"run": "17"})
    sandbox = cli("create", "--volume", "data:/data", "--json").json
    assert sandbox["volumes"] == [{"volume_id": made["id"], "path": "/data", "mode": "rw"}]
    refused = cli("create", "--volume", "data:/data:ro", "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "conflict")
    assert f"{sandbox['id']}:/data:rw" in cli("volume", "list").out
    assert "64.0 MiB" in cli("volume", "show", "data").out
    assert cli("volume", "resize", "data", "128", "--json").json["size_mb"] == 128
    kept = cli("volume", "snapshot", "data", "--name", "first", "--json").json
    assert (kept["volume_id"], kept["sandbox_id"]) == (made["id"], None)
    assert made["id"] in cli("snapshot", "list").out
    assert "ready" in cli("volume", "create", "copy", "--from-snapshot", kept["id"]).out
    assert cli("volume", "remove", "data").code == Exit.REFUSED
    cli("destroy", sandbox["id"])
    refused = cli("volume", "lock", "data", "--json")
    assert (refused.code, refused.error["code"]) == (Exit.REFUSED, "conflict")
    assert cli("volume", "unlock", "data", "--json").json["locked_at"] is None
    assert "dropped" in cli("volume", "remove", "data", "copy").out
    cli("snapshot", "remove", kept["id"])


@pytest.mark.parametrize("word", ["data", "data:relative", ":/data", "data:/data:wo"])
def test_what_is_no_volume_and_path_is_refused_before_anything_is_asked(word: str) -> None:
    assert mounts(["a:/a", "b:/b:ro"])[1] == {"volume": "b", "path": "/b", "mode": "ro"}
    with pytest.raises(CommandFailed):
        mounts([word])
