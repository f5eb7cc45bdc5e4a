"""Settings of money: prices, holds and grace, and the ways in which it arrives (x402, chains, invoices, gift
cards, mail).
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SecretStr

from sandboxer.accounts.storage import StoragePolicy
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.metering import HoldPolicy
from sandboxer.money.policy import GracePolicy
from sandboxer.money.pricing import Pricing, pricing_from_json
from sandboxer.payments.chains.configuration import (
    ChainPlan,
    HotWalletPlan,
    chains_from_json,
    read_hot_wallet,
)
from sandboxer.payments.gift_cards.records import MailServer


class MoneySettings(BaseModel, defer_build=True):
    charging: Annotated[
        Literal["auto"] | bool,
        Field(
            description="true: sandboxes of all but the owner pay while they live. false: nobody pays, and"
            " whoever signs in may create. auto: as true once prices or a way to be paid (pricing,"
            " free_profiles, x402, chains, gift_cards) are set; until then nobody pays, and only accounts"
            " that the operator opened may create anything."
        ),
    ] = "auto"
    pricing: Annotated[
        dict[str, dict[str, Any]],
        Field(
            description='Prices that differ from the defaults, as JSON: {"rates": {"running_msats": 10},'
            ' "profiles": {"profile.agent-dev": {"vcpu_msats": 20}}, "tiers": {"cents_per_month": 700,'
            ' "discounts": {"1": 0, "3": 70, "6": 100, "12": 150, "24": 200}},'
            ' "quotes": {"lifetime": "10m"}}. Discounts are thousandths by months.'
        ),
    ] = Field(default_factory=dict)
    free_profiles: Annotated[
        tuple[str, ...], Field(description="Profiles that cost nothing; comma-separated.")
    ] = ()
    hold_slice: Annotated[str, Field(description="How much of its rate a create sets aside.")] = "10m"
    storage_deposit: Annotated[
        str,
        Field(
            description="For how long an account must be able to pay for all that it keeps (volumes,"
            " snapshots, images) before it may keep more; so much it cannot give away."
        ),
    ] = "1d"
    unpaid_storage_mb: Annotated[
        int, Field(ge=0, description="What an account may keep in all without such a deposit.")
    ] = 0
    unpaid_kept: Annotated[
        str,
        Field(
            description="How long the disk of a sandbox stays at least that ran out of sats; it stays as long"
            " as what it paid would have kept it, at most `retention`."
        ),
    ] = "10m"
    grace_window: Annotated[
        str, Field(description="How long sandboxes run on when their account is out of sats.")
    ] = "60s"
    grace_cap: Annotated[str, Field(description="The longest grace, however many receipts come.")] = "10m"

    @property
    def prices(self) -> Pricing:
        return pricing_from_json(self.pricing, free_profiles=self.free_profiles)

    @property
    def holds(self) -> HoldPolicy:
        return HoldPolicy(slice=parse_duration(self.hold_slice, field="hold_slice"))

    @property
    def storage_policy(self) -> StoragePolicy:
        return StoragePolicy(
            deposit=parse_duration(self.storage_deposit, field="storage_deposit"),
            unpaid_mb=self.unpaid_storage_mb,
            least=parse_duration(self.unpaid_kept, field="unpaid_kept"),
        )

    @property
    def grace(self) -> GracePolicy:
        return GracePolicy(
            window=parse_duration(self.grace_window, field="grace_window"),
            hard_cap=parse_duration(self.grace_cap, field="grace_cap"),
        )


class PaymentSettings(MoneySettings):
    x402: Annotated[
        dict[str, Any],
        Field(
            description='Payments by x402 that are taken, as JSON: {"networks": [{"network": "eip155:8453",'
            ' "pay_to": "0x…", "rpc_url": "https://…", "facilitator": "in_process",'
            ' "assets": [{"code": "USDC", "id": "0x…", "name": "USD Coin", "version": "2"}]}]};'
            " see docs/guides/x402.md."
        ),
    ] = Field(default_factory=dict)
    x402_signer_key: Annotated[
        SecretStr | None,
        Field(description="Private key that pays for gas where payments are settled in process."),
    ] = None
    fixed_rates: Annotated[
        dict[str, str],
        Field(description='Rates in US dollars instead of asking for them, as JSON: {"BTC": "100000"}.'),
    ] = Field(default_factory=dict)
    chains: Annotated[
        dict[str, dict[str, Any]],
        Field(
            description='Chains that invoices are paid on, as JSON: {"LTC": {"rpc": "http://127.0.0.1:9332",'
            ' "user": "u", "password_file": "/etc/sandboxer/litecoin", "xpub": "zpub…"}};'
            " see docs/guides/chains.md."
        ),
    ] = Field(default_factory=dict)
    rates: Annotated[
        dict[str, Any],
        Field(
            description='Whom to ask for rates, as JSON: {"sources": ["kraken", "coinbase"],'
            ' "quorum": {"*": 2}, "stale_after": "10m", "tolerance": 30} (thousandths from the median).'
        ),
    ] = Field(default_factory=dict)
    invoices: Annotated[
        dict[str, Any],
        Field(
            description='Terms of invoices, as JSON: {"expires_after": "1h", "restocking_percent": 9,'
            ' "dust_sats": 100, "open_per_address": 20, "poll_s": 10}.'
        ),
    ] = Field(default_factory=dict)
    hot_wallet: Annotated[
        dict[str, Any],
        Field(
            description='Wallet that pays refunds by itself, as JSON: {"file": "/etc/sandboxer/hot.wallet",'
            ' "password_file": "/etc/sandboxer/hot.password", "caps": {"LTC": {"payment": "1", "day": "5"}}};'
            " without it they wait for the operator; see docs/guides/chains.md."
        ),
    ] = Field(default_factory=dict)
    gift_cards: Annotated[
        dict[str, Any],
        Field(
            description='Terms of gift cards, as JSON: {"min_cents": 700, "max_cents": 100000,'
            ' "attempts_per_minute": 120, "approve_within": "3d"}; see docs/guides/gift-cards.md.'
        ),
    ] = Field(default_factory=dict)
    smtp_host: Annotated[
        str | None, Field(description="Mail server for approvals; without it none are sent by mail.")
    ] = None
    smtp_port: Annotated[int, Field(ge=1, le=65535, description="Its port.")] = 587
    smtp_from: Annotated[str | None, Field(description="The sender's address; needed with smtp_host.")] = None
    smtp_user: Annotated[str | None, Field(description="Who signs in there; without it nobody does.")] = None
    smtp_password: Annotated[SecretStr | None, Field(description="And the password.")] = None
    smtp_tls: Annotated[
        Literal["none", "starttls", "tls"], Field(description="How the way there is encrypted.")
    ] = "starttls"
    smtp_ca_file: Annotated[
        Path | None, Field(description="Certificate of a private authority, for a mail server of one's own.")
    ] = None

    @property
    def is_charged(self) -> bool:
        """Says whether people pay here. The built-in prices alone are no sign that the operator wants it."""
        if self.charging != "auto":
            return self.charging
        return any((self.pricing, self.free_profiles, self.x402, self.chains, self.gift_cards))

    @property
    def is_by_invitation(self) -> bool:
        """Says whether only accounts that the operator opened may create anything: nobody pays, and nobody
        said that it is free for all.
        """
        return self.charging == "auto" and not self.is_charged

    @property
    def chain_plans(self) -> tuple[ChainPlan, ...]:
        return chains_from_json(self.chains)

    @property
    def hot_wallet_plan(self) -> HotWalletPlan | None:
        return read_hot_wallet(self.hot_wallet, frozenset(self.chains))

    @property
    def mail_server(self) -> MailServer | None:
        if self.smtp_host is None:
            return None
        if self.smtp_from is None:
            raise InvalidRequest(field="smtp_from", why="a mail server needs a sender's address")
        password = self.smtp_password
        return MailServer(
            host=self.smtp_host,
            port=self.smtp_port,
            sender=self.smtp_from,
            tls=self.smtp_tls,
            user=self.smtp_user,
            password=None if password is None else password.get_secret_value(),
            ca_file=None if self.smtp_ca_file is None else str(self.smtp_ca_file),
        )
