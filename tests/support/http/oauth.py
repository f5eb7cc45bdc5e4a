"""A program that asks in a browser to act for somebody."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx

BACK = "http://127.0.0.1:33418/callback"
VERIFIER = "v" * 64


async def asked_for(web: httpx.AsyncClient, name: str = "A program") -> str:
    """Returns the code that the browser shows."""
    client = await web.post("/oauth/register", json={"client_name": name, "redirect_uris": [BACK]})
    assert client.status_code == 201, client.text
    digest = hashlib.sha256(VERIFIER.encode()).digest()
    said = {
        "client_id": client.json()["client_id"],
        "redirect_uri": BACK,
        "response_type": "code",
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    sent = await web.get("/oauth/authorize", params=said)
    assert sent.status_code == 303, sent.text
    page = await web.get(sent.headers["location"])
    found = re.search(r"key allow ([B-Z]{4}-[B-Z]{4})", page.text)
    assert found is not None, page.text
    return found.group(1)
