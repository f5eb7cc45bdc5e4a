"""Templates that are built through E2B's own Python SDK, in a sandbox, on real walls."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import httpx
import pytest
from e2b.exceptions import BuildException
from e2b.template.types import TemplateBuildStatus

from e2b import Sandbox, SandboxException, Template
from sandboxer.artifacts.images.builders.steps import Step, StepByStep, check_steps, stages_of
from sandboxer.artifacts.images.builders.steps import Template as Plan
from sandboxer.artifacts.images.builders.templates import Build
from sandboxer.artifacts.images.builders.use_cases import ImageBuilders
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes.requests import Origin, WantedResources
from tests.artifacts.engines import BUSYBOX
from tests.support.builds import tiny_images
from tests.support.e2b import new_api_key, pointed_at
from tests.support.http.real import IMAGES
from tests.support.platforms import Up, real_platform, scripted_platform, why_not_real

SETTINGS = {
    "SANDBOXER_CHARGING": "false",
    "SANDBOXER_IMAGE_MAKERS": "everyone",
    "SANDBOXER_BUILD_DISK_MB": "384",
    "SANDBOXER_BUILD_CACHE_MB": "256",
}


@pytest.fixture(scope="module")
def building(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    why = why_not_real() or ("" if os.path.exists(BUSYBOX) else "busybox-static is not installed")
    if not (IMAGES / "builder" / "image.json").is_file():
        why = why or f"no builder in {IMAGES} (make image-builder)"
    if why:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("e2b-templates")
    images = tiny_images(folder / "images")
    running = real_platform(folder / "state", images=images, settings=SETTINGS)
    with running as up, pointed_at(up, new_api_key(up)):
        yield up


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "one").write_text("1")
    (tmp_path / "app" / "broken").symlink_to("nowhere")
    (tmp_path / "word.txt").write_text("word")
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_template_with_files_users_and_a_start_is_built_used_tagged_and_removed(
    building: Up, files: Path
) -> None:
    template = (
        Template(file_context_path=files)
        .from_template("tiny")
        .copy("app", "/srv/app")
        .copy("word.txt", "/home/user/", mode=0o640, user="user")
        .copy("app/**/*", "/srv/links")
        .run_cmd('test "$(readlink /srv/links/broken)" = nowhere && test -e /srv/links/one')
        .set_envs({"GREETING": 'h"i $HOME'})
        .run_cmd(["echo $GREETING > said", "pwd >> said", "id -un >> said", "echo $HOME >> said"])
        .run_cmd("ls -l /home/user/word.txt > /seen && id -u >> /seen", user="root")
        .set_workdir("/srv")
        .set_user("root")
        .run_cmd("pwd > /where")
        .set_start_cmd("echo up > /home/user/up; sleep 600", "test -e /home/user/up")
    )
    heard: list[str] = []
    built = Template.build(
        template,
        "Mine_1:v1",
        tags=["stable"],
        cpu_count=1,
        memory_mb=256,
        on_build_logs=lambda entry: heard.append(entry.message),
    )
    assert built.tags == ["v1", "stable"]
    assert any("taking tiny from this platform" in line for line in heard), heard
    with Sandbox.create("mine_1:v1", timeout=60, allow_internet_access=False) as sandbox:
        assert sandbox.files.read("said") == 'h"i $HOME\n/home/user\nuser\n/home/user\n'
        seen = sandbox.files.read("/seen", user="root")
        assert seen.startswith("-rw-r-----")
        assert seen.endswith("\n0\n")
        assert (sandbox.files.read("/where"), sandbox.files.read("/srv/app/one")) == ("/srv\n", "1")
        # What it starts was ready when it was made, and is again after a pause.
        assert sandbox.files.read("up") == "up\n"
        sandbox.files.remove("up")
        sandbox.pause()
        sandbox.connect()
        assert sandbox.files.read("up") == "up\n"
        assert (sandbox.get_info().cpu_count, sandbox.get_info().memory_mb) == (1, 256)
    heard.clear()
    again = Template.build(template, "mine_1:v2", on_build_logs=lambda entry: heard.append(entry.message))
    assert sum("Using cache" in line for line in heard) >= 8, heard
    assert "Skipping upload of 'app', already cached" in heard
    tags = {one.tag: one.build_id for one in Template.get_tags("mine_1")}
    assert tags == {"v1": built.build_id, "stable": built.build_id, "v2": again.build_id}
    assert Template.assign_tags("mine_1:v2", "stable").build_id == again.build_id
    Template.remove_tags("mine_1", "v1")
    assert {one.tag for one in Template.get_tags("mine_1")} == {"v2", "stable"}
    assert (Template.exists("mine_1:stable"), Template.exists("mine_1:v1")) == (True, False)
    assert Template.exists("base")
    over = Template().from_template("mine_1:v2").run_cmd("cat /where > again")
    Template.build(over, "over")
    with Sandbox.create("over", timeout=60, allow_internet_access=False) as sandbox:
        assert sandbox.files.read("again") == "/srv\n"
    for name in ("mine_1", "over"):
        assert Sandbox.delete_snapshot(name) is True
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create(name)


@pytest.mark.timeout(300)
def test_a_step_that_fails_and_one_that_is_not_understood_are_named(building: Up, files: Path) -> None:
    failing = Template().from_template("tiny").run_cmd("true").run_cmd("echo so far; exit 7")
    info = Template.build_in_background(failing, "failing")
    with pytest.raises(BuildException, match="exit status 7"):
        Template.build(failing, "failing")
    status = Template.get_build_status(info)
    while status.status is TemplateBuildStatus.BUILDING:
        status = Template.get_build_status(info)
    assert (status.status, status.reason and status.reason.step) == (TemplateBuildStatus.ERROR, "2")
    assert not Template.exists("failing")
    with pytest.raises(BuildException, match="invalid username: 'nobody-here'"):
        Template.build(Template().from_template("tiny").run_cmd("true", user="nobody-here"), "x")
    with pytest.raises(BuildException, match="'aws'"):
        Template.build(Template().from_aws_registry("a/b", "id", "secret", "eu-1"), "x")
    with pytest.raises(BuildException, match="cannot be the name"):
        Template.build(failing, "base")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_build_begins_where_it_differs_from_earlier_ones_unless_it_skips_them(building: Up) -> None:
    def first_of(name: str, second: str, *, skip_cache: bool = False) -> str:
        template = Template().from_template("tiny").run_cmd("cat /proc/sys/kernel/random/uuid > first")
        Template.build(template.run_cmd(second), name, skip_cache=skip_cache)
        with Sandbox.create(name, timeout=60, allow_internet_access=False) as sandbox:
            assert sandbox.files.read("second") == f"{name}\n"
            return sandbox.files.read("first")

    first = first_of("one", "echo one > second")
    assert first_of("two", "echo two > second") == first
    anew = first_of("three", "echo three > second", skip_cache=True)
    assert anew != first
    assert first_of("four", "echo four > second") == anew


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_files_go_where_a_copy_says_and_leave_what_was_there_as_it_was(building: Up, files: Path) -> None:
    template = (
        Template(file_context_path=files)
        .from_template("tiny")
        .run_cmd("mkdir -m 1777 /there && echo 2 > /there/two", user="root")
        .copy("app", "/there")
        .copy("word.txt", "new/folder/renamed", mode=0o600)
        .copy("word.txt", "new/folder/", user="root")
        .set_workdir("/work/here")
        .run_cmd("echo mine > file")
        .run_cmd("stat -c '%a %u %n' /there /there/* /work/here/file ~/new/folder/* > ~/seen")
        .run_cmd("ls -A / > ~/root")
        .run_cmd("sudo sh -c 'id -u > /by-sudo'")
    )
    Template.build(template, "places")
    with Sandbox.create("places", timeout=60, allow_internet_access=False) as sandbox:
        assert sandbox.files.read("seen").splitlines() == [
            "1777 0 /there",
            "777 1000 /there/broken",
            "644 1000 /there/one",
            "644 0 /there/two",
            "644 1000 /work/here/file",
            "600 1000 /home/user/new/folder/renamed",
            "644 0 /home/user/new/folder/word.txt",
        ]
        assert ".sent" not in sandbox.files.read("root")
        assert sandbox.files.read("/by-sudo") == "0\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stranger_sees_neither_builds_nor_templates_nor_where_files_go(building: Up) -> None:
    template = Template().from_template("tiny").run_cmd("echo secret > secret")
    info = Template.build(template, "private")
    stranger = new_api_key(building, "stranger")
    with pytest.raises(BuildException, match="404"):
        Template.get_build_status(info, api_key=stranger)
    assert Template.exists("private", api_key=stranger) is False
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create("private", api_key=stranger)
    assert Sandbox.delete_snapshot("private", api_key=stranger) is False
    with pytest.raises(BuildException, match="private"):
        Template.build(Template().from_template("private").run_cmd("true"), "thief", api_key=stranger)
    where = f"{building.url}/e2b/templates/private/files/{'a' * 64}"
    head = {"X-API-Key": os.environ["E2B_API_KEY"]}
    url = httpx.get(where, headers=head, trust_env=False).json()["url"]
    for wrong in (where, url + "0", url.replace("/private/", "/other/")):
        assert httpx.put(wrong, content=b"x", trust_env=False).status_code == 401, wrong
    assert httpx.put(url, content=b"x", trust_env=False).status_code == 204
    assert Sandbox.delete_snapshot("private") is True


def test_who_may_make_no_images_is_told_so(real_key: str) -> None:
    with pytest.raises(BuildException, match=r"403.*image"):
        Template.build(Template().from_base_image().run_cmd("true"), "mine")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Step(kind="ADD", args=("a", "b")), "ADD: it is not understood"),
        (Step(kind="RUN", args=()), "RUN: too little"),
        (Step(kind="RUN", args=("x", "user\nRUN evil")), "no name of a user"),
        (Step(kind="ENV", args=("A", "b\nRUN evil")), "control character"),
        (Step(kind="ENV", args=("A B", "c")), "no name of a variable"),
        (Step(kind="WORKDIR", args=("/a\nRUN evil",)), "control character"),
        (Step(kind="COPY", args=("a", "/")), "files that were sent"),
        (Step(kind="COPY", args=("../a", "/"), files="f"), "files that were sent"),
        (Step(kind="COPY", args=("a", "/", "user;evil"), files="f"), "no name of a user"),
        (Step(kind="COPY", args=("a", "/", "", "9"), files="f"), "COPY"),
    ],
)
def test_steps_that_cannot_be_done_are_refused(step: Step, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_steps(Plan(base="x", profile="y", steps=[step]))


def test_lines_without_a_word_are_not_kept_without_end() -> None:
    build = Build("id", "account", "name", ("default",), WantedResources())
    for _ in range(1000):
        build.say("", datetime.now(UTC))
        build.say("\n" * 1000, datetime.now(UTC))
    assert len(build.lines) < 10_000
    assert build.lines[-1].text == "(the rest is left out)"


class Slow(StepByStep):
    """Drops nothing from a disk, and lets others go on meanwhile."""

    async def _drop(self, origin: Origin) -> None:
        await asyncio.sleep(0)


async def test_builds_at_once_drop_neither_what_one_of_them_uses_nor_anything_twice() -> None:
    """One that found its disk dropped by another account's build broke."""
    plan = Plan(base="x", profile="y", steps=[Step(kind="RUN", args=("true",))])
    (_, last), mine = stages_of(plan, "digest", {}), Caller(public_key="k", account="victim")
    layers = {(f"greedy-{n}", "k"): (Origin(disk_id=f"d{n}", backend="b", image="x"), 1) for n in range(40)}
    kept = Origin(disk_id="mine", backend="b", image="x")
    building = Slow(
        builders=cast(ImageBuilders, None), layers=OrderedDict({("victim", last.key): (kept, 1), **layers})
    )
    with building._in_use(mine, [last]) as used:
        assert used == kept
        await asyncio.gather(*(building._drop_oldest(list(building.layers), most) for most in (9, 6, 3)))
        assert len(building.layers) == 3
    assert list(building.layers)[-1] == ("victim", last.key)


def test_whoever_opens_more_and_more_builds_loses_them_before_others_lose_theirs(tmp_path: Path) -> None:
    with (
        scripted_platform(tmp_path / "state", charging=False, image_makers="everyone") as up,
        httpx.Client(base_url=f"{up.url}/e2b", trust_env=False, timeout=60) as http,
    ):

        def opened(key: str) -> str:
            made = http.post("/v3/templates", headers={"X-API-Key": key}, json={"name": "mine"})
            assert made.status_code == 202, made.text
            return f"/templates/mine/builds/{made.json()['buildID']}/status"

        victim = new_api_key(up, "victim")
        mine = opened(victim)
        for key in [new_api_key(up, f"greedy-{no}") for no in range(8)]:
            for _ in range(9):
                opened(key)
        assert http.get(mine, headers={"X-API-Key": victim}).status_code == 200
