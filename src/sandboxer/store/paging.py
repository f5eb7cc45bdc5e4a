"""Pages of a list, newest first: a cursor names the last row seen, so that new rows move nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Select, Table, and_, or_

from sandboxer.kernel.errors import InvalidRequest

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[R_co]):
    records: Sequence[R_co]
    # Give it back to see what follows; None at the end.
    next_cursor: str | None


class Listed(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


def newest_first(query: Select[Any], table: Table, *, cursor: str | None, limit: int) -> Select[Any]:
    """One row more than `limit`, for `next_cursor`. The table has `created_at` and `id`."""
    if cursor is not None:
        at, last_id = _open_cursor(cursor)
        older = and_(table.c.created_at == at, table.c.id < last_id)
        query = query.where(or_(table.c.created_at < at, older))
    return query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit + 1)


def next_cursor(found: Sequence[Listed], limit: int) -> str | None:
    """Where the next page begins; None if this was the last."""
    if len(found) <= limit:
        return None
    last = found[limit - 1]
    text = json.dumps([last.created_at.isoformat(), last.id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _open_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, last_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None or not isinstance(last_id, str):
            raise ValueError("not a cursor of ours")
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidRequest(field="cursor", why="it is not a cursor that this list returned") from None
    return moment, last_id
