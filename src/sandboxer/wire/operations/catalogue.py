"""The operations on what there is to choose from: images, profiles, languages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.catalogue import ImageList, Language, LanguageList, ProfileList, ShellList
from sandboxer.wire.images import Filter
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    Operation,
    Parameters,
    RateClass,
)
from sandboxer.wire.operations.paths import LanguagePath
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor

LIST_PROFILES = Operation(
    id="listProfiles",
    method="GET",
    path="/v1/profiles",
    noun="catalogue",
    summary="Profiles of this platform",
    answer=Answered(model=ProfileList),
    needs=ANY_KEY,
)
GET_LANGUAGE = Operation(
    id="getLanguage",
    method="GET",
    path="/v1/languages/{name}",
    noun="languages",
    summary="One language, by name, alias or extension",
    parameters=LanguagePath,
    answer=Answered(model=Language),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)


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
    query=ListImagesQuery,
    answer=Answered(model=ImageList),
    needs=ANY_KEY,
)


class ListLanguagesQuery(Parameters):
    image: Annotated[
        str | None,
        Field(
            pattern="^[a-z0-9][a-z0-9._@-]{0,127}$",
            max_length=128,
            description="Only what this image on this host has.",
            examples=["base"],
        ),
    ] = None
    available: Annotated[bool | None, Field(description="Only what runs here, or only what does not.")] = None


class ListShellsQuery(Parameters):
    image: Annotated[
        str | None,
        Field(
            pattern="^[a-z0-9][a-z0-9._@-]{0,127}$",
            max_length=128,
            description="Only what this image on this host has.",
            examples=["base"],
        ),
    ] = None
    available: Annotated[bool | None, Field(description="Only what runs here, or only what does not.")] = None


LIST_LANGUAGES = Operation(
    id="listLanguages",
    method="GET",
    path="/v1/languages",
    noun="languages",
    summary="Languages, and whether they run here",
    query=ListLanguagesQuery,
    answer=Answered(model=LanguageList),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(422,),
)
LIST_SHELLS = Operation(
    id="listShells",
    method="GET",
    path="/v1/shells",
    noun="languages",
    summary="Shells, and whether they run here",
    query=ListShellsQuery,
    answer=Answered(model=ShellList),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(422,),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_IMAGES,
    LIST_PROFILES,
    LIST_LANGUAGES,
    GET_LANGUAGE,
    LIST_SHELLS,
)
