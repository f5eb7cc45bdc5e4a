"""Confirming with a second factor on the command line: a wallet's key file, or a signature made elsewhere.

`--wallet FILE` signs here, with an EVM private key in hex (keep it readable for its owner only). Without one
the challenge is printed with the exact command to repeat once it was signed by a wallet anywhere else.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from coincurve import PrivateKey
from Cryptodome.Hash import keccak

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.identity.signatures.evm import checksummed, eip191_digest
from sandboxer.sdk.confirming import Confirmer, Demand, Proof, confirm_with_key, confirm_with_wallet
from sandboxer.sdk.signing import Credentials

_PANEL = "Second proof"
_LINE = "-" * 40
_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")

Wallet = Annotated[
    Path | None,
    typer.Option(
        "--wallet",
        envvar="SANDBOXER_WALLET",
        help="File with the private key (hex) of an EVM wallet of this account, to confirm with.",
        metavar="FILE",
        rich_help_panel=_PANEL,
    ),
]
GivenProof = Annotated[
    str | None,
    typer.Option(
        "--proof",
        help="The answer to a printed challenge, signed elsewhere.",
        metavar="CHALLENGE,ADDRESS,SIGNATURE",
        rich_help_panel=_PANEL,
    ),
]


class WalletFile:
    """An EVM wallet whose key lies in a file."""

    def __init__(self, file: Path) -> None:
        try:
            text = file.read_text().strip()
            mode = file.stat().st_mode
        except OSError as error:
            raise CommandFailed(f"{file} cannot be read: {error.strerror}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CommandFailed(f"{file} is open to others", next_step=f"Run: chmod 600 {file}")
        if _KEY.fullmatch(text) is None:
            raise CommandFailed(
                f"{file} does not hold a private key", next_step="Write 64 hex digits into it."
            )
        self._key = PrivateKey(bytes.fromhex(text.removeprefix("0x")))

    @property
    def address(self) -> str:
        point = self._key.public_key.format(compressed=False)[1:]
        return checksummed("0x" + keccak.new(digest_bits=256, data=point).digest()[12:].hex())

    def sign(self, message: str) -> str:
        raw = self._key.sign_recoverable(eip191_digest(message), hasher=None)
        return "0x" + (raw[:64] + bytes([raw[64] + 27])).hex()


def with_wallet(wallet: Path | None, proof: str | None = None) -> Callable[[Credentials], Confirmer]:
    """For `client(confirm=…)`."""
    return lambda credentials: _confirmer(credentials, wallet, proof)


def _confirmer(credentials: Credentials, wallet: Path | None, proof: str | None) -> Confirmer:
    """Answers with what was given; otherwise says what to sign and how to go on."""
    by_key = confirm_with_key(credentials)

    def confirm(demand: Demand) -> Proof | None:
        if proof is not None:
            return _given(proof)
        if demand.factor == "api_key":
            return by_key(demand)
        if wallet is not None:
            file = WalletFile(wallet)
            return confirm_with_wallet(file.address, file.sign)(demand)
        raise CommandFailed(
            f"this must be confirmed by a wallet of the account, by its signature of the text between the"
            f" lines.\n{_LINE}\n{demand.message}\n{_LINE}\nNothing was done yet.",
            next_step="Repeat the command with --wallet FILE (or SANDBOXER_WALLET); or sign this text"
            f" elsewhere within 300 s and repeat it with --proof {demand.challenge},ADDRESS,SIGNATURE.",
        )

    return confirm


def _given(text: str) -> Proof:
    parts = text.split(",")
    if len(parts) != 3 or not all(parts):
        raise CommandFailed(
            "--proof is not CHALLENGE,ADDRESS,SIGNATURE", next_step="Separate the three by commas."
        )
    return Proof(challenge=parts[0], by=parts[1], signature=parts[2])
