"""Flows 9 and 10: an agent keeps disks, goes back to them and forks them, and publishes images of them."""

from __future__ import annotations

from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.flows.suite import (
    TTL,
    Bench,
    Flow,
    expect,
    expect_equal,
    nothing_is_left,
    refused,
    sh,
)
from sandboxer.wire.images import PublishedImage
from sandboxer.wire.snapshots import Clones, Snapshot

snapshots = Flow(9, "Snapshots: keep a disk, fork it, go back to it")
images = Flow(10, "Images: publish an environment, start others from it")
# What a scanner has to find: the form of a token, and nobody's.
LIKE_A_TOKEN = "ghp_" + "a1B2" * 9


async def _kept(bench: Bench, sandbox: AsyncSandbox) -> Snapshot:
    made = await bench.client.snapshots.take(
        sandbox.id, name=bench.name("snapshot"), ttl=TTL, labels=bench.labels
    )
    bench.takes_back(bench.client.snapshots.remove, made.id)
    expect_equal(made.state, "kept", "the state of the snapshot")
    return made


async def _saved(bench: Bench, script: str) -> tuple[AsyncSandbox, Snapshot]:
    """Returns a sandbox in which this ran, and its disk of then."""
    await bench.demand_capability("snapshot")
    sandbox = await bench.sandbox()
    await sh(sandbox, script)
    return sandbox, await _kept(bench, sandbox)


def _ending(bench: Bench, made: Clones) -> list[AsyncSandbox]:
    expect(not made.failed, f"{len(made.failed)} could not be made")
    return [bench.ending(bench.client.sandbox(one.id)) for one in made.sandboxes]


async def _forks(bench: Bench, kept: Snapshot, count: int = 1) -> list[AsyncSandbox]:
    return _ending(
        bench,
        await bench.client.snapshots.clone(
            kept.id, count=count, name=bench.name("fork"), ttl=TTL, labels=bench.labels
        ),
    )


@snapshots.check("an agent tries several ways from one point")
async def forks_begin_as_it_was_and_go_their_own_ways(bench: Bench) -> None:
    script = "mkdir -p /workspace/app && echo 42 > /workspace/app/x && rm /etc/debian_version"
    sandbox, kept = await _saved(bench, script)
    await sh(sandbox, "echo changed > /workspace/app/x")
    first, second = await _forks(bench, kept, 2)
    probe = "cat /workspace/app/x; test -e /etc/debian_version || echo removed"
    for fork in (first, second):
        expect_equal(await sh(fork, probe), "42\nremoved\n", "what a fork has")
    await sh(first, "echo 1 > /workspace/app/x")
    expect_equal(await sh(second, "cat /workspace/app/x"), "42\n", "what the other has then")
    expect_equal(await sh(sandbox, "cat /workspace/app/x"), "changed\n", "what the origin has")
    names = {await sh(one, "cat /etc/machine-id") for one in (sandbox, first, second)}
    expect_equal(len(names), 3, "how many machines they take themselves for")


@snapshots.check("time travel, as the paper has it")
async def a_restored_disk_is_what_it_was_and_nothing_more(bench: Bench) -> None:
    sandbox, kept = await _saved(bench, "echo 42 > /workspace/x")
    await sh(sandbox, "echo broken > /workspace/x; echo later > /workspace/later")
    back = await bench.client.snapshots.restore(kept.id)
    expect_equal(back.id, sandbox.id, "the id of what was restored")
    seen = await sh(sandbox, "cat /workspace/x; test -e /workspace/later || echo gone")
    expect_equal(seen, "42\ngone\n", "what is on the disk")


@snapshots.check("what was saved has to outlive what it was saved from")
async def a_snapshot_outlives_its_sandbox(bench: Bench) -> None:
    sandbox, kept = await _saved(bench, "echo 42 > /workspace/x")
    await sandbox.destroy()
    await refused(bench.client.snapshots.restore(kept.id), 409, what="restoring what is gone")
    (fork,) = await _forks(bench, kept)
    expect_equal(await sh(fork, "cat /workspace/x"), "42\n", "what a fork of it has")


@snapshots.check("what is removed costs nothing, and takes nothing with it")
async def a_removed_snapshot_makes_nothing_and_its_forks_stay(bench: Bench) -> None:
    _, kept = await _saved(bench, "echo 42 > /workspace/x")
    (fork,) = await _forks(bench, kept)
    expect_equal((await bench.client.snapshots.remove(kept.id)).state, "dropped", "its state")
    await refused(bench.client.snapshots.clone(kept.id), 404, 409, what="a fork of what is removed")
    expect_equal(await sh(fork, "cat /workspace/x"), "42\n", "what an older fork has")


@snapshots.check("an agent has to know what came from what")
async def the_lineage_says_what_came_from_what(bench: Bench) -> None:
    sandbox, first = await _saved(bench, "true")
    second = await _kept(bench, sandbox)
    expect_equal(second.parent_id, first.id, "the parent of the second")
    lines = {one.id: one for one in await bench.client.snapshots.tree()}
    expect({first.id, second.id} <= set(lines), "one of them is not in the tree")
    expect_equal(lines[second.id].parent_id, first.id, "its parent in the tree")


snapshots.check("a snapshot that stays costs")(nothing_is_left)


async def _environment(bench: Bench, script: str) -> tuple[AsyncSandbox, PublishedImage]:
    """Returns a sandbox in which this ran, and the image of its disk."""
    sandbox = await bench.sandbox()
    await sh(sandbox, script)
    return sandbox, await _published(bench, sandbox)


async def _published(bench: Bench, sandbox: AsyncSandbox) -> PublishedImage:
    await bench.demand_capability("images")
    made = await bench.client.images.publish(bench.name("image"), sandbox=sandbox.id)
    bench.takes_back(bench.client.images.remove, made.id)
    expect_equal((made.state, made.visibility), ("kept", "private"), "state and visibility")
    return made


async def _spawned(bench: Bench, image_id: str) -> AsyncSandbox:
    made = await bench.client.images.spawn(image_id, name=bench.name("spawned"), ttl=TTL, labels=bench.labels)
    return _ending(bench, made)[0]


@images.check("an environment is made once and used often")
async def a_published_image_outlives_its_sandbox_and_others_begin_as_it(bench: Bench) -> None:
    sandbox, image = await _environment(bench, "mkdir -p /opt/tool && echo 42 > /opt/tool/x")
    await sandbox.destroy()
    expect_equal(await sh(await _spawned(bench, image.id), "cat /opt/tool/x"), "42\n", "what it has")
    made = await bench.sandbox(image=image.id)
    expect_equal(await sh(made, "cat /opt/tool/x"), "42\n", "what one that was created from it has")


@images.check("who starts from an image has to know that it is that image")
async def its_digest_names_its_content(bench: Bench) -> None:
    sandbox, image = await _environment(bench, "echo 42 > /opt/x")
    expect(str(image.digest).startswith("sha256:"), f"{image.digest} is no digest")
    checked = await bench.client.images.verify(image.id)
    expect_equal(checked.digest, image.digest, "the digest of what was read")
    await sh(sandbox, "echo 43 > /opt/x")
    other = await _published(bench, sandbox)
    expect(other.digest != image.digest, "another disk has the same digest")


@images.check("what is private is nobody else's business")
async def a_private_image_is_not_there_for_others(bench: Bench) -> None:
    _, image = await _environment(bench, "true")
    path = f"/v1/images/{image.id}"
    answer = await bench.send("GET", path, signs=False)
    expect(answer.status_code in (401, 404), f"a stranger is answered with {answer.status_code}")
    key = await bench.child("sandboxes:read")
    other = bench.as_child(key)
    await refused(other.images.get(image.id), 403, 404, what="a look of another account")
    listed = [one.id async for one in bench.client.images.list(which="public")]
    expect(image.id not in listed, "it is listed among those for everybody")


@images.check("a published secret is everybody's")
async def nothing_with_a_secret_becomes_public(bench: Bench) -> None:
    sandbox = await bench.sandbox()
    await sh(sandbox, f"mkdir -p /srv/app && echo 'T={LIKE_A_TOKEN}' > /srv/app/conf")
    await bench.demand_capability("images")
    try:
        leaky = await bench.client.images.publish(
            bench.name("leaky"), sandbox=sandbox.id, visibility="unlisted"
        )
    except ApiError as error:
        expect_equal((error.status, error.reason), (409, "secrets_found"), "why it is refused")
        expect(LIKE_A_TOKEN not in str(error.problem), "the refusal shows the secret")
        return
    await bench.client.images.remove(leaky.id)
    expect(False, "a disk with a token in it was published for others")


@images.check("what is removed costs nothing, and takes nothing with it")
async def a_removed_image_makes_nothing_and_what_came_from_it_stays(bench: Bench) -> None:
    _, image = await _environment(bench, "echo 42 > /opt/x")
    spawned = await _spawned(bench, image.id)
    expect_equal((await bench.client.images.remove(image.id)).state, "dropped", "its state")
    await refused(bench.client.images.spawn(image.id), 404, 409, what="a sandbox of what is removed")
    expect_equal(await sh(spawned, "cat /opt/x"), "42\n", "what an older one has")


images.check("an image that stays costs")(nothing_is_left)
