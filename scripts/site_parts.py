"""The parts of the site, read from docs/README.md: a page that is not named there is missing in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_PART = re.compile(r"^## (?P<name>\w+)")
_PAGE = re.compile(r"^\| \[(?P<title>[^]]+)\]\((?P<path>[^)#]+)\)")
_TITLE = re.compile(r"^# (?P<title>.+)$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Called by MkDocs before it looks for pages."""
    config.nav = parts(Path(config.docs_dir))
    return config


def parts(docs: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"Start": "README.md"}]
    pages: list[dict[str, Any]] = []
    for line in (docs / "README.md").read_text().splitlines():
        if part := _PART.match(line):
            pages = []
            found.append({part["name"]: pages})
        elif page := _PAGE.match(line):
            pages.append({page["title"]: _page(docs, page["path"])})
    return found


def _page(docs: Path, path: str) -> Any:
    """A page; of a folder's first page, that folder."""
    if Path(path).name != "README.md":
        return path
    others = sorted((docs / path).parent.glob("*.md"))
    return [path, *({_title(one): str(one.relative_to(docs))} for one in others if one.name != "README.md")]


def _title(page: Path) -> str:
    found = _TITLE.search(page.read_text())
    return found["title"] if found else page.stem
