"""Settings of who may call: wallet sessions and the genesis gate."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr


class IdentitySettings(BaseModel):
    production: Annotated[
        bool, Field(description="Refuse to start without what must not be improvised (SESSION_AUTH_SECRET).")
    ] = False
    session_auth_secret: Annotated[
        SecretStr | None,
        Field(
            description="Key of wallet sessions, 32 bytes or more; read from SESSION_AUTH_SECRET, no prefix."
        ),
    ] = None
    allow_test_networks: Annotated[bool, Field(description="Let wallets of test networks sign in.")] = False
    genesis_registry_url: Annotated[
        str | None, Field(pattern="^https?://", description="The registry of agents that the gate asks.")
    ] = None
    genesis_level: Annotated[int, Field(ge=0, le=100, description="Level an agent must have there.")] = 2
    genesis_demanded: Annotated[
        bool, Field(description="Every create and extend needs a genesis proof (not the owner's).")
    ] = False

    @property
    def session_secret(self) -> str | None:
        return None if self.session_auth_secret is None else self.session_auth_secret.get_secret_value()
