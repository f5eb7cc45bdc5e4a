"""Snapshots and images in unsandbox's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from sandboxer.accounts import records as accounts
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, Handler, bind
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.routes import catalogue
from sandboxer.edges.http.routes import disks as ours_of
from sandboxer.edges.http.routes import images as our_images
from sandboxer.edges.http.routes.work import sessions as our_sessions
from sandboxer.edges.unsandbox.services import make, script_of, service
from sandboxer.edges.unsandbox.sessions import MARK, SHELL, session
from sandboxer.edges.unsandbox.translation import ask, every, listed, ours, read, seconds, sent, told
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.kernel.tasks import to_the_end
from sandboxer.sandboxes.use_cases import lifetime
from sandboxer.wire.images import ChangeImage, CloneImage, GrantImage, OfferImage, PublishImage
from sandboxer.wire.operations import artifacts as our_operations
from sandboxer.wire.operations.execute import SessionPath
from sandboxer.wire.operations.platform import ListImagesQuery
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.operations.services import ServicePath
from sandboxer.wire.sessions import StartSession
from sandboxer.wire.snapshots import CloneSnapshot, TakeSnapshot
from sandboxer.wire.unsandbox import models, operations
from sandboxer.wiring import Platform

Act = Callable[[Any], Awaitable[Any]]
_SESSION, _SERVICE = "ses_", "svc_"
_OneSnapshot = our_operations.SnapshotPath
_OneImage = our_operations.ImagePath


async def take(asked: AskedBody[models.NewSnapshot]) -> Response:
    """Takes it while it runs: files are kept, and processes go on, whether `hot` is said or not."""
    said = asked.body
    source = said.session_id or said.service_id or said.source
    if source is None:
        raise InvalidRequest(field="source", why="say of which session or service: session_id or service_id")
    is_session = said.session_id is not None or source.startswith(_SESSION)
    return await (_take_session if is_session else _take_service)(asked, source, said.name, said.ttl)


async def take_of_session(asked: Asked[SessionPath]) -> Response:
    said = read(models.TakeSnapshot, await sent(asked))
    return await _take_session(asked, asked.path.session_id, said.name, said.ttl)


async def take_of_service(asked: Asked[ServicePath]) -> Response:
    said = read(models.TakeSnapshot, await sent(asked))
    return await _take_service(asked, asked.path.service, said.name, said.ttl)


async def _take_session(asked: Any, session_id: str, name: str | None, ttl: int | None) -> Response:
    await note_use(asked.platform, asked.caller, "session", session_id, "snapshot")
    found = await asked.platform.sessions.get(session_id, asked.caller)
    return await _take(asked, found.sandbox_id, name, ttl)


async def _take_service(asked: Any, service_id: str, name: str | None, ttl: int | None) -> Response:
    await note_use(asked.platform, asked.caller, "service", service_id, "snapshot")
    found = asked.platform.services.get(service_id, asked.caller)
    return await _take(asked, found.sandbox_id, name, ttl)


async def _take(asked: Any, sandbox_id: str, name: str | None, ttl: int | None) -> Response:
    body = ours(TakeSnapshot, name=name, ttl=seconds(ttl))
    path = SandboxPath(sandbox_id=sandbox_id)
    return told(_snapshot(asked.platform, await ask(ours_of.take_snapshot, asked, path=path, body=body)))


async def list_snapshots(asked: Asked) -> Response:
    query = our_operations.ListSnapshotsQuery
    unset: dict[str, Any] = {"sandbox_id": None, "volume_id": None, "state": None, "label": []}
    found = await every(ours_of.list_snapshots, asked, query, "snapshots", **unset)
    return listed("snapshots", [_snapshot(asked.platform, one) for one in found if one["sandbox_id"]])


def _snapshot_verb(act: Act) -> Handler[Any, Any, Any, Any]:
    async def handle(asked: Asked[_OneSnapshot]) -> Response:
        return told(_snapshot(asked.platform, await ask(act, asked)))

    return handle


async def restore(asked: Asked[_OneSnapshot]) -> Response:
    return await _restore(asked, asked.path)


async def restore_session(asked: AskedPathBody[SessionPath, models.RestoreFrom]) -> Response:
    """Puts a session's files back as they were in one of its own snapshots."""
    found = await asked.platform.sessions.get(asked.path.session_id, asked.caller)
    path = _OneSnapshot(snapshot_id=asked.body.snapshot_id)
    taken = await asked.platform.artifacts.snapshots.get(path.snapshot_id, asked.caller)
    if taken.sandbox_id != found.sandbox_id:
        raise InvalidRequest(field="snapshot_id", why="it was taken of something else; clone it instead")
    return await _restore(asked, path)


async def _restore(asked: Any, path: _OneSnapshot) -> Response:
    """Puts files back. What ran on the others has ended; a session goes on with a fresh shell."""
    sandbox = await ask(ours_of.restore_snapshot, asked, path=path)
    sessions = asked.platform.sessions
    for one in sessions.repository.of_sandbox(sandbox["id"]):
        await sessions.restart(one.id, asked.caller)
    values = {"snapshot_id": path.snapshot_id, "container_name": sandbox["id"]}
    return told({**values, "message": "The files are as they were."})


async def clone(asked: AskedPathBody[_OneSnapshot, models.Clone]) -> Response:
    said, snapshot_id = asked.body, asked.path.snapshot_id
    if said.type == "service":
        await note_use(asked.platform, asked.caller, "snapshot", snapshot_id, "clone")
        name, script = said.name or f"snp-{snapshot_id[-12:]}", script_of(said.bootstrap, None)
        made = await make(asked, name=name, ports=said.ports, script=script, snapshot=snapshot_id)
        return told(service(made))
    body = ours(CloneSnapshot, name=said.name, labels=MARK)
    made = await ask(ours_of.clone_snapshot, asked, body=body)
    if not made["sandboxes"]:
        raise InvalidRequest(field="snapshot_id", why=str(made["failed"][0]["problem"]["detail"]))
    sandbox_id = made["sandboxes"][0]["id"]
    try:
        wanted = ours(StartSession, language=said.shell or SHELL, sandbox_id=sandbox_id)
        begun = await ask(our_sessions.start, asked, body=wanted)
    except BaseException:
        await to_the_end(lifetime.destroy(asked.platform.sandboxes, sandbox_id, asked.caller))
        raise
    return told(session(begun))


def _snapshot(platform: Platform, seen: dict[str, Any]) -> models.Snapshot:
    """Returns a snapshot of ours in their words; what it was taken of may be gone."""
    source = seen["sandbox_id"] or ""
    found = platform.services.dependencies.repository.by_sandbox(source)
    sessions = platform.sessions.repository.of_sandbox(source)
    owner = found.id if found is not None else sessions[0].id if sessions else source
    return models.Snapshot(
        id=seen["id"],
        snapshot_id=seen["id"],
        name=seen["name"] or "",
        source_type="session" if found is None else "service",
        type="session" if found is None else "service",
        source_id=owner,
        container_name=source,
        status=seen["state"],
        hot=False,
        locked=seen["locked_at"] is not None,
        size_bytes=seen["size_bytes"],
        created_at=seen["created_at"],
        expires_at=seen["expires_at"],
    )


async def publish(asked: AskedBody[models.Publish]) -> Response:
    said = asked.body
    source: dict[str, str] = {said.source_type: said.source_id}
    if said.source_type == "session":
        found = await asked.platform.sessions.get(said.source_id, asked.caller)
        source = {"sandbox": found.sandbox_id}
    name = said.name or f"image of {said.source_id[-12:]}"
    body = ours(PublishImage, name=name, description=said.description, **source)
    return told(_image(await ask(our_images.publish, asked, body=body)))


def _list_images(which: str) -> Handler[Any, Any, Any, Any]:
    async def handle(asked: Asked) -> Response:
        # Theirs are told apart by a word of the path, or of the query.
        wanted = asked.request.query_params.get("filter", which)
        if wanted not in ("all", "owned", "shared", "public"):
            raise InvalidRequest(field="filter", why="owned, shared or public")
        found = await every(catalogue.list_images, asked, ListImagesQuery, "published", filter=wanted)
        return listed("images", [_image(one) for one in found])

    return handle


def _image_verb(act: Act) -> Handler[Any, Any, Any, Any]:
    async def handle(asked: Asked[_OneImage]) -> Response:
        return told(_image(await ask(act, asked)))

    return handle


async def set_visibility(asked: AskedPathBody[_OneImage, models.Visibility]) -> Response:
    body = ours(ChangeImage, visibility=asked.body.visibility)
    return told(_image(await ask(our_images.change, asked, body=body)))


async def trusted(asked: Asked[_OneImage]) -> Response:
    return told(_trusted(await ask(our_images.grants, asked)))


async def grant(asked: AskedPathBody[_OneImage, models.Grant]) -> Response:
    body = ours(GrantImage, account=await _account(asked.platform, asked.body.trusted_api_key))
    return told(_trusted(await ask(our_images.grant, asked, body=body)))


async def revoke(asked: AskedPathBody[_OneImage, models.Grant]) -> Response:
    return await _revoke(asked, asked.body.trusted_api_key)


async def revoke_by_path(asked: Asked[operations.AccessPath]) -> Response:
    return await _revoke(asked, asked.path.key)


async def _revoke(asked: Any, key: str) -> Response:
    account = await _account(asked.platform, key)
    path = our_operations.GrantPath(image_id=asked.path.image_id, account=account)
    return told(_trusted(await ask(our_images.revoke, asked, path=path)))


async def transfer(asked: AskedPathBody[_OneImage, models.Transfer]) -> Response:
    """Offers it: nobody gets an image, and its price, without accepting it."""
    body = ours(OfferImage, account=await _account(asked.platform, asked.body.to_api_key))
    shown = _image(await ask(our_images.transfer, asked, body=body)).model_dump(mode="json")
    return told({**shown, "message": "The image is offered; the other account accepts it."})


async def _account(platform: Platform, named: str) -> str:
    """Returns the account that is meant by one of its public keys, or by its own id."""
    key = await platform.keys.lookup(named)
    if key is None:
        return named
    found = await platform.store.read(lambda conn: accounts.find(conn, key.caller.account))
    if found is None:
        raise NotFound(what="key", id=named)
    return found.public_id


def _trusted(grants: dict[str, Any]) -> dict[str, Any]:
    return {"trusted_keys": grants["accounts"], "count": len(grants["accounts"])}


async def clone_image(asked: Asked[_OneImage]) -> Response:
    said = read(models.CloneImage, await sent(asked))
    body = ours(CloneImage, name=said.name, description=said.description)
    return told(_image(await ask(our_images.clone, asked, body=body)))


def _image(seen: dict[str, Any]) -> models.Image:
    return models.Image(
        id=seen["id"],
        image_id=seen["id"],
        name=seen["name"],
        description=seen["description"],
        visibility=seen["visibility"],
        fingerprint=seen["digest"],
        size_bytes=seen["size_bytes"],
        source_type="snapshot" if str(seen["source"]).startswith("snp_") else "service",
        status=seen["state"],
        locked=seen["locked_at"] is not None,
        created_at=seen["created_at"],
    )


BINDINGS = (
    bind(operations.NEW_SNAPSHOT, take),
    bind(operations.SNAPSHOT_SESSION, take_of_session),
    bind(operations.SNAPSHOT_SERVICE, take_of_service),
    bind(operations.SNAPSHOTS, list_snapshots),
    bind(operations.GET_SNAPSHOT, _snapshot_verb(ours_of.get_snapshot)),
    bind(operations.DROP_SNAPSHOT, _snapshot_verb(ours_of.drop_snapshot)),
    bind(operations.LOCK_SNAPSHOT, _snapshot_verb(ours_of.lock_snapshot)),
    bind(operations.UNLOCK_SNAPSHOT, _snapshot_verb(ours_of.unlock_snapshot)),
    bind(operations.RESTORE_SNAPSHOT, restore),
    bind(operations.RESTORE_SESSION, restore_session),
    bind(operations.CLONE_SNAPSHOT, clone),
    bind(operations.PUBLISH, publish),
    bind(operations.IMAGES, _list_images("all")),
    bind(operations.OWNED_IMAGES, _list_images("owned")),
    bind(operations.SHARED_IMAGES, _list_images("shared")),
    bind(operations.PUBLIC_IMAGES, _list_images("public")),
    bind(operations.GET_IMAGE, _image_verb(our_images.get)),
    bind(operations.REMOVE_IMAGE, _image_verb(our_images.remove)),
    bind(operations.LOCK_IMAGE, _image_verb(our_images.lock)),
    bind(operations.UNLOCK_IMAGE, _image_verb(our_images.unlock)),
    bind(operations.SET_VISIBILITY, set_visibility),
    bind(operations.TRUSTED, trusted),
    bind(operations.GRANT, grant),
    bind(operations.REVOKE, revoke),
    bind(operations.PUBLISH_TOO, publish),
    bind(operations.TRUSTED_TOO, trusted),
    bind(operations.GRANT_TOO, grant),
    bind(operations.GRANT_BY_NAME, grant),
    bind(operations.REVOKE_TOO, revoke),
    bind(operations.REVOKE_BY_PATH, revoke_by_path),
    bind(operations.TRANSFER, transfer),
    bind(operations.CLONE_IMAGE, clone_image),
)
