"""A recipe is read whole or refused with the line that is wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandboxer.artifacts.images.build import load_recipe
from sandboxer.artifacts.images.recipe import parse_recipe
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.kernel.program import RECIPES
from sandboxer.work.languages import TIERS, languages

GOOD = """\
name: tiny
distributions:
  debian: {suite: bookworm, components: [main]}
packages:
  - bash
  - jq
"""


def test_a_small_recipe_is_read() -> None:
    recipe = parse_recipe(GOOD, source="tiny.yaml")
    assert recipe.packages == ("bash", "jq")
    assert recipe.distributions["debian"].suite == "bookworm"
    assert recipe.user is None
    assert recipe.overlays == ()


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_good_and_named_after_its_file(path) -> None:  # type: ignore[no-untyped-def]
    recipe, overlays, digest = load_recipe(path.stem)
    assert recipe.name == path.stem
    assert all(overlay.is_dir() for overlay in overlays)
    assert digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "empty"),
        ("- a\n- b\n", 1, "expected a recipe"),
        ("name: [tiny\n", 2, "expected"),
        (GOOD.replace("name: tiny", "name: Tiny"), 1, "image name"),
        (GOOD + "colour: red\n", 7, "unknown key 'colour'"),
        (GOOD.replace("packages:\n  - bash\n  - jq\n", ""), 1, "'packages' is missing"),
        (GOOD.replace("- jq", "- bash"), 6, "listed twice"),
        (GOOD.replace("- jq", "- jq; reboot"), 6, "a package name"),
        (GOOD.replace("debian:", "arch:"), 3, "unknown distribution 'arch'"),
        (GOOD.replace("suite: bookworm, ", ""), 3, "'suite' is missing"),
        (GOOD + "exclude: [usr/share]\n", 7, "absolute path"),
        (GOOD + "overlay: ../secrets\n", 7, "beside the recipe"),
        (GOOD + "user: {name: user, uid: 0}\n", 7, "from 1000 to 59999"),
        (GOOD + "name: again\n", 7, "given twice"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_recipe(text, source="tiny.yaml")
    assert caught.value.facts["field"] == f"tiny.yaml:{line}"
    assert why in str(caught.value)


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"known: .*base"):
        load_recipe("nothing")


def test_a_name_cannot_leave_the_recipes_folder() -> None:
    with pytest.raises(NotFound):
        load_recipe("../images/base")


def test_a_recipe_that_extends_another_has_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "base.d").mkdir()
    (tmp_path / "base.yaml").write_text(GOOD + "overlay: base.d\n")
    (tmp_path / "more.yaml").write_text("name: more\nextends: base\npackages: [sbcl]\npypi: [deno==2.9.8]\n")
    parent, _, parent_digest = load_recipe("base", tmp_path)
    child, overlays, digest = load_recipe("more", tmp_path)
    assert child.packages == (*parent.packages, "sbcl")
    assert child.distributions == parent.distributions
    assert child.pypi == ("deno==2.9.8",)
    assert overlays == (tmp_path / "base.d",)
    assert digest != parent_digest


def test_a_login_shell_of_the_base_image_starts_no_program_before_the_command() -> None:
    # What it starts is found by its name: a function of that name tells of it.
    script = f"id() {{ echo asked >&2; command id; }}; . {RECIPES}/base.d/etc/profile; echo $PATH"
    argv = ["bash", "--noprofile", "--norc", "-c", script]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, env={})
    assert said.stderr == ""
    assert ("/usr/local/sbin" in said.stdout) == (os.geteuid() == 0)


def test_recipes_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nextends: {other}\npackages: [sbcl]\n")
    with pytest.raises(InvalidRequest, match="extends itself"):
        load_recipe("one", tmp_path)


def test_a_change_of_the_parent_changes_the_childs_digest(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD)
    (tmp_path / "more.yaml").write_text("name: more\nextends: base\npackages: [sbcl]\n")
    before = load_recipe("more", tmp_path)[2]
    (tmp_path / "base.yaml").write_text(GOOD + "\n# another\n")
    assert load_recipe("more", tmp_path)[2] != before


def test_the_languages_image_has_what_the_table_of_languages_asks_for() -> None:
    recipe = load_recipe("languages")[0]
    wheels = {requirement.split("==")[0] for requirement in recipe.pypi}
    for language in languages().values():
        assert set(language.packages) <= set(recipe.packages), language.name
        assert set(language.pypi) <= wheels, language.name


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_has_what_its_languages_ask_for_and_languages_has_all_of_it(tier: str) -> None:
    recipe, whole = load_recipe(tier)[0], load_recipe("languages")[0]
    wheels = {requirement.split("==")[0] for requirement in recipe.pypi}
    for name in TIERS[tier]:
        assert set(languages()[name].packages) <= set(recipe.packages), name
        assert set(languages()[name].pypi) <= wheels, name
    assert set(recipe.packages) <= set(whole.packages)
    assert set(recipe.pypi) <= set(whole.pypi)
    assert set(recipe.overlays) <= set(whole.overlays)


def test_the_image_of_the_code_interpreter_has_its_languages() -> None:
    recipe = load_recipe("code-interpreter-v1")[0]
    for name in ("python", "javascript", "typescript", "r", "java"):
        assert set(languages()[name].packages) <= set(recipe.packages), name


def test_every_language_is_in_base_or_in_one_tier() -> None:
    tiered = [name for names in TIERS.values() for name in names]
    assert sorted(tiered) == sorted(name for name, one in languages().items() if not one.in_base)
    assert len(tiered) == len(set(tiered))


def test_the_base_image_has_every_language_said_to_be_in_it() -> None:
    # bash, dash and perl-base are in any Debian; gawk and the rest are asked for.
    essential = {"bash", "dash", "perl"}
    packages = set(load_recipe("base")[0].packages) | essential
    for language in languages().values():
        if language.in_base:
            assert set(language.packages) <= packages, language.name


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.d/usr/local/bin/*")), ids=lambda p: p.name)
def test_every_program_that_a_recipe_lays_over_can_be_run(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert path.read_bytes().startswith(b"#!")
