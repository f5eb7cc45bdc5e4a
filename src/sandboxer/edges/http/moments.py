"""Moments that a caller wrote."""

from __future__ import annotations

from datetime import UTC, datetime

from sandboxer.kernel.errors import InvalidRequest


def moment(text: str | None, *, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(field=field, why="there is no such moment") from None
