"""`sandboxer snapshot`: keep a sandbox's disk, go back to it, fork from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import (
    GivenProof,
    Json,
    SandboxId,
    StateDir,
    Url,
    VolumeOption,
    Wallet,
    client,
    mounts,
    pairs,
    with_wallet,
)
from sandboxer.edges.cli.output import (
    ago,
    columns,
    err,
    facts_table,
    out,
    plain,
    print_json,
    size,
    state_text,
    until,
    waiting,
)
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.snapshots import Snapshot, SnapshotLine

app = typer.Typer(
    rich_markup_mode="rich", no_args_is_help=True, help="Keep disks, go back to them, fork them."
)
groups = {"snapshot": app}

Id = Annotated[str, typer.Argument(help="Id of the snapshot (snp_…).", metavar="ID")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", help="NAME=VALUE; repeatable.")]
KeepFor = Annotated[str | None, typer.Option("--ttl", help="Drop it after this long: 4h, 7d.")]
_STYLES = {"kept": "green", "unpaid": "yellow", "lost": "bold red", "failed": "bold red"}


@verb(app, "create", wait="writing to the disk", timeout_s=180.0)
def create(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    ttl: KeepFor = None,
    label: LabelOption = None,
) -> Answer:
    """Keep a sandbox's disk as it is now; whatever runs goes on.

    Examples:

        sandboxer snapshot create sbx_0123456789abcdefghjkmnpqrs --name before-upgrade

        sandboxer snapshot create sbx_0123456789abcdefghjkmnpqrs --ttl 7d --label run=17
    """
    made = platform.snapshots.take(sandbox_id, name=name, ttl=ttl, labels=pairs(label, "--label"))
    return Answer(made, plain(made.id), _state(made.state), f"[dim]{made.took_ms.get('take', 0):.1f} ms[/]")


@verb(app, "list")
def list_snapshots(
    platform: Sandboxer,
    sandbox: Annotated[str | None, typer.Option(help="Only those taken of this sandbox.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state, dropped ones too.")] = None,
    label: LabelOption = None,
) -> Answer:
    """List snapshots, newest first.

    Examples:

        sandboxer snapshot list

        sandboxer snapshot list --sandbox sbx_0123456789abcdefghjkmnpqrs --label run=17 --json
    """
    found = list(platform.snapshots.list(sandbox_id=sandbox, state=state, labels=pairs(label, "--label")))
    rows = [
        (
            one.id,
            one.name or "",
            _state(one.state),
            ("" if one.size_is_exact else "≤ ") + size(one.size_bytes),
            one.sandbox_id or one.volume_id or "",
            ago(one.created_at),
            until(one.expires_at),
            "locked" if one.locked_at else "",
        )
        for one in found
    ]
    return Answer(found, columns(rows, "ID", "NAME", "STATE", "SIZE", "OF", "TAKEN", "GOES", ""))


@verb(app, "show", wait="looking at every file", timeout_s=180.0)
def show(platform: Sandboxer, id: Id) -> Answer:
    """Show one snapshot, with its exact size.

    Examples:

        sandboxer snapshot show snp_0123456789abcdefghjkmnpqrs
    """
    found = platform.snapshots.get(id)
    return Answer(found, facts_table(_facts(found)))


@app.command("restore")
def restore(
    id: Id,
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Put its sandbox's disk back to what it was; what is on it now is lost.

    What runs ends, and the sandbox starts anew; a stopped one stays stopped.

    Examples:

        sandboxer snapshot restore snp_0123456789abcdefghjkmnpqrs
    """
    confirm = with_wallet(wallet, proof)
    with (
        client(url, state_dir, timeout_s=180.0, confirm=confirm) as platform,
        waiting("restoring", is_json=json),
    ):
        sandbox = platform.snapshots.restore(id)
    if json:
        print_json(sandbox)
    else:
        out.print(plain(sandbox.id), state_text(sandbox.state))


@app.command("clone")
def clone(
    id: Id,
    count: Annotated[int, typer.Option(help="How many, at most 100.", min=1, max=100)] = 1,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    profile: Annotated[str | None, typer.Option(help="Default: as when it was taken.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long each lives: 30m, 4h.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; repeatable.")] = None,
    label: LabelOption = None,
    volume: VolumeOption = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Make new sandboxes that begin as it was, each a new machine.

    Examples:

        sandboxer snapshot clone snp_0123456789abcdefghjkmnpqrs

        sandboxer snapshot clone snp_0123456789abcdefghjkmnpqrs --count 20 --label run=17
    """
    with client(url, state_dir, timeout_s=300.0) as platform, waiting(f"making {count}", is_json=json):
        made = platform.snapshots.clone(
            id,
            count=count,
            name=name,
            profile=profile,
            ttl=ttl,
            env=pairs(env, "--env"),
            labels=pairs(label, "--label"),
            volumes=mounts(volume) or None,
        )
    if json:
        print_json(made)
    else:
        for left in made.volumes_left_out:
            words = f"without volume {left.volume_id} ({left.path}), which belongs to its source"
            err.print(Text(words, style="yellow"))
        for sandbox in made.sandboxes:
            out.print(plain(sandbox.id), state_text(sandbox.state))
        for failed in made.failed:
            err.print(
                Text.assemble(("failed ", "bold red"), f"{failed.number}: ", plain(failed.problem.detail))
            )
    if made.failed:
        raise typer.Exit(Exit.ERROR)


@app.command("tree")
def tree(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show what came from what: snapshots, and the sandboxes and volumes that descend from them.

    Examples:

        sandboxer snapshot tree
    """
    with client(url, state_dir) as platform:
        lines = platform.snapshots.tree()
    if json:
        print_json(list(lines))
        return
    for root in _grown(lines):
        out.print(root)


@verb(app, "lock")
def lock(platform: Sandboxer, id: Id) -> object:
    """Guard a snapshot by a second proof: neither dropped by a request alone, nor when its time is over.

    Examples:

        sandboxer snapshot lock snp_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.snapshots.lock(id))


@verb(app, "unlock", may_need_proof=True)
def unlock(platform: Sandboxer, id: Id) -> object:
    """Take that guard away, with a second proof.

    Examples:

        sandboxer snapshot unlock snp_0123456789abcdefghjkmnpqrs --wallet ~/.wallet.key
    """
    return _show(platform.snapshots.unlock(id))


@app.command("remove")
def remove(
    ids: Annotated[list[str], typer.Argument(help="Ids of snapshots.", metavar="ID…")],
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Drop snapshots; what was made from them stays.

    Examples:

        sandboxer snapshot remove snp_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir, timeout_s=180.0, confirm=with_wallet(wallet, proof)) as platform:
        gone = [platform.snapshots.remove(id) for id in ids]
    if json:
        print_json(gone if len(gone) > 1 else gone[0])
        return
    for one in gone:
        out.print(*_words(one))


def _show(snapshot: Snapshot) -> Answer:
    return Answer(snapshot, *_words(snapshot))


def _words(snapshot: Snapshot) -> tuple[object, ...]:
    return plain(snapshot.id), _state(snapshot.state), "locked" if snapshot.locked_at else ""


def _facts(one: Snapshot) -> list[tuple[str, object]]:
    return [
        ("id", one.id),
        ("name", one.name),
        ("state", f"{one.state} ({one.reason})"),
        ("of", one.sandbox_id or one.volume_id),
        ("after", one.parent_id),
        ("content", one.content),
        ("size", size(one.size_bytes)),
        ("its own", None if one.exclusive_bytes is None else size(one.exclusive_bytes)),
        ("costs", f"{one.rate_msats_per_s} msats/s" if one.rate_msats_per_s else None),
        ("image", one.image),
        ("profile", one.profile),
        ("labels", " ".join(f"{key}={value}" for key, value in one.labels.items())),
        ("taken", ago(one.created_at)),
        ("goes", until(one.expires_at)),
        ("locked", ago(one.locked_at)),
    ]


def _grown(lines: Sequence[SnapshotLine]) -> list[Tree]:
    """Lines come with parents first: each hangs below the last one that lies less deep."""
    roots: list[Tree] = []
    path: list[Tree] = []
    for line in lines:
        words = Text.assemble(plain(line.id), " ", plain(line.name or ""), " ", _state(line.state))
        words.append(f" {size(line.size_bytes)}, {ago(line.created_at)}", style="dim")
        if line.locked_at:
            words.append(" locked", style="yellow")
        del path[line.depth :]
        made = path[-1].add(words) if path else Tree(words)
        if not path:
            roots.append(made)
        path.append(made)
        for sandbox_id in line.sandbox_ids:
            made.add(Text(sandbox_id, style="cyan"))
        for volume_id in line.volume_ids:
            made.add(Text(volume_id, style="magenta"))
    return roots


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, "dim"))


@verb(app, "set")
def change(
    platform: Sandboxer,
    id: Id,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it is kept from now on.")] = None,
) -> object:
    """Change the name of a snapshot, or how long it is kept.

    Examples:

        sandboxer snapshot set snp_0123456789abcdefghjkmnpqrs --name before-upgrade --ttl 30d
    """
    return platform.snapshots.change(id, name=name, ttl=ttl)
