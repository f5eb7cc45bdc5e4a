"""The operations on languages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.languages import Language, LanguageList, ShellList
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    NoParameters,
    Operation,
    Parameters,
)
from sandboxer.wire.operations.paths import LanguagePath
from sandboxer.wire.operations.terms import NEVER_DELEGATED, Access, RateClass


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
    parameters=NoParameters,
    query=ListLanguagesQuery,
    body=Empty(),
    answer=Answered(model=LanguageList),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(422,),
)
GET_LANGUAGE = Operation(
    id="getLanguage",
    method="GET",
    path="/v1/languages/{name}",
    noun="languages",
    summary="One language, by name, alias or extension",
    parameters=LanguagePath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Language),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)
LIST_SHELLS = Operation(
    id="listShells",
    method="GET",
    path="/v1/shells",
    noun="languages",
    summary="Shells, and whether they run here",
    parameters=NoParameters,
    query=ListShellsQuery,
    body=Empty(),
    answer=Answered(model=ShellList),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(422,),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_LANGUAGES,
    GET_LANGUAGE,
    LIST_SHELLS,
)
