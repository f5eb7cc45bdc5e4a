# Written by scripts/generate-sync from sdk/aio/accounts.py. Do not edit.
"""`client.account` and `client.operator`: one's own money, and the operator's books, blocking.

`client.wallets`: the wallets of one's own account, and their sessions, blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sandboxer.sdk.call import parse
from sandboxer.sdk.calls import accounts, auth, operators, payments
from sandboxer.sdk.confirmation import demand_own_text
from sandboxer.sdk.signed_texts import Form
from sandboxer.sdk.sync.line import Noun, server_events
from sandboxer.wire import accounts as wire
from sandboxer.wire.auth import GenesisChallenge, Session, SessionChallenge, SiwxOffer, Wallet
from sandboxer.wire.pricing import Pricing, Quote
from sandboxer.wire.sandboxes import Event

# All of a ledger, or of a log.
LONG_S = 600.0


class OwnAccount(Noun):
    """This is the account of the key that signs: its balance, transfers, usage and prices."""

    def me(self) -> wire.Me:
        """Returns the account with its balance, and what this key may do."""
        return self._line.send(accounts.show_me())

    def events(self, *, after: int = 0, follow: bool = True) -> Iterator[Event]:
        """Yields what happened to the account since event `after` (low, dry, funded), then what happens."""
        for event in server_events(self._line, accounts.follow_account_events(after=after, follow=follow)):
            yield parse(Event, event.data)

    def transfers(
        self, *, of: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.TransferPage:
        """Returns one page, newest first. Only the operator may name another account (`of`)."""
        return self._line.send(accounts.list_transfers(of=of, cursor=cursor, limit=limit))

    def statement(self, *, of: str | None = None) -> bytes:
        """Returns all transfers as CSV, oldest first."""
        return self._line.send(accounts.list_transfers(of=of, format="csv").as_bytes().within(LONG_S))

    def usage(
        self, *, of: str | None = None, since: str | None = None, until: str | None = None
    ) -> wire.UsageReport:
        """Sums up what was used and charged between two moments."""
        return self._line.send(accounts.show_usage(of=of, since=since, until=until))

    def usage_segments(
        self, *, of: str | None = None, all_accounts: bool = False, after: int = 0, limit: int | None = None
    ) -> wire.UsageSegmentPage:
        """Returns each closed segment of usage once; read on with `after=page.next_after`."""
        return self._line.send(
            accounts.list_usage_segments(of=of, all_accounts=all_accounts, after=after, limit=limit)
        )

    def usage_of_sandboxes(
        self, *, of: str | None = None, all_accounts: bool = False, after: int = 0, limit: int | None = None
    ) -> wire.UsageOfSandboxesPage:
        """Returns what each ended sandbox cost in all, once; read on with `after=page.next_after`."""
        return self._line.send(
            accounts.list_usage_of_sandboxes(of=of, all_accounts=all_accounts, after=after, limit=limit)
        )

    def send(self, to: str, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Gives sats to the account with this public id; the same id gives once."""
        return self._line.send(accounts.send_sats(to=to, sats=sats, id=id, reason=reason))

    def pricing(self) -> Pricing:
        """Returns the rates that hold now."""
        return self._line.send(payments.get_pricing())

    def quote(
        self,
        *,
        profile: str | None = None,
        resources: Mapping[str, float] | None = None,
        duration: str | None = None,
    ) -> Quote:
        """Says what a sandbox would cost; name its `id` as `quote_id` in one create or extend."""
        return self._line.send(payments.ask_quote(profile=profile, resources=resources, duration=duration))


class Operator(Noun):
    """Only the operator may do this: accounts of others, the books, the audit log."""

    def accounts(self, *, after: str | None = None, limit: int | None = None) -> wire.AccountPage:
        """Returns one page of accounts; read on with `after`."""
        return self._line.send(operators.list_accounts(after=after, limit=limit))

    def account(self, account: str) -> wire.AccountReport:
        """Returns one account with its money."""
        return self._line.send(operators.show_account(account))

    def create_account(self, *, id: str | None = None, name: str = "", reason: str) -> wire.Account:
        """Opens an account. Give it a key with `keys.create`."""
        return self._line.send(operators.create_account(id=id, name=name, reason=reason))

    def suspend(self, account: str, *, reason: str) -> wire.Account:
        """Keeps an account and all below it from acting; nothing is destroyed."""
        return self._line.send(operators.suspend_account(account, reason=reason))

    def reinstate(self, account: str, *, reason: str) -> wire.Account:
        """Lets a suspended account act again."""
        return self._line.send(operators.reinstate_account(account, reason=reason))

    def close(self, account: str, *, reason: str) -> wire.Account:
        """Ends an account for good; refused while anything of it runs or lives."""
        return self._line.send(operators.close_account(account, reason=reason))

    def entitle(
        self, account: str, *, tier: int | None = None, until: str | None = None, reason: str
    ) -> wire.Account:
        """Gives a tier until a moment; without a tier, takes it."""
        return self._line.send(operators.entitle_account(account, tier=tier, until=until, reason=reason))

    def cap(self, account: str, caps: Mapping[str, int | None], *, reason: str) -> wire.Account:
        """Replaces all caps: `per_key_sats`, `per_sandbox_sats`, `per_day_sats`; what is left out ends."""
        return self._line.send(operators.cap_account(account, caps=caps, reason=reason))

    def adjust(self, account: str, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Gives (above zero) or takes sats; the same id adjusts once."""
        return self._line.send(operators.adjust_account(account, sats=sats, id=id, reason=reason))

    def pay_out(self, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Books sats that left the platform; the same id books once."""
        return self._line.send(operators.pay_out(sats=sats, id=id, reason=reason))

    def ledger_totals(self) -> wire.LedgerTotals:
        """Says what all ledger accounts of each kind hold."""
        return self._line.send(operators.show_ledger_totals())

    def audit(
        self, *, after: int | None = None, subject: str | None = None, limit: int | None = None
    ) -> wire.AuditPage:
        """Says who did what, oldest first; read on with `after=page.next_after`."""
        return self._line.send(operators.list_audit(after=after, subject=subject, limit=limit))

    def verify_ledger(self) -> wire.LedgerProof:
        """Adds up the whole ledger, and says whether it balances."""
        return self._line.send(operators.verify_ledger())

    def verify_audit(
        self, *, anchor_seq: int | None = None, anchor_hash: str | None = None
    ) -> wire.AuditProof:
        """Checks the chain of the audit log, from an anchor that was kept elsewhere if one is given."""
        return self._line.send(operators.verify_audit(anchor_seq=anchor_seq, anchor_hash=anchor_hash))

    def export_audit(self) -> bytes:
        """Yields one JSON object a line."""
        return self._line.send(operators.export_audit())


class Wallets(Noun):
    """These wallets may sign in to one's own account, and have sessions."""

    def sign_in(self, sign: Callable[[str], str], *, address: str | None = None) -> Session:
        """Opens a session. `sign` gives the wallet's signature of a text; wallets other than EVM say who.
        Raises ForeignText if the platform shows another text than its own.
        """
        asked = self._line.send(auth.challenge_wallet())
        text = demand_own_text(asked.message, Form.SIGN_IN, nonce=asked.nonce, url=self._line.signer.url)
        return self._line.send(auth.open_session(nonce=asked.nonce, signature=sign(text), address=address))

    def offer(self) -> SiwxOffer:
        """Returns what a wallet completes with address and chain, and signs (CAIP-122)."""
        return self._line.send(auth.offer_siwx())

    def sign_in_with_x(self, message: str, signature: str) -> Session:
        """Opens a session for whoever signed a completed offer."""
        return self._line.send(auth.sign_in_with_x(message=message, signature=signature))

    def sign_out(self, token: str) -> None:
        """Ends the session of this token."""
        self._line.send(auth.close_session().bearing(token))

    def challenge_genesis(self) -> GenesisChallenge:
        """Returns what a Bitcoin and a Stacks wallet sign to pass the genesis gate."""
        return self._line.send(auth.challenge_genesis())

    def list(self) -> Sequence[Wallet]:
        """Returns the wallets of this account."""
        return self._line.send(auth.list_wallets()).wallets

    def challenge(self) -> SessionChallenge:
        """Returns the text that a wallet signs to become another factor of this account.
        Raises ForeignText.
        """
        asked = self._line.send(auth.challenge_link())
        demand_own_text(asked.message, Form.LINK, nonce=asked.nonce, url=self._line.signer.url)
        return asked

    def link(self, nonce: str, address: str, signature: str) -> Wallet:
        """Makes a wallet a factor of this account; this must itself be confirmed (`confirm`)."""
        return (self._line.send(auth.link_wallet(nonce=nonce, address=address, signature=signature))).wallets[
            0
        ]

    def revoke(self, address: str) -> None:
        """Ends a wallet: it signs in no more, and its sessions and the keys it cut end."""
        self._line.send(auth.revoke_wallet(address))

    def end_sessions(self, address: str | None = None) -> int:
        """Ends every session of this account, or of one wallet; returns how many were open."""
        return self._line.send(auth.end_sessions(address=address)).ended
