"""How `SANDBOXER_*` variables become values of settings.

An unknown variable is an error: a typing slip in a limit must not silently leave the limit off.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping

from sandboxer.kernel.errors import InvalidRequest

PREFIX = "SANDBOXER_"
# Belong to the client (CLI and SDK), which shares the prefix.
CLIENT_VARIABLES = frozenset({"URL", "PUBLIC_KEY", "SECRET_KEY", "CREDENTIALS", "JSON"})
# Set for programs inside a sandbox, where a nested server may run; for Caddy; for the test suite.
FOREIGN_PREFIXES = ("INPUT_", "SANDBOX_ID", "SITE", "UPSTREAM", "TEST_")
# Named by others before us, so without our prefix.
SESSION_SECRET = "SESSION_AUTH_SECRET"


def read_environment(environment: Mapping[str, str], known: Collection[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable, text in environment.items():
        word = variable.removeprefix(PREFIX)
        if word == variable or word in CLIENT_VARIABLES or word.startswith(FOREIGN_PREFIXES):
            continue
        name = word.lower()
        if name not in known:
            raise InvalidRequest(field=variable, why="no such setting" + _nearest(name, known))
        values[name] = _parse(name, text)
    if secret := environment.get(SESSION_SECRET):
        values["session_auth_secret"] = secret
    return values


_JSON_EXAMPLES = {
    "warm_pool": '{"profile.agent-dev": 2}',
    "pricing": '{"rates": {"running_msats": 10}}',
    "x402": '{"networks": []}',
    "chains": '{"BTC": {"esplora": "https://…/api", "xpub": "zpub…"}}',
    "fixed_rates": '{"BTC": "100000", "USDC": "1"}',
    "rates": '{"sources": ["kraken", "coinbase"]}',
    "invoices": '{"expires_after": "1h"}',
    "hot_wallet": '{"file": "/…", "password_file": "/…", "caps": {"LTC": {"payment": "1", "day": "5"}}}',
    "gift_cards": '{"max_cents": 50000}',
}


def _parse(name: str, text: str) -> object:
    if name in _JSON_EXAMPLES:
        try:
            return json.loads(text)
        except ValueError:
            raise InvalidRequest(field=name, why=f"it must be JSON like {_JSON_EXAMPLES[name]}") from None
    if name in ("backends", "trusted_proxies", "free_profiles", "egress_never"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (
        f"; did you mean {PREFIX}{close[0].upper()}?" if close else f"; known are {', '.join(sorted(known))}"
    )
