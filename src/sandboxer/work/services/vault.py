"""The environment a service is told in confidence: sealed at rest, opened only to start a process."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import TooLarge
from sandboxer.work.services.records import Service

MAX_BYTES = 64 * 1024


class Vault:
    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def open(self, service: Service) -> dict[str, str]:
        if service.vault is None:
            return {}
        found: dict[str, str] = json.loads(self._seal.open(service.vault, context=_context(service.id)))
        return found

    def close(self, service_id: str, values: Mapping[str, str]) -> bytes | None:
        """None for nothing. Raises TooLarge."""
        if not values:
            return None
        text = json.dumps(dict(values)).encode()
        if len(text) > MAX_BYTES:
            raise TooLarge(what="the vault", limit=f"{MAX_BYTES} bytes")
        return self._seal.close(text, context=_context(service_id))


def _context(service_id: str) -> str:
    return f"service-vault:{service_id}"
