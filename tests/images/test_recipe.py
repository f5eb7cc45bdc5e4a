"""A recipe is read whole or refused with the line that is wrong."""

from __future__ import annotations

import pytest

from sandboxer.artifacts.images.build import RECIPES, load_recipe
from sandboxer.artifacts.images.recipe import parse_recipe
from sandboxer.kernel.errors import InvalidRequest, NotFound

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
    assert recipe.overlay is None


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_good_and_named_after_its_file(path) -> None:  # type: ignore[no-untyped-def]
    recipe, overlay, digest = load_recipe(path.stem)
    assert recipe.name == path.stem
    assert overlay is None or overlay.is_dir()
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
    with pytest.raises(NotFound, match="known: base"):
        load_recipe("nothing")


def test_a_name_cannot_leave_the_recipes_folder() -> None:
    with pytest.raises(NotFound):
        load_recipe("../images/base")
