"""Payment URIs as pictures: SVG for pages, block characters for terminals."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from sandboxer.kernel.program import late

if TYPE_CHECKING:
    import segno
else:
    segno = late("segno")


def svg(text: str) -> str:
    """A small stand-alone SVG; black on white whatever the page's colours are, or scanners fail."""
    out = io.BytesIO()
    segno.make(text, micro=False, error="m").save(out, kind="svg", scale=4, light="white", xmldecl=False)
    return out.getvalue().decode()


def terminal(text: str) -> str:
    out = io.StringIO()
    segno.make(text, micro=False, error="m").terminal(out, compact=True)
    return out.getvalue()
