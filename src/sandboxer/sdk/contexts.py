"""Contexts: the platforms that a person has logged in to, each with its key, and the one in use.

They are in `contexts.json` of the person's own folder (SANDBOXER_CONFIG_DIR, else `sandboxer` below
XDG_CONFIG_HOME or ~/.config), which nobody else can read. A secret is in the keyring of the system instead,
where that works (the extra `keyring`).
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sandboxer.sdk.errors import MissingCredentials

FILE = "contexts.json"
# Names the platform of this machine, which needs no login.
LOCAL = "local"
_SERVICE = "sandboxer"


@dataclass(frozen=True, slots=True)
class Context:
    """An address and the key for it: a public and a secret key, or a bearer token."""

    name: str
    url: str
    public_key: str = ""
    # The secret key, or the bearer token where there is no public key; empty if the keyring has it.
    secret: str = field(default="", repr=False)
    is_in_keyring: bool = False

    def opened(self) -> Context:
        """Returns the same with its secret. Raises MissingCredentials if the keyring does not give it."""
        if not self.is_in_keyring:
            return self
        ring, secret = _keyring(), None
        # A keyring that is locked, or was not unlocked in time, says so by an error of its own.
        with suppress(Exception):
            secret = None if ring is None else ring.get_password(_SERVICE, _entry(self))
        if not secret:
            raise MissingCredentials(
                f"The keyring of this system does not give the key of context {self.name}.",
                next_step=f"Unlock it, or run: sandboxer login {self.url} --name {self.name}",
            )
        return replace(self, secret=str(secret))


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Small JSON files of this person, in a folder for nobody else."""

    folder: Path

    def read(self, name: str) -> dict[str, Any]:
        """Returns what the file holds; nothing if it is not there or is not ours."""
        try:
            with open(self.folder / name, encoding="utf-8") as file:
                found = json.load(file) if _is_ours(file.fileno()) else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replaces the file as a whole, so that nobody ever reads half of it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # New, and for nobody else: in a folder that others can write to, a name that they guess is theirs.
        fd, beside = tempfile.mkstemp(prefix=f".{name}.", dir=self.folder)
        with os.fdopen(fd, "w") as file:
            json.dump(content, file, indent=1)
        os.replace(beside, self.folder / name)


def _is_ours(fd: int) -> bool:
    """Says whether a file is this person's, or root's: another would choose whom a key is sent to."""
    return not hasattr(os, "geteuid") or os.fstat(fd).st_uid in (os.geteuid(), 0)


class Contexts:
    """Those that are kept, by name."""

    def __init__(self, files: OwnFiles) -> None:
        self._files = files
        kept = files.read(FILE)
        self.current: str = str(kept.get("current") or LOCAL)
        self.all = {
            name: Context(name, **one) for name, one in kept.get("contexts", {}).items() if "url" in one
        }

    def get(self, name: str) -> Context:
        """Returns the one of this name. Raises MissingCredentials."""
        if name not in self.all:
            known = ", ".join((LOCAL, *self.all))
            raise MissingCredentials(
                f"There is no context {name}; there are {known}.",
                next_step=f"Run: sandboxer login URL --name {name}",
            )
        return self.all[name]

    def add(self, context: Context, *, may_use_keyring: bool = True) -> Context:
        """Keeps it, and uses it from now on. Its secret goes to the keyring, where one works."""
        ring = _keyring() if may_use_keyring else None
        _forget(self.all.get(context.name))
        kept = context
        if ring is not None:
            try:
                ring.set_password(_SERVICE, _entry(context), context.secret)
                kept = replace(context, secret="", is_in_keyring=True)
            except Exception:
                kept = context
        self.all[context.name] = kept
        self.use(context.name)
        return kept

    def use(self, name: str) -> None:
        """Makes it the one in use; `local` stands for none. Raises MissingCredentials."""
        if name != LOCAL:
            self.get(name)
        self.current = name
        self._write()

    def delete(self, name: str) -> None:
        """Forgets it and its key. Raises MissingCredentials."""
        _forget(self.get(name))
        del self.all[name]
        self.current = LOCAL if self.current == name else self.current
        self._write()

    def _write(self) -> None:
        shown = {name: asdict(one) for name, one in self.all.items()}
        for one in shown.values():
            del one["name"]
        self._files.write(FILE, {"current": self.current, "contexts": shown})


def _entry(context: Context) -> str:
    return f"{context.name} {context.url}"


def _forget(context: Context | None) -> None:
    """Takes its secret out of the keyring. Where that fails, as when it is not there, the rest goes on."""
    ring = _keyring() if context is not None and context.is_in_keyring else None
    with suppress(Exception):
        if ring is not None and context is not None:
            ring.delete_password(_SERVICE, _entry(context))


def _keyring() -> Any:
    """The keyring of the system; None if none is installed, or none works here."""
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        return None
    return keyring if keyring.get_keyring().priority > 0 else None
