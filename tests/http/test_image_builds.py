"""Images built from Dockerfiles, in a sandbox: what Docker's users expect works, what an attacker tries stays
inside, and nothing is left of a build that ends early."""

from __future__ import annotations

import socket
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from sandboxer.artifacts.images.builders.use_cases import ours_in
from tests.access.egress.world import OWN
from tests.artifacts.engines import BUSYBOX
from tests.support.builds import build, builds, context, living, names, world  # noqa: F401
from tests.support.flows import sh_as
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually

TOOLS = "FROM sandboxer/tiny\n"


async def started(served: Served, image_id: str) -> str:
    return (await served.sandbox(image=image_id)).rsplit("/", 1)[1]


@flow("buildImage")
async def test_a_dockerfile_becomes_an_image(builds: Served) -> None:
    """From nothing, with what a template keeps; again, every layer is there already."""
    sent = context(
        "FROM scratch\nARG WHO=world\nCOPY busybox /bin/busybox\n"
        'RUN ["/bin/busybox", "--install", "-s", "/bin"]\n'
        "RUN echo hello $WHO > /word\nENV GREETING=hi\nWORKDIR /srv\n",
        {"busybox": Path(BUSYBOX).read_bytes()},
    )
    said, image = await build(builds, sent, arg="WHO=you", start="httpd%20-f", ready="wget%20-q%20localhost")
    assert "STEP 4/9: RUN" in said, said
    assert image["source"].startswith("build@sha256:")
    labels = image["config"]["Labels"]
    assert (labels["sandboxer.start"], labels["sandboxer.ready"]) == ("httpd -f", "wget -q localhost")
    assert image["config"]["WorkingDir"] == "/srv"
    assert await sh_as(builds.client, await started(builds, image["id"]), "cat /word; echo $GREETING") == (
        "hello you\nhi\n"
    )
    again, same = await build(builds, sent, arg="WHO=you", start="httpd%20-f", ready="wget%20-q%20localhost")
    assert again.count("Using cache") == 8, again
    assert (same["digest"], same["source"]) == (image["digest"], image["source"])
    # Neither packed nor unpacked once more; and an image of its own.
    assert f"it is {image['id']}, built before" in again
    assert "importing it" not in again
    assert same["id"] != image["id"]
    assert same["config"] == image["config"]
    assert (await builds.client.delete(f"/v1/images/{image['id']}")).status_code == 200
    assert await sh_as(builds.client, await started(builds, same["id"]), "cat /word") == "hello you\n"
    anew, _ = await build(builds, sent, arg="WHO=you", cache="false")
    assert "Using cache" not in anew


_ROOM = {"pool_size_mb": 16384, "image_upload_mb": 2048, "build_disk_mb": 4096, "build_cache_mb": 4096}


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("builds", [_ROOM], indirect=True)
async def test_a_build_begins_as_the_base_image_of_the_host(builds: Served) -> None:
    dockerfile = (
        "FROM sandboxer/base\nCOPY word /word\nRUN python3 -c 'print(open(\"/word\").read())' > /said\n"
    )
    began = time.monotonic()
    said, image = await build(builds, context(dockerfile, {"word": b"hi"}))
    first_s = time.monotonic() - began
    assert "taking base from this platform" in said
    sandbox = await builds.sandbox(image=image["id"], resources={"disk_mb": 1024})
    assert await sh_as(builds.client, sandbox.rsplit("/", 1)[1], "cat /said") == "hi\n"
    # Nothing changed: neither the base nor the image is read through again.
    began = time.monotonic()
    said, same = await build(builds, context(dockerfile, {"word": b"hi"}))
    print(f"built in {first_s:.1f} s, with every layer there in {time.monotonic() - began:.1f} s")
    assert same["digest"] == image["digest"]
    assert f"it is {image['id']}, built before" in said


async def test_images_of_the_platform_stages_and_ignored_files(builds: Served) -> None:
    dockerfile = (
        "FROM sandboxer/tiny AS making\nCOPY . /all/\nRUN ls -A /all > /list && id -u > /user\n"
        "FROM sandboxer/tiny\nCOPY --from=making /list /user /\nRUN chmod 1777 /tmp\n"
        "USER 1000\nRUN id -u > /tmp/user\n"
    )
    files = {"kept": b"", "secret.env": b"", ".dockerignore": b"*.env\n"}
    said, image = await build(builds, context(dockerfile, files))
    assert "taking tiny from this platform" in said, said
    assert "id" in image, (said, image)
    sandbox = await started(builds, image["id"])
    assert await sh_as(builds.client, sandbox, "cat /list /user /tmp/user; ls -d /all") == (
        ".dockerignore\nDockerfile\nkept\n0\n1000\n"
    )
    said, over = await build(
        builds, context(f"FROM sandboxer/{image['id']}\nRUN cat /etc/version > /tmp/seen\n")
    )
    assert "id" in over, (said, over)
    assert await sh_as(builds.client, await started(builds, over["id"]), "cat /tmp/seen") == "12\n"
    _, first = await build(builds, context(dockerfile, files), target="making")
    assert await sh_as(builds.client, await started(builds, first["id"]), "ls /all") == "Dockerfile\nkept\n"


async def test_a_build_that_fails_says_why_and_leaves_nothing(builds: Served) -> None:
    said, problem = await build(builds, context(TOOLS + "RUN echo so far; exit 7\n"))
    assert "so far" in said
    assert (problem["status"], problem["code"]) == (422, "invalid_request")
    assert "exit status 7" in problem["detail"]
    for sent, word in ((context("FRUM x\n"), "no FROM statement"), (b"no tar", "unpacked")):
        answer = await builds.client.post("/v1/images/build?name=x", content=sent)
        assert answer.status_code in (400, 422, 503), answer.text
        assert word in answer.text
    answer = await builds.client.post("/v1/images/build?name=x&file=none", content=context(TOOLS))
    assert "none: there is no such file" in answer.text
    answer = await builds.client.post("/v1/images/build?name=x", content=context("FROM sandboxer/nosuch\n"))
    assert answer.status_code == 404, answer.text
    assert await living(builds) == []
    assert (await builds.client.get("/v1/images")).json()["published"] == []


async def test_a_build_reaches_nothing_of_the_host(builds: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    port = int(str(builds.client.http.base_url).rsplit(":", 1)[1].strip("/"))
    with socket.create_server((OWN, 0)) as near:
        tried = (
            f"cat {secret}; ls /proc/1/root; cat /proc/1/environ; echo x > /proc/sys/kernel/core_pattern;"
            f" for at in 127.0.0.1:{port} {OWN}:{near.getsockname()[1]} 169.254.169.254:80 10.1.2.3:80; do"
            " nc -w 2 ${at%:*} ${at#*:} </dev/null && echo reached $at;"
            " http_proxy=http://127.0.0.1:3128 wget -q -T 3 -O- http://$at/ && echo fetched $at; done;"
            " mknod /disk b 254 0; mount -t tmpfs none /mnt; mount -t proc none /mnt; echo tried"
        )
        dockerfile = TOOLS + f"RUN ({tried}) > /found 2>&1; echo done\nCOPY link out* /copied/\n"
        links = {"link": str(secret), "outside": "../../../../etc/shadow"}
        said, image = await build(builds, context(dockerfile, {"outer": b""}, links))
        assert "id" not in image or image["state"] == "kept", said
        dockerfile = TOOLS + f"RUN ({tried}) > /found 2>&1; echo done\n"
        said, image = await build(builds, context(dockerfile))
        # What is led to the proxy is taken before it is judged; nothing of it comes here.
        near.setblocking(False)
        with pytest.raises(BlockingIOError):
            near.accept()
    found = await sh_as(builds.client, await started(builds, image["id"]), "cat /found; ls /disk /mnt")
    assert "tried" in found
    for word in ("of the host", "reached 127.0.0.1", "fetched", "SANDBOXER"):
        assert word not in found, found
    assert found.count("egress_denied") >= 2, found
    assert found.count("ermission denied") + found.count("not permitted") >= 4, found


async def test_links_in_what_is_copied_lead_nowhere(builds: Served, tmp_path: Path) -> None:
    """A link of the context is followed within it, and a Dockerfile that is a link shows no host's file."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    links = {"a": str(secret), "b": "/etc/passwd", "up": "../../.."}
    _, image = await build(builds, context(TOOLS + "COPY a b up /in/\n", links=links))
    if "id" in image:
        copied = await sh_as(builds.client, await started(builds, image["id"]), "cat /in/* 2>&1; ls -R /in")
        assert "of the host" not in copied
    answer = await builds.client.post(
        "/v1/images/build?name=x&file=linked", content=context(TOOLS, links={"linked": str(secret)})
    )
    assert "of the host" not in answer.text
    answer = await builds.client.post(
        f"/v1/images/build?name=x&file=../../../../{secret}", content=context(TOOLS)
    )
    assert "there is no such file" in answer.text


@pytest.mark.parametrize(
    ("run", "code"),
    [
        ("RUN dd if=/dev/zero of=/big bs=1M count=600\n", ("too_large", "invalid_request")),
        ("RUN b() { b | b & }; b; sleep 2; false\n", ("invalid_request",)),
        ("RUN yes 0123456789 | head -c 100000000; false\n", ("invalid_request",)),
    ],
    ids=["fills the disk", "forks", "shouts"],
)
async def test_a_build_that_wants_all_gets_its_share(
    builds: Served,
    run: str,
    code: tuple[str, ...],
) -> None:
    _, problem = await build(builds, context(TOOLS + run), cache="false")
    assert problem["code"] in code, problem
    assert await living(builds) == []
    _, image = await build(builds, context(TOOLS + "RUN echo fine > /fine\n"))
    assert image["state"] == "kept"


async def test_nothing_is_left_of_a_build_that_nobody_waits_for(
    builds: Served,
    tmp_path: Path,
) -> None:
    sent = context(TOOLS + "RUN echo begun; sleep 600\n")
    stream = builds.client.events("POST", "/v1/images/build?name=x", content=sent)
    async with aclosing(stream) as events:  # type: ignore[type-var]
        async for event in events:
            if "begun" in event.data["text"].splitlines():
                assert len(await living(builds)) == 1
                break

    boxes = tmp_path / "state" / "run"
    await eventually(lambda: not [one for one in boxes.iterdir() if one.name.startswith("sbx_")])
    assert (await builds.client.get("/v1/images")).json()["published"] == []
    said, image = await build(builds, context(TOOLS + "RUN echo fine\n"))
    assert image["state"] == "kept", said


async def test_strangers_build_and_fetch_nothing(builds: Served) -> None:
    bob = await builds.stranger("bob")
    answer = await bob.post("/v1/images/build?name=x", content=context(TOOLS))
    assert (answer.status_code, answer.json()["reason"]) == (403, "image_makers")
    # Nothing that they send is kept meanwhile: they are refused before it is too large.
    large = bytes(builds.platform.settings.image_upload_mb * 1024 * 1024 + 1)
    answer = await bob.post("/v1/images/build?name=x", content=large)
    assert (answer.status_code, answer.json().get("reason")) == (403, "image_makers")
    answer = await bob.post("/v1/images/pull", {"reference": "registry.example.com/x:1"})
    assert (answer.status_code, answer.json()["reason"]) == (403, "image_makers")
    answer = await bob.post("/v1/sandboxes", {"image": "registry.example.com/x:1"})
    assert (answer.status_code, answer.json()["reason"]) == (403, "image_makers")


@pytest.mark.parametrize("filler", ["\n", " ", "FROM ", "FROM --a ", "--a\n"])
def test_a_dockerfile_of_any_form_is_read_at_once(filler: str) -> None:
    """It is read where all are served."""
    text = "FROM --platform=linux/amd64\tsandboxer/tiny AS one\n  from sandboxer/base\n" + filler * 40_000
    begun = time.monotonic()
    assert ours_in(text) == ["tiny", "base"]
    assert time.monotonic() - begun < 5


async def test_without_a_builder_the_answer_names_the_command(builds: Served, tmp_path: Path) -> None:
    (tmp_path / "images" / "builder").unlink()
    answer = await builds.client.post("/v1/images/build?name=x", content=context(TOOLS))
    assert "sudo sandboxer image build builder" in answer.text
