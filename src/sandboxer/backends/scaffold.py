"""Writes the package that a new backend begins as (`sandboxer backend new`): `template.py` under its name,
announced by an entry point, with a test that runs the contract suite, a profile and words for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sandboxer import __version__
from sandboxer.backends.registry import SHIPPED
from sandboxer.kernel.errors import Conflict, InvalidRequest

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "sandboxer-{name}"
version = "0.1.0"
description = "Sandboxes of {name} for sandboxer"
requires-python = ">=3.11"
dependencies = ["sandboxer[server]>={version}"]

[project.optional-dependencies]
test = ["pytest", "pytest-asyncio"]

# How a platform finds it: SANDBOXER_BACKENDS=ext.namespaces,ext.{name}
[project.entry-points."sandboxer.backends"]
"ext.{name}" = "{module}:open_backend"

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
asyncio_mode = "auto"
"""
_TEST = '''\
"""ext.{name} keeps the contract, but for what it says itself. Needs root and the base image."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.kernel.values import new_id
from sandboxer.settings import load_settings
from {module} import DEVIATIONS, {kind}, open_backend


def make_order() -> Order:
    return Order(
        sandbox_id=new_id("sbx"),
        image="base",
        resources=Resources(vcpus=1, memory_mb=256, disk_mb=128, pids=128),
        trust=Trust.ZERO,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes sandboxes")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_it_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    here = load_settings()
    own = here.model_copy(update={{"state_dir": tmp_path, "images_dir_given": here.images_dir}})

    @asynccontextmanager
    async def reopen() -> AsyncIterator[{kind}]:
        async with open_backend(own) as again:
            yield again

    async with open_backend(own) as backend:
        bench = Bench(backend, make_order, reopen)
        result = await run_check(check, bench, deviation=DEVIATIONS.get(check.name))
        assert result.is_fine, result.detail
        assert not await backend.inventory()
'''
_PROFILE = """\
id: profile.{name}
version: "1.0.0"
title: A sandbox of ext.{name}
backend: ext.{name}
image: base
isolation:
  level: container
  require: [files, processes, network]
network:
  default: deny
ttl:
  default: 1h
  max: 4h
resources:
  default: {{vcpus: 1, memory_mb: 256, disk_mb: 256, pids: 128}}
  max: {{vcpus: 2, memory_mb: 1024, disk_mb: 1024, pids: 512}}
"""
_README = """\
# sandboxer-{name}

`ext.{name}`, a backend of sandboxer. It works as it is: each sandbox lies over a base image, in namespaces of
its own. Make it yours in `src/{module}/__init__.py`; what it can do, and not yet, stands at its top.

```sh
pip install -e '.[test]'
sandboxer backend check ext.{name}     # as root; sandboxer image build base, if there is no base image yet
pytest                                 # the same, a test for each check
```

A platform uses it when its settings name it. `profile.{name}.yaml` goes into the folder of its profiles:

```sh
SANDBOXER_BACKENDS=ext.namespaces,ext.{name} SANDBOXER_PROFILES_DIR=/etc/sandboxer/profiles sandboxer up
sandboxer create --profile profile.{name}
```
"""


def new_package(given: str) -> Mapping[str, str]:
    """Returns the files of a package for a backend of this name, with `ext.` before it or not. Raises
    InvalidRequest, Conflict.
    """
    name = given.removeprefix("ext.")
    if _NAME.fullmatch(name) is None or len(name) > 40:
        raise InvalidRequest(
            field="name", why=f"{given} is no name: small letters, digits and single hyphens"
        )
    if f"ext.{name}" in SHIPPED or name == "template":
        raise Conflict(why=f"ext.{name} is shipped; give yours another name")
    kind = "".join(part.capitalize() for part in name.split("-")) + "Backend"
    words = {"name": name, "module": f"sandboxer_{name.replace('-', '_')}", "kind": kind}
    words["version"] = __version__
    source = Path(__file__).with_name("template.py").read_text()
    source = source.replace("ext.template", f"ext.{name}").replace("TemplateBackend", kind)
    begin = " `sandboxer backend new` copies this file as a beginning."
    return {
        "pyproject.toml": _PROJECT.format(**words),
        "README.md": _README.format(**words),
        f"profile.{name}.yaml": _PROFILE.format(**words),
        f"src/{words['module']}/__init__.py": source.replace(begin, ""),
        "tests/test_contract.py": _TEST.format(**words),
    }
