"""A language runs in the smallest image of this host that has it; where none has it, that one is named."""

from __future__ import annotations

from sandboxer.work.execute.submission import LANGUAGES_PROFILE, Submission, make_plan
from sandboxer.work.languages import HostImages, ImageContent, languages, offered


def image(name: str, *names: str) -> ImageContent:
    packages = {package: "1" for one in names for package in languages()[one].packages}
    return ImageContent(name=name, packages=packages, has_file=lambda _: False)


async def test_the_smallest_image_that_is_here_is_taken() -> None:
    every = image("languages", "go", "ruby", "java")
    for images, expected in (
        ([every, image("systems", "go")], "systems"),
        ([every], "languages"),
        ([every, image("mine", "go")], "mine"),
        ([image("scripting", "ruby")], "systems"),
        ([], "systems"),
    ):
        image_of = await HostImages(lambda images=images: images).image_of()  # type: ignore[misc]
        assert make_plan(Submission(code="", language="go"), image_of).create.image == expected


async def test_what_every_image_has_and_what_a_profile_says_is_left_to_the_profile() -> None:
    image_of = await HostImages(lambda: [image("scripting", "python", "ruby")]).image_of()
    plain = make_plan(Submission(code="", language="python"), image_of).create
    assert (plain.image, plain.profile) == (None, None)
    own = make_plan(Submission(code="", language="ruby", profile="profile.build"), image_of).create
    assert (own.image, own.profile) == (None, "profile.build")


async def test_an_image_that_was_named_is_taken_and_the_rest_is_as_the_language_says() -> None:
    image_of = await HostImages(lambda: [image("scripting", "ruby")]).image_of()
    for language, profile in (("python", None), ("ruby", LANGUAGES_PROFILE)):
        made = make_plan(Submission(code="", language=language, image="mine"), image_of)
        assert (made.create.image, made.create.profile) == ("mine", profile)
        assert made.commands == make_plan(Submission(code="", language=language), image_of).commands


def test_the_image_that_has_everything_is_offered_last() -> None:
    found = offered(languages()["ruby"], [image("languages", "ruby"), image("zoo", "ruby")])
    assert found.images == ("zoo", "languages")
