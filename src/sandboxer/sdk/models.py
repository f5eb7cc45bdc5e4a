# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The models of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import found_at

if TYPE_CHECKING:
    from sandboxer.wire.accounts import Account as Account
    from sandboxer.wire.accounts import AccountPage as AccountPage
    from sandboxer.wire.accounts import AccountReport as AccountReport
    from sandboxer.wire.accounts import AuditEntry as AuditEntry
    from sandboxer.wire.accounts import AuditPage as AuditPage
    from sandboxer.wire.accounts import AuditProof as AuditProof
    from sandboxer.wire.accounts import Balance as Balance
    from sandboxer.wire.accounts import LedgerProof as LedgerProof
    from sandboxer.wire.accounts import LedgerTotals as LedgerTotals
    from sandboxer.wire.accounts import Me as Me
    from sandboxer.wire.accounts import Moved as Moved
    from sandboxer.wire.accounts import TransferLine as TransferLine
    from sandboxer.wire.accounts import TransferPage as TransferPage
    from sandboxer.wire.accounts import UsageLine as UsageLine
    from sandboxer.wire.accounts import UsageOfSandbox as UsageOfSandbox
    from sandboxer.wire.accounts import UsageOfSandboxesPage as UsageOfSandboxesPage
    from sandboxer.wire.accounts import UsageReport as UsageReport
    from sandboxer.wire.accounts import UsageSegment as UsageSegment
    from sandboxer.wire.accounts import UsageSegmentPage as UsageSegmentPage
    from sandboxer.wire.auth import GenesisChallenge as GenesisChallenge
    from sandboxer.wire.auth import Session as WalletSession  # noqa: F401
    from sandboxer.wire.auth import SessionChallenge as SessionChallenge
    from sandboxer.wire.auth import SessionsEnded as SessionsEnded
    from sandboxer.wire.auth import SiwxOffer as SiwxOffer
    from sandboxer.wire.auth import Wallet as Wallet
    from sandboxer.wire.auth import WalletList as WalletList
    from sandboxer.wire.catalogue import Image as Image
    from sandboxer.wire.catalogue import ImageList as ImageList
    from sandboxer.wire.catalogue import Language as Language
    from sandboxer.wire.catalogue import LanguageList as LanguageList
    from sandboxer.wire.catalogue import Profile as Profile
    from sandboxer.wire.catalogue import ProfileList as ProfileList
    from sandboxer.wire.catalogue import ShellList as ShellList
    from sandboxer.wire.egress import AccountEgress as AccountEgress
    from sandboxer.wire.egress import Egress as Egress
    from sandboxer.wire.egress import EgressDenial as EgressDenial
    from sandboxer.wire.egress import EgressDenialList as EgressDenialList
    from sandboxer.wire.egress import EgressExplained as EgressExplained
    from sandboxer.wire.egress import HeaderSecretFacts as HeaderSecretFacts
    from sandboxer.wire.egress import LimitFacts as LimitFacts
    from sandboxer.wire.egress import RuleFacts as RuleFacts
    from sandboxer.wire.execute import Artifact as Artifact
    from sandboxer.wire.execute import Compiled as Compiled
    from sandboxer.wire.execute import Execution as Execution
    from sandboxer.wire.execute import Job as Job
    from sandboxer.wire.execute import JobPage as JobPage
    from sandboxer.wire.execute import JobProblem as JobProblem
    from sandboxer.wire.execute import JobSummary as JobSummary
    from sandboxer.wire.execute import LeftOut as LeftOut
    from sandboxer.wire.files import FileInfo as FileInfo
    from sandboxer.wire.files import FilePage as FilePage
    from sandboxer.wire.files import TarUnpacked as TarUnpacked
    from sandboxer.wire.gift_cards import CardBalance as CardBalance
    from sandboxer.wire.gift_cards import GiftCard as GiftCard
    from sandboxer.wire.gift_cards import GiftCardList as GiftCardList
    from sandboxer.wire.gift_cards import GiftPricing as GiftPricing
    from sandboxer.wire.gift_cards import NewGiftCard as NewGiftCard
    from sandboxer.wire.gift_cards import NewRedemption as NewRedemption
    from sandboxer.wire.gift_cards import Redemption as Redemption
    from sandboxer.wire.gift_cards import RefundedCard as RefundedCard
    from sandboxer.wire.gift_cards import ShownCode as ShownCode
    from sandboxer.wire.images import Finding as Finding
    from sandboxer.wire.images import ImageGrants as ImageGrants
    from sandboxer.wire.images import PublishedImage as PublishedImage
    from sandboxer.wire.invoices import Invoice as Invoice
    from sandboxer.wire.invoices import InvoiceList as InvoiceList
    from sandboxer.wire.invoices import InvoiceStep as InvoiceStep
    from sandboxer.wire.invoices import NewInvoice as NewInvoice
    from sandboxer.wire.invoices import Payment as CoinPayment  # noqa: F401
    from sandboxer.wire.invoices import RateLine as RateLine
    from sandboxer.wire.invoices import RateList as RateList
    from sandboxer.wire.invoices import Refund as Refund
    from sandboxer.wire.invoices import RefundList as RefundList
    from sandboxer.wire.keys import ClientRequest as ClientRequest
    from sandboxer.wire.keys import DelegatedKey as DelegatedKey
    from sandboxer.wire.keys import Key as Key
    from sandboxer.wire.keys import KeyList as KeyList
    from sandboxer.wire.keys import KeyNode as KeyNode
    from sandboxer.wire.keys import KeyReport as KeyReport
    from sandboxer.wire.keys import KeyTier as KeyTier
    from sandboxer.wire.keys import NewBearer as NewBearer
    from sandboxer.wire.keys import NewDelegatedKey as NewDelegatedKey
    from sandboxer.wire.keys import NewKey as NewKey
    from sandboxer.wire.payments import Bought as Bought
    from sandboxer.wire.payments import BoughtKey as BoughtKey
    from sandboxer.wire.payments import Good as Good
    from sandboxer.wire.payments import Goods as Goods
    from sandboxer.wire.payments import Payment as Payment
    from sandboxer.wire.payments import PaymentPage as PaymentPage
    from sandboxer.wire.payments import WellKnown as WellKnown
    from sandboxer.wire.platform import BackendCapabilities as BackendCapabilities
    from sandboxer.wire.platform import Capabilities as Capabilities
    from sandboxer.wire.platform import Cluster as Cluster
    from sandboxer.wire.platform import ClusterHost as ClusterHost
    from sandboxer.wire.platform import Collected as Collected
    from sandboxer.wire.platform import Discovery as Discovery
    from sandboxer.wire.platform import Garbage as Garbage
    from sandboxer.wire.platform import GarbageItem as GarbageItem
    from sandboxer.wire.platform import Health as Health
    from sandboxer.wire.platform import Host as Host
    from sandboxer.wire.platform import Lack as Lack
    from sandboxer.wire.platform import Limits as Limits
    from sandboxer.wire.platform import Pools as Pools
    from sandboxer.wire.platform import ProfileLimit as ProfileLimit
    from sandboxer.wire.platform import Provided as Provided
    from sandboxer.wire.platform import Readiness as Readiness
    from sandboxer.wire.platform import Reaped as Reaped
    from sandboxer.wire.platform import RequestLimit as RequestLimit
    from sandboxer.wire.platform import RequestStats as RequestStats
    from sandboxer.wire.platform import SignatureVersion as SignatureVersion
    from sandboxer.wire.platform import Stale as Stale
    from sandboxer.wire.platform import StaleList as StaleList
    from sandboxer.wire.platform import Stats as Stats
    from sandboxer.wire.platform import StoragePool as StoragePool
    from sandboxer.wire.platform import WarmPool as WarmPool
    from sandboxer.wire.previews import ExposedFile as ExposedFile
    from sandboxer.wire.previews import Exposure as Exposure
    from sandboxer.wire.previews import KnownName as KnownName
    from sandboxer.wire.previews import NewPreview as NewPreview
    from sandboxer.wire.previews import Preview as Preview
    from sandboxer.wire.previews import PreviewList as PreviewList
    from sandboxer.wire.pricing import PaymentCoin as PaymentCoin
    from sandboxer.wire.pricing import PaymentNetwork as PaymentNetwork
    from sandboxer.wire.pricing import Pricing as Pricing
    from sandboxer.wire.pricing import ProfilePrice as ProfilePrice
    from sandboxer.wire.pricing import Quote as Quote
    from sandboxer.wire.pricing import Rates as Rates
    from sandboxer.wire.pricing import TierPrice as TierPrice
    from sandboxer.wire.processes import ExecResult as ExecResult
    from sandboxer.wire.processes import Process as Process
    from sandboxer.wire.processes import ProcessList as ProcessList
    from sandboxer.wire.processes import StdinWritten as StdinWritten
    from sandboxer.wire.processes import Terminal as Terminal
    from sandboxer.wire.processes import TerminalList as TerminalList
    from sandboxer.wire.promises import Answered as Answered
    from sandboxer.wire.promises import Workspace as Workspace
    from sandboxer.wire.routes import Attempt as Attempt
    from sandboxer.wire.routes import Considered as Considered
    from sandboxer.wire.routes import Route as Route
    from sandboxer.wire.routes import RouteExplanation as RouteExplanation
    from sandboxer.wire.sandboxes import AttachedVolume as AttachedVolume
    from sandboxer.wire.sandboxes import DestroyedSandbox as DestroyedSandbox
    from sandboxer.wire.sandboxes import Expired as Expired
    from sandboxer.wire.sandboxes import Inception as Inception
    from sandboxer.wire.sandboxes import MadeInside as MadeInside
    from sandboxer.wire.sandboxes import Reachability as Reachability
    from sandboxer.wire.sandboxes import Resources as Resources
    from sandboxer.wire.sandboxes import Sandbox as Sandbox
    from sandboxer.wire.sandboxes import SandboxPage as SandboxPage
    from sandboxer.wire.sandboxes import SandboxTree as SandboxTree
    from sandboxer.wire.sandboxes import TreeEntry as TreeEntry
    from sandboxer.wire.sandboxes import Usage as Usage
    from sandboxer.wire.secrets import InjectedSecret as InjectedSecret
    from sandboxer.wire.secrets import InjectedSecretList as InjectedSecretList
    from sandboxer.wire.secrets import Secret as Secret
    from sandboxer.wire.secrets import SecretList as SecretList
    from sandboxer.wire.secrets import WipedSecrets as WipedSecrets
    from sandboxer.wire.services import Domain as Domain
    from sandboxer.wire.services import DomainList as DomainList
    from sandboxer.wire.services import HealthView as HealthView
    from sandboxer.wire.services import LogLine as LogLine
    from sandboxer.wire.services import LogPage as LogPage
    from sandboxer.wire.services import RestartView as RestartView
    from sandboxer.wire.services import Service as Service
    from sandboxer.wire.services import ServicePage as ServicePage
    from sandboxer.wire.services import Vault as Vault
    from sandboxer.wire.sessions import Cell as Cell
    from sandboxer.wire.sessions import CellEnd as CellEnd
    from sandboxer.wire.sessions import CellError as CellError
    from sandboxer.wire.sessions import CellList as CellList
    from sandboxer.wire.sessions import Interrupted as Interrupted
    from sandboxer.wire.sessions import Session as Session
    from sandboxer.wire.sessions import SessionPage as SessionPage
    from sandboxer.wire.snapshots import Clones as Clones
    from sandboxer.wire.snapshots import FailedClone as FailedClone
    from sandboxer.wire.snapshots import Snapshot as Snapshot
    from sandboxer.wire.snapshots import SnapshotLine as SnapshotLine
    from sandboxer.wire.snapshots import SnapshotPage as SnapshotPage
    from sandboxer.wire.snapshots import SnapshotTree as SnapshotTree
    from sandboxer.wire.ssh import SshGateway as SshGateway
    from sandboxer.wire.ssh import SshKey as SshKey
    from sandboxer.wire.ssh import SshKeyList as SshKeyList
    from sandboxer.wire.volumes import Volume as Volume
    from sandboxer.wire.volumes import VolumeAttachment as VolumeAttachment
    from sandboxer.wire.volumes import VolumePage as VolumePage
    from sandboxer.wire.webhooks import Delivery as Delivery
    from sandboxer.wire.webhooks import DeliveryAttempt as DeliveryAttempt
    from sandboxer.wire.webhooks import DeliveryPage as DeliveryPage
    from sandboxer.wire.webhooks import NewWebhook as NewWebhook
    from sandboxer.wire.webhooks import Webhook as Webhook
    from sandboxer.wire.webhooks import WebhookList as WebhookList
    from sandboxer.wire.words import Problem as Problem

_HOMES = {
    "Account": "sandboxer.wire.accounts:Account",
    "AccountEgress": "sandboxer.wire.egress:AccountEgress",
    "AccountPage": "sandboxer.wire.accounts:AccountPage",
    "AccountReport": "sandboxer.wire.accounts:AccountReport",
    "Answered": "sandboxer.wire.promises:Answered",
    "Artifact": "sandboxer.wire.execute:Artifact",
    "AttachedVolume": "sandboxer.wire.sandboxes:AttachedVolume",
    "Attempt": "sandboxer.wire.routes:Attempt",
    "AuditEntry": "sandboxer.wire.accounts:AuditEntry",
    "AuditPage": "sandboxer.wire.accounts:AuditPage",
    "AuditProof": "sandboxer.wire.accounts:AuditProof",
    "BackendCapabilities": "sandboxer.wire.platform:BackendCapabilities",
    "Balance": "sandboxer.wire.accounts:Balance",
    "Bought": "sandboxer.wire.payments:Bought",
    "BoughtKey": "sandboxer.wire.payments:BoughtKey",
    "Capabilities": "sandboxer.wire.platform:Capabilities",
    "CardBalance": "sandboxer.wire.gift_cards:CardBalance",
    "Cell": "sandboxer.wire.sessions:Cell",
    "CellEnd": "sandboxer.wire.sessions:CellEnd",
    "CellError": "sandboxer.wire.sessions:CellError",
    "CellList": "sandboxer.wire.sessions:CellList",
    "ClientRequest": "sandboxer.wire.keys:ClientRequest",
    "Clones": "sandboxer.wire.snapshots:Clones",
    "Cluster": "sandboxer.wire.platform:Cluster",
    "ClusterHost": "sandboxer.wire.platform:ClusterHost",
    "CoinPayment": "sandboxer.wire.invoices:Payment",
    "Collected": "sandboxer.wire.platform:Collected",
    "Compiled": "sandboxer.wire.execute:Compiled",
    "Considered": "sandboxer.wire.routes:Considered",
    "DelegatedKey": "sandboxer.wire.keys:DelegatedKey",
    "Delivery": "sandboxer.wire.webhooks:Delivery",
    "DeliveryAttempt": "sandboxer.wire.webhooks:DeliveryAttempt",
    "DeliveryPage": "sandboxer.wire.webhooks:DeliveryPage",
    "DestroyedSandbox": "sandboxer.wire.sandboxes:DestroyedSandbox",
    "Discovery": "sandboxer.wire.platform:Discovery",
    "Domain": "sandboxer.wire.services:Domain",
    "DomainList": "sandboxer.wire.services:DomainList",
    "Egress": "sandboxer.wire.egress:Egress",
    "EgressDenial": "sandboxer.wire.egress:EgressDenial",
    "EgressDenialList": "sandboxer.wire.egress:EgressDenialList",
    "EgressExplained": "sandboxer.wire.egress:EgressExplained",
    "ExecResult": "sandboxer.wire.processes:ExecResult",
    "Execution": "sandboxer.wire.execute:Execution",
    "Expired": "sandboxer.wire.sandboxes:Expired",
    "ExposedFile": "sandboxer.wire.previews:ExposedFile",
    "Exposure": "sandboxer.wire.previews:Exposure",
    "FailedClone": "sandboxer.wire.snapshots:FailedClone",
    "FileInfo": "sandboxer.wire.files:FileInfo",
    "FilePage": "sandboxer.wire.files:FilePage",
    "Finding": "sandboxer.wire.images:Finding",
    "Garbage": "sandboxer.wire.platform:Garbage",
    "GarbageItem": "sandboxer.wire.platform:GarbageItem",
    "GenesisChallenge": "sandboxer.wire.auth:GenesisChallenge",
    "GiftCard": "sandboxer.wire.gift_cards:GiftCard",
    "GiftCardList": "sandboxer.wire.gift_cards:GiftCardList",
    "GiftPricing": "sandboxer.wire.gift_cards:GiftPricing",
    "Good": "sandboxer.wire.payments:Good",
    "Goods": "sandboxer.wire.payments:Goods",
    "HeaderSecretFacts": "sandboxer.wire.egress:HeaderSecretFacts",
    "Health": "sandboxer.wire.platform:Health",
    "HealthView": "sandboxer.wire.services:HealthView",
    "Host": "sandboxer.wire.platform:Host",
    "Image": "sandboxer.wire.catalogue:Image",
    "ImageGrants": "sandboxer.wire.images:ImageGrants",
    "ImageList": "sandboxer.wire.catalogue:ImageList",
    "Inception": "sandboxer.wire.sandboxes:Inception",
    "InjectedSecret": "sandboxer.wire.secrets:InjectedSecret",
    "InjectedSecretList": "sandboxer.wire.secrets:InjectedSecretList",
    "Interrupted": "sandboxer.wire.sessions:Interrupted",
    "Invoice": "sandboxer.wire.invoices:Invoice",
    "InvoiceList": "sandboxer.wire.invoices:InvoiceList",
    "InvoiceStep": "sandboxer.wire.invoices:InvoiceStep",
    "Job": "sandboxer.wire.execute:Job",
    "JobPage": "sandboxer.wire.execute:JobPage",
    "JobProblem": "sandboxer.wire.execute:JobProblem",
    "JobSummary": "sandboxer.wire.execute:JobSummary",
    "Key": "sandboxer.wire.keys:Key",
    "KeyList": "sandboxer.wire.keys:KeyList",
    "KeyNode": "sandboxer.wire.keys:KeyNode",
    "KeyReport": "sandboxer.wire.keys:KeyReport",
    "KeyTier": "sandboxer.wire.keys:KeyTier",
    "KnownName": "sandboxer.wire.previews:KnownName",
    "Lack": "sandboxer.wire.platform:Lack",
    "Language": "sandboxer.wire.catalogue:Language",
    "LanguageList": "sandboxer.wire.catalogue:LanguageList",
    "LedgerProof": "sandboxer.wire.accounts:LedgerProof",
    "LedgerTotals": "sandboxer.wire.accounts:LedgerTotals",
    "LeftOut": "sandboxer.wire.execute:LeftOut",
    "LimitFacts": "sandboxer.wire.egress:LimitFacts",
    "Limits": "sandboxer.wire.platform:Limits",
    "LogLine": "sandboxer.wire.services:LogLine",
    "LogPage": "sandboxer.wire.services:LogPage",
    "MadeInside": "sandboxer.wire.sandboxes:MadeInside",
    "Me": "sandboxer.wire.accounts:Me",
    "Moved": "sandboxer.wire.accounts:Moved",
    "NewBearer": "sandboxer.wire.keys:NewBearer",
    "NewDelegatedKey": "sandboxer.wire.keys:NewDelegatedKey",
    "NewGiftCard": "sandboxer.wire.gift_cards:NewGiftCard",
    "NewInvoice": "sandboxer.wire.invoices:NewInvoice",
    "NewKey": "sandboxer.wire.keys:NewKey",
    "NewPreview": "sandboxer.wire.previews:NewPreview",
    "NewRedemption": "sandboxer.wire.gift_cards:NewRedemption",
    "NewWebhook": "sandboxer.wire.webhooks:NewWebhook",
    "Payment": "sandboxer.wire.payments:Payment",
    "PaymentCoin": "sandboxer.wire.pricing:PaymentCoin",
    "PaymentNetwork": "sandboxer.wire.pricing:PaymentNetwork",
    "PaymentPage": "sandboxer.wire.payments:PaymentPage",
    "Pools": "sandboxer.wire.platform:Pools",
    "Preview": "sandboxer.wire.previews:Preview",
    "PreviewList": "sandboxer.wire.previews:PreviewList",
    "Pricing": "sandboxer.wire.pricing:Pricing",
    "Problem": "sandboxer.wire.words:Problem",
    "Process": "sandboxer.wire.processes:Process",
    "ProcessList": "sandboxer.wire.processes:ProcessList",
    "Profile": "sandboxer.wire.catalogue:Profile",
    "ProfileLimit": "sandboxer.wire.platform:ProfileLimit",
    "ProfileList": "sandboxer.wire.catalogue:ProfileList",
    "ProfilePrice": "sandboxer.wire.pricing:ProfilePrice",
    "Provided": "sandboxer.wire.platform:Provided",
    "PublishedImage": "sandboxer.wire.images:PublishedImage",
    "Quote": "sandboxer.wire.pricing:Quote",
    "RateLine": "sandboxer.wire.invoices:RateLine",
    "RateList": "sandboxer.wire.invoices:RateList",
    "Rates": "sandboxer.wire.pricing:Rates",
    "Reachability": "sandboxer.wire.sandboxes:Reachability",
    "Readiness": "sandboxer.wire.platform:Readiness",
    "Reaped": "sandboxer.wire.platform:Reaped",
    "Redemption": "sandboxer.wire.gift_cards:Redemption",
    "Refund": "sandboxer.wire.invoices:Refund",
    "RefundList": "sandboxer.wire.invoices:RefundList",
    "RefundedCard": "sandboxer.wire.gift_cards:RefundedCard",
    "RequestLimit": "sandboxer.wire.platform:RequestLimit",
    "RequestStats": "sandboxer.wire.platform:RequestStats",
    "Resources": "sandboxer.wire.sandboxes:Resources",
    "RestartView": "sandboxer.wire.services:RestartView",
    "Route": "sandboxer.wire.routes:Route",
    "RouteExplanation": "sandboxer.wire.routes:RouteExplanation",
    "RuleFacts": "sandboxer.wire.egress:RuleFacts",
    "Sandbox": "sandboxer.wire.sandboxes:Sandbox",
    "SandboxPage": "sandboxer.wire.sandboxes:SandboxPage",
    "SandboxTree": "sandboxer.wire.sandboxes:SandboxTree",
    "Secret": "sandboxer.wire.secrets:Secret",
    "SecretList": "sandboxer.wire.secrets:SecretList",
    "Service": "sandboxer.wire.services:Service",
    "ServicePage": "sandboxer.wire.services:ServicePage",
    "Session": "sandboxer.wire.sessions:Session",
    "SessionChallenge": "sandboxer.wire.auth:SessionChallenge",
    "SessionPage": "sandboxer.wire.sessions:SessionPage",
    "SessionsEnded": "sandboxer.wire.auth:SessionsEnded",
    "ShellList": "sandboxer.wire.catalogue:ShellList",
    "ShownCode": "sandboxer.wire.gift_cards:ShownCode",
    "SignatureVersion": "sandboxer.wire.platform:SignatureVersion",
    "SiwxOffer": "sandboxer.wire.auth:SiwxOffer",
    "Snapshot": "sandboxer.wire.snapshots:Snapshot",
    "SnapshotLine": "sandboxer.wire.snapshots:SnapshotLine",
    "SnapshotPage": "sandboxer.wire.snapshots:SnapshotPage",
    "SnapshotTree": "sandboxer.wire.snapshots:SnapshotTree",
    "SshGateway": "sandboxer.wire.ssh:SshGateway",
    "SshKey": "sandboxer.wire.ssh:SshKey",
    "SshKeyList": "sandboxer.wire.ssh:SshKeyList",
    "Stale": "sandboxer.wire.platform:Stale",
    "StaleList": "sandboxer.wire.platform:StaleList",
    "Stats": "sandboxer.wire.platform:Stats",
    "StdinWritten": "sandboxer.wire.processes:StdinWritten",
    "StoragePool": "sandboxer.wire.platform:StoragePool",
    "TarUnpacked": "sandboxer.wire.files:TarUnpacked",
    "Terminal": "sandboxer.wire.processes:Terminal",
    "TerminalList": "sandboxer.wire.processes:TerminalList",
    "TierPrice": "sandboxer.wire.pricing:TierPrice",
    "TransferLine": "sandboxer.wire.accounts:TransferLine",
    "TransferPage": "sandboxer.wire.accounts:TransferPage",
    "TreeEntry": "sandboxer.wire.sandboxes:TreeEntry",
    "Usage": "sandboxer.wire.sandboxes:Usage",
    "UsageLine": "sandboxer.wire.accounts:UsageLine",
    "UsageOfSandbox": "sandboxer.wire.accounts:UsageOfSandbox",
    "UsageOfSandboxesPage": "sandboxer.wire.accounts:UsageOfSandboxesPage",
    "UsageReport": "sandboxer.wire.accounts:UsageReport",
    "UsageSegment": "sandboxer.wire.accounts:UsageSegment",
    "UsageSegmentPage": "sandboxer.wire.accounts:UsageSegmentPage",
    "Vault": "sandboxer.wire.services:Vault",
    "Volume": "sandboxer.wire.volumes:Volume",
    "VolumeAttachment": "sandboxer.wire.volumes:VolumeAttachment",
    "VolumePage": "sandboxer.wire.volumes:VolumePage",
    "Wallet": "sandboxer.wire.auth:Wallet",
    "WalletList": "sandboxer.wire.auth:WalletList",
    "WalletSession": "sandboxer.wire.auth:Session",
    "WarmPool": "sandboxer.wire.platform:WarmPool",
    "Webhook": "sandboxer.wire.webhooks:Webhook",
    "WebhookList": "sandboxer.wire.webhooks:WebhookList",
    "WellKnown": "sandboxer.wire.payments:WellKnown",
    "WipedSecrets": "sandboxer.wire.secrets:WipedSecrets",
    "Workspace": "sandboxer.wire.promises:Workspace",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found_at(_HOMES[name])
