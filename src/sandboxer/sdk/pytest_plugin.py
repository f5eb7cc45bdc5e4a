"""`pytest --sandboxer`: the tests of a project run inside a sandbox, and the files they leave come back.

The project goes in (what git knows of it, or all of it), with the pytest that was started unless the sandbox
has one; it runs there with the same arguments, and what it prints is printed here. The sandbox ends with it.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sandboxer.sdk.sync.sandbox import Sandbox

INSIDE, LIBRARY, MARK = "/workspace/project", "/workspace/pytest", "/workspace/.began"
# What pytest is made of; all of it is plain Python.
_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
_LEXERS = frozenset({"__init__", "_mapping", "python", "diff"})
_LEFT_OUT = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache"})
_OPTIONS = {
    "--sandboxer-image": "image of the sandbox (default: as its profile has it)",
    "--sandboxer-profile": "recipe of the sandbox",
    "--sandboxer-network": "none (default), packages, open, or allow: and hosts",
    "--sandboxer-setup": "command that is run first, in the project's folder",
    "--sandboxer-ttl": "how long all of it may take (default: 1h)",
    "--sandboxer-python": "interpreter in the sandbox (default: python3)",
    "--sandboxer-artifacts": "pattern of files to bring back, such as 'build/*.html'; may be repeated",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sandboxer")
    group.addoption("--sandboxer", action="store_true", help="run the tests inside a sandbox")
    for name, words in _OPTIONS.items():
        action = "append" if name.endswith("artifacts") else "store"
        group.addoption(name, action=action, help=words)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if not config.getoption("--sandboxer"):
        return None
    # Whoever does not ask for it needs no client.
    from sandboxer.sdk.errors import SdkError  # noqa: PLC0415
    from sandboxer.sdk.sync.client import Sandboxer  # noqa: PLC0415

    wanted = {name: config.getoption(f"--sandboxer-{name}") for name in ("image", "profile", "network")}
    ttl = config.getoption("--sandboxer-ttl") or "1h"
    try:
        with Sandboxer() as client, client.create(**wanted, ttl=ttl) as sandbox:
            return _run(sandbox, config)
    except SdkError as error:
        raise pytest.UsageError(f"--sandboxer: {error}") from error


def _run(sandbox: Sandbox, config: pytest.Config) -> int:
    root, python = config.rootpath, config.getoption("--sandboxer-python") or "python3"
    sent = set(_project(root))
    _send(sandbox, INSIDE, ((root / name, name) for name in sorted(sent)))
    if setup := config.getoption("--sandboxer-setup"):
        done = sandbox.exec(setup, cwd=INSIDE)
        if done.exit_code:
            raise pytest.UsageError(f"--sandboxer-setup failed:\n{done.stdout}{done.stderr}")
    env = {"PY_COLORS": str(int(sys.stdout.isatty())), "PYTHONDONTWRITEBYTECODE": "1"}
    if sandbox.exec([python, "-c", "import pytest"]).exit_code:
        _send(sandbox, LIBRARY, _library())
        env["PYTHONPATH"] = LIBRARY
    sandbox.exec(["touch", MARK])
    here = posixpath.join(INSIDE, os.path.relpath(config.invocation_params.dir, root))
    words = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={INSIDE}", *_arguments(config)]
    status = _follow(sandbox, words, posixpath.normpath(here), env)
    _bring_back(sandbox, config, sent)
    return status


def _project(root: Path) -> Iterator[str]:
    """Yields the project's files: those that git does not ignore, or where there is no git, all."""
    asked = ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"]
    done = subprocess.run(asked, capture_output=True, check=False)
    if done.returncode == 0 and done.stdout:
        yield from (name for name in os.fsdecode(done.stdout).split("\0") if name and (root / name).is_file())
        return
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in _LEFT_OUT]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in files)


def _library() -> Iterator[tuple[Path, str]]:
    for distribution in map(metadata.distribution, _PACKAGES):
        for file in distribution.files or ():
            is_used = file.suffix == ".py" or file.name in ("METADATA", "entry_points.txt")
            if is_used and (file.parent.name != "lexers" or file.stem in _LEXERS):
                yield Path(str(distribution.locate_file(file))), str(file)


def _send(sandbox: Sandbox, folder: str, files: Iterable[tuple[Path, str]]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for file, name in files:
                tar.add(file, name)
        packed.flush()
        sandbox.files.mkdir(folder)
        sandbox.files.tar_in(folder, Path(packed.name))


def _arguments(config: pytest.Config) -> Iterator[str]:
    """Yields the arguments of this run without ours, with paths as they are inside."""
    given = [str(word) for word in config.invocation_params.args]
    for before, word in zip(["", *given], given, strict=False):
        if before not in _OPTIONS and not word.startswith("--sandboxer"):
            yield word.replace(str(config.rootpath), INSIDE)


def _follow(sandbox: Sandbox, words: list[str], folder: str, env: dict[str, str]) -> int:
    status: Any = None
    for piece in sandbox.stream(words, cwd=folder, env=env, timeout_s=86_400):
        if (data := getattr(piece, "data", None)) is not None:
            stream = sys.stdout if piece.stream == "stdout" else sys.stderr  # type: ignore[union-attr]
            stream.write(data.decode("utf-8", "replace"))
            stream.flush()
        status = getattr(piece, "exit_code", status)
    return int(pytest.ExitCode.INTERNAL_ERROR if status is None else status)


def _bring_back(sandbox: Sandbox, config: pytest.Config, sent: set[str]) -> None:
    """Fetches what was made inside and is asked for. What was sent in stays, by any of its names."""
    patterns = list(config.getoption("--sandboxer-artifacts") or ())
    if report := getattr(config.option, "xmlpath", None):
        patterns.append(os.path.relpath(report, config.rootpath))
    made = sandbox.exec(["find", ".", "-type", "f", "-newer", MARK], cwd=INSIDE).stdout if patterns else ""
    root = config.rootpath.resolve()
    kept = {(root / name).resolve() for name in sent}
    for name in (line.removeprefix("./") for line in made.splitlines()):
        target = (root / name).resolve()
        is_plain = name == posixpath.normpath(name) and ".git" not in target.parts
        is_ours = is_plain and target.is_relative_to(root) and target not in kept
        if is_ours and any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            target.parent.mkdir(parents=True, exist_ok=True)
            sandbox.files.download(f"{INSIDE}/{name}", target)
