"""What the TLS edge asks before it fetches a certificate: is this name ours?"""

from __future__ import annotations

from urllib.parse import urlsplit

from sandboxer.access.ports.hosts import without_port
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.kernel.errors import NotFound
from sandboxer.wire.operations import previews as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.previews import AskForNameQuery
from sandboxer.wire.previews import KnownName


async def ask(asked: Asked[NoParameters, AskForNameQuery, None]) -> KnownName:
    platform = asked.platform
    name = without_port(asked.query.domain)
    if name != urlsplit(platform.settings.url).hostname:
        found = await platform.access.ports.by_name(name, platform.settings.proxy_domain)
        if found is None:
            raise NotFound(what="name", id=name)
    return KnownName(domain=name)


BINDINGS: tuple[Binding, ...] = (bind(operations.ASK_FOR_NAME, ask),)
