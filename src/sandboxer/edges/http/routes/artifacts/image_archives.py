"""Images as archives: out to Docker and Podman, and in from them."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.oci.writing import Form
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.desk import Wanted
from sandboxer.edges.http import problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.downloads import Download
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.routes.files import body_of
from sandboxer.wire.operations import images as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.images import ExportImageQuery, ImportImageQuery
from sandboxer.wire.operations.paths import ImagePath


async def export(asked: Asked[ImagePath, ExportImageQuery, None]) -> Response:
    made = await asked.platform.artifacts.exporting.export(
        asked.path.image_id, Form(asked.query.format), asked.caller
    )
    return Download(
        made.chunks,
        headers={"content-disposition": f'attachment; filename="{made.name}"'},
        media_type="application/x-tar",
        length=made.length,
    )


async def receive(asked: Asked[NoParameters, ImportImageQuery, None]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller
    wanted = Wanted(
        name=asked.query.name,
        description=asked.query.description,
        visibility=records.Visibility(asked.query.visibility),
        clean=asked.query.clean,
    )

    async def act(bind: Bind | None) -> Response:
        return _made(
            await artifacts.importing.receive(
                body_of(asked.request),
                wanted,
                who,
                profile=asked.query.profile,
                also=bind,
                attended=partial(until_client_goes, asked.request.receive),
            )
        )

    async def recall(image_id: str) -> Response | None:
        made = await artifacts.images.recall(image_id, who)
        return None if made is None else _made(made)

    try:
        return await once_bound(asked.request, act, recall=recall, content=_announced(asked.request))
    except TooSlow:
        return problems.framework_response(
            408,
            "The body came too slowly.",
            problems.request_id_of(asked.request.scope),
            {"connection": "close"},
        )


def _announced(request: Request) -> str:
    """What the head says of the archive. Its digest is as good as signed: another body is refused at its end.

    A session's token signs nothing; there its length has to do.
    """
    told = request.headers.get("x-content-sha256", "").lower()
    return told or "length " + request.headers.get("content-length", "unknown")


def _made(image: records.PublishedImage) -> Response:
    answer = json_response(shown_image(image, is_theirs=True), 201)
    answer.headers["location"] = f"/v1/images/{image.id}"
    return answer


BINDINGS: tuple[Binding, ...] = (
    bind(operations.EXPORT_IMAGE, export),
    bind(operations.IMPORT_IMAGE, receive),
)
