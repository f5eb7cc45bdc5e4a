"""A platform that charges and has an SSH gateway, and shadow clones on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandboxer.sdk.agent.checks import Outcome, Subject, check
from sandboxer.sdk.agent.clones import Clone, Wanted, raise_clone
from sandboxer.sdk.agent.models import Scripted
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.platforms import NONE, PROGRAM, Up, free_port, real_platform

FUNDS = 10_000_000


@dataclass(frozen=True)
class Home:
    """An account with sats on a platform."""

    up: Up
    client: Sandboxer
    environment: dict[str, str]


@contextmanager
def agents_home(
    folder: Path, *, running_msats: int = 10, settings: Mapping[str, str] = NONE, program: str = PROGRAM
) -> Iterator[Home]:
    """A platform with an account that pays for what it does."""
    gateway = {"SANDBOXER_SSH_LISTEN": f"127.0.0.1:{free_port()}", "SANDBOXER_CHARGING": "true"}
    gateway |= {"SANDBOXER_PRICING": json.dumps({"rates": {"running_msats": running_msats}})}
    gateway |= {"SANDBOXER_LIMIT_BUCKET_ONLY": "100000", "SANDBOXER_LIMIT_ADDRESS": "100000"}
    with (
        real_platform(folder, settings=gateway | dict(settings), program=program) as up,
        Sandboxer(owner_file=up.owner_file, url=up.url) as owner,
    ):
        account = owner.operator.create_account(id="agents", reason="a test").id
        owner.operator.adjust(account, FUNDS, id="f-agents", reason="a test")
        key = owner.keys.create("agent", account)
        named = {"SANDBOXER_PUBLIC_KEY": key.public_key, "SANDBOXER_SECRET_KEY": key.secret_key}
        plain = {name: word for name, word in up.environment.items() if name != "SANDBOXER_CREDENTIALS"}
        with Sandboxer(
            url=up.url, public_key=key.public_key, secret_key=key.secret_key, timeout_s=180.0
        ) as client:
            yield Home(up, client, plain | named)


class Camp:
    """Clones of one platform, raised as they are asked for."""

    def __init__(self, client: Sandboxer, model: Scripted, keys: Path) -> None:
        self.client, self.model, self.keys = client, model, keys
        self.wanted = Wanted(keys=keys, needs=("git", "python3", "jq"), budget_sats=500)

    def clone(self, name: str, meeting: str = "meeting") -> Clone:
        return raise_clone(self.client, name, meeting, self.wanted, self.model)

    def subject(self, clone: Clone) -> Subject:
        return Subject(self.client, clone, self.model, self.keys)

    def outcomes(self, subject: Subject | Clone) -> dict[Outcome, list[str]]:
        """Says which checks ended how."""
        seen = check(subject if isinstance(subject, Subject) else self.subject(subject))
        return {outcome: [one.name for one in seen if one.outcome is outcome] for outcome in Outcome}
