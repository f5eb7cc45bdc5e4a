"""What a sandbox would show to strangers once a port of it is open: secrets that everyone inside may read,
and the insides of git folders.

A program that serves files has no other guard than their permissions. So before a port is opened to others,
the folders from which programs serve are looked at: what is readable by all there, and looks like a secret,
is named. What a sandbox changes afterwards nobody looks at; and who deceives this look deceives itself.

The look is bounded in entries and in time, nearest folders first, since whatever is in a sandbox may be
hostile. It says when it did not see everything.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxer.backends.guest import Command, Exit, FileInfo, FileKind, Guest, Process, Stream
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, Conflict, GuestRefused, IllegalTransition, NotAvailable
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line

MAX_ENTRIES = 20_000
MAX_FINDINGS = 100
MAX_SECONDS = 2.0
# Files whose name leaves open what they are: so many are opened, so far.
MAX_READ, HEAD_BYTES = 64, 4096
# Asks inside, since only programs there see where others work: their folder, and those they were told of.
_ASK = Command(
    argv=(
        "/bin/sh",
        "-c",
        "for one in /proc/[0-9]*; do readlink $one/cwd; tr '\\0' '\\n' <$one/cmdline | grep ^/ |"
        ' while read -r word; do [ -d "$word" ] && readlink -f "$word"; done; done 2>/dev/null; true',
    ),
    env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    # Where nobody serves from.
    cwd="/proc",
    keep=False,
)
_ASKING_S, MAX_TOLD_BYTES = 1.0, 65536
# Where programs and people keep things, whoever runs.
FOLDERS = ("/workspace", "/root", "/home")
_SYSTEM = re.compile(r"/(proc|sys|dev|usr|bin|sbin|lib|lib64|boot|etc/alternatives|run/sandboxer)(/.*)?")
# What was installed into them brings keys for its own tests.
_INSTALLED = frozenset({"node_modules", "site-packages", "dist-packages"})
_READ, _ENTER = 0o004, 0o001

# By name, and where a name says too little with that of its folder.
_SECRET = re.compile(
    r"\.env|[._]netrc|\.(git-credentials|pgpass|pypirc|htpasswd|vault-token|credentials\.json)"
    r"|id_(rsa|dsa|ecdsa|ed25519)|owner\.json|service-account.*\.json"
    r"|\.env\.(?!example$|sample$|template$|dist$|defaults?$).+"
    r"|.+\.(p12|pfx|kdbx|jks|keystore|ppk)"
    r"|\.?((api|access|auth|bearer|refresh|session|deploy|bot|git(hub|lab)|openai|anthropic)[-_.]?)?"
    r"(tokens?|secrets?|passwords?|credentials?|keys?)(\.(txt|json|ya?ml|toml|ini|cfg|conf|env))?"
)
_SECRET_IN = re.compile(r"\.aws/credentials|\.docker/config\.json|\.kube/config|sandboxer/contexts\.json")
# Alone these say too little.
_ORDINARY = re.compile(r"keys?(\..*)?")
# A certificate is for everyone, a private key is not: their first lines tell.
_MAY_HOLD_KEY = re.compile(r".+\.(pem|key)")
_KEY = b"PRIVATE KEY-----"


class Inspect(StrEnum):
    """What is done before a port is opened."""

    REFUSE = "refuse"
    WARN = "warn"
    NO = "no"


class Kind(StrEnum):
    SECRET = "secret"
    GIT = "git"


@value_class
class Finding:
    path: str
    kind: Kind
    mode: int


@value_class
class Exposure:
    findings: Sequence[Finding]
    folders: Sequence[str]
    looked_at: int
    # Why not everything was looked at; None: it was.
    why: str | None = None


def looks_secret(path: str) -> bool:
    """Tells whether a file of this name holds a secret, as programs and people name them."""
    folder, name = posixpath.split(path.lower())
    if _SECRET_IN.fullmatch(f"{posixpath.basename(folder)}/{name}"):
        return True
    return _SECRET.fullmatch(name) is not None and _ORDINARY.fullmatch(name) is None


def may_hold_key(path: str) -> bool:
    return _MAY_HOLD_KEY.fullmatch(posixpath.basename(path).lower()) is not None


def may_read(info: FileInfo) -> bool:
    """Tells whether everyone inside may read the file; whether its folder lets them in is asked before."""
    return info.kind is FileKind.FILE and bool(info.mode & _READ)


def may_enter(info: FileInfo) -> bool:
    return info.kind is FileKind.DIRECTORY and bool(info.mode & _ENTER)


def is_walked(path: str) -> bool:
    return _SYSTEM.fullmatch(path) is None and posixpath.basename(path) not in _INSTALLED


def served_folders(found: Iterable[str]) -> list[str]:
    """Returns where to look: the usual folders and those that programs work in, without what lies in others
    of them.
    """
    wanted = {posixpath.normpath(one) for one in found if one.startswith("/")} | set(FOLDERS)
    wanted = {one for one in wanted if _SYSTEM.fullmatch(one) is None}
    if "/" in wanted:
        return ["/"]
    return sorted(one for one in wanted if not any(one.startswith(other + "/") for other in wanted))


def demand(exposure: Exposure, inspect: Inspect) -> None:
    """Raises Conflict if something was found and the caller wants to open nothing then."""
    if inspect is not Inspect.REFUSE or not exposure.findings:
        return
    paths = [one.path for one in exposure.findings]
    named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    raise Conflict(
        why=f"whoever reaches it may be shown {named}: everyone inside may read that",
        reason="exposed",
        findings=[{"path": one.path, "kind": one.kind.value, "mode": one.mode} for one in exposure.findings],
        hint="Take the right to read from others (chmod -R o-rwx), or open it all the same (inspect=warn).",
    )


async def before_opening(
    dependencies: SandboxDependencies,
    sandbox_id: str,
    caller: Caller,
    inspect: Inspect | None,
    *,
    is_public: bool,
) -> Exposure | None:
    """Looks, if that is wanted, and raises Conflict if what was found keeps the port closed.

    Who says nothing is told where everyone is let in. None: nobody looked.
    """
    wanted = inspect or (Inspect.WARN if is_public else Inspect.NO)
    if wanted is Inspect.NO:
        return None
    found = await look(dependencies, sandbox_id, caller)
    demand(found, wanted)
    return found


async def look(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Exposure:
    """Looks at what the sandbox would show. One that does not run is not looked at, and the answer says so.

    Raises NotFound.
    """
    sandbox = await dependencies.visible(sandbox_id, caller)
    try:
        async with open_line(dependencies, sandbox_id, caller, activity=ActivityKind.FILES) as guest:
            return await _Look(guest, is_frozen=is_frozen(sandbox)).all()
    except (IllegalTransition, BackendLost) as error:
        return Exposure(findings=(), folders=(), looked_at=0, why=str(error))


async def _told(process: Process) -> set[str]:
    text = b""
    async for item in process.output():
        if isinstance(item, Exit) or len(text) > MAX_TOLD_BYTES:
            break
        if item.stream is Stream.STDOUT:
            text += item.data
    return {os.fsdecode(line) for line in text[:MAX_TOLD_BYTES].split(b"\n")[:-1]}


@dataclass(slots=True, eq=False)
class _Look:
    guest: Guest
    # Nothing can be asked of its programs, only its files be looked at.
    is_frozen: bool
    findings: list[Finding] = field(default_factory=list)
    looked_at: int = 0
    opened: int = 0
    why: str | None = None

    async def all(self) -> Exposure:
        folders: list[str] = list(FOLDERS)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                folders = served_folders(() if self.is_frozen else await self._of_processes())
                await self._walk(folders)
        except TimeoutError:
            self.why = f"there was more than {MAX_SECONDS:g} seconds of it"
        found = tuple(sorted(self.findings, key=lambda one: one.path))
        return Exposure(findings=found, folders=folders, looked_at=self.looked_at, why=self.why)

    async def _of_processes(self) -> set[str]:
        """Returns folders that running programs work in, or were told of."""
        found: set[str] = set()
        with suppress(GuestRefused, NotAvailable, TimeoutError):
            async with asyncio.timeout(_ASKING_S), await self.guest.run(_ASK) as process:
                try:
                    found = await _told(process)
                finally:
                    await process.kill()
        return found

    async def _walk(self, folders: Sequence[str]) -> None:
        """Goes through them breadth first: what lies near is seen before a large folder ends the look."""
        waiting = deque([one for one in folders if await self._is_entered(one)])
        while waiting and not self._is_over():
            with suppress(GuestRefused):
                async with aclosing(self.guest.files.list(waiting.popleft())) as entries:  # type: ignore[type-var]
                    async for entry in entries:
                        if self._is_over():
                            return
                        self.looked_at += 1
                        if await self._judge(entry):
                            waiting.append(entry.path)

    def _is_over(self) -> bool:
        if self.looked_at >= MAX_ENTRIES:
            self.why = f"there are more than {MAX_ENTRIES} files and folders"
        if len(self.findings) >= MAX_FINDINGS:
            self.why = f"more than {MAX_FINDINGS} were found"
        return self.looked_at >= MAX_ENTRIES or len(self.findings) >= MAX_FINDINGS

    async def _is_entered(self, folder: str) -> bool:
        """Tells whether everyone may enter a folder: all above it must let them, too."""
        with suppress(GuestRefused):
            parts = folder.strip("/").split("/") if folder != "/" else []
            above = ["/", *("/" + "/".join(parts[: n + 1]) for n in range(len(parts)))]
            for one in above:
                if not may_enter(await self.guest.files.stat(one)):
                    return False
            return True
        return False

    async def _judge(self, entry: FileInfo) -> bool:
        """Notes what was found, and tells whether to look into it."""
        if may_enter(entry):
            if posixpath.basename(entry.path) != ".git":
                return is_walked(entry.path)
            self._note(entry, Kind.GIT)
        elif may_read(entry) and (
            looks_secret(entry.path) or (may_hold_key(entry.path) and await self._holds_key(entry.path))
        ):
            self._note(entry, Kind.SECRET)
        return False

    def _note(self, entry: FileInfo, kind: Kind) -> None:
        shown = os.fsencode(entry.path).decode(errors="replace")
        self.findings.append(Finding(path=shown, kind=kind, mode=entry.mode & 0o7777))

    async def _holds_key(self, path: str) -> bool:
        if self.opened >= MAX_READ:
            self.why = f"more than {MAX_READ} files may hold keys"
            return False
        self.opened += 1
        head = b""
        with suppress(GuestRefused):
            async with aclosing(self.guest.files.read(path, length=HEAD_BYTES)) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    head += piece
        return _KEY in head
