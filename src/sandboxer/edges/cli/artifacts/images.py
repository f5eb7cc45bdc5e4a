"""`sandboxer image publish|show|spawn|…`: disks with a name and a digest, shared and started from."""

from __future__ import annotations

import base64
import json as jsons
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from sandboxer.edges.cli.artifacts.base_images import MADE_WITHIN_S, app, list_built, say
from sandboxer.edges.cli.cp import progress
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, StateDir, Url, VolumeOption, client, mounts
from sandboxer.edges.cli.output import ago, columns, facts_table, plain, size
from sandboxer.edges.cli.verbs import Answer, Row, each, noun, rows, show_answer, verb
from sandboxer.kernel.values import counted
from sandboxer.sdk.errors import Refused
from sandboxer.sdk.sync.artifacts import Images
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.catalogue import Image
from sandboxer.wire.images import PublishedImage

Id = Annotated[str, typer.Argument(help="Id of the image (img_…).", metavar="ID")]
AnotherName = Annotated[str | None, typer.Option(help="Another name.")]
Account = Annotated[str, typer.Argument(help="Id of the account.")]
Visibility = Annotated[str, typer.Option(help="private, unlisted or public.")]
Clean = Annotated[bool, typer.Option("--clean", help="Leave out files that look like secrets.")]
_SLOW_S = 900.0
groups = {"image": app}


def _show(one: PublishedImage) -> Answer:
    facts = [
        ("image", plain(one.id)),
        ("name", one.name),
        ("of", one.account),
        ("state", _state(one)),
        ("seen by", one.visibility),
        ("digest", one.digest),
        ("size", f"{size(one.size_bytes)} in {counted(one.files, 'file')}, over {one.base or 'nothing'}"),
        ("source", one.source),
        ("offered to", one.offered_to or ""),
        ("omitted", counted(one.stripped_count, "file") if one.stripped_count else ""),
        ("checked", ago(one.verified_at)),
        ("locked", ago(one.locked_at)),
    ]
    shown = facts_table([(name, value) for name, value in facts if value])
    return Answer(one, shown, note=_findings(one) if one.findings_count else None)


def _show_users(accounts: Sequence[str]) -> Answer:
    return Answer(list(accounts), "used by", plain(", ".join(accounts) or "nobody else"))


@verb(app, "publish", wait="reading every file", timeout_s=_SLOW_S)
def publish(
    platform: Sandboxer,
    source: Annotated[str, typer.Argument(help="A snapshot, a sandbox or a service, by id or name.")],
    name: Annotated[str, typer.Option(help="A name for people.")],
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    visibility: Visibility = "private",
    clean: Clean = False,
) -> object:
    """Publish a snapshot, or a sandbox's or a service's disk as it is now.

    Examples:

        sandboxer image publish ready --name tool

        sandboxer image publish dev --name tool --visibility public --clean
    """
    told: Any = {"description": description, "visibility": visibility, "clean": clean}
    # A name may be any of the three; if it is none, the error is that of a sandbox, the usual case.
    for kind in {"snp_": ("snapshot",), "sbx_": ()}.get(source[:4], ("service", "snapshot")):
        try:
            return _show(platform.images.publish(name, **(told | {kind: source})))
        except Refused as error:
            # Not every sandbox's name could be a service's.
            if error.code not in ("not_found", "invalid_request"):
                raise
    return _show(platform.images.publish(name, sandbox=source, **told))


@app.command("list")
def list_all(
    filter: Annotated[str, typer.Option(help="all, owned, shared, public, or base: the host's own.")] = "all",
    offline: Annotated[
        bool, typer.Option("--offline", help="Base images that were built on this host; asks no server.")
    ] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """List images that a sandbox may start from: the host's own by name, published ones by id, newest first.

    Examples:

        sandboxer image list

        sandboxer image list --filter owned --json

        sandboxer image list --offline --state-dir /var/lib/sandboxer
    """
    if offline:
        show_answer(list_built(state_dir), is_json=json)
        return
    with client(url, state_dir) as platform:
        show_answer(_images(platform, filter), is_json=json)


def _images(platform: Sandboxer, filter: str) -> Answer:
    base = platform.images.base() if filter in ("all", "base") else []
    found = [] if filter == "base" else list(platform.images.list(which=filter))
    rows: list[tuple[str | Text, ...]]
    rows = [(one.name, "", "the host", "everyone", "", _size(one), "", ago(one.built_at), "") for one in base]
    rows += [
        (
            one.id,
            one.name,
            one.account,
            one.visibility,
            _state(one),
            size(one.size_bytes),
            one.digest[7:19],
            ago(one.created_at),
            "locked" if one.locked_at else "",
        )
        for one in found
    ]
    shown = columns(rows, "IMAGE", "NAME", "OF", "SEEN BY", "STATE", "SIZE", "DIGEST", "MADE", "")
    hint = [] if rows else ["[dim]none; publish one with[/] sandboxer image publish"]
    return Answer([*base, *found], shown, *hint)


of_images = partial(rows, app, noun("images"), {"image_id": Id})
of_images(
    _show,
    Row("show", Images.get, "Show one published image.", "image show img_0123456789abcdefghjkmnpqrs"),
    Row(
        "update",
        Images.change,
        "Name it, describe it, or say who may see it.",
        "image update img_0123456789abcdefghjkmnpqrs --visibility public",
        {
            "name": (AnotherName, None),
            "description": (Annotated[str | None, typer.Option(help="Another description.")], None),
            "visibility": (Annotated[str | None, typer.Option(help="private, unlisted or public.")], None),
        },
    ),
)


@verb(app, "spawn", wait="making sandboxes", timeout_s=_SLOW_S)
def spawn(
    platform: Sandboxer,
    id: Id,
    count: Annotated[int, typer.Option(help="How many, up to 100.")] = 1,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long each lives: 30m, 4h.")] = None,
    volume: VolumeOption = None,
) -> Answer:
    """Make sandboxes that begin as the image, each a new machine.

    Examples:

        sandboxer image spawn img_0123456789abcdefghjkmnpqrs --count 3
    """
    made = platform.images.spawn(id, count=count, name=name, ttl=ttl, volumes=mounts(volume) or None)
    shown = each(Answer(one, plain(one.id), plain(one.state)) for one in made.sandboxes)
    failed = [
        Text.assemble((f"{one.number} ", "red"), plain(one.problem.detail or one.problem.title))
        for one in made.failed
    ]
    return Answer(made, *shown.parts, sep="\n", note=Group(*failed) if failed else None)


of_images(
    _show,
    Row(
        "clone",
        Images.clone,
        "Copy an image into your own account.",
        "image clone img_0123456789abcdefghjkmnpqrs --name mine",
        {"name": (AnotherName, None)},
    ),
    wait="reading every file",
    timeout_s=_SLOW_S,
)


@verb(app, "verify", wait="reading every file", timeout_s=_SLOW_S)
def verify(platform: Sandboxer, id: Id) -> Answer:
    """Read every file of an image and compare its digest.

    Examples:

        sandboxer image verify img_0123456789abcdefghjkmnpqrs
    """
    found = platform.images.verify(id)
    return Answer(found, plain(found.id), "[green]is what was published[/]", plain(found.digest))


of_images(
    _show_users,
    Row(
        "grants",
        Images.grants,
        "Show which accounts may use a private image.",
        "image grants img_0123456789abcdefghjkmnpqrs",
    ),
    Row(
        "grant",
        Images.grant,
        "Let an account use an image.",
        "image grant img_0123456789abcdefghjkmnpqrs bob",
        {"account": Account},
    ),
    Row(
        "revoke",
        Images.revoke,
        "Take that back; what was made from it stays.",
        "image revoke img_0123456789abcdefghjkmnpqrs bob",
        {"account": Account},
    ),
)


of_images(
    _show,
    Row(
        "transfer",
        Images.transfer,
        "Offer an image to another account, which accepts it (`image accept`) and pays for it from then on.",
        "image transfer img_0123456789abcdefghjkmnpqrs bob",
        {"account": Account},
    ),
    Row(
        "accept",
        Images.accept,
        "Accept an image that was offered to you.",
        "image accept img_0123456789abcdefghjkmnpqrs",
    ),
)


@verb(app, "export", timeout_s=_SLOW_S)
def export(
    platform: Sandboxer,
    id: Id,
    to: Annotated[Path, typer.Argument(help="File to write.", metavar="FILE")],
    format: Annotated[str, typer.Option(help="oci, or docker (`docker load`, `podman load`).")] = "oci",
) -> Answer:
    """Write an image to a file that Docker and Podman load.

    Examples:

        sandboxer image export img_0123456789abcdefghjkmnpqrs tool.tar
    """
    form: Any = format
    with progress(f"export {to.name}", None) as count:
        written = platform.images.export(id, to, form=form, progress=count)
    return Answer({"file": str(to), "bytes": written}, plain(str(to)), size(written))


@verb(app, "pull", timeout_s=MADE_WITHIN_S)
def pull(
    platform: Sandboxer,
    source: Annotated[
        str,
        typer.Argument(
            help="docker://HOST/NAME:TAG (or python:3.12), oci-archive:FILE, docker-archive:FILE.",
            metavar="SOURCE",
        ),
    ],
    name: Annotated[str | None, typer.Option(help="A name for people; else the image's.")] = None,
    visibility: Visibility = "private",
    clean: Clean = False,
    authfile: Annotated[
        Path | None, typer.Option(help="Credentials as `docker login` keeps them (~/.docker/config.json).")
    ] = None,
    plain_http: Annotated[bool, typer.Option("--plain-http", help="Ask the registry without TLS.")] = False,
) -> Answer:
    """Fetch an image from a registry, or take one from an archive.

    Examples:

        sandboxer image pull python:3.12

        sandboxer image pull registry.example.com/tool:1 --authfile auth.json

        sandboxer image pull oci-archive:tool.tar --name tool
    """
    transport, _, file = source.partition(":")
    if transport in ("oci-archive", "docker-archive"):
        return receive(platform, Path(file), name or Path(file).stem, visibility, clean)
    user = None if authfile is None else _credentials(authfile, source)
    return _show(
        platform.images.pull(
            source,
            progress=say,
            name=name,
            visibility=visibility,
            clean=clean,
            user=user,
            plain_http=plain_http,
        )
    )


def _credentials(authfile: Path, source: str) -> dict[str, str]:
    """Returns user and password of a registry from a file of Docker's or Podman's."""
    registry = source.removeprefix("docker://").partition("/")[0]
    known = jsons.loads(authfile.expanduser().read_text()).get("auths", {})
    if not (word := known.get(registry, {}).get("auth")):
        raise CommandFailed(
            f"{authfile} has no credentials for {registry}.", next_step=f"docker login {registry}"
        )
    username, _, password = base64.b64decode(word).decode().partition(":")
    return {"username": username, "password": password}


@verb(app, "import", timeout_s=_SLOW_S)
def receive(
    platform: Sandboxer,
    archive: Annotated[
        Path, typer.Argument(help="What `docker save` or `podman save` wrote.", metavar="FILE")
    ],
    name: Annotated[str, typer.Option(help="A name for people.")],
    visibility: Visibility = "private",
    clean: Clean = False,
) -> Answer:
    """Publish an image from a file: an OCI layout or a Docker archive.

    Examples:

        sandboxer image import tool.tar --name tool
    """
    with progress("import", archive.stat().st_size) as count:
        made = platform.images.import_archive(
            archive, name, visibility=visibility, clean=clean, progress=count
        )
    return _show(made)


of_images(
    _show,
    Row(
        "lock", Images.lock, "Guard an image by a second proof.", "image lock img_0123456789abcdefghjkmnpqrs"
    ),
    Row(
        "unlock",
        Images.unlock,
        "Take that guard away, with a second proof.",
        "image unlock img_0123456789abcdefghjkmnpqrs",
        may_need_proof=True,
    ),
    Row(
        "delete",
        Images.remove,
        "Remove a published image; what was made from it stays.",
        "image delete img_0123456789abcdefghjkmnpqrs",
        may_need_proof=True,
    ),
)


def _findings(one: PublishedImage) -> Group:
    lines = [Text.assemble("   ", plain(found.path), " ", plain(found.kind)) for found in one.findings[:20]]
    return Group(f"[yellow]What looks like a secret in it ({one.findings_count}):[/]", *lines)


def _size(one: Image) -> str:
    return "" if one.size_bytes is None else size(one.size_bytes)


def _state(one: PublishedImage) -> Text:
    return Text(one.state, style={"kept": "green", "unpaid": "yellow"}.get(one.state, "dim"))
