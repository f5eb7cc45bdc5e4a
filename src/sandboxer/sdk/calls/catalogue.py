# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandboxer.sdk.call import Call, target_of

if TYPE_CHECKING:
    from sandboxer.wire.catalogue import ImageList, Language, LanguageList, ProfileList, ShellList
    from sandboxer.wire.routes import RouteExplanation


def list_images(
    *, filter: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[ImageList]:
    """List images: the host's own, and published ones that you may use."""
    return Call(
        operation="listImages",
        method="GET",
        target=target_of("/v1/images", filter=filter, cursor=cursor, limit=limit),
        answer="sandboxer.wire.catalogue:ImageList",
    )


def list_profiles() -> Call[ProfileList]:
    """List the profiles of this platform."""
    return Call(
        operation="listProfiles",
        method="GET",
        target="/v1/profiles",
        answer="sandboxer.wire.catalogue:ProfileList",
    )


def explain_route(
    profile_id: str,
    *,
    isolation: str | None = None,
    strategy: str | None = None,
    region: str | None = None,
    gpus: int | None = None,
    gpu: str | None = None,
    max_sats_per_hour: int | None = None,
    capability: Sequence[str] | None = None,
) -> Call[RouteExplanation]:
    """Say of every backend whether it would make your sandbox of a profile, and why."""
    return Call(
        operation="explainRoute",
        method="GET",
        target=target_of(
            "/v1/profiles/{}/route",
            profile_id,
            isolation=isolation,
            strategy=strategy,
            region=region,
            gpus=gpus,
            gpu=gpu,
            max_sats_per_hour=max_sats_per_hour,
            capability=capability,
        ),
        answer="sandboxer.wire.routes:RouteExplanation",
    )


def list_languages(*, image: str | None = None, available: bool | None = None) -> Call[LanguageList]:
    """List languages, and whether they run here."""
    return Call(
        operation="listLanguages",
        method="GET",
        target=target_of("/v1/languages", image=image, available=available),
        answer="sandboxer.wire.catalogue:LanguageList",
    )


def get_language(name: str) -> Call[Language]:
    """Show a language, by name, alias or extension."""
    return Call(
        operation="getLanguage",
        method="GET",
        target=target_of("/v1/languages/{}", name),
        answer="sandboxer.wire.catalogue:Language",
    )


def list_shells(*, image: str | None = None, available: bool | None = None) -> Call[ShellList]:
    """List shells, and whether they run here."""
    return Call(
        operation="listShells",
        method="GET",
        target=target_of("/v1/shells", image=image, available=available),
        answer="sandboxer.wire.catalogue:ShellList",
    )
