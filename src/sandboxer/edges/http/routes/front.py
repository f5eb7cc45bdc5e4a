"""The front page: what this is, whether it is well, and how to begin. People get a page, agents a text.

The page is whole in itself: no script, nothing from elsewhere, and its one style is allowed by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape

from starlette.responses import Response

from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.envelope import PAGE_POLICY
from sandboxer.edges.http.routes.discovery import llms_text
from sandboxer.edges.http.routes.platform import look
from sandboxer.wire.operations import platform as operations

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f2f4f7; --line: #d5dae1; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --paper: #15181c; --soft: #1f242b; --line: #343b45; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 46rem; margin: 3rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.9rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  overflow-x: auto; font: 14px/1.5 ui-monospace, monospace; margin: .4rem 0; }
.state { display: inline-block; border: 1px solid; border-radius: 1rem; padding: .05rem .7rem;
  font-size: .9rem; }
.ok { color: #1a7f4b; } .degraded { color: #b3541e; } a { color: inherit; } p { margin: .5rem 0; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'none'"
)


async def front_page(asked: Asked) -> Response:
    if "text/html" not in asked.request.headers.get("accept", ""):
        text = await llms_text(asked)
        text.headers["vary"] = "accept"
        return text
    status = (await look(asked.platform)).status
    page = _page(asked.platform.settings.url, status)
    asked.request.scope[PAGE_POLICY] = _POLICY.encode()
    return Response(page, media_type="text/html; charset=utf-8", headers={"vary": "accept"})


def _page(url: str, status: str) -> str:
    words = {"ok": "healthy"}.get(status, status)
    shown = "".join(
        f"<h2>{escape(title)}</h2><pre>{escape(code)}</pre>"
        for title, code in (
            (
                "With curl",
                f"export KEY=sk_…   # from: sandboxer key bearer PUBLIC_KEY\n"
                f'curl -H "Authorization: Bearer $KEY" -X POST {url}/v1/sandboxes\n'
                f'curl -H "Authorization: Bearer $KEY" {url}/v1/sandboxes',
            ),
            (
                "On the command line",
                f"pip install sandboxer\nexport SANDBOXER_URL={url} SANDBOXER_API_KEY=sk_…\n"
                "sandboxer create --name dev --network packages\nsandboxer exec dev -- pip install requests",
            ),
            (
                "In Python",
                "from sandboxer.sdk import Sandboxer\n\n"
                f'with Sandboxer(url="{url}", api_key="sk_…") as client:\n'
                '    sandbox = client.create(network="packages")\n'
                '    print(sandbox.exec("echo hello").stdout)',
            ),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sandboxer</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>sandboxer</h1>"
        "<p>Walled computers for agents: create one, run anything in it, snapshot and fork it, give it an"
        " address.</p>"
        f'<p><span class="state {"ok" if status == "ok" else "degraded"}">{escape(words)}</span>'
        f" at <code>{escape(url)}</code></p>{shown}"
        '<h2>Read on</h2><p><a href="/llms.txt">All operations, a line each</a> ·'
        ' <a href="/openapi.json">OpenAPI</a> · <a href="/health">health</a> ·'
        ' <a href="/v1/capabilities">capabilities</a> · <a href="/v1/pricing">pricing</a></p></body></html>'
    )


BINDINGS = (bind(operations.SHOW_FRONT_PAGE, front_page),)
