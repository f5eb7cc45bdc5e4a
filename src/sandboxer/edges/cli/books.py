"""`ledger show|verify|pay-out` and `audit list|verify|export`: the operator's books, and are they whole?

They are proven through the API, or with `--offline` on the database itself, so that a backup can be proven
and a platform that does not start can be looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import After, Json, Limit, StateDir, Url, client
from sandboxer.edges.cli.output import facts_table, out, print_json
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, group, noun, rows, verb
from sandboxer.kernel.program import late
from sandboxer.kernel.values import counted
from sandboxer.sdk.sync.accounts import Operator
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.accounts import AuditProof, LedgerProof

if TYPE_CHECKING:
    from sandboxer import settings
    from sandboxer.accounts import audit
    from sandboxer.accounts.audit import Checkpoint
    from sandboxer.money import verification
    from sandboxer.store import engine
    from sandboxer.store.engine import Store
else:
    # Only --offline needs them, and the client alone has no database.
    settings, engine = late("sandboxer.settings"), late("sandboxer.store.engine")
    audit, verification = late("sandboxer.accounts.audit"), late("sandboxer.money.verification")

ledger = group("Look at the ledger and prove it (operator).")
auditing = group("Look at the audit log and prove it (operator).")
groups = {"ledger": ledger, "audit": auditing}
# The ledger's own words are stored; people read these.
KINDS = {"bucket": "balances", "budget": "budgets of delegated keys", "external": "paid in from outside"}
T = TypeVar("T")
Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Read the database of the state folder (or SANDBOXER_DATABASE), not the API."
    ),
]


@verb(ledger, "show")
def totals(platform: Sandboxer) -> Answer:
    """Show what all ledger accounts of each kind hold.

    Examples:

        sandboxer ledger show --json
    """
    found = platform.operator.ledger_totals()
    lines = [
        (KINDS.get(kind, kind), f"{sum_} {asset}")
        for asset, kinds in found.totals.items()
        for kind, sum_ in kinds.items()
    ]
    return Answer(found, facts_table(lines))


rows(
    ledger,
    noun("operator"),
    {},
    as_it_is,
    Row(
        "pay-out",
        Operator.pay_out,
        "Write down that earned sats left the platform.",
        'ledger pay-out 100000 --id 2027-01 --reason "to the owner"',
        {
            "sats": Annotated[int, typer.Argument(min=1, help="How many leave the platform.")],
            "id": Annotated[str, typer.Option(help="The same id pays out once.")],
            "reason": Annotated[str, typer.Option(help="Kept in the audit log.")],
        },
    ),
)


@verb(auditing, "list")
def list_entries(
    platform: Sandboxer,
    after: After = None,
    subject: Annotated[str | None, typer.Option(help="Only of this thing.")] = None,
    limit: Limit = 50,
) -> object:
    """List who did what, oldest first, one page.

    Examples:

        sandboxer audit list --subject search-team
    """
    return platform.operator.audit(after=int(after) if after else None, subject=subject, limit=limit)


@ledger.command("verify")
def verify_ledger(
    offline: Offline = False, json: Json = False, url: Url = None, state_dir: StateDir = None
) -> None:
    """Recompute every balance, hold and charge from the transfers, and compare. Exits with 1 if not whole.

    Examples:

        sandboxer ledger verify

        sandboxer ledger verify --offline --state-dir /var/lib/sandboxer --json
    """
    if offline:
        found = _read(state_dir, lambda store: store.read(verification.verify))
        proof = LedgerProof(
            is_whole=found.is_whole,
            accounts=found.accounts,
            transfers=found.transfers,
            segments=found.segments,
            sums=found.sums,
            faults=found.faults,
        )
    else:
        with client(url, state_dir) as platform:
            proof = platform.operator.verify_ledger()
    if json:
        print_json(proof)
    else:
        word = "[green]whole[/]" if proof.is_whole else "[red]not whole[/]"
        parts = {"account": proof.accounts, "transfer": proof.transfers, "meter": proof.segments}
        out.print(f"{word}: {', '.join(counted(count, what) for what, count in parts.items())}")
        out.print(*proof.faults, sep="\n", end="\n" if proof.faults else "")
    _leave(proof.is_whole)


@auditing.command("verify")
def verify_audit(
    anchor: Annotated[
        str | None, typer.Option(help="SEQ:HASH kept elsewhere (the last line of an export).")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Check an exported file by itself.")] = None,
    offline: Offline = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Walk the chain of the audit log. Exits with 1 if a row was changed, removed or put in.

    Examples:

        sandboxer audit verify --anchor 120:9f86d0…

        sandboxer audit verify --file audit.jsonl

        sandboxer audit verify --offline --state-dir /var/lib/sandboxer
    """
    kept = _anchor(anchor)
    if file is not None:
        proof = _of_file(file, kept)
    elif offline:
        found = _read(state_dir, lambda store: store.read(partial(audit.verify, anchor=kept)))
        proof = AuditProof(
            is_whole=found.is_whole,
            rows=found.rows,
            head_seq=found.head.seq,
            head_hash=found.head.hash,
            broken_at=found.broken_at,
            why=found.why,
        )
    else:
        with client(url, state_dir) as platform:
            proof = platform.operator.verify_audit(
                anchor_seq=None if kept is None else kept.seq, anchor_hash=None if kept is None else kept.hash
            )
    if json:
        print_json(proof)
    elif proof.is_whole:
        out.print(f"[green]whole[/]: {counted(proof.rows, 'row')}; anchor {proof.head_seq}:{proof.head_hash}")
    else:
        out.print(f"[red]broken[/] at row {proof.broken_at}: {proof.why}")
    _leave(proof.is_whole)


@auditing.command("export")
def export_audit(
    offline: Offline = False, json: Json = False, url: Url = None, state_dir: StateDir = None
) -> None:
    """Print the whole audit log, one JSON object a line (with or without --json).

    Examples:

        sandboxer audit export > audit.jsonl
    """
    if offline:
        for line in asyncio.run(_export(state_dir)):
            typer.echo(line, nl=False)
        return
    with client(url, state_dir) as platform:
        typer.echo(platform.operator.export_audit().decode(), nl=False)


def _read(state_dir: Path | None, look: Callable[[Store], Awaitable[T]]) -> T:
    async def read() -> T:
        store = _open(state_dir)
        try:
            return await look(store)
        finally:
            await store.close()

    return asyncio.run(read())


async def _export(state_dir: Path | None) -> list[str]:
    store = _open(state_dir)
    try:
        return [line async for line in audit.export(store)]
    finally:
        await store.close()


def _open(state_dir: Path | None) -> Store:
    found = settings.load_settings(state_dir=state_dir)
    file = found.state_dir / "sandboxer.db"
    if found.database is None and not file.exists():
        raise CommandFailed(f"there is no {file}", next_step="Name the state folder with --state-dir.")
    # A proof of a long ledger takes what it takes.
    return engine.open_store(found.database_url, durability=found.durability, patience=None)


def _anchor(text: str | None) -> Checkpoint | None:
    if text is None:
        return None
    seq, _, digest = text.partition(":")
    if not (seq.isdigit() and len(digest) == 64):
        raise CommandFailed("the anchor is not SEQ:HASH", next_step="Take it from `audit verify`.")
    return audit.Checkpoint(seq=int(seq), hash=digest)


def _of_file(file: Path, anchor: Checkpoint | None) -> AuditProof:
    with file.open() as lines:
        head = audit.verify_export(iter(lines))
    if anchor is not None and (anchor.seq > head.seq or (anchor.seq == head.seq and anchor != head)):
        why = "the file does not reach, or does not match, the anchor"
        return AuditProof(
            is_whole=False,
            rows=head.seq,
            head_seq=head.seq,
            head_hash=head.hash,
            broken_at=anchor.seq,
            why=why,
        )
    return AuditProof(is_whole=True, rows=head.seq, head_seq=head.seq, head_hash=head.hash)


def _leave(is_whole: bool) -> None:
    if not is_whole:
        raise typer.Exit(Exit.ERROR)
