"""Usage by a cursor, for outside billing: each closed segment once, in the order they were closed."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.accounts import Of, whose
from sandboxer.edges.http.state import platform_of, require_owner
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money import usage_feed
from sandboxer.wire import accounts as wire
from sandboxer.wire.words import PAGE_LIMIT_MAX, When

router = APIRouter(prefix="/v1/usage", tags=["accounts"])
MAX_SEQ = 2**53
NEXT = "x-next-after"


@router.get(
    "/segments",
    operation_id="listUsageSegments",
    response_model=wire.UsageSegmentPage,
    responses={
        **failures(404),
        200: {
            "content": {"text/csv": {"schema": {"type": "string"}}},
            "description": "Segments; of CSV the header x-next-after says where to read on.",
        },
    },
    summary="What was used, segment by segment, after a cursor; for outside billing",
)
async def segments(
    request: Request,
    of: Of = None,
    all_accounts: Annotated[bool, Query(description="Of every account (owner).")] = False,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="The last page's next_after.")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_MAX,
    since: Annotated[When | None, Query(description="Ended at or after.")] = None,
    until: Annotated[When | None, Query(description="Ended before.")] = None,
    format: Annotated[Literal["json", "csv"], Query()] = "json",
) -> Response:
    if all_accounts:
        require_owner(request)
        if of is not None:
            raise InvalidRequest(field="of", why="it contradicts all_accounts")
    owner = None if all_accounts else await whose(request, of)
    begin, end = moment(since, field="since"), moment(until, field="until")
    found = await platform_of(request).store.read(
        lambda conn: usage_feed.segments_page(
            conn, owner=owner, after=after, limit=limit, since=begin, until=end
        )
    )
    following = found[-1].seq if found else after
    lines = [usage_feed.as_json(one) for one in found]
    if format == "csv":
        return Response(_csv(lines), media_type="text/csv", headers={NEXT: str(following)})
    shown = [wire.UsageSegment.model_validate(line) for line in lines]
    return json_response(wire.UsageSegmentPage(segments=shown, next_after=following))


def _csv(lines: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(wire.UsageSegment.model_fields))
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
