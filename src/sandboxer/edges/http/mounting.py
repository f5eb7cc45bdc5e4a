"""The volumes that a request names, as whatever makes a sandbox takes them: one reading for all routes."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from sandboxer.artifacts.volumes.attaching import WantedVolume
from sandboxer.backends.contract import VolumeMount
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire import sandboxes as wire


async def mounts(request: Request, wanted: Sequence[wire.WantedVolume]) -> tuple[VolumeMount, ...]:
    """Raises NotFound for one that is not the caller's, InvalidRequest for where it shall be seen."""
    asked = [WantedVolume(volume=one.volume, path=one.path, is_read_only=one.mode == "ro") for one in wanted]
    return await platform_of(request).artifacts.volumes.mounts(asked, caller(request)) if asked else ()
