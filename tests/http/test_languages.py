"""Languages over HTTP: anyone may ask, before paying."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from sandboxer.work.languages import languages
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host with one image, of Python, Perl and two shells."""
    images = tmp_path / "images"
    _image(images / "base", {"python3": "3.11.2-1", "perl": "5.36.0-7", "bash": "5.2.15-2", "dash": "0.5"})
    return Settings(state_dir=tmp_path / "state", images_dir=images, host="127.0.0.1", port=0, charging=False)


def _image(folder: Path, packages: dict[str, str]) -> None:
    (folder / "rootfs").mkdir(parents=True)
    facts = {"digest": "sha256:0", "recipe_digest": "sha256:0", "built_at": "2026-01-01T00:00:00+00:00"}
    more = {"build_seconds": 1.0, "size_bytes": 1, "distribution": "debian", "suite": "bookworm"}
    record = {"name": folder.name, **facts, **more, "architecture": "x86_64", "packages": packages}
    (folder / "image.json").write_text(json.dumps(record))


@flow("listLanguages", "getLanguage", "listShells")
async def test_anyone_learns_what_runs_here_and_what_would(served: Served) -> None:
    http = served.client.http
    answer = await http.get("/v1/languages")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "public, max-age=60"
    known = {one["name"]: one for one in answer.json()["languages"]}
    assert known.keys() == languages().keys()
    assert answer.json()["count"] == sum(not one.is_shell for one in languages().values()) + 1
    assert answer.json()["aliases"]["py"] == "python"
    assert known["python"]["available"]
    assert known["python"]["version"] == "3.11.2-1"
    assert known["fortran"]["available"] is False
    assert known["fortran"]["images"] == []
    here = (await http.get("/v1/languages?available=true")).json()
    assert {one["name"] for one in here["languages"]} == {"python", "perl", "bash", "sh", "dash"}
    assert here["count"] == 3
    assert (await http.get("/v1/languages?image=languages")).json()["count"] == 0
    shells = (await http.get("/v1/shells?image=base")).json()
    assert [one["name"] for one in shells["shells"]] == ["bash", "sh", "dash"]
    assert (await http.get("/v1/languages/c%2B%2B")).json()["name"] == "cpp"
    fortran = (await http.get("/v1/languages/f90")).json()
    assert fortran["compile"][0] == fortran["name"].replace("fortran", "gfortran")
    assert "hello from fortran" in fortran["hello"]


async def test_an_unknown_language_is_answered_with_the_nearest(served: Served) -> None:
    answer = await served.client.http.get("/v1/languages/fortan")
    assert answer.status_code == 404
    assert "fortran" in answer.json()["next_step"]


async def test_a_language_that_a_wheel_brings_is_there_when_its_program_is(settings: Settings) -> None:
    programs = settings.images_dir / "base" / "rootfs" / "usr" / "local" / "bin"
    programs.mkdir(parents=True)
    (programs / "zig").symlink_to("/nowhere")
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        http = served.client.http
        assert (await http.get("/v1/languages/zig")).json()["images"] == ["base"]
        assert (await http.get("/v1/languages/deno")).json()["images"] == []
