"""How others may read a path. Decisions only.

A rule by path is asked about the text of a request; the server behind it decodes, splits and folds that text
in its own way. So an allow holds for paths that every server reads alike, and a deny for every reading that
we can think of.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_to_bytes

# What every server reads alike: letters, digits and marks without a meaning of their own.
_SEGMENT = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,=:@;]|%[0-9A-Fa-f]{2})*")
# Escapes that some servers decode before they split: dots, slashes, parameters, queries, escapes themselves.
_MEANS_SOMETHING = frozenset(b"./\\%;?#")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
# `%u002e` of old servers, escapes cut short, and control characters that end or split a path.
_UNREADABLE = re.compile(r"%(?![0-9A-Fa-f]{2})|[\x00-\x1f\x7f]")


def is_plain(path: str) -> bool:
    """Do all servers read it as it is written?"""
    return path.startswith("/") and "//" not in path and all(map(_is_plain, path.split("/")))


def _is_plain(segment: str) -> bool:
    if _SEGMENT.fullmatch(segment) is None:
        return False
    codes = [int(code, 16) for code in _ESCAPED.findall(segment)]
    if any(code in _MEANS_SOMETHING or code < 0x20 or code == 0x7F for code in codes):
        return False
    try:
        # Overlong forms of a dot or a slash are no UTF-8.
        decoded = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return False
    name = decoded.partition(";")[0]
    # `. .` and `..` with spaces behind are dots to servers on some systems.
    return not name or name.strip(" .") != ""


def readings(path: str) -> tuple[str, ...]:
    """How servers may read a path, in small letters; empty: they may read anything into it."""
    for _ in range(3):
        if _UNREADABLE.search(path):
            return ()
        try:
            path = unquote(path, errors="strict")
        except UnicodeDecodeError:
            return ()
    if "%" in path or _UNREADABLE.search(path):
        return ()
    parts = [part for part in path.replace("\\", "/").lower().split("/") if part]
    if any(part.strip(" .") == "" and part not in (".", "..") for part in _names(parts)):
        return ()
    return _joined(_names(parts)), _joined(parts), _joined(_folded(_names(parts)))


def _names(parts: list[str]) -> list[str]:
    """Without parameters: `..;x` is `..` to servers that know them, and a name to those that do not."""
    return [part.partition(";")[0] for part in parts]


def _folded(parts: list[str]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return kept


def _joined(parts: list[str]) -> str:
    return "/" + "/".join(parts)
