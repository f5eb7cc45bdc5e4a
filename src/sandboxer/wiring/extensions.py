"""Reads the extensions of the operator: files `*.yaml` in the folder of SANDBOXER_EXTENSIONS_DIR, each of
which says how one backend is opened (docs/guides/extensions.md).
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path

from sandboxer.backends.contract import Capability
from sandboxer.backends.registry import SHIPPED, Extension, Extensions
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes.yaml_fields import read_fields

_HANDLER = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
# As the installers of Python packages allow.
_PACKAGE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


class Kind(StrEnum):
    """Who pays for its sandboxes."""

    SELF_HOSTED = "self-hosted"
    # A provider charges the operator for each.
    SAAS_METERED = "saas-metered"


def load_extensions(folder: Path | None) -> Extensions:
    """Loads all of a folder. Raises InvalidRequest naming file:line:column of the first mistake."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise InvalidRequest(field="extensions_dir", why=f"there is no folder {folder}")
    found: dict[str, Extension] = {}
    for file in sorted(folder.glob("*.yaml")):
        extension = load_extension(file)
        if extension.name in found:
            why = f"{extension.name} is also in {found[extension.name].source}"
            raise InvalidRequest(field=f"{file}:1:1", why=why)
        found[extension.name] = extension
    return found


def load_extension(file: Path) -> Extension:
    for path in (file.parent, file):
        _demand_ours(path)
    top = read_fields(file)
    settings = top.section("settings", is_optional=True)
    name = top.text("id", pattern=r"ext\.[a-z0-9][a-z0-9-]{0,60}")
    if name in SHIPPED:
        top.complain_of("id", f"{name} is shipped; give yours another name")
    top.text("title", otherwise="")
    kind = top.choice("kind", Kind, otherwise=Kind.SELF_HOSTED)
    handler = top.text("handler", pattern=_HANDLER)
    extension = Extension(
        name=name,
        handler=handler,
        source=str(file),
        package=top.text("package", pattern=_PACKAGE, otherwise=handler.partition(".")[0].partition(":")[0]),
        extras=top.texts("extras"),
        folder=file.parent,
        settings=settings.words(),
        capabilities=frozenset(top.choices("capabilities", Capability)),
        is_metered=kind is Kind.SAAS_METERED,
        experimental=top.text("experimental", otherwise="") or None,
    )
    top.finish()
    if (beside := file.parent / f"{handler.partition(':')[0]}.py").is_file():
        _demand_ours(beside)
    return extension


def _demand_ours(path: Path) -> None:
    """Raises InvalidRequest unless only we and root can write here: what it names runs as the platform."""
    seen = path.stat()
    if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidRequest(
            field=str(path),
            why="somebody else can write to it, and what it names runs as the platform",
            hint=f"chown root {path} && chmod go-w {path}",
        )
