"""What sandboxes may reach: settings that belong to the ways out."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sandboxer.backends.contract import Trust
from sandboxer.kernel.errors import InvalidRequest


class AccessSettings(BaseModel):
    trust_max: Annotated[
        Literal["zero", "semi"],
        Field(description="The highest trust level there is here; `zero`: no sandbox has a way out."),
    ] = "semi"
    egress_never: Annotated[
        tuple[str, ...],
        Field(
            description="Networks that no sandbox reaches, whatever its rules say, beside private ones and"
            " this host's own addresses: say, the public address of a router before it. Comma-separated."
        ),
    ] = ()

    @property
    def highest_trust(self) -> Trust:
        return Trust(self.trust_max)

    @property
    def never_reached(self) -> tuple[IPv4Network | IPv6Network, ...]:
        try:
            return tuple(ip_network(text) for text in self.egress_never)
        except ValueError as error:
            raise InvalidRequest(field="egress_never", why=str(error)) from None
