"""Images as archives: Docker and Podman load and run what we exported, and we run what they saved."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.artifacts.engines import BUSYBOX, Engine, Podman, docker_daemon, why_no_docker
from tests.support.archives import real  # noqa: F401
from tests.support.flows import sh_as
from tests.support.http.served import Served

TAG = f"localhost/sandboxer-two-layers-{os.getpid()}:latest"
ZSTD = b"\x28\xb5\x2f\xfd"
SCRIPT = (
    "mkdir -p /opt/tool && echo hello > /opt/tool/word && rm /etc/version"
    " && mv /usr/share/doc /usr/share/papers && echo more > /usr/share/papers/sub/more"
    " && rm /usr/share/papers/sub/less && rm -rf /usr/share/man && mkdir /usr/share/man"
    " && ln -s /opt/tool/word /opt/link && ln /opt/tool/word /opt/tool/same && chown 1000:1000 /opt/tool/word"
    " && mkfifo /opt/fifo"
)
PROBE = (
    "cat /opt/link /opt/tool/same; test -e /etc/version || echo no-version;"
    " test -e /usr/share/doc || echo moved; find /usr/share/papers | sort; ls -A /usr/share/man;"
    " stat -c %u:%g /opt/tool/word; test -e /opt/fifo || echo no-fifo"
)
SEEN = (
    "hello\nhello\nno-version\nmoved\n/usr/share/papers\n/usr/share/papers/readme\n/usr/share/papers/sub\n"
    "/usr/share/papers/sub/kept\n/usr/share/papers/sub/more\n1000:1000\nno-fifo\n"
)


@pytest.fixture(params=["podman", "docker"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    if request.param == "podman":
        if shutil.which("podman") is None:
            pytest.skip("podman is not installed: scripts/system-packages ci")
        yield Podman()
        return
    if why := why_no_docker():
        pytest.skip(why)
    async with docker_daemon() as docker:
        yield docker


async def test_docker_and_podman_load_and_run_what_was_exported(
    real: Served, engine: Engine, tmp_path: Path
) -> None:
    """In both forms each: Docker's manifest stands beside the layout too."""
    sandbox = (await real.sandbox()).rsplit("/", 1)[1]
    assert await sh_as(real.client, sandbox, SCRIPT) == ""
    image = (await real.client.post("/v1/images", {"sandbox": sandbox, "name": "Tool Box"})).json()
    for form in ("docker", "oci"):
        answer = await real.client.get(f"/v1/images/{image['id']}/export?format={form}")
        assert answer.status_code == 200, answer.text
        assert int(answer.headers["content-length"]) == len(answer.content)
        archive = tmp_path / f"{form}.tar"
        archive.write_bytes(answer.content)
        loaded = await engine.load(archive)
        try:
            assert loaded == "localhost/tool-box:latest"
            assert await engine.run(loaded, PROBE) == SEEN
        finally:
            await engine.remove(loaded)
            archive.unlink()


async def test_a_sandbox_runs_on_what_docker_and_podman_saved(
    real: Served, engine: Engine, tmp_path: Path
) -> None:
    """Layers that hide and replace what others brought, in every form and packing there is."""
    await make_two_layers(engine, tmp_path)
    try:
        for form in engine.forms:
            archive = tmp_path / "saved.tar"
            await engine.save(form, TAG, archive)
            assert starts_in(archive).count(ZSTD) >= 3 * (form == "zstd")
            await check_import(real, archive)
            archive.unlink()
    finally:
        await engine.remove(TAG)


def starts_in(archive: Path) -> list[bytes]:
    with tarfile.open(archive) as inside:
        found = [inside.extractfile(one) for one in inside if one.isfile()]
        return [one.read(4) for one in found if one is not None]


async def check_import(real: Served, archive: Path) -> None:
    sent = await real.client.send("POST", "/v1/images/import?name=saved", content=archive.read_bytes())
    assert sent.status_code == 201, sent.text
    image = sent.json()
    assert image["base"] == "scratch"
    assert image["config"]["WorkingDir"] == "/srv"
    assert "GREETING=hi" in image["config"]["Env"]
    assert image["stripped"] == ["/root/.ssh/id_ed25519"]
    made = await real.client.post(f"/v1/images/{image['id']}/spawn", {"resources": {"disk_mb": 64}})
    assert made.status_code == 201, made.text
    sandbox = made.json()["sandboxes"][0]["id"]
    probe = "cat /srv/word; echo $GREETING; test -e /srv/gone || echo hidden; ls /srv/folder; ls /root/.ssh"
    assert await sh_as(real.client, sandbox, probe) == "second\nhi\nhidden\nnew\n"


async def make_two_layers(engine: Engine, tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "bin").mkdir(parents=True)
    shutil.copy(BUSYBOX, context / "bin/busybox")
    (context / "Containerfile").write_text(
        "FROM scratch\n"
        "COPY bin /bin\n"
        'RUN ["/bin/busybox", "sh", "-c", "/bin/busybox --install -s /bin && mkdir -p /srv/folder'
        " && echo first > /srv/word && touch /srv/gone /srv/folder/old"
        ' && mkdir -p /root/.ssh && echo key > /root/.ssh/id_ed25519"]\n'
        "RUN echo second > /srv/word && rm /srv/gone && rm -r /srv/folder && mkdir /srv/folder"
        " && touch /srv/folder/new\n"
        "ENV GREETING=hi\nWORKDIR /srv\n"
    )
    await engine.build(context, TAG)
