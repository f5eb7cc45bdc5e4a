"""Languages and shells."""

from __future__ import annotations

from sandboxer.sdk.calls import Call, target
from sandboxer.sdk.routes.reading import model
from sandboxer.wire.languages import Language, LanguageList, ShellList


def languages(*, image: str | None, available: bool | None) -> Call[LanguageList]:
    where = target("/v1/languages", query={"image": image, "available": available})
    return Call(method="GET", target=where, read=model(LanguageList))


def language(word: str) -> Call[Language]:
    return Call(method="GET", target=target("/v1/languages/{}", word), read=model(Language))


def shells(*, image: str | None, available: bool | None) -> Call[ShellList]:
    where = target("/v1/shells", query={"image": image, "available": available})
    return Call(method="GET", target=where, read=model(ShellList))
