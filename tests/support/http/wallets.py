"""Wallets that sign in over HTTP."""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import dataclass
from typing import Any

import httpx

from sandboxer.identity.signatures.wallets import checksummed
from sandboxer.identity.siwx import SiwxMessage
from tests.support.signers import Signer


@dataclass
class Session:
    """Calls with a token, or with nothing but what the test adds."""

    http: httpx.AsyncClient
    token: str
    account: str
    signer: Signer

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        given = {"authorization": f"Bearer {self.token}", **headers}
        return await self.http.request(method, path, json=body, headers=given)

    async def confirmed(self, method: str, path: str, body: object = None) -> httpx.Response:
        """As `send`, and answers the challenge with the wallet."""
        asked = await self.send(method, path, body)
        assert asked.status_code == 428, asked.text
        return await self.send(method, path, body, **proof(asked.json(), self.signer))


def proof(asked: dict[str, Any], signer: Signer) -> dict[str, str]:
    assert asked["factor"] == "wallet"
    return {
        "x-sudo-challenge": asked["challenge"],
        "x-sudo-by": signer.evm,
        "x-sudo-otp": signer.sign_evm(asked["message"]),
    }


def key_proof(asked: dict[str, Any], public_key: str, secret_key: str) -> dict[str, str]:
    assert asked["factor"] == "api_key"
    return {
        "x-sudo-challenge": asked["challenge"],
        "x-sudo-by": public_key,
        "x-sudo-otp": hmac.new(secret_key.encode(), asked["message"].encode(), "sha256").hexdigest(),
    }


async def sign_in(http: httpx.AsyncClient, label: str) -> Session:
    signer = Signer.named(label)
    challenge = (await http.post("/v1/auth/challenge")).json()
    signature = signer.sign_evm(challenge["message"])
    answer = await http.post("/v1/auth/session", json={"nonce": challenge["nonce"], "signature": signature})
    assert answer.status_code == 201, answer.text
    opened = answer.json()
    return Session(http, opened["token"], opened["account"], signer)


async def siwx_message(http: httpx.AsyncClient, signer: Signer) -> SiwxMessage:
    offer = (await http.get("/v1/auth/siwx")).json()
    return SiwxMessage(
        domain=offer["domain"],
        address=checksummed(signer.evm),
        uri=offer["uri"],
        chain_id="1",
        nonce=offer["nonce"],
        issued_at=offer["issuedAt"],
        expiration_time=offer["expirationTime"],
        statement=offer["statement"],
    )


def siwx_header(message: SiwxMessage, signature: str, **more: object) -> str:
    said: dict[str, object] = {
        "domain": message.domain,
        "address": message.address,
        "uri": message.uri,
        "version": message.version,
        "chainId": f"eip155:{message.chain_id}",
        "nonce": message.nonce,
        "issuedAt": message.issued_at,
        "expirationTime": message.expiration_time,
        "statement": message.statement,
        "signature": signature,
        **more,
    }
    return base64.b64encode(json.dumps(said).encode()).decode()
