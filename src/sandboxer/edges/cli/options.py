"""Options that many verbs share, and the client they describe.

`with_wallet` confirms with a second factor: a wallet's key file, or a signature made elsewhere. `--wallet
FILE` signs here, with an EVM private key in hex (keep it readable for its owner only). Without one the
challenge is printed with the exact command to repeat once it was signed by a wallet anywhere else.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.sdk.confirmation import Confirmer, Demand, Proof, confirm_with_key, confirm_with_wallet
from sandboxer.sdk.credentials import NOBODY, Credentials, find_credentials
from sandboxer.sdk.errors import MissingCredentials

if TYPE_CHECKING:
    # Only a wallet's key file needs them, and the client alone does not bring them.
    import coincurve
    from Cryptodome.Hash import keccak

    from sandboxer.identity.signatures import wallets
    from sandboxer.kernel import clock
    from sandboxer.sdk.sync import client as sdk
    from sandboxer.sdk.sync.client import Sandboxer
else:
    clock, sdk = late("sandboxer.kernel.clock"), late("sandboxer.sdk.sync.client")
    coincurve, keccak = late("coincurve"), late("Cryptodome.Hash.keccak")
    wallets = late("sandboxer.identity.signatures.wallets")

PLATFORM = "Which platform"
_PANEL = "Second proof"
_LINE = "-" * 40
_WHOLE_ID = re.compile("sbx_[0-9a-hjkmnp-tv-z]{26}")
_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")
Url = Annotated[
    str | None,
    typer.Option("--url", help="Address of the platform (also SANDBOXER_URL).", rich_help_panel=PLATFORM),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="Take key and address from DIR/owner.json (also SANDBOXER_STATE_DIR).",
        metavar="DIR",
        rich_help_panel=PLATFORM,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
# Of verbs that work on this host, without a platform.
Folder = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder.")]
SandboxId = Annotated[
    str, typer.Argument(help="Name of the sandbox, its id (sbx_…), or a beginning of that.", metavar="ID")
]


def seconds(given: str | float) -> float:
    """Reads a duration, as every option takes it: `90s`, `15m`, `4h`, `2d`; `0` is none."""
    if not isinstance(given, str) or given == "0":
        return float(given)
    try:
        return clock.parse_duration(given, field="duration").total_seconds()
    except InvalidRequest:
        raise typer.BadParameter(f"{given!r} is no duration: write 90s, 15m, 4h or 2d") from None


def duration(*flags: str, words: str) -> Any:
    """An option that takes one."""
    return typer.Option(*flags, help=f"{words} As 90s, 15m, 4h.", metavar="DURATION", parser=seconds)


def mebibytes(given: str | int) -> int:
    """Reads a size: `512m`, `2g`."""
    if not isinstance(given, str):
        return given
    unit = {"m": 1, "g": 1024}.get(given[-1:].lower())
    if unit is None or not given[:-1].isdecimal():
        raise typer.BadParameter(f"{given!r} is no size: write 512m or 2g")
    return int(given[:-1]) * unit


def sized(flag: str, words: str) -> Any:
    """An option that takes one."""
    return typer.Option(flag, help=f"{words} As 512m, 2g.", metavar="SIZE", parser=mebibytes)


def inspecting(is_public: bool | None, despite_findings: bool) -> Literal["refuse", "warn"]:
    """Says what is done where something would be shown: to everyone it is not opened without a word."""
    return "refuse" if is_public and not despite_findings else "warn"


Cpus = Annotated[float | None, typer.Option("--cpus", help="CPU cores.")]
Memory = Annotated[int | None, sized("--memory", "Memory.")]
Disk = Annotated[int | None, sized("--disk", "Disk.")]
Timeout = Annotated[float | None, duration("--timeout", words="Wait no longer than this.")]
InState = Annotated[str | None, typer.Option("--state", help="Only those in this state.")]
After = Annotated[str | None, typer.Option("--after", help="Go on where `next` of the last page said.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="At most so many.")]
VolumeOption = Annotated[
    list[str] | None,
    typer.Option("--volume", help="NAME:/PATH or NAME:/PATH:ro; can be repeated.", metavar="NAME:/PATH"),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="What it may reach: none, packages (pip, npm, apt …), open, or allow:HOST,HOST.",
        metavar="NETWORK",
    ),
]
DespiteFindings = Annotated[
    bool,
    typer.Option(
        "--despite-findings", help="Open it to everyone although secrets in it may be read; they are named."
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="NAME=VALUE for the profile; can be repeated. repo=URL is cloned into /workspace, repo=FOLDER"
        " copied.",
    ),
]
ActorOption = Annotated[str | None, typer.Option("--actor", help="Who this is for: adm, agt or atm.")]
ProjectOption = Annotated[str | None, typer.Option("--project", help="For which project; its events say so.")]
IsolationOption = Annotated[
    str | None, typer.Option("--isolation", help="The least: policy, container, strong or microvm.")
]
HostOption = Annotated[str | None, typer.Option("--host", help="Host that is preferred.")]
WorkspaceOption = Annotated[
    str | None,
    typer.Option("--workspace", metavar="ACCESS", help="Who writes to /workspace: rw, ro, none."),
]
ScopeOption = Annotated[str | None, typer.Option("--scope", help="Shared with whom: session, agent, shared.")]
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


def client(
    url: str | None,
    state_dir: Path | None,
    *,
    timeout_s: float = 60.0,
    confirm: Callable[[Credentials], Confirmer] | None = None,
) -> Sandboxer:
    """Makes a client with the key of the named state folder, else of the environment.

    `confirm` is for verbs that may need a second proof: `with_wallet`.
    """
    owner_file = None if state_dir is None else state_dir / "owner.json"
    found = find_credentials(url=url, owner_file=owner_file)
    return sdk.Sandboxer(
        url=found.url,
        public_key=found.public_key,
        secret_key=found.secret_key,
        api_key=found.bearer_token,
        timeout_s=timeout_s,
        confirm=None if confirm is None else confirm(found),
    )


def whole_id(platform: Sandboxer, word: str) -> str:
    """The id of a sandbox, asked for only where a name or a part of the id was given. For what needs several
    requests, or goes by another way than the API: all of them mean the same sandbox.
    """
    return word if _WHOLE_ID.fullmatch(word) else platform.get(word).id


def anyone(url: str | None, state_dir: Path | None, **more: Any) -> Sandboxer:
    """Makes the same; without a key it signs nothing, and asks what strangers may ask."""
    try:
        return client(url, state_dir, **more)
    except MissingCredentials:
        return sdk.Sandboxer(url=url, public_key=NOBODY, secret_key=NOBODY)


def pairs(words: list[str] | None, option: str) -> dict[str, str]:
    """Reads `a=1`, `b=2` as given by a repeatable option."""
    found: dict[str, str] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise CommandFailed(
                f"{option} {word!r} is not NAME=VALUE", next_step=f"Write {option} NAME=VALUE."
            )
        found[name] = value
    return found


def mounts(words: list[str] | None) -> list[dict[str, str]]:
    """Reads `data:/data`, `models:/models:ro` as given by a repeatable option."""
    found = []
    for word in words or []:
        name, _, rest = word.partition(":")
        path, _, mode = rest.partition(":")
        mode = mode or "rw"
        if not name or not path.startswith("/") or mode not in ("rw", "ro"):
            raise CommandFailed(
                f"--volume {word!r} is not NAME:/PATH or NAME:/PATH:ro",
                next_step="Write --volume data:/data, or data:/data:ro to only read it.",
            )
        found.append({"volume": name, "path": path, "mode": mode})
    return found


class WalletFile:
    """An EVM wallet whose key lies in a file."""

    def __init__(self, file: Path) -> None:
        try:
            text = file.read_text().strip()
            mode = file.stat().st_mode
        except OSError as error:
            raise CommandFailed(
                f"{file} cannot be read: {error.strerror}",
                next_step=f"Name a wallet, or make one: (umask 077; openssl rand -hex 32 > {file})",
            ) from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CommandFailed(f"{file} is open to others", next_step=f"Run: chmod 600 {file}")
        if _KEY.fullmatch(text) is None:
            raise CommandFailed(
                f"{file} does not hold a private key", next_step="Write 64 hex digits into it."
            )
        self._key = coincurve.PrivateKey(bytes.fromhex(text.removeprefix("0x")))

    @property
    def address(self) -> str:
        point = self._key.public_key.format(compressed=False)[1:]
        return wallets.checksummed("0x" + keccak.new(digest_bits=256, data=point).digest()[12:].hex())

    def sign(self, message: str) -> str:
        raw = self._key.sign_recoverable(wallets.eip191_digest(message), hasher=None)
        return "0x" + (raw[:64] + bytes([raw[64] + 27])).hex()


def with_wallet(wallet: Path | None, proof: str | None = None) -> Callable[[Credentials], Confirmer]:
    """Makes what `client(confirm=…)` takes."""
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
