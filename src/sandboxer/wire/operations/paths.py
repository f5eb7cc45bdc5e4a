"""What the paths of operations name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.accounts import AccountId
from sandboxer.wire.catalogue import LanguageWord
from sandboxer.wire.execute import JobId
from sandboxer.wire.gift_cards import ApprovalToken, CardId, RedemptionId
from sandboxer.wire.invoices import InvoiceId, RefundId
from sandboxer.wire.operations.declaration import Parameters
from sandboxer.wire.payments import PaymentId
from sandboxer.wire.previews import PreviewId
from sandboxer.wire.processes import ProcessId
from sandboxer.wire.secrets import SecretName
from sandboxer.wire.services import DomainName, ServiceRef
from sandboxer.wire.sessions import CellNumber, SessionId
from sandboxer.wire.ssh import SshKeyId
from sandboxer.wire.webhooks import DeliveryId, WebhookId
from sandboxer.wire.words import ImageId, SandboxId, SnapshotId, VolumeRef


class SandboxPath(Parameters):
    sandbox_id: SandboxId


class SessionPath(Parameters):
    session_id: SessionId


class CellPath(Parameters):
    session_id: SessionId
    n: CellNumber


class ProcessPath(Parameters):
    sandbox_id: SandboxId
    process_id: ProcessId


class TerminalPath(Parameters):
    sandbox_id: SandboxId
    terminal_id: ProcessId


class PreviewPath(Parameters):
    sandbox_id: SandboxId
    preview_id: PreviewId


class SecretPath(Parameters):
    name: SecretName


class InjectedSecretPath(Parameters):
    sandbox_id: SandboxId
    name: SecretName


class SshKeyPath(Parameters):
    key_id: SshKeyId


class WalletPath(Parameters):
    address: Annotated[str, Field(min_length=1, max_length=200)]


class PublicKeyPath(Parameters):
    public_key: Annotated[str, Field(pattern="^sbx-pk-[0-9a-hjkmnp-tv-z]{26}$", max_length=33)]


class AccountPath(Parameters):
    account_id: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,62}$", max_length=63)]


class WebhookPath(Parameters):
    webhook_id: WebhookId


class DeliveryPath(Parameters):
    webhook_id: WebhookId
    delivery_id: DeliveryId


class InvoicePath(Parameters):
    invoice_id: InvoiceId


class RefundPath(Parameters):
    refund_id: RefundId


class TokenPath(Parameters):
    token: ApprovalToken


class RedemptionPath(Parameters):
    redemption_id: RedemptionId


class CardPath(Parameters):
    card_id: CardId


class PaymentPath(Parameters):
    payment_id: PaymentId


class JobPath(Parameters):
    job_id: JobId


class ServicePath(Parameters):
    service: ServiceRef


class DomainPath(Parameters):
    service: ServiceRef
    domain: DomainName


class LanguagePath(Parameters):
    name: LanguageWord


class SnapshotPath(Parameters):
    snapshot_id: SnapshotId


class VolumePath(Parameters):
    volume: VolumeRef


class ImagePath(Parameters):
    image_id: ImageId


class GrantPath(Parameters):
    image_id: ImageId
    account: AccountId
