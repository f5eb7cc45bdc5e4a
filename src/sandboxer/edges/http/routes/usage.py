"""Usage by a cursor, for outside billing: each closed segment once, in the order they were closed."""

from __future__ import annotations

import csv
import io

from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.accounts import whose
from sandboxer.edges.http.state import require_owner
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money import usage_feed
from sandboxer.wire import accounts as wire
from sandboxer.wire.operations import accounts as operations
from sandboxer.wire.operations.accounts import ListUsageSegmentsQuery
from sandboxer.wire.operations.declaration import NoParameters

NEXT = "x-next-after"


async def segments(asked: Asked[NoParameters, ListUsageSegmentsQuery, None]) -> Response:
    if asked.query.all_accounts:
        require_owner(asked.request)
        if asked.query.of is not None:
            raise InvalidRequest(field="of", why="it contradicts all_accounts")
    owner = None if asked.query.all_accounts else await whose(asked.request, asked.query.of)
    begin, end = moment(asked.query.since, field="since"), moment(asked.query.until, field="until")
    found = await asked.platform.store.read(
        lambda conn: usage_feed.segments_page(
            conn, owner=owner, after=asked.query.after, limit=asked.query.limit, since=begin, until=end
        )
    )
    following = found[-1].seq if found else asked.query.after
    lines = [usage_feed.as_json(one) for one in found]
    if asked.query.format == "csv":
        return Response(_csv(lines), media_type="text/csv", headers={NEXT: str(following)})
    shown = [wire.UsageSegment.model_validate(line) for line in lines]
    return json_response(wire.UsageSegmentPage(segments=shown, next_after=following))


def _csv(lines: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(wire.UsageSegment.model_fields))
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


BINDINGS: tuple[Binding, ...] = (bind(operations.LIST_USAGE_SEGMENTS, segments),)
