"""What an image holds, listed: which paths were altered, told without holding either list."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from sandboxer.artifacts.images.published.manifest import Lists, Shaping, survey_and_list, verify
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.backends.contract import KeptLayers
from sandboxer.kernel.errors import Conflict
from tests.support.archives import real
from tests.support.flows import sh_as
from tests.support.http.served import Served

__all__ = ["real"]
ID = "img_0123456789abcdefghjkmnpqrs"


@pytest.fixture
def layers(tmp_path: Path) -> KeptLayers:
    layer = tmp_path / "layer"
    # Names whose order by bytes is not that of their text.
    for name in (b"a/x", b"a.b", b"a\xff/y", b"a\\udcff/z", "ä/ö".encode(), b"b/c/d", b"z"):
        path = os.fsencode(layer) + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(name)
    return KeptLayers(base="tiny", tree=tmp_path, layer=layer)


def altered(layers: KeptLayers, lists: Lists, digest: str) -> Conflict:
    with pytest.raises(Conflict) as refused:
        verify(ID, layers, Bounds(), lists, digest=digest)
    return refused.value


def test_what_was_altered_is_named(layers: KeptLayers, tmp_path: Path) -> None:
    lists = Lists(tmp_path / "lists")
    digest = survey_and_list(ID, layers, Bounds(), lists).digest
    verify(ID, layers, Bounds(), lists, digest=digest)
    (layers.layer / "z").write_text("other")
    (layers.layer / "a/x").chmod(0o600)
    (layers.layer / "b/new").write_text("")
    (layers.layer / "b/c/d").unlink()
    os.rename(os.fsencode(layers.layer) + b"/a\xff/y", os.fsencode(layers.layer) + b"/a\xff/w")
    refused = altered(layers, lists, digest)
    assert refused.facts["altered"] == [
        {"path": "/a/x", "how": "changed"},
        {"path": "/a\\udcff/w", "how": "added"},
        {"path": "/a\\udcff/y", "how": "missing"},
        {"path": "/b/c/d", "how": "missing"},
        {"path": "/b/new", "how": "added"},
        {"path": "/z", "how": "changed"},
    ]
    assert "/a/x (changed), " in str(refused)
    assert "and 1 more" in str(refused)


def test_a_list_that_is_gone_or_altered_itself_tells_nothing_more(layers: KeptLayers, tmp_path: Path) -> None:
    lists = Lists(tmp_path / "lists")
    digest = survey_and_list(ID, layers, Bounds(), lists).digest
    (layers.layer / "z").write_text("other")
    other = KeptLayers(base="another", tree=tmp_path, layer=layers.layer)
    survey_and_list(ID, other, Bounds(), lists)
    assert "altered" not in altered(layers, lists, digest).facts
    (listed,) = (tmp_path / "lists").iterdir()
    listed.write_bytes(listed.read_bytes()[:-9])
    assert "altered" not in altered(layers, lists, digest).facts
    lists.sweep(set())
    assert list((tmp_path / "lists").iterdir()) == []
    assert "altered" not in altered(layers, lists, digest).facts


def test_many_differences_are_counted_not_held(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    layer.mkdir()
    for number in range(3000):
        (layer / f"{number}").write_text("AKIA" + "ABCDEFGH" * 2)
    layers = KeptLayers(base="tiny", tree=tmp_path, layer=layer)
    lists = Lists(tmp_path / "lists")
    found = survey_and_list(ID, layers, Bounds(), lists)
    assert (found.findings.count, len(found.findings.first)) == (3000, 100)
    cleaning = Shaping(Bounds(), clean=True)
    fd = os.open(layer, os.O_RDONLY | os.O_DIRECTORY)
    try:
        cleaning(fd)
    finally:
        os.close(fd)
    assert (cleaning.stripped.count, len(cleaning.stripped.first)) == (3000, 100)
    tracemalloc.start()
    try:
        refused = altered(layers, lists, found.digest)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert refused.facts["altered_count"] == 3000
    assert len(refused.facts["altered"]) == 20


async def test_verifying_an_image_that_was_altered_on_the_host_says_which_paths(real: Served) -> None:
    client = await real.stranger("alice")
    wanted = {**real.defaults, "profile": "profile.agent-dev"}
    sandbox = (await client.post("/v1/sandboxes", wanted)).json()["id"]
    assert await sh_as(client, sandbox, "mkdir -p /opt/tool && echo a > /opt/tool/word && touch /opt/x") == ""
    image = (await client.post("/v1/images", {"sandbox": sandbox, "name": "tool"})).json()
    path = f"/v1/images/{image['id']}"
    assert (await client.post(f"{path}/verify")).status_code == 200
    upper = real.state_dir / "pool" / image["id"] / "disk" / "upper"
    words = ["btrfs", "property", "set", "-t", "s", str(upper.parent), "ro", "false"]
    await asyncio.to_thread(subprocess.run, words, check=True)
    (upper / "opt/tool/word").write_text("b")
    (upper / "opt/tool/evil").write_text("evil")
    (upper / "opt/x").unlink()
    refused = await client.post(f"{path}/verify")
    assert (refused.status_code, refused.json()["reason"]) == (409, "altered")
    assert refused.json()["altered"] == [
        {"path": "/opt/tool/evil", "how": "added"},
        {"path": "/opt/tool/word", "how": "changed"},
        {"path": "/opt/x", "how": "missing"},
    ]
    assert "/opt/tool/evil (added), /opt/tool/word (changed), /opt/x (missing)" in refused.json()["detail"]
    assert (await client.get(path)).json()["state"] == "lost"
    assert (await client.post(f"{path}/spawn", {})).status_code == 409
    assert (await client.delete(path)).json()["state"] == "dropped"
    assert list((real.state_dir / "image-lists").iterdir()) == []
