"""Images of a real registry, which is far away (`public_world`): fetched in a sandbox through its egress
proxy, by name or digest, with credentials or without, and used again by their names."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxer.access.egress.authority import _public_authorities
from tests.access.egress.world import ADDRESS, _far, _inside, certified
from tests.support.builds import build, builds, context, living, making, names, world  # noqa: F401
from tests.support.flows import sh_as
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually

REGISTRY = "registry.example.com:5000"
# `open-sesame`, as htpasswd keeps it.
_USERS = "ali:$2b$05$abcdefghijklmnopqrstuutXu9KzOt.1yBoZUeFWoT/914/JfszCO\n"
_CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/blobs}}}}
http: {{addr: "{address}:{port}"{tls}}}
{auth}
"""
Start = Callable[..., int]


@pytest.fixture
def registry(builds: Served, tmp_path: Path) -> Iterator[Start]:
    if shutil.which("docker-registry") is None or shutil.which("skopeo") is None:
        pytest.skip("docker-registry or skopeo is not installed: scripts/system-packages ci")
    started: list[subprocess.Popen[bytes]] = []

    def start(port: int = 5000, *, guarded: bool = False, certificates: Path | None = None) -> int:
        folder = tmp_path / f"registry-{port}"
        folder.mkdir()
        (folder / "users").write_text(_USERS)
        auth = f"auth: {{htpasswd: {{realm: here, path: {folder}/users}}}}" if guarded else ""
        held = f", tls: {{certificate: {certificates}/ca.pem, key: {certificates}/key.pem}}"
        tls = "" if certificates is None else held
        text = _CONFIG.format(folder=folder, address=ADDRESS, port=port, auth=auth, tls=tls)
        (folder / "config.yml").write_text(text)
        with _inside(_far[-1]):
            command = ["docker-registry", "serve", str(folder / "config.yml")]
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return port

    yield start
    for process in started:
        process.kill()
        process.wait()


async def allow(served: Served, *ports: int) -> None:
    rule = {"action": "allow", "host": "registry.example.com", "ports": list(ports)}
    answer = await served.client.send("PUT", "/v1/egress", body={"rules": [rule]})
    assert answer.status_code == 200, answer.text


async def push(
    served: Served, tmp_path: Path, name: str, *, port: int = 5000, more: tuple[str, ...] = ()
) -> None:
    """Pushes an image of this platform, as any of its users would."""
    archive = tmp_path / "pushed.tar"
    if not archive.exists():
        _, image = await build(served, context("FROM sandboxer/tiny\nRUN echo far > /word\n"))
        exported = await served.client.get(f"/v1/images/{image['id']}/export")
        archive.write_bytes(exported.content)
        await served.client.delete(f"/v1/images/{image['id']}")
    target = f"docker://{ADDRESS}:{port}/{name}"
    command = ["skopeo", "copy", "-q", "--dest-tls-verify=false", *more, f"oci-archive:{archive}", target]

    def is_pushed() -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    await eventually(is_pushed)


async def pull(served: Served, reference: str, **more: object) -> tuple[str, dict[str, object]]:
    body = {"reference": reference, "plain_http": True, **more}
    said, found = await making(served, "/v1/images/pull", body=body)
    return said, dict(found)


async def refused(served: Served, reference: str, **more: object) -> tuple[int, str]:
    body = {"reference": reference, "plain_http": True, **more}
    answer = await served.client.post("/v1/images/pull", body)
    return answer.status_code, answer.text


@flow("pullImage")
async def test_an_image_of_a_registry_is_fetched_once(
    builds: Served,
    registry: Start,
    tmp_path: Path,
) -> None:
    registry()
    await push(builds, tmp_path, "team/tool:1")
    status, words = await refused(builds, f"{REGISTRY}/team/tool:1")
    assert status == 403, words
    assert f"egress allow account {REGISTRY}" in words
    await allow(builds, 5000)
    said, image = await pull(builds, f"docker://{REGISTRY}/team/tool:1")
    assert f"asking for docker://{REGISTRY}/team/tool:1" in said
    assert str(image["source"]).startswith(f"docker://{REGISTRY}/team/tool:1@sha256:")
    assert image["name"] == "tool-1"
    again, same = await pull(builds, f"{REGISTRY}/team/tool:1")
    assert same["id"] == image["id"], again
    pinned = f"{REGISTRY}/team/tool@{str(image['source']).rpartition('@')[2]}"
    _, exact = await pull(builds, pinned)
    assert exact["digest"] == image["digest"]
    assert await living(builds) == []
    # By its name, as in `docker run`: no registry is asked any more.
    sandbox = (await builds.sandbox(image=f"{REGISTRY}/team/tool:1")).rsplit("/", 1)[1]
    assert await sh_as(builds.client, sandbox, "cat /word") == "far\n"
    bob = await builds.stranger("bob")
    answer = await bob.post("/v1/sandboxes", {**builds.defaults, "image": f"{REGISTRY}/team/tool:1"})
    assert answer.status_code == 403, "what the operator keeps to himself"
    changed = await builds.client.send("PATCH", f"/v1/images/{image['id']}", body={"visibility": "public"})
    assert changed.status_code == 200, changed.text
    answer = await bob.post("/v1/sandboxes", {**builds.defaults, "image": f"{REGISTRY}/team/tool:1"})
    assert answer.status_code == 201, answer.text


async def test_a_registry_is_believed_by_an_authority_of_the_machine(
    builds: Served, registry: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified(tmp_path, "registry.example.com")
    registry(certificates=tmp_path)
    await allow(builds, 5000)
    await push(builds, tmp_path, "team/tool:1")
    wanted = {**builds.defaults, "image": f"{REGISTRY}/team/tool:1"}
    refusal = await builds.client.post("/v1/sandboxes", wanted)
    assert (refusal.status_code, "certificate" in refusal.text) == (503, True), refusal.text
    # What the machine trusts is read once in the life of a server.
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    _public_authorities.cache_clear()
    try:
        answer = await builds.client.post("/v1/sandboxes", wanted)
    finally:
        _public_authorities.cache_clear()
    assert answer.status_code == 201, answer.text
    assert await sh_as(builds.client, answer.json()["id"], "cat /word") == "far\n"


async def test_a_registry_that_says_no_is_understood(
    builds: Served,
    registry: Start,
    tmp_path: Path,
) -> None:
    registry()
    registry(5001, guarded=True)
    await allow(builds, 5000, 5001, 5002)
    await push(builds, tmp_path, "team/tool:1")
    await push(builds, tmp_path, "team/tool:1", port=5001, more=("--dest-creds", "ali:open-sesame"))
    guarded = f"{REGISTRY[:-1]}1/team/tool:1"
    status, words = await refused(builds, guarded)
    assert (status, "--authfile" in words) == (403, True), words
    user = {"username": "ali", "password": "wrong"}
    assert (await refused(builds, guarded, user=user))[0] == 403
    _, image = await pull(builds, guarded, user={"username": "ali", "password": "open-sesame"})
    assert image["state"] == "kept"
    assert (await refused(builds, f"{REGISTRY}/team/tool:2"))[0] == 404
    assert (await refused(builds, f"{REGISTRY}/team/none:1"))[0] == 404
    status, words = await refused(builds, f"{REGISTRY}/team/tool@sha256:{'0' * 64}")
    assert status == 404, words
    status, words = await refused(builds, f"{REGISTRY}/team/tool:1", plain_http=False)
    assert (status, "--plain-http" in words) == (422, True), words
    status, words = await refused(builds, f"{REGISTRY[:-1]}2/team/tool:1")
    assert (status, "cannot be reached" in words) == (503, True), words
    assert (await refused(builds, "Not A Name"))[0] == 422
    assert await living(builds) == []


async def test_an_image_for_another_machine_is_refused(
    builds: Served,
    registry: Start,
    tmp_path: Path,
) -> None:
    registry()
    await allow(builds, 5000)
    (tmp_path / "pushed.tar").write_bytes(_for_another_machine(tmp_path))
    await push(builds, tmp_path, "team/other:1")
    status, words = await refused(builds, f"{REGISTRY}/team/other:1")
    assert (status, "s390x" in words) == (422, True), words


def _for_another_machine(folder: Path) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    plain = folder / "other"
    plain.mkdir()
    (plain / "layer.tar").write_bytes(layer.getvalue())
    diff = (
        "sha256:"
        + subprocess.run(["sha256sum"], input=layer.getvalue(), capture_output=True).stdout.decode()[:64]
    )
    about = {
        "architecture": "s390x",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff]},
    }
    (plain / "config.json").write_text(json.dumps(about))
    manifest = [{"Config": "config.json", "RepoTags": ["localhost/other:1"], "Layers": ["layer.tar"]}]
    (plain / "manifest.json").write_text(json.dumps(manifest))
    source, target = folder / "docker.tar", folder / "oci.tar"
    subprocess.run(["tar", "-cf", source, "-C", plain, *os.listdir(plain)], check=True)
    subprocess.run(["skopeo", "copy", "-q", f"docker-archive:{source}", f"oci-archive:{target}"], check=True)
    return target.read_bytes()
