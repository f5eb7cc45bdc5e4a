"""Images as archives: out to Docker and Podman, and in from them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.oci.writing import Form
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.desk import Wanted
from sandboxer.edges.http import problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import TooSlow
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.downloads import Download
from sandboxer.edges.http.failures import Responses, inside, octets
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.published import shown_image
from sandboxer.edges.http.routes.files import body_of
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.images import Description, PublishedImage, Visibility
from sandboxer.wire.sandboxes import ProfileId
from sandboxer.wire.words import ImageId, Name

router = APIRouter(prefix="/v1/images", tags=["images"])
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_ARCHIVE: Responses = {200: octets("The archive.", "application/x-tar")}


@router.get(
    "/{image_id}/export",
    operation_id="exportImage",
    status_code=200,
    response_class=Download,
    responses={**inside(), **_ARCHIVE},
    summary="The image as one tar: an OCI layout, or what `docker load` and `podman load` read",
)
async def export(
    request: Request,
    image_id: ImageId,
    format: Annotated[Literal["oci", "docker"], Query(description="Form of the archive.")] = "oci",
) -> Response:
    made = await platform_of(request).artifacts.exporting.export(image_id, Form(format), caller(request))
    return Download(
        made.chunks,
        headers={"content-disposition": f'attachment; filename="{made.name}"'},
        media_type="application/x-tar",
        length=made.length,
    )


@router.post(
    "/import",
    operation_id="importImage",
    status_code=201,
    response_model=PublishedImage,
    responses=inside(402),
    openapi_extra=_UPLOAD,
    summary="Publish an OCI layout or a Docker archive (`docker save`, `podman save`), sent as one tar",
)
async def receive(
    request: Request,
    name: Annotated[Name, Query()],
    description: Annotated[Description, Query()] = "",
    visibility: Annotated[Visibility, Query()] = "private",
    clean: Annotated[bool, Query(description="Leave out files that look like secrets.")] = False,
    profile: Annotated[ProfileId | None, Query(description="What sandboxes of it are made as.")] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    artifacts, who = platform_of(request).artifacts, caller(request)
    wanted = Wanted(
        name=name, description=description, visibility=records.Visibility(visibility), clean=clean
    )

    async def act(bind: Bind | None) -> Response:
        return _made(
            await artifacts.importing.receive(
                body_of(request),
                wanted,
                who,
                profile=profile,
                also=bind,
                attended=partial(until_client_goes, request.receive),
            )
        )

    async def recall(image_id: str) -> Response | None:
        made = await artifacts.images.recall(image_id, who)
        return None if made is None else _made(made)

    try:
        return await once_bound(request, act, recall=recall, content=_announced(request))
    except TooSlow:
        return problems.framework_response(
            408, "The body came too slowly.", problems.request_id_of(request.scope), {"connection": "close"}
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
