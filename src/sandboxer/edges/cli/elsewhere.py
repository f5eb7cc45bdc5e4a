"""What `doctor` says of backends that ask an engine or another host, and not this machine's kernel."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.contract import Lack
from sandboxer.backends.registry import find_opener
from sandboxer.kernel.errors import SandboxerError
from sandboxer.settings import Settings

# Opening one of these changes nothing where it stands.
ASKED = ("ext.docker", "ext.compose-ssh")
DEADLINE_S = 20.0


def lacks_elsewhere(settings: Settings) -> Iterator[Lack]:
    """Yields what the fingerprints of those lack that the settings name, each under its backend's name."""
    for name in settings.backends:
        if name in ASKED:
            yield from asyncio.run(_asked(name, settings))


async def _asked(name: str, settings: Settings) -> Sequence[Lack]:
    with tempfile.TemporaryDirectory(prefix="sandboxer-doctor-") as folder:
        # What it writes down of itself is not the platform's.
        own = settings.model_copy(update={"state_dir": Path(folder), "images_dir_given": settings.images_dir})
        try:
            async with asyncio.timeout(DEADLINE_S), find_opener(name)(own) as backend:
                seen = await backend.fingerprint()
        except SandboxerError as error:
            return [_closed(name, str(error.facts.get("why", error)))]
        except TimeoutError:
            return [_closed(name, f"it says nothing within {DEADLINE_S:g} s")]
    return [replace(lack, what=f"{name}: {lack.what}") for lack in seen.lacks]


def _closed(name: str, why: str) -> Lack:
    return Lack(what=name, why=why, remedy="mend its settings, or take it from SANDBOXER_BACKENDS")
