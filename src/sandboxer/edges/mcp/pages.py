"""The page that waits until somebody allows a program: no script, no form, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

LOOK_EVERY_S = 3
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f2f4f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #15181c; --soft: #1f242b; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 40rem;
  margin: 3rem auto; padding: 0 1.2rem; }
pre { background: var(--soft); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'none'"
)


def waiting(*, code: str, name: str, answered_at: str, scopes: Sequence[str], url: str) -> str:
    """Returns the page; its words are escaped already."""
    listed = ", ".join(scopes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sandboxer: {code}</title>'
        f'<meta http-equiv="refresh" content="{LOOK_EVERY_S}"><style>{_STYLE}</style></head><body>'
        f"<h1>{name} asks to act for you</h1>"
        f"<p>It calls itself so; nobody has checked that. Its answer goes to <code>{answered_at}</code>.</p>"
        f"<p>It asks for: {listed}.</p>"
        "<p>If you began this just now, allow it where you have your key. It gets a key of its own, with a"
        " budget that you choose, which you can end at any time:</p>"
        f"<pre>sandboxer key allow {code} --url {url}</pre>"
        "<p>If you did not begin this, close the page. The code ends after ten minutes.</p></body></html>"
    )
