"""Profiles are read whole or not at all, and every complaint says where."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sandboxer.backends.contract import Trust, Wall
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes.profiles import load_profile, load_profiles

SHIPPED = Path(__file__).resolve().parents[2] / "profiles"
GOOD = (SHIPPED / "agent-dev.yaml").read_text()

# The smallest profile that the callers' authors share, word for word.
SMALLEST = """\
id: profile.compose-e2e
version: "1.0.0"
extension: ext.compose-ssh
isolation:
  level: container # container | microvm | policy
network:
  default: deny
  egress: [] # extension interprets
workspace:
  mode: remote-canonical # mirror | remote-canonical
  access: rw
scope_default: session
ttl:
  default: 4h
  max: 24h
  idle_reap: null
resources:
  cpu: null
  memory_mb: null
setup:
  instructions: "" # Blitzy-style natural language for extension bootstrap
  secret_refs: [] # resolved at provision; never in agent context
placement:
  prefer: [sandboxer01]
  fallback: [coulombcore]
reachability:
  tunnel: ops-bridge
  identity: ops-warden
metadata:
  cost_class: self-hosted # self-hosted | saas-metered
  latency_class: standard
"""


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as refused:
        load_profile(file)
    place = str(refused.value.facts["field"])
    assert place.startswith(f"{file}:")
    return place.removeprefix(f"{file}:") + " " + str(refused.value.facts["why"])


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_the_shipped_profiles_are_valid() -> None:
    found = {profile.id for profile in load_profiles(SHIPPED).all()}
    shipped = {"agent-dev", "build", "builder", "e2b", "languages", "packages", "sandbox-canary", "service"}
    shipped |= {"burst", "compose-e2e", "saas", "vm-haskell-build"}
    assert found == {f"profile.{name}" for name in shipped}


def test_a_profile_says_everything_it_says() -> None:
    profile = load_profile(SHIPPED / "build.yaml")
    assert profile.ttl_default == timedelta(hours=1)
    assert profile.idle_timeout == timedelta(minutes=30)
    assert profile.resources.vcpus == 2
    assert profile.setup.commands == ("mkdir -p /workspace",)
    assert Wall.UID_RANGE in profile.required_walls
    assert profile.trust is Trust.ZERO
    assert profile.metadata == {"cost_class": "self-hosted", "latency_class": "standard"}


def test_a_profile_that_names_a_way_out_needs_the_semi_trusted_network(tmp_path: Path) -> None:
    file = tmp_path / "open.yaml"
    file.write_text(GOOD.replace("egress: []", "egress: [example.org]"))
    assert load_profile(file).trust is Trust.SEMI


def test_the_word_extension_is_understood_as_backend(tmp_path: Path) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(GOOD.replace("backend: ext.namespaces", "extension: ext.compose-ssh"))
    assert load_profile(file).backend == "ext.compose-ssh"


def test_the_smallest_profile_of_the_callers_is_read_as_it_stands_and_ships_so(tmp_path: Path) -> None:
    file = tmp_path / "compose-e2e.yaml"
    file.write_text(SMALLEST)
    assert load_profile(file) == load_profile(SHIPPED / "compose-e2e.yaml")


def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_one(tmp_path: Path) -> None:
    text = GOOD.replace("  default: 4h", "  defautl: 4h\n  default: 4h")
    assert (
        refusal(tmp_path, text)
        == f"{line_of(text, 'defautl')}:3 ttl: unknown key 'defautl'; did you mean 'default'?"
    )


@pytest.mark.parametrize(
    ("old", "new", "column", "why"),
    [
        (
            "memory_mb: 512",
            "memory_mb: lots",
            36,
            "resources.default.memory_mb: 'lots' is not a whole number",
        ),
        ("  default: 4h", "  default: 4 hours", 12, "ttl.default: '4 hours' is not a duration"),
        ("  level: container", "  level: fortress", 10, "isolation.level: 'fortress' is none of policy"),
        ("require: [files,", "require: [moat,", 13, "isolation.require: 'moat' is none of files"),
        ("  egress: []", "  egress: none", 11, "network.egress: must be a list"),
        ("  default: 4h", "  default: 25h", 12, "ttl.default: is longer than ttl.max"),
        ("vcpus: 1,", "vcpus: 9,", 12, "resources.default: vcpus is more than resources.max allows"),
        ("id: profile.agent-dev", "id: agent-dev", 5, "id: 'agent-dev' does not look like"),
        ("scope: session", "scope: [session]", 8, "scope: must be a single value"),
    ],
)
def test_a_wrong_value_is_named_with_file_line_and_column(
    tmp_path: Path, old: str, new: str, column: int, why: str
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    said = refusal(tmp_path, text)
    assert why in said
    assert said.startswith(f"{line_of(text, new)}:")
    if column != 36:
        assert said.split(" ")[0].split(":")[1] == str(column if old != "id: profile.agent-dev" else 5)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    text = GOOD.replace("  max: 24h\n", "")
    assert "the key 'max' is missing" in refusal(tmp_path, text)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    assert "'scope' is given twice" in refusal(tmp_path, GOOD + "scope: agent\n")


@pytest.mark.parametrize(
    "text", ["", "a: [", "- a\n- b\n", "\t", "a: &x [*x]", "!!python/object:os.system x"]
)
def test_a_file_that_is_no_profile_is_refused_with_a_place(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text)


def test_two_files_cannot_hold_the_same_profile(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)
    with pytest.raises(InvalidRequest, match="is also in"):
        load_profiles(tmp_path)
