"""Finds what must not be shared with an image. The scan looks for secrets in files: it reads bytes and
reports kinds, never a value.

No image contains what identifies a machine, or credentials in the places where programs keep them, whoever
may see it. To get a copy with all of that, clone the snapshot instead.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.tree import Bounds, Entry, Kind

# Only the beginning of each file is read: a secret in the middle of a large file is missed.
SCANNED_BYTES = 4 << 20
_OVERLAP = 4096
_PER_FILE = 8
_LEAST_ENTROPY = 3.6

_PLACES: tuple[tuple[str, re.Pattern[bytes]], ...] = tuple(
    (kind, re.compile(rb"(.*/)?(" + pattern + rb")"))
    for kind, pattern in (
        ("env_file", rb"\.env(\.(?!example$|sample$|template$|dist$)[A-Za-z0-9_-]{1,40})?|\.envrc"),
        ("private_key_file", rb"id_(rsa|dsa|ecdsa|ed25519)(_sk)?"),
        ("password_store", rb"\.netrc|\.pgpass|\.my\.cnf|[^/]{1,100}\.kdbx|\.vault-token|\.htpasswd"),
        ("wallet", rb"wallet\.dat|keystore/UTC--[^/]{10,200}|\.config/solana/id\.json"),
        ("terraform_state", rb"terraform\.tfstate(\.backup)?"),
    )
)
_CONTENTS: tuple[tuple[str, re.Pattern[bytes]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("private_key", rb"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----\s+[A-Za-z0-9+/=:]"),
        ("aws_key", rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        ("github_token", rb"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})"),
        ("gitlab_token", rb"\bglpat-[A-Za-z0-9_-]{20,}"),
        ("slack_token", rb"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
        ("api_key", rb"\bsk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{32,}"),
        ("stripe_key", rb"\b[rs]k_live_[A-Za-z0-9]{20,}"),
        ("google_key", rb"\bAIza[A-Za-z0-9_-]{35}\b"),
        ("npm_token", rb"\bnpm_[A-Za-z0-9]{36}\b"),
        ("pypi_token", rb"\bpypi-AgEI[A-Za-z0-9_-]{50,}"),
        ("telegram_token", rb"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b"),
        ("jwt", rb"\beyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{20,}"),
        ("sandboxer_key", rb"\bunsb-sk-[A-Za-z0-9-]{16,}"),
        (
            "url_password",
            rb"\b[a-z][a-z0-9+]{2,15}://[^\s/:@\"'<>{}$]{1,64}:[^\s/@\"'<>{}$*]{6,128}@[a-z0-9.-]{3,}",
        ),
    )
)
# Placeholders that documentation and code use: the word itself, a mark to be filled in, a pattern for URLs,
# or a reserved host name (RFC 2606).
_EXAMPLE = re.compile(
    rb"(?i)://[^:@]*:(?:(?:my|your|the|some|user|db)?[_-]?(?:password|passwd|passwort|passphrase|secret|token)"
    rb"(?:[_-]?here)?|x{6,}|\.{6,}|%\w|%\(\w+\)s|\[[\w -]+\]|__\w+__|#\w+#)@"
    rb"|\(\?|\[\^|\][*+?]|\)[*+?]|\.[*+]|\\[a-z]"
    rb"|[@.](?:example(?:\.(?:com|net|org))?|invalid)\.?$"
)
# A name that says secret, and a value that is not a word.
_ASSIGNED = re.compile(
    rb"(?i)(?:secret|token|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key|credential)[a-z0-9_]{0,20}"
    rb"[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z0-9+/_=.-]{20,200})"
)


# Every pattern contains one of these, so that most of a million files need one search instead of sixteen.
_HINTS = re.compile(
    rb"PRIVATE KEY|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox|sk-|k_live_|AIza|npm_|pypi-|:AA|eyJ|://"
    rb"|(?i:secret|token|passw|key|credential)"
)
_SMALL = 4096


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    path: str
    kind: str


@dataclass(slots=True)
class Scan:
    """Looks for secrets in one file, which is fed piece by piece.

    A scan finds what is careless, not what is hidden on purpose: an encrypted or packed secret passes. In
    doubt it reports: a finding keeps an image from being shared until it is removed.
    """

    path: bytes
    _kinds: set[str] = field(default_factory=set)
    _tail: bytes = b""
    _left: int = SCANNED_BYTES
    _is_text: bool | None = None

    def feed(self, chunk: bytes) -> None:
        if self._left <= 0 or len(self._kinds) >= _PER_FILE:
            return
        if self._is_text is None:
            if chunk.startswith(b"\x7fELF"):
                # Libraries contain keys for their own tests.
                self._left = 0
                return
            self._is_text = b"\0" not in chunk[:8192]
        taken = chunk[: self._left]
        self._left -= len(taken)
        seen = self._tail + taken
        self._kinds |= kinds_in(seen, is_text=self._is_text)
        self._tail = seen[-_OVERLAP:]

    def finish(self) -> None:
        """Ignores empty files, which contain nothing."""
        if self._left < SCANNED_BYTES:
            self._kinds |= {kind for kind, pattern in _PLACES if pattern.fullmatch(self.path)}

    @property
    def findings(self) -> list[Finding]:
        path = "/" + os.fsdecode(self.path).encode("utf-8", "backslashreplace").decode()
        return [Finding(path, kind) for kind in sorted(self._kinds)]


def kinds_in(content: bytes, *, is_text: bool = True) -> set[str]:
    if len(content) < _SMALL and not _HINTS.search(content):
        return set()
    found = {
        kind
        for kind, pattern in _CONTENTS
        if _counts(kind, is_text) and any(not _EXAMPLE.search(hit[0]) for hit in pattern.finditer(content))
    }
    if is_text and any(_is_random(match[1]) for match in _ASSIGNED.finditer(content)):
        found.add("high_entropy")
    return found


def _counts(kind: str, is_text: bool) -> bool:
    """Tells whether a match counts: in a program, much looks like a token by chance."""
    return is_text or kind in ("private_key", "github_token", "sandboxer_key")


def _is_random(value: bytes) -> bool:
    if not (re.search(rb"[0-9]", value) and re.search(rb"[A-Za-z]", value)):
        return False
    # Names in code are dotted, or words with underscores.
    if re.fullmatch(rb"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+", value):
        return False
    # The value is the name of a key and not a key: `key = testEd25519PrivateKey`.
    if re.search(rb"(?i)(?:(?:private|public|secret|api|access)_?key|passw(?:or)?d|secret|token)$", value):
        return False
    counts = Counter(value)
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return entropy >= _LEAST_ENTROPY


T = TypeVar("T")
SHOWN = 100


@dataclass(slots=True)
class Capped(Generic[T]):
    """A report that may be long: the first of it is kept and told, all of it is counted. A hostile tree may
    hold a million things to tell of.
    """

    most: int = SHOWN
    first: list[T] = field(default_factory=list)
    count: int = 0

    def add(self, one: T) -> None:
        self.count += 1
        if len(self.first) < self.most:
            self.first.append(one)


_ANYWHERE = rb"(.*/)?"
_STRIPPED = re.compile(
    rb"|".join(
        (
            # These identify the machine.
            rb"etc/machine-id|var/lib/dbus/machine-id",
            rb"etc/ssh/ssh_host_[^/]+",
            rb"var/lib/systemd/(random-seed|credential\.secret)|var/lib/urandom/random-seed",
            rb"run/.+|var/run/.+",
            # These belong to its egress: the certificate authority of one sandbox, and apt's setting for it.
            rb"usr/local/share/ca-certificates/sandboxer-egress\.crt|etc/apt/apt\.conf\.d/95sandboxer-egress",
            rb"etc/ssl/certs/sandboxer-egress\.pem|etc/sandboxer/egress/.+",
            # These belong to its users.
            _ANYWHERE + rb"\.ssh/[^/]+",
            _ANYWHERE
            + rb"\.(bash|zsh|sh|ash|ksh|fish|python|node_repl|psql|mysql|sqlite|rediscli|irb)_history",
            _ANYWHERE + rb"\.(lesshst|viminfo|wget-hsts|histfile|history)",
            _ANYWHERE + rb"\.local/share/fish/fish_history",
            _ANYWHERE + rb"\.(netrc|pgpass|git-credentials|pypirc|vault-token|cargo/credentials(\.toml)?)",
            _ANYWHERE + rb"\.aws/credentials|" + _ANYWHERE + rb"\.azure/[^/]+\.json",
            _ANYWHERE + rb"\.docker/config\.json|" + _ANYWHERE + rb"\.kube/config",
            _ANYWHERE + rb"\.config/(gh/hosts\.yml|hub|gcloud/.+|containers/auth\.json|sandboxer/.+)",
            _ANYWHERE + rb"\.gnupg/.+",
        )
    )
)


def is_stripped(path: bytes) -> bool:
    """Tells whether a path is removed from every image. The path is relative to the root of the
    layer. Pure.
    """
    return _STRIPPED.fullmatch(path) is not None


def strip(layer: int, bounds: Bounds, removed: Capped[str]) -> None:
    """Removes all of these, and reports them. Blocks."""
    _remove(layer, bounds, lambda entry: is_stripped(entry.path), removed)


def strip_secrets(layer: int, bounds: Bounds, removed: Capped[str]) -> None:
    """Does the same, and removes every file in which something looks like a secret."""
    _remove(layer, bounds, _is_telling, removed)


def _is_telling(entry: Entry) -> bool:
    if entry.kind is not Kind.FILE:
        return False
    scan = Scan(entry.path)
    for chunk in tree.read(entry):
        scan.feed(chunk)
    scan.finish()
    return bool(scan.findings)


def _remove(layer: int, bounds: Bounds, is_wanted: Callable[[Entry], bool], removed: Capped[str]) -> None:
    for entry in tree.walk(layer, bounds):
        if entry.kind in (Kind.FOLDER, Kind.HIDDEN) or not is_wanted(entry):
            continue
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.name, dir_fd=entry.folder_fd)
            removed.add(_shown(entry.path))


def _shown(path: bytes) -> str:
    return "/" + os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
