"""The operations on catalogue."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.catalogue import ImageList, ProfileList
from sandboxer.wire.images import Filter
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    NoParameters,
    Operation,
    Parameters,
)
from sandboxer.wire.operations.terms import ANY_KEY, Access, RateClass
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor


class ListImagesQuery(Parameters):
    filter: Annotated[Filter, Field(description="Which published ones.")] = "all"
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


LIST_IMAGES = Operation(
    id="listImages",
    method="GET",
    path="/v1/images",
    noun="catalogue",
    summary="Images: the host's own, and published ones that you may use",
    parameters=NoParameters,
    query=ListImagesQuery,
    body=Empty(),
    answer=Answered(model=ImageList),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
)
LIST_PROFILES = Operation(
    id="listProfiles",
    method="GET",
    path="/v1/profiles",
    noun="catalogue",
    summary="Profiles of this platform",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=ProfileList),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_IMAGES,
    LIST_PROFILES,
)
