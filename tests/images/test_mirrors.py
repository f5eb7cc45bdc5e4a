"""Building takes the host's mirrors; the image is told the same, without credentials."""

from __future__ import annotations

import pytest

from sandboxer.artifacts.images.bootstrap import ProgressReader, explain
from sandboxer.artifacts.images.recipe import (
    choose_mirrors,
    parse_deb822,
    parse_list,
    parse_os_release,
    parse_recipe,
)
from sandboxer.kernel.errors import NotAvailable

RECIPE = parse_recipe(
    """
name: tiny
distributions:
  debian: {suite: bookworm, components: [main]}
  ubuntu: {suite: host, components: [main, universe]}
packages: [bash]
""",
    source="tiny.yaml",
)
DEBIAN = parse_os_release('ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian GNU/Linux"\n')
NEAR = parse_list("deb http://near/debian bookworm main\n")
UBUNTU = parse_os_release("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n")


def test_both_styles_of_apt_sources_are_read() -> None:
    old = parse_list(
        "# a comment\ndeb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main contrib # x\n"
    )
    new = parse_deb822(
        "Types: deb deb-src\n# note\nURIs: http://m/debian\nSuites: bookworm\n bookworm-updates\n"
        "Components: main contrib\n\nTypes: deb\nEnabled: no\nURIs: http://off\nSuites: x\nComponents: main\n"
    )
    assert old[0] == new[0]
    assert [s.suite for s in new] == ["bookworm", "bookworm-updates"]


def test_the_hosts_mirror_builds_and_goes_into_the_image_without_credentials() -> None:
    host = parse_list(
        "deb http://vendor/apt bookworm stable\n"
        "deb http://me:secret@mirror.corp:3142/debian bookworm main\n"
        "deb http://mirror.corp:3142/debian-security bookworm-security main\n"
    )
    mirrors = choose_mirrors(RECIPE, DEBIAN, host)
    assert [s.line() for s in mirrors.building] == [
        "deb http://me:secret@mirror.corp:3142/debian bookworm main",
        "deb http://me:secret@mirror.corp:3142/debian bookworm-updates main",
        "deb http://mirror.corp:3142/debian-security bookworm-security main",
    ]
    assert [s.uri for s in mirrors.inside] == [
        "http://mirror.corp:3142/debian",
        "http://mirror.corp:3142/debian",
        "http://mirror.corp:3142/debian-security",
    ]


def test_a_newer_debian_still_builds_the_suite_of_the_recipe() -> None:
    trixie = parse_os_release("ID=debian\nVERSION_CODENAME=trixie\n")
    mirrors = choose_mirrors(RECIPE, trixie, parse_list("deb http://near/debian trixie main\n"))
    assert mirrors.suite == "bookworm"
    assert mirrors.building[0].uri == "http://near/debian"


def test_ubuntu_builds_its_own_suite() -> None:
    host = parse_list("deb http://near/ubuntu noble main universe\n")
    mirrors = choose_mirrors(RECIPE, UBUNTU, host)
    assert mirrors.suite == "noble"
    assert [s.line() for s in mirrors.building] == [
        "deb http://near/ubuntu noble main universe",
        "deb http://near/ubuntu noble-updates main universe",
    ]


def test_a_host_without_a_usable_source_is_told_so() -> None:
    with pytest.raises(NotAvailable, match="names no usable ubuntu mirror"):
        choose_mirrors(RECIPE, UBUNTU, parse_list("deb mirror+file:/etc/apt/m.list noble main\n"))


def test_another_distribution_is_refused_by_name() -> None:
    with pytest.raises(NotAvailable, match="this host is fedora"):
        choose_mirrors(RECIPE, {"ID": "fedora"}, [])


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("W: Temporary failure resolving 'near'", "no network"),
        ("E: Unable to locate package pyhton3", "no package pyhton3"),
        ("tar: cannot write: No space left on device", "disk is full"),
        ("W: GPG error: NO_PUBKEY 0E98404D386FA1D9", "keyring"),
        ("E: something else", "E: something else"),
    ],
)
def test_a_failure_is_explained_in_words_one_can_act_on(line: str, word: str) -> None:
    assert word in explain(["I: running apt-get update...", line], choose_mirrors(RECIPE, DEBIAN, NEAR))


def test_a_mirrors_password_is_not_shown() -> None:
    host = parse_list("deb http://me:secret@mirror/debian bookworm main\n")
    said = explain(["E: Could not connect to mirror"], choose_mirrors(RECIPE, DEBIAN, host))
    assert "mirror/debian" in said
    assert "secret" not in said


def test_progress_only_goes_forward_and_names_what_is_being_done() -> None:
    reader = ProgressReader()
    lines = [
        "I: running apt-get update...",
        "Get:1 http://m/debian bookworm InRelease [151 kB]",
        "I: downloading packages with apt...",
        "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.",
        "Get:1 http://m/debian bookworm/main amd64 bash amd64 5.2 [1 kB]",
        "I: installing remaining packages inside the chroot...",
        "0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.",
        "Unpacking jq (1.6) ...",
        "Setting up jq (1.6) ...",
        "noise",
        "I: cleaning package lists and apt cache...",
    ]
    steps = [step for line in lines if (step := reader.read(line)) is not None]
    fractions = [step.fraction for step in steps]
    assert fractions == sorted(fractions)
    assert [s.detail for s in steps if s.detail] == ["bookworm", "bash", "jq", "jq"]
    assert steps[-1].phase == "cleaning"
