"""Every verb that lists says it in the same shape, and fits where it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from sandboxer.edges.cli.main import VERBS, load
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli

LISTS = {"list", "deliveries", "grants", "goods", "statement", "segments", "log"}
# What stands in place of a thing that a verb needs.
NEEDS = {
    **dict.fromkeys(("file list", "process list", "terminal list", "preview list", "egress log"), "sandbox"),
    "webhook deliveries": "webhook",
    "service domain list": "service",
    "image grants": "image",
}
KEYS = ("id", "public_key", "process_id", "fingerprint")


def lists() -> Iterator[str]:
    for name in VERBS:
        yield from found(name, load(name))


def found(name: str, made: Any) -> Iterator[str]:
    if isinstance(made, TyperGroup):
        for one, inner in made.commands.items():
            yield from found(f"{name} {one}", inner)
    elif name.split()[-1] in LISTS:
        yield name


@pytest.fixture(scope="module")
def full(up: Any) -> Iterator[dict[str, str]]:
    """One of everything that can be listed, with names that are long."""
    cli, name = Cli(up.environment), "a-name-that-somebody-thought-about-for-long"
    sandbox = cli("create", "--name", name, "--profile", "profile.agent-dev", "--json").json["id"]
    cli("volume", "create", name)
    cli("snapshot", "create", sandbox, "--name", name)
    cli("preview", "create", sandbox, "8080")
    cli("key", "create", name)
    cli("account", "create", "--id", name, "--reason", "test")
    cli("secret", "set", name.upper().replace("-", "_"), stdin=b"value")
    cli("exec", sandbox, "--", "true")
    hook = cli("webhook", "create", "https://localhost/hook", "--json").json["id"]
    cli("webhook", "test", hook)
    yield {"sandbox": sandbox, "webhook": hook}
    cli("delete", sandbox)


# Of services and images the scripted walls make none; flow 8 and the tests of images list theirs.
@pytest.mark.parametrize("verb", [one for one in lists() if NEEDS.get(one) not in ("service", "image")])
def test_a_list_is_items_and_where_the_next_begin(cli: Cli, full: dict[str, str], verb: str) -> None:
    needed = NEEDS.get(verb)
    words = [*verb.split(), *([full[needed]] if needed else [])]
    said = cli(*words, "--json")
    assert said.code == 0, said.err
    assert said.json.keys() == {"items", "next"}
    assert isinstance(said.json["items"], list)
    for width in (60, 80):
        shown = cli(*words, COLUMNS=str(width))
        assert shown.code == 0
        assert max(map(len, shown.out.splitlines()), default=0) <= width, shown.out
        names = [
            one[key] for one in said.json["items"] if isinstance(one, dict) for key in KEYS if key in one
        ]
        assert not [name for name in names[:20] if name[:12] in shown.out and name not in shown.out]


def test_a_list_goes_on_where_it_ended(cli: Cli, sandbox: Sandbox) -> None:
    for number in range(3):
        cli("account", "create", "--id", f"page-{number}", "--reason", "test")
    first = cli("account", "list", "--limit", "1", "--json").json
    second = cli("account", "list", "--limit", "1", "--after", first["next"], "--json").json
    assert [len(first["items"]), len(second["items"])] == [1, 1]
    assert first["items"] != second["items"]


def test_a_name_has_room_beside_its_profile_at_eighty_columns(cli: Cli) -> None:
    name = "training-run-17"
    cli("create", "--name", name, "-q")
    assert f" {name} " in cli("list", COLUMNS="80").out
    assert "profile.agent-dev" in cli("show", name).out


def test_which_image_brings_a_language_is_told_whole_at_eighty_columns(cli: Cli) -> None:
    ruby = next(
        line for line in cli("language", "list", COLUMNS="80").out.splitlines() if line.startswith("ruby")
    )
    assert "build scripting" in ruby
