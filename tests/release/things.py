"""Things of one account, made when a path asks for them: what stands for `{sandbox_id}`, `{volume}`, …

A thing that comes from outside (an invoice, a payment, a card) is named by an id that nobody has: what is
recorded of it is how the platform answers for what it does not know.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from tests.release.examples import BODIES
from tests.support.http.oauth import asked_for
from tests.support.http.signed import Client

# Of nouns that only payments, wallets and other people make.
NOBODYS = {
    "n": "1",
    "delivery_id": "dlv_" + "0" * 26,
    "address": "0x" + "0" * 40,
    "invoice_id": "inv_" + "0" * 26,
    "refund_id": "rfd_" + "0" * 26,
    "token": "rdm_" + "0" * 26 + ".1." + "0" * 64,
    "redemption_id": "rdm_" + "0" * 26,
    "card_id": "gft_" + "0" * 26,
    "payment_id": "pay_" + "0" * 26,
    "preview_id": "prv_" + "0" * 26,
    "domain": "claimed.example.com",
    "terminal_id": "9",
    "account": "bob",
    "name": "TOKEN",
}


class Things:
    """Makes them as `client`; `owner` makes accounts; `receiver` takes webhooks."""

    def __init__(self, client: Client, owner: Client, receiver: str) -> None:
        self._client = client
        self._receiver = receiver
        self._owner = owner
        self._numbers = itertools.count()

    def fresh(self) -> str:
        return f"t{next(self._numbers)}"

    async def made(self, name: str, known: dict[str, str]) -> str:
        """The id for `{name}` in a path; `known` holds those before it in the same path."""
        if name in NOBODYS:
            return NOBODYS[name]
        if name == "receiver":
            return self._receiver
        make = getattr(self, f"_{name}")
        return str(await make(known))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.post(path, body)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        found: dict[str, Any] = answer.json()
        return found

    async def _sandbox_id(self, _: dict[str, str]) -> str:
        made: str = (await self._post("/v1/sandboxes", {}))["id"]
        written = await self._client.put(f"/v1/sandboxes/{made}/files/content?path=/tmp/a", b"a")
        assert written.is_success, written.text
        return made

    async def _profile_id(self, _: dict[str, str]) -> str:
        return "profile.agent-dev"

    async def _session_id(self, _: dict[str, str]) -> str:
        return "ses_" + "0" * 26

    async def _process_id(self, known: dict[str, str]) -> str:
        path = f"/v1/sandboxes/{known['sandbox_id']}/processes"
        return str((await self._post(path, BODIES["startProcess"]))["process_id"])

    async def _key_id(self, _: dict[str, str]) -> str:
        return "ssk_" + "0" * 26

    async def _code(self, _: dict[str, str]) -> str:
        return await asked_for(self._client.http)

    async def _public_key(self, _: dict[str, str]) -> str:
        made = await self._post("/v1/keys/delegated", {"name": "c", "scopes": ["exec"]})
        return str(made["public_key"])

    async def _account_id(self, _: dict[str, str]) -> str:
        """Another one each time: it may be closed by what is asked."""
        answer = await self._owner.post("/v1/accounts", {"reason": "a test"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def _webhook_id(self, _: dict[str, str]) -> str:
        answer = await self._client.get("/v1/webhooks")
        for one in answer.json()["webhooks"]:
            await self._client.delete(f"/v1/webhooks/{one['id']}")
        # Nothing but what is sent here to try it: other things happen whenever they do.
        wanted = {"url": self._receiver, "kinds": ["invoice.*"]}
        made = str((await self._post("/v1/webhooks", wanted))["id"])
        await self._post(f"/v1/webhooks/{made}/test", {})
        for _ in range(300):
            body = (await self._client.get(f"/v1/webhooks/{made}/deliveries")).json()["deliveries"]
            if body and all(one["ended_at"] is not None for one in body):
                break
            await asyncio.sleep(0.05)
        return made

    async def _job_id(self, _: dict[str, str]) -> str:
        made = await self._post("/v1/execute/async", BODIES["executeLater"])
        # As it ends: before that it may be anywhere.
        ended = await self._client.get(f"/v1/jobs/{made['id']}?wait_s=30")
        assert ended.is_success, ended.text
        return str(made["id"])

    async def _service(self, _: dict[str, str]) -> str:
        return str(
            (await self._post("/v1/services", {**BODIES["createService"], "name": self.fresh()}))["id"]
        )

    async def _snapshot_id(self, _: dict[str, str]) -> str:
        sandbox = await self._sandbox_id({})
        return str((await self._post(f"/v1/sandboxes/{sandbox}/snapshots", {}))["id"])

    async def _volume(self, _: dict[str, str]) -> str:
        return str((await self._post("/v1/volumes", {"name": self.fresh(), "size_mb": 16}))["id"])

    async def _volume_snapshot(self, known: dict[str, str]) -> str:
        return str((await self._post(f"/v1/volumes/{known['volume']}/snapshots", {}))["id"])

    async def _image_id(self, _: dict[str, str]) -> str:
        snapshot = await self._snapshot_id({})
        return str((await self._post("/v1/images", {"snapshot": snapshot, "name": self.fresh()}))["id"])
