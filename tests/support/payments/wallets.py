"""Wallet files, made once for each test process: deriving a key from a password takes a sixth of a second of
the processor, on purpose, and so does every opening of a file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sandboxer.payments.wallet.agent import AgentWallet, create_wallet, open_wallet


def wallet_copy(path: Path, password: str, *, words: str | None = None) -> AgentWallet:
    """A wallet of its own for a test, in a file that is a copy of one made before."""
    path.touch(mode=0o600)
    path.write_text(_made(password, words))
    return open_wallet(path, password)


@cache
def _made(password: str, words: str | None) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "wallet"
        create_wallet(path, password, words=words)
        return path.read_text()
