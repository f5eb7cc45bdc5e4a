"""Values do what frozen dataclasses do, and a kind of which there is no value costs next to nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, dataclass, field, replace
from typing import Any

import pytest

from sandboxer.kernel.values import brief_value_class, value_class


@value_class
class Place:
    name: str
    words: list[str] = field(default_factory=list)
    secret: str = field(default="hidden", repr=False)
    seen: int = field(default=0, compare=False)


@brief_value_class
class Point:
    x: int
    _: KW_ONLY
    y: int = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("left of everything")


@brief_value_class
class Named(Point):
    """A point with a name."""

    name: str = field(kw_only=True)

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return 7


@value_class
class Nothing:
    pass


def test_fields_are_given_by_name_or_in_order_and_have_defaults() -> None:
    assert asdict(Place(name="a")) == {"name": "a", "words": [], "secret": "hidden", "seen": 0}
    assert Place(name="a").words is not Place(name="a").words
    assert (Point(3).x, Point(3, y=4).y, Named(1, name="n").name) == (3, 4, "n")
    with pytest.raises(TypeError, match=r"Place\.__init__\(\) takes 1 positional argument"):
        Place("a")  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("make", [Point, lambda x: replace(Point(0), x=x)])
def test_a_value_is_checked_however_it_is_made(make: Callable[[int], Point]) -> None:
    assert make(3) == Point(3)
    with pytest.raises(ValueError, match="left of everything"):
        make(-1)


def test_equal_values_are_of_one_kind_and_have_one_hash() -> None:
    assert Place(name="a", seen=1) == Place(name="a", seen=2)
    assert Place(name="a") != Place(name="b")
    assert len({Point(1), Point(1, y=0), Point(2)}) == 2
    assert Point(1) != Named(1, name="n")
    assert Point(1) != (1, 0)
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    not_a_number = float("nan")
    assert Point(not_a_number) == Point(not_a_number)  # type: ignore[arg-type]


def test_a_class_keeps_the_methods_that_it_has() -> None:
    assert (str(Named(1, name="n")), hash(Named(1, name="n"))) == ("n", 7)
    assert Named.__doc__ == "A point with a name."


def test_what_is_shown_leaves_secrets_out_and_ends() -> None:
    held: list[Any] = []
    held.append(Place(name="a", words=held))
    assert repr(held[0]) == "Place(name='a', words=[...], seen=0)"


@pytest.mark.parametrize("name", ["x", "other"])
def test_nothing_is_set_or_deleted(name: str) -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(point, name, 2)
    with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(point, name)
    assert not hasattr(point, "__dict__")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_values_are_copied_whole(again: Callable[[Place], Place]) -> None:
    place = Place(name="a", words=["b"], seen=3)
    assert (again(place), again(place).seen) == (place, 3)


def test_nothing_is_compiled_before_there_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[object] = []

    def kept(text: object, *spaces: Any) -> None:
        texts.append(text)
        exec(text, *spaces)  # type: ignore[arg-type]

    for module in (value_class.__module__, dataclass.__module__):
        monkeypatch.setattr(f"{module}.exec", kept, raising=False)

    @value_class
    class Wish:
        text: str

    assert not texts
    assert Wish(text="a") == Wish(text="a")
    assert len(texts) == 2
