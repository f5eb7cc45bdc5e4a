// Written by scripts/generate-clients from the OpenAPI document. Do not edit.
// Every operation as a function that makes a `Call`; `Sandboxer.send` carries it.

import { type Body, type Call, call } from "../call.js";
import type * as m from "./models.js";

export interface GetEgressInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Show the network rules of a sandbox, and what went through. `GET /v1/sandboxes/{sandbox_id}/egress` */
export const getEgress = (asked: GetEgressInput): Call<m.Egress> =>
  call({ id: "getEgress", method: "GET", path: "/v1/sandboxes/{sandbox_id}/egress" }, asked);

export interface ReplaceEgressInput extends m.ReplaceEgress {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Replace the network rules; connections that the new ones do not allow end. `PUT /v1/sandboxes/{sandbox_id}/egress` */
export const replaceEgress = (asked: ReplaceEgressInput): Call<m.Egress> =>
  call({ id: "replaceEgress", method: "PUT", path: "/v1/sandboxes/{sandbox_id}/egress", sends: "json", repeatable: true }, asked);

export interface ChangeEgressInput extends m.ChangeEgress {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Add and remove network rules; connections that are not allowed any more end. `PATCH /v1/sandboxes/{sandbox_id}/egress` */
export const changeEgress = (asked: ChangeEgressInput): Call<m.Egress> =>
  call({ id: "changeEgress", method: "PATCH", path: "/v1/sandboxes/{sandbox_id}/egress", sends: "json" }, asked);

export interface ExplainEgressInput extends m.ExplainEgress {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Say whether a URL would be allowed, and by which rule; nothing is sent there. `POST /v1/sandboxes/{sandbox_id}/egress/explain` */
export const explainEgress = (asked: ExplainEgressInput): Call<m.EgressExplained> =>
  call({ id: "explainEgress", method: "POST", path: "/v1/sandboxes/{sandbox_id}/egress/explain", sends: "json" }, asked);

export interface ListEgressDenialsInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** List what a sandbox was refused lately; repetitions are one entry. `GET /v1/sandboxes/{sandbox_id}/egress/denials` */
export const listEgressDenials = (asked: ListEgressDenialsInput): Call<m.EgressDenialList> =>
  call({ id: "listEgressDenials", method: "GET", path: "/v1/sandboxes/{sandbox_id}/egress/denials" }, asked);

/** Show the network rules of all sandboxes of the account. `GET /v1/egress` */
export const getAccountEgress = (): Call<m.AccountEgress> =>
  call({ id: "getAccountEgress", method: "GET", path: "/v1/egress" }, {});

export interface ReplaceAccountEgressInput extends m.ReplaceAccountEgress {
}
/** Replace the network rules of all sandboxes of the account. `PUT /v1/egress` */
export const replaceAccountEgress = (asked: ReplaceAccountEgressInput): Call<m.AccountEgress> =>
  call({ id: "replaceAccountEgress", method: "PUT", path: "/v1/egress", sends: "json", repeatable: true }, asked);

export interface ChangeAccountEgressInput extends m.ChangeAccountEgress {
}
/** Add and remove network rules of all sandboxes of the account. `PATCH /v1/egress` */
export const changeAccountEgress = (asked: ChangeAccountEgressInput = {}): Call<m.AccountEgress> =>
  call({ id: "changeAccountEgress", method: "PATCH", path: "/v1/egress", sends: "json" }, asked);

export interface ExplainAccountEgressInput extends m.ExplainEgress {
}
/** Say what the account's rules alone say of a URL; nothing is sent there. `POST /v1/egress/explain` */
export const explainAccountEgress = (asked: ExplainAccountEgressInput): Call<m.EgressExplained> =>
  call({ id: "explainAccountEgress", method: "POST", path: "/v1/egress/explain", sends: "json" }, asked);

export interface CreatePreviewInput extends m.CreatePreview {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Make a link that opens a port inside a sandbox; its token is shown once. `POST /v1/sandboxes/{sandbox_id}/previews` */
export const createPreview = (asked: CreatePreviewInput): Call<m.NewPreview> =>
  call({ id: "createPreview", method: "POST", path: "/v1/sandboxes/{sandbox_id}/previews", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface GetExposureInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Look for secrets and git folders that a program in a sandbox might show to whoever reaches it. `GET /v1/sandboxes/{sandbox_id}/exposure` */
export const getExposure = (asked: GetExposureInput): Call<m.Exposure> =>
  call({ id: "getExposure", method: "GET", path: "/v1/sandboxes/{sandbox_id}/exposure" }, asked);

export interface ListPreviewsInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** List the open previews of a sandbox, newest first. `GET /v1/sandboxes/{sandbox_id}/previews` */
export const listPreviews = (asked: ListPreviewsInput): Call<m.PreviewList> =>
  call({ id: "listPreviews", method: "GET", path: "/v1/sandboxes/{sandbox_id}/previews" }, asked);

export interface RevokePreviewInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Id of a preview. */
  preview_id: string;
}
/** Close a preview: its link and its cookies stop working. `DELETE /v1/sandboxes/{sandbox_id}/previews/{preview_id}` */
export const revokePreview = (asked: RevokePreviewInput): Call<void> =>
  call({ id: "revokePreview", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/previews/{preview_id}", reads: "none" }, asked);

export interface AskForNameInput {
  domain: string;
}
/** Say whether a host name is served here (for the TLS proxy). `GET /v1/edge/ask` */
export const askForName = (asked: AskForNameInput): Call<m.KnownName> =>
  call({ id: "askForName", method: "GET", path: "/v1/edge/ask", query: ["domain"] }, asked);

/** List the names of the account's secrets. `GET /v1/secrets` */
export const listSecrets = (): Call<m.SecretList> =>
  call({ id: "listSecrets", method: "GET", path: "/v1/secrets" }, {});

export interface GetSecretInput {
  /** A variable's and a file's name at once. */
  name: string;
}
/** Show a secret: its size and age, never its value. `GET /v1/secrets/{name}` */
export const getSecret = (asked: GetSecretInput): Call<m.Secret> =>
  call({ id: "getSecret", method: "GET", path: "/v1/secrets/{name}" }, asked);

export interface PutSecretInput extends m.PutSecret {
  /** A variable's and a file's name at once. */
  name: string;
}
/** Keep a secret, encrypted; it replaces one of the same name. `PUT /v1/secrets/{name}` */
export const putSecret = (asked: PutSecretInput): Call<m.Secret> =>
  call({ id: "putSecret", method: "PUT", path: "/v1/secrets/{name}", sends: "json", repeatable: true }, asked);

export interface RemoveSecretInput {
  /** A variable's and a file's name at once. */
  name: string;
}
/** Delete a secret; sandboxes that have it keep it until it is wiped there. `DELETE /v1/secrets/{name}` */
export const removeSecret = (asked: RemoveSecretInput): Call<void> =>
  call({ id: "removeSecret", method: "DELETE", path: "/v1/secrets/{name}", reads: "none" }, asked);

export interface InjectSecretsInput extends m.InjectSecrets {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Give a sandbox secrets, without restarting anything. `PUT /v1/sandboxes/{sandbox_id}/secrets` */
export const injectSecrets = (asked: InjectSecretsInput): Call<m.InjectedSecretList> =>
  call({ id: "injectSecrets", method: "PUT", path: "/v1/sandboxes/{sandbox_id}/secrets", sends: "json", repeatable: true }, asked);

export interface ListInjectedSecretsInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** List the names of a sandbox's injected secrets. `GET /v1/sandboxes/{sandbox_id}/secrets` */
export const listInjectedSecrets = (asked: ListInjectedSecretsInput): Call<m.InjectedSecretList> =>
  call({ id: "listInjectedSecrets", method: "GET", path: "/v1/sandboxes/{sandbox_id}/secrets" }, asked);

export interface WipeSecretsInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Wipe all secrets from a sandbox: their files are removed, new commands do not get them. `DELETE /v1/sandboxes/{sandbox_id}/secrets` */
export const wipeSecrets = (asked: WipeSecretsInput): Call<m.WipedSecrets> =>
  call({ id: "wipeSecrets", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/secrets" }, asked);

export interface WipeSecretInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** A variable's and a file's name at once. */
  name: string;
}
/** Wipe one secret from a sandbox. `DELETE /v1/sandboxes/{sandbox_id}/secrets/{name}` */
export const wipeSecret = (asked: WipeSecretInput): Call<m.WipedSecrets> =>
  call({ id: "wipeSecret", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/secrets/{name}" }, asked);

/** Show the SSH gateway: ssh sbx_…@host -p port. `GET /v1/ssh` */
export const getSshGateway = (): Call<m.SshGateway> =>
  call({ id: "getSshGateway", method: "GET", path: "/v1/ssh" }, {});

export interface AddSshKeyInput extends m.AddSshKey {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Let a public key open one sandbox, or all of the account's. `POST /v1/ssh-keys` */
export const addSshKey = (asked: AddSshKeyInput): Call<m.SshKey> =>
  call({ id: "addSshKey", method: "POST", path: "/v1/ssh-keys", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

/** List SSH keys, newest first. `GET /v1/ssh-keys` */
export const listSshKeys = (): Call<m.SshKeyList> =>
  call({ id: "listSshKeys", method: "GET", path: "/v1/ssh-keys" }, {});

export interface RevokeSshKeyInput {
  /** Id of an SSH key. */
  key_id: string;
}
/** Revoke an SSH key; its connections end within a second. `DELETE /v1/ssh-keys/{key_id}` */
export const revokeSshKey = (asked: RevokeSshKeyInput): Call<void> =>
  call({ id: "revokeSshKey", method: "DELETE", path: "/v1/ssh-keys/{key_id}", reads: "none" }, asked);

export interface FollowAccountEventsInput {
  /** Only events after this id. */
  after?: number;
  /** False: end after what is already known. */
  follow?: boolean;
  /** As `after`, sent by browsers that reconnect. */
  last_event_id?: number | null;
}
/** Follow what happens to this account: its balance is low, used up, filled; what it may do changes. `GET /v1/accounts/me/events` */
export const followAccountEvents = (asked: FollowAccountEventsInput = {}): Call<void> =>
  call({ id: "followAccountEvents", method: "GET", path: "/v1/accounts/me/events", query: ["after", "follow"], headers: {"last_event_id": "last-event-id"}, reads: "events" }, asked);

/** Show this account: balance, tier, scopes, limits. `GET /v1/accounts/me` */
export const showMe = (): Call<m.Me> =>
  call({ id: "showMe", method: "GET", path: "/v1/accounts/me" }, {});

export interface ListTransfersInput {
  /** Another account (owner). */
  of?: string | null;
  cursor?: string | null;
  limit?: number;
  format?: "json" | "csv" | (string & {});
}
/** List transfers, newest first; format=csv exports all of them, oldest first. `GET /v1/transfers` */
export const listTransfers = (asked: ListTransfersInput = {}): Call<m.TransferPage> =>
  call({ id: "listTransfers", method: "GET", path: "/v1/transfers", query: ["of", "cursor", "limit", "format"] }, asked);

export interface SendSatsInput extends m.SendSats {
}
/** Give sats to another account by its public id; the same id gives once. `POST /v1/transfers` */
export const sendSats = (asked: SendSatsInput): Call<m.Moved> =>
  call({ id: "sendSats", method: "POST", path: "/v1/transfers", sends: "json", repeatable: true }, asked);

export interface ShowUsageInput {
  /** Another account (owner). */
  of?: string | null;
  /** Default: 30 days ago. */
  since?: string | null;
  /** Default: now. */
  until?: string | null;
  format?: "json" | "csv" | (string & {});
}
/** Show what was used between two moments, for outside billing. `GET /v1/usage` */
export const showUsage = (asked: ShowUsageInput = {}): Call<m.UsageReport> =>
  call({ id: "showUsage", method: "GET", path: "/v1/usage", query: ["of", "since", "until", "format"] }, asked);

export interface ListUsageSegmentsInput {
  /** Another account (owner). */
  of?: string | null;
  /** Of every account (owner). */
  all_accounts?: boolean;
  /** The last page's next_after. */
  after?: number;
  limit?: number;
  /** Ended at or after. */
  since?: string | null;
  /** Ended before. */
  until?: string | null;
  format?: "json" | "csv" | (string & {});
}
/** List what was used, segment by segment, after a cursor; for outside billing. `GET /v1/usage/segments` */
export const listUsageSegments = (asked: ListUsageSegmentsInput = {}): Call<m.UsageSegmentPage> =>
  call({ id: "listUsageSegments", method: "GET", path: "/v1/usage/segments", query: ["of", "all_accounts", "after", "limit", "since", "until", "format"] }, asked);

export interface ListUsageOfSandboxesInput {
  /** Another account (owner). */
  of?: string | null;
  /** Of every account (owner). */
  all_accounts?: boolean;
  /** The last page's next_after. */
  after?: number;
  limit?: number;
}
/** List what each ended sandbox cost in all, once, after a cursor; as a fin-hub is told. `GET /v1/usage/sandboxes` */
export const listUsageOfSandboxes = (asked: ListUsageOfSandboxesInput = {}): Call<m.UsageOfSandboxesPage> =>
  call({ id: "listUsageOfSandboxes", method: "GET", path: "/v1/usage/sandboxes", query: ["of", "all_accounts", "after", "limit"] }, asked);

export interface CreateAccountInput extends m.CreateAccount {
}
/** Open an account (owner). `POST /v1/accounts` */
export const createAccount = (asked: CreateAccountInput): Call<m.Account> =>
  call({ id: "createAccount", method: "POST", path: "/v1/accounts", sends: "json" }, asked);

export interface ListAccountsInput {
  /** The last id of the page before. */
  after?: string | null;
  limit?: number;
}
/** List all accounts, oldest first (owner). `GET /v1/accounts` */
export const listAccounts = (asked: ListAccountsInput = {}): Call<m.AccountPage> =>
  call({ id: "listAccounts", method: "GET", path: "/v1/accounts", query: ["after", "limit"] }, asked);

export interface ShowAccountInput {
  account_id: string;
}
/** Show an account and its balance (owner). `GET /v1/accounts/{account_id}` */
export const showAccount = (asked: ShowAccountInput): Call<m.AccountReport> =>
  call({ id: "showAccount", method: "GET", path: "/v1/accounts/{account_id}" }, asked);

export interface SuspendAccountInput extends m.ChangeAccount {
  account_id: string;
}
/** Suspend an account and all below it; nothing is destroyed (owner). `POST /v1/accounts/{account_id}/suspend` */
export const suspendAccount = (asked: SuspendAccountInput): Call<m.Account> =>
  call({ id: "suspendAccount", method: "POST", path: "/v1/accounts/{account_id}/suspend", sends: "json" }, asked);

export interface ReinstateAccountInput extends m.ChangeAccount {
  account_id: string;
}
/** Let a suspended account act again (owner). `POST /v1/accounts/{account_id}/reinstate` */
export const reinstateAccount = (asked: ReinstateAccountInput): Call<m.Account> =>
  call({ id: "reinstateAccount", method: "POST", path: "/v1/accounts/{account_id}/reinstate", sends: "json" }, asked);

export interface CloseAccountInput extends m.ChangeAccount {
  account_id: string;
}
/** Close an account for good; record and ledger stay. 409 while anything of it is left (owner). `POST /v1/accounts/{account_id}/close` */
export const closeAccount = (asked: CloseAccountInput): Call<m.Account> =>
  call({ id: "closeAccount", method: "POST", path: "/v1/accounts/{account_id}/close", sends: "json" }, asked);

export interface EntitleAccountInput extends m.EntitleAccount {
  account_id: string;
}
/** Give an account a tier until a date, or take it away (owner). `POST /v1/accounts/{account_id}/entitle` */
export const entitleAccount = (asked: EntitleAccountInput): Call<m.Account> =>
  call({ id: "entitleAccount", method: "POST", path: "/v1/accounts/{account_id}/entitle", sends: "json" }, asked);

export interface CapAccountInput extends m.CapAccount {
  account_id: string;
}
/** Set an account's spending caps (owner). `PUT /v1/accounts/{account_id}/caps` */
export const capAccount = (asked: CapAccountInput): Call<m.Account> =>
  call({ id: "capAccount", method: "PUT", path: "/v1/accounts/{account_id}/caps", sends: "json", repeatable: true }, asked);

export interface AdjustAccountInput extends m.AdjustAccount {
  account_id: string;
}
/** Give an account sats, or take some, with a reason; the same id adjusts once (owner). `POST /v1/accounts/{account_id}/adjust` */
export const adjustAccount = (asked: AdjustAccountInput): Call<m.Moved> =>
  call({ id: "adjustAccount", method: "POST", path: "/v1/accounts/{account_id}/adjust", sends: "json", repeatable: true }, asked);

export interface PayOutInput extends m.PayOut {
}
/** Pay income out, at most what was earned; the same id pays once (owner). `POST /v1/payouts` */
export const payOut = (asked: PayOutInput): Call<m.Moved> =>
  call({ id: "payOut", method: "POST", path: "/v1/payouts", sends: "json", repeatable: true }, asked);

/** Show what the ledger's accounts of each kind hold (owner). `GET /v1/ledger/totals` */
export const showLedgerTotals = (): Call<m.LedgerTotals> =>
  call({ id: "showLedgerTotals", method: "GET", path: "/v1/ledger/totals" }, {});

/** Recompute every balance and charge from the transfers, and compare (owner). `GET /v1/ledger/verify` */
export const verifyLedger = (): Call<m.LedgerProof> =>
  call({ id: "verifyLedger", method: "GET", path: "/v1/ledger/verify", patience_s: 600.0 }, {});

export interface ListAuditInput {
  after?: number;
  subject?: string | null;
  limit?: number;
}
/** List who did what, oldest first (owner). `GET /v1/audit` */
export const listAudit = (asked: ListAuditInput = {}): Call<m.AuditPage> =>
  call({ id: "listAudit", method: "GET", path: "/v1/audit", query: ["after", "subject", "limit"] }, asked);

/** Export the whole audit log (owner). `GET /v1/audit/export` */
export const exportAudit = (): Call<Uint8Array> =>
  call({ id: "exportAudit", method: "GET", path: "/v1/audit/export", reads: "bytes", patience_s: 600.0 }, {});

export interface VerifyAuditInput {
  anchor_seq?: number | null;
  anchor_hash?: string | null;
}
/** Check the hash chain of the audit log, from an anchor kept elsewhere if you have one (owner). `GET /v1/audit/verify` */
export const verifyAudit = (asked: VerifyAuditInput = {}): Call<m.AuditProof> =>
  call({ id: "verifyAudit", method: "GET", path: "/v1/audit/verify", query: ["anchor_seq", "anchor_hash"], patience_s: 600.0 }, asked);

export interface CreateWebhookInput extends m.CreateWebhook {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Make a webhook: signed requests tell you what happens; its secret is shown once. `POST /v1/webhooks` */
export const createWebhook = (asked: CreateWebhookInput): Call<m.NewWebhook> =>
  call({ id: "createWebhook", method: "POST", path: "/v1/webhooks", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

/** List this account's webhooks. `GET /v1/webhooks` */
export const listWebhooks = (): Call<m.WebhookList> =>
  call({ id: "listWebhooks", method: "GET", path: "/v1/webhooks" }, {});

export interface GetWebhookInput {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
}
/** Show a webhook. `GET /v1/webhooks/{webhook_id}` */
export const getWebhook = (asked: GetWebhookInput): Call<m.Webhook> =>
  call({ id: "getWebhook", method: "GET", path: "/v1/webhooks/{webhook_id}" }, asked);

export interface ChangeWebhookInput extends m.ChangeWebhook {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
}
/** Change where a webhook goes, which events it gets, or switch it off and on. `PATCH /v1/webhooks/{webhook_id}` */
export const changeWebhook = (asked: ChangeWebhookInput): Call<m.Webhook> =>
  call({ id: "changeWebhook", method: "PATCH", path: "/v1/webhooks/{webhook_id}", sends: "json" }, asked);

export interface RemoveWebhookInput {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
}
/** Remove a webhook; what waits is not sent. `DELETE /v1/webhooks/{webhook_id}` */
export const removeWebhook = (asked: RemoveWebhookInput): Call<void> =>
  call({ id: "removeWebhook", method: "DELETE", path: "/v1/webhooks/{webhook_id}", reads: "none" }, asked);

export interface RotateWebhookSecretInput extends m.RotateSecret {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
}
/** Give a webhook a new secret, shown once; the old one signs beside it for a while. `POST /v1/webhooks/{webhook_id}/rotate-secret` */
export const rotateWebhookSecret = (asked: RotateWebhookSecretInput): Call<m.NewWebhook> =>
  call({ id: "rotateWebhookSecret", method: "POST", path: "/v1/webhooks/{webhook_id}/rotate-secret", sends: "json" }, asked);

export interface TestWebhookInput {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
}
/** Send a test message now, and say how it went. `POST /v1/webhooks/{webhook_id}/test` */
export const testWebhook = (asked: TestWebhookInput): Call<m.Delivery> =>
  call({ id: "testWebhook", method: "POST", path: "/v1/webhooks/{webhook_id}/test" }, asked);

export interface ListWebhookDeliveriesInput {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
  cursor?: string | null;
  limit?: number;
  state?: "pending" | "retrying" | "delivered" | "dead" | (string & {}) | null;
}
/** List what was sent and what waits, newest first, each with its tries. `GET /v1/webhooks/{webhook_id}/deliveries` */
export const listWebhookDeliveries = (asked: ListWebhookDeliveriesInput): Call<m.DeliveryPage> =>
  call({ id: "listWebhookDeliveries", method: "GET", path: "/v1/webhooks/{webhook_id}/deliveries", query: ["cursor", "limit", "state"] }, asked);

export interface RedeliverWebhookInput {
  /** Id of a webhook; `once` stands for the messages that brought their own URL. */
  webhook_id: string;
  /** Id of a delivery. */
  delivery_id: string;
}
/** Send a delivery again now, whatever became of it; with the same webhook-id. `POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver` */
export const redeliverWebhook = (asked: RedeliverWebhookInput): Call<m.Delivery> =>
  call({ id: "redeliverWebhook", method: "POST", path: "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver" }, asked);

export interface TakeSnapshotInput extends m.TakeSnapshot {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Take a snapshot of a sandbox's disk, or of what runs too; whatever runs goes on. `POST /v1/sandboxes/{sandbox_id}/snapshots` */
export const takeSnapshot = (asked: TakeSnapshotInput): Call<m.Snapshot> =>
  call({ id: "takeSnapshot", method: "POST", path: "/v1/sandboxes/{sandbox_id}/snapshots", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 180.0 }, asked);

export interface ListSnapshotsInput {
  /** Only those taken of this one. */
  sandbox_id?: string | null;
  /** Only those taken of this volume. */
  volume_id?: string | null;
  /** Default: all but those that are gone. */
  state?: "taking" | "kept" | "unpaid" | "dropping" | "dropped" | "failed" | "lost" | (string & {}) | null;
  /** `key=value`; all must match. */
  label?: Array<string>;
  cursor?: string | null;
  limit?: number;
}
/** List snapshots, newest first. `GET /v1/snapshots` */
export const listSnapshots = (asked: ListSnapshotsInput = {}): Call<m.SnapshotPage> =>
  call({ id: "listSnapshots", method: "GET", path: "/v1/snapshots", query: ["sandbox_id", "volume_id", "state", "label", "cursor", "limit"] }, asked);

/** Show what came from what: snapshots, and the sandboxes and volumes made from them. `GET /v1/snapshots/tree` */
export const getSnapshotTree = (): Call<m.SnapshotTree> =>
  call({ id: "getSnapshotTree", method: "GET", path: "/v1/snapshots/tree" }, {});

export interface GetSnapshotInput {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
}
/** Show a snapshot. `GET /v1/snapshots/{snapshot_id}` */
export const getSnapshot = (asked: GetSnapshotInput): Call<m.Snapshot> =>
  call({ id: "getSnapshot", method: "GET", path: "/v1/snapshots/{snapshot_id}" }, asked);

export interface ChangeSnapshotInput extends m.ChangeSnapshot {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
}
/** Change a snapshot's name, labels, or how long it is kept. `PATCH /v1/snapshots/{snapshot_id}` */
export const changeSnapshot = (asked: ChangeSnapshotInput): Call<m.Snapshot> =>
  call({ id: "changeSnapshot", method: "PATCH", path: "/v1/snapshots/{snapshot_id}", sends: "json" }, asked);

export interface DropSnapshotInput {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
}
/** Delete a snapshot; deleted already is success, what was made from it stays. `DELETE /v1/snapshots/{snapshot_id}` */
export const dropSnapshot = (asked: DropSnapshotInput): Call<m.Snapshot> =>
  call({ id: "dropSnapshot", method: "DELETE", path: "/v1/snapshots/{snapshot_id}", repeatable: true }, asked);

export interface RestoreSnapshotInput {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
}
/** Put the sandbox back to a snapshot; processes end, and it starts again or goes on as it was kept. `POST /v1/snapshots/{snapshot_id}/restore` */
export const restoreSnapshot = (asked: RestoreSnapshotInput): Call<m.Sandbox> =>
  call({ id: "restoreSnapshot", method: "POST", path: "/v1/snapshots/{snapshot_id}/restore", patience_s: 180.0 }, asked);

export interface CloneSnapshotInput extends m.CloneSnapshot {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Create sandboxes from a snapshot. `POST /v1/snapshots/{snapshot_id}/clone` */
export const cloneSnapshot = (asked: CloneSnapshotInput): Call<m.Clones> =>
  call({ id: "cloneSnapshot", method: "POST", path: "/v1/snapshots/{snapshot_id}/clone", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 180.0 }, asked);

export interface LockSnapshotInput {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
}
/** Lock a snapshot: deleting and unlocking it then need a second proof. `POST /v1/snapshots/{snapshot_id}/lock` */
export const lockSnapshot = (asked: LockSnapshotInput): Call<m.Snapshot> =>
  call({ id: "lockSnapshot", method: "POST", path: "/v1/snapshots/{snapshot_id}/lock" }, asked);

export interface UnlockSnapshotInput {
  /** Id of a snapshot, or its beginning if no other id begins so; or the name of a snapshot of one's own. */
  snapshot_id: string;
}
/** Unlock a snapshot. `POST /v1/snapshots/{snapshot_id}/unlock` */
export const unlockSnapshot = (asked: UnlockSnapshotInput): Call<m.Snapshot> =>
  call({ id: "unlockSnapshot", method: "POST", path: "/v1/snapshots/{snapshot_id}/unlock" }, asked);

export interface CreateVolumeInput extends m.CreateVolume {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Create a volume, empty or as a copy. `POST /v1/volumes` */
export const createVolume = (asked: CreateVolumeInput): Call<m.Volume> =>
  call({ id: "createVolume", method: "POST", path: "/v1/volumes", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 180.0 }, asked);

export interface ListVolumesInput {
  /** Default: all but those that are gone. */
  state?: "making" | "ready" | "unpaid" | "dropping" | "dropped" | "failed" | "lost" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List volumes, newest first. `GET /v1/volumes` */
export const listVolumes = (asked: ListVolumesInput = {}): Call<m.VolumePage> =>
  call({ id: "listVolumes", method: "GET", path: "/v1/volumes", query: ["state", "cursor", "limit"] }, asked);

export interface GetVolumeInput {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
}
/** Show a volume, by id or name. `GET /v1/volumes/{volume}` */
export const getVolume = (asked: GetVolumeInput): Call<m.Volume> =>
  call({ id: "getVolume", method: "GET", path: "/v1/volumes/{volume}" }, asked);

export interface ChangeVolumeInput extends m.ChangeVolume {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
}
/** Change a volume's size, name or labels. `PATCH /v1/volumes/{volume}` */
export const changeVolume = (asked: ChangeVolumeInput): Call<m.Volume> =>
  call({ id: "changeVolume", method: "PATCH", path: "/v1/volumes/{volume}", sends: "json" }, asked);

export interface DropVolumeInput {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
}
/** Delete a volume and all that is on it; deleted already is success. `DELETE /v1/volumes/{volume}` */
export const dropVolume = (asked: DropVolumeInput): Call<m.Volume> =>
  call({ id: "dropVolume", method: "DELETE", path: "/v1/volumes/{volume}", repeatable: true, patience_s: 180.0 }, asked);

export interface TakeVolumeSnapshotInput extends m.TakeVolumeSnapshot {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Take a snapshot of a volume; whoever writes to it goes on. `POST /v1/volumes/{volume}/snapshots` */
export const takeVolumeSnapshot = (asked: TakeVolumeSnapshotInput): Call<m.Snapshot> =>
  call({ id: "takeVolumeSnapshot", method: "POST", path: "/v1/volumes/{volume}/snapshots", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 180.0 }, asked);

export interface RestoreVolumeInput extends m.RestoreVolume {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
}
/** Put a volume back to a snapshot; what is on it now is lost. `POST /v1/volumes/{volume}/restore` */
export const restoreVolume = (asked: RestoreVolumeInput): Call<m.Volume> =>
  call({ id: "restoreVolume", method: "POST", path: "/v1/volumes/{volume}/restore", sends: "json", patience_s: 180.0 }, asked);

export interface LockVolumeInput {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
}
/** Lock a volume: deleting and unlocking it then need a second proof. `POST /v1/volumes/{volume}/lock` */
export const lockVolume = (asked: LockVolumeInput): Call<m.Volume> =>
  call({ id: "lockVolume", method: "POST", path: "/v1/volumes/{volume}/lock" }, asked);

export interface UnlockVolumeInput {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
}
/** Unlock a volume. `POST /v1/volumes/{volume}/unlock` */
export const unlockVolume = (asked: UnlockVolumeInput): Call<m.Volume> =>
  call({ id: "unlockVolume", method: "POST", path: "/v1/volumes/{volume}/unlock" }, asked);

export interface ExportImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
  /** Form of the archive. */
  format?: "oci" | "docker" | (string & {});
}
/** Download an image as one tar: an OCI layout, or what `docker load` and `podman load` read. `GET /v1/images/{image_id}/export` */
export const exportImage = (asked: ExportImageInput): Call<Uint8Array> =>
  call({ id: "exportImage", method: "GET", path: "/v1/images/{image_id}/export", query: ["format"], reads: "bytes", patience_s: 900.0 }, asked);

export interface ImportImageInput {
  /** A name for people; needs not be unique. */
  name: string;
  description?: string;
  /** `private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone. */
  visibility?: "private" | "unlisted" | "public" | (string & {});
  /** Leave out files that look like secrets. */
  clean?: boolean;
  /** What sandboxes of it are made as. */
  profile?: string | null;
  /** What is sent. */
  body: Body;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Publish an OCI layout or a Docker archive (`docker save`, `podman save`), sent as one tar. `POST /v1/images/import` */
export const importImage = (asked: ImportImageInput): Call<m.PublishedImage> =>
  call({ id: "importImage", method: "POST", path: "/v1/images/import", query: ["name", "description", "visibility", "clean", "profile"], headers: {"idempotency_key": "idempotency-key"}, sends: "application/x-tar", patience_s: 5400.0 }, asked);

export interface BuildImageInput {
  /** A name for people; needs not be unique. */
  name: string;
  description?: string;
  /** `private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone. */
  visibility?: "private" | "unlisted" | "public" | (string & {});
  /** Leave out files that look like secrets. */
  clean?: boolean;
  /** What sandboxes of it are made as. */
  profile?: string | null;
  /** The Dockerfile, by its path in what is sent. */
  file?: string;
  /** A stage of it. */
  target?: string | null;
  /** `NAME=VALUE` for its `ARG`s. */
  arg?: Array<string>;
  /** What to start in a sandbox of it; kept as a label. */
  start?: string | null;
  /** What succeeds once that has started; kept as a label. */
  ready?: string | null;
  /** Begin where your last build differs. */
  cache?: boolean;
  /** What is sent. */
  body: Body;
}
/** Build a Dockerfile and publish what comes of it; its context is sent as one tar. `POST /v1/images/build` */
export const buildImage = (asked: BuildImageInput): Call<m.PublishedImage> =>
  call({ id: "buildImage", method: "POST", path: "/v1/images/build", query: ["name", "description", "visibility", "clean", "profile", "file", "target", "arg", "start", "ready", "cache"], sends: "application/x-tar", patience_s: 5400.0 }, asked);

export interface PullImageInput extends m.PullImage {
}
/** Fetch an image from a registry and publish it; one that is there already is not fetched again. `POST /v1/images/pull` */
export const pullImage = (asked: PullImageInput): Call<m.PublishedImage> =>
  call({ id: "pullImage", method: "POST", path: "/v1/images/pull", sends: "json", patience_s: 5400.0 }, asked);

export interface PublishImageInput extends m.PublishImage {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Publish a snapshot, or a sandbox's or a service's disk as it is now. `POST /v1/images` */
export const publishImage = (asked: PublishImageInput): Call<m.PublishedImage> =>
  call({ id: "publishImage", method: "POST", path: "/v1/images", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 900.0 }, asked);

export interface GetImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Show a published image. `GET /v1/images/{image_id}` */
export const getImage = (asked: GetImageInput): Call<m.PublishedImage> =>
  call({ id: "getImage", method: "GET", path: "/v1/images/{image_id}" }, asked);

export interface RemoveImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Delete an image; deleted already is success, what was made from it stays. `DELETE /v1/images/{image_id}` */
export const removeImage = (asked: RemoveImageInput): Call<m.PublishedImage> =>
  call({ id: "removeImage", method: "DELETE", path: "/v1/images/{image_id}", repeatable: true }, asked);

export interface VerifyImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Check an image's files against its digest; one that was altered is refused from then on. `POST /v1/images/{image_id}/verify` */
export const verifyImage = (asked: VerifyImageInput): Call<m.PublishedImage> =>
  call({ id: "verifyImage", method: "POST", path: "/v1/images/{image_id}/verify", repeatable: true, patience_s: 900.0 }, asked);

export interface CloneImageInput extends m.CloneImage {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Copy an image into your own account; the copy outlives the original. `POST /v1/images/{image_id}/clone` */
export const cloneImage = (asked: CloneImageInput): Call<m.PublishedImage> =>
  call({ id: "cloneImage", method: "POST", path: "/v1/images/{image_id}/clone", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 900.0 }, asked);

export interface SpawnImageInput extends m.SpawnImage {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Create sandboxes from an image. `POST /v1/images/{image_id}/spawn` */
export const spawnImage = (asked: SpawnImageInput): Call<m.Clones> =>
  call({ id: "spawnImage", method: "POST", path: "/v1/images/{image_id}/spawn", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 900.0 }, asked);

export interface ChangeImageInput extends m.ChangeImage {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Change an image's name, description or visibility; private while a file in it looks like a secret. `PATCH /v1/images/{image_id}` */
export const changeImage = (asked: ChangeImageInput): Call<m.PublishedImage> =>
  call({ id: "changeImage", method: "PATCH", path: "/v1/images/{image_id}", sends: "json" }, asked);

export interface ListImageGrantsInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** List the accounts that may use an image beside its owner. `GET /v1/images/{image_id}/grants` */
export const listImageGrants = (asked: ListImageGrantsInput): Call<m.ImageGrants> =>
  call({ id: "listImageGrants", method: "GET", path: "/v1/images/{image_id}/grants" }, asked);

export interface GrantImageInput extends m.GrantImage {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Let an account use an image. `POST /v1/images/{image_id}/grants` */
export const grantImage = (asked: GrantImageInput): Call<m.ImageGrants> =>
  call({ id: "grantImage", method: "POST", path: "/v1/images/{image_id}/grants", sends: "json", repeatable: true }, asked);

export interface RevokeImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
  /** Id of an account. */
  account: string;
}
/** Let an account use an image no more; what was made from it stays. `DELETE /v1/images/{image_id}/grants/{account}` */
export const revokeImage = (asked: RevokeImageInput): Call<m.ImageGrants> =>
  call({ id: "revokeImage", method: "DELETE", path: "/v1/images/{image_id}/grants/{account}", repeatable: true }, asked);

export interface TransferImageInput extends m.OfferImage {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Offer an image to another account, which accepts it and pays for it from then on. `POST /v1/images/{image_id}/transfer` */
export const transferImage = (asked: TransferImageInput): Call<m.PublishedImage> =>
  call({ id: "transferImage", method: "POST", path: "/v1/images/{image_id}/transfer", sends: "json", repeatable: true }, asked);

export interface AcceptImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Accept an image that was offered to you. `POST /v1/images/{image_id}/accept` */
export const acceptImage = (asked: AcceptImageInput): Call<m.PublishedImage> =>
  call({ id: "acceptImage", method: "POST", path: "/v1/images/{image_id}/accept", repeatable: true, patience_s: 900.0 }, asked);

export interface LockImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Lock an image: deleting and unlocking it then need a second proof. `POST /v1/images/{image_id}/lock` */
export const lockImage = (asked: LockImageInput): Call<m.PublishedImage> =>
  call({ id: "lockImage", method: "POST", path: "/v1/images/{image_id}/lock", repeatable: true, patience_s: 900.0 }, asked);

export interface UnlockImageInput {
  /** Id of a published image, or its beginning if no other id begins so; or the name of a published image of one's own. */
  image_id: string;
}
/** Unlock an image. `POST /v1/images/{image_id}/unlock` */
export const unlockImage = (asked: UnlockImageInput): Call<m.PublishedImage> =>
  call({ id: "unlockImage", method: "POST", path: "/v1/images/{image_id}/unlock", repeatable: true, patience_s: 900.0 }, asked);

/** Ask for a text that a wallet signs to sign in. `POST /v1/auth/challenge` */
export const challengeWallet = (): Call<m.SessionChallenge> =>
  call({ id: "challengeWallet", method: "POST", path: "/v1/auth/challenge" }, {});

export interface OpenSessionInput extends m.OpenSession {
}
/** Open a session for a wallet that signed the challenge. `POST /v1/auth/session` */
export const openSession = (asked: OpenSessionInput): Call<m.WalletSession> =>
  call({ id: "openSession", method: "POST", path: "/v1/auth/session", sends: "json" }, asked);

/** End the session whose token this request carries. `DELETE /v1/auth/session` */
export const closeSession = (): Call<void> =>
  call({ id: "closeSession", method: "DELETE", path: "/v1/auth/session", reads: "none" }, {});

export interface EndSessionsInput {
  /** Only those of this wallet (CAIP-10). */
  address?: string | null;
}
/** End every session of this account, or of one of its wallets. `DELETE /v1/auth/sessions` */
export const endSessions = (asked: EndSessionsInput = {}): Call<m.SessionsEnded> =>
  call({ id: "endSessions", method: "DELETE", path: "/v1/auth/sessions", query: ["address"] }, asked);

/** Show what to complete and sign for Sign-in-with-X (CAIP-122). `GET /v1/auth/siwx` */
export const offerSiwx = (): Call<m.SiwxOffer> =>
  call({ id: "offerSiwx", method: "GET", path: "/v1/auth/siwx" }, {});

export interface SignInWithXInput extends m.SignIn {
}
/** Open a session for a wallet that signed a CAIP-122 message. `POST /v1/auth/siwx` */
export const signInWithX = (asked: SignInWithXInput): Call<m.WalletSession> =>
  call({ id: "signInWithX", method: "POST", path: "/v1/auth/siwx", sends: "json" }, asked);

/** Ask for the text that two wallets sign to pass the genesis gate. `POST /v1/auth/genesis` */
export const challengeGenesis = (): Call<m.GenesisChallenge> =>
  call({ id: "challengeGenesis", method: "POST", path: "/v1/auth/genesis" }, {});

/** List the wallets of this account. `GET /v1/auth/wallets` */
export const listWallets = (): Call<m.WalletList> =>
  call({ id: "listWallets", method: "GET", path: "/v1/auth/wallets" }, {});

/** Ask for a text that a wallet signs to be linked to this account. `POST /v1/auth/wallets/challenge` */
export const challengeLink = (): Call<m.SessionChallenge> =>
  call({ id: "challengeLink", method: "POST", path: "/v1/auth/wallets/challenge" }, {});

export interface LinkWalletInput extends m.LinkWallet {
}
/** Link a wallet to this account: it signs in, and gives second proofs. `POST /v1/auth/wallets` */
export const linkWallet = (asked: LinkWalletInput): Call<m.WalletList> =>
  call({ id: "linkWallet", method: "POST", path: "/v1/auth/wallets", sends: "json" }, asked);

export interface RevokeWalletInput {
  address: string;
}
/** Unlink a wallet: its sessions end, and every key it delegated. `DELETE /v1/auth/wallets/{address}` */
export const revokeWallet = (asked: RevokeWalletInput): Call<void> =>
  call({ id: "revokeWallet", method: "DELETE", path: "/v1/auth/wallets/{address}", reads: "none" }, asked);

export interface ValidateKeyInput extends m.ValidateKey {
}
/** Say whether a key is valid, with which tier and limits. `POST /v1/keys/validate` */
export const validateKey = (asked: ValidateKeyInput): Call<m.KeyReport> =>
  call({ id: "validateKey", method: "POST", path: "/v1/keys/validate", sends: "json" }, asked);

export interface RevealKeyInput extends m.RevealKey {
  public_key: string;
}
/** Fetch the secret of a key that was paid for: once, within 15 minutes. `POST /v1/keys/{public_key}/reveal` */
export const revealKey = (asked: RevealKeyInput): Call<m.NewKey> =>
  call({ id: "revealKey", method: "POST", path: "/v1/keys/{public_key}/reveal", sends: "json" }, asked);

export interface RegenerateKeyInput {
  public_key: string;
}
/** Give a key a new secret; the old one ends at once. `POST /v1/keys/{public_key}/regenerate` */
export const regenerateKey = (asked: RegenerateKeyInput): Call<m.NewKey> =>
  call({ id: "regenerateKey", method: "POST", path: "/v1/keys/{public_key}/regenerate" }, asked);

export interface IssueBearerInput {
  public_key: string;
}
/** Make a bearer token for a key; an older one ends at once. `POST /v1/keys/{public_key}/bearer` */
export const issueBearer = (asked: IssueBearerInput): Call<m.NewBearer> =>
  call({ id: "issueBearer", method: "POST", path: "/v1/keys/{public_key}/bearer" }, asked);

export interface EndBearerInput {
  public_key: string;
}
/** End the bearer token of a key; the key itself goes on. `DELETE /v1/keys/{public_key}/bearer` */
export const endBearer = (asked: EndBearerInput): Call<void> =>
  call({ id: "endBearer", method: "DELETE", path: "/v1/keys/{public_key}/bearer", reads: "none" }, asked);

export interface SuspendKeyInput extends m.SuspendKey {
  public_key: string;
}
/** Suspend a key (owner). `POST /v1/keys/{public_key}/suspend` */
export const suspendKey = (asked: SuspendKeyInput): Call<void> =>
  call({ id: "suspendKey", method: "POST", path: "/v1/keys/{public_key}/suspend", sends: "json", reads: "none" }, asked);

export interface UnsuspendKeyInput {
  public_key: string;
}
/** Let a suspended key sign again (owner). `POST /v1/keys/{public_key}/unsuspend` */
export const unsuspendKey = (asked: UnsuspendKeyInput): Call<void> =>
  call({ id: "unsuspendKey", method: "POST", path: "/v1/keys/{public_key}/unsuspend", reads: "none" }, asked);

export interface SetKeyExpiryInput extends m.SetExpiry {
  public_key: string;
}
/** Say when a key ends by itself (owner). `PUT /v1/keys/{public_key}/expiry` */
export const setKeyExpiry = (asked: SetKeyExpiryInput): Call<void> =>
  call({ id: "setKeyExpiry", method: "PUT", path: "/v1/keys/{public_key}/expiry", sends: "json", reads: "none", repeatable: true }, asked);

export interface CutKeyInput extends m.DelegateKey {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Delegate a key: a child with a budget, scopes, depth, slots and an end within yours. `POST /v1/keys/delegated` */
export const cutKey = (asked: CutKeyInput): Call<m.NewDelegatedKey> =>
  call({ id: "cutKey", method: "POST", path: "/v1/keys/delegated", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface ShowClientRequestInput {
  /** Shown in the browser. */
  code: string;
}
/** Show which program asks to act for you, by the code in your browser. `GET /v1/keys/requests/{code}` */
export const showClientRequest = (asked: ShowClientRequestInput): Call<m.ClientRequest> =>
  call({ id: "showClientRequest", method: "GET", path: "/v1/keys/requests/{code}" }, asked);

export interface AllowClientInput extends m.AllowClient {
  /** Shown in the browser. */
  code: string;
}
/** Let a program act for this account that asked in a browser: it gets a delegated key of its own. `POST /v1/keys/requests/{code}/allow` */
export const allowClient = (asked: AllowClientInput): Call<m.ClientRequest> =>
  call({ id: "allowClient", method: "POST", path: "/v1/keys/requests/{code}/allow", sends: "json" }, asked);

export interface RefuseClientInput {
  /** Shown in the browser. */
  code: string;
}
/** Refuse a program that asked in a browser to act for this account. `DELETE /v1/keys/requests/{code}` */
export const refuseClient = (asked: RefuseClientInput): Call<void> =>
  call({ id: "refuseClient", method: "DELETE", path: "/v1/keys/requests/{code}", reads: "none" }, asked);

export interface TopUpKeyInput extends m.TopUpKey {
  public_key: string;
}
/** Give a delegated key more sats; the same id gives once. `POST /v1/keys/{public_key}/top-up` */
export const topUpKey = (asked: TopUpKeyInput): Call<m.DelegatedKey> =>
  call({ id: "topUpKey", method: "POST", path: "/v1/keys/{public_key}/top-up", sends: "json", repeatable: true }, asked);

export interface CreateKeyInput extends m.CreateKey {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Create a key; its secret is shown this once. `POST /v1/keys` */
export const createKey = (asked: CreateKeyInput): Call<m.NewKey> =>
  call({ id: "createKey", method: "POST", path: "/v1/keys", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

/** List the keys of this account; for the owner, all. `GET /v1/keys` */
export const listKeys = (): Call<m.KeyList> =>
  call({ id: "listKeys", method: "GET", path: "/v1/keys" }, {});

/** Show every key below this account, and what each has spent. `GET /v1/keys/tree` */
export const showKeyTree = (): Call<m.KeyNode> =>
  call({ id: "showKeyTree", method: "GET", path: "/v1/keys/tree" }, {});

export interface RevokeKeyInput {
  public_key: string;
}
/** Revoke a key and all that was delegated from it; revoked already is success. `DELETE /v1/keys/{public_key}` */
export const revokeKey = (asked: RevokeKeyInput): Call<void> =>
  call({ id: "revokeKey", method: "DELETE", path: "/v1/keys/{public_key}", reads: "none" }, asked);

export interface ExecuteCodeInput extends m.ExecuteCode {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Run code in a sandbox of its own, which is deleted afterwards. `POST /v1/execute` */
export const executeCode = (asked: ExecuteCodeInput): Call<m.Execution> =>
  call({ id: "executeCode", method: "POST", path: "/v1/execute", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface ExecuteLaterInput extends m.ExecuteLater {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Queue code as a job. `POST /v1/execute/async` */
export const executeLater = (asked: ExecuteLaterInput): Call<m.JobSummary> =>
  call({ id: "executeLater", method: "POST", path: "/v1/execute/async", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface ListJobsInput {
  state?: "queued" | "running" | "finished" | "failed" | "cancelled" | "timed_out" | "lost" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List jobs, newest first. `GET /v1/jobs` */
export const listJobs = (asked: ListJobsInput = {}): Call<m.JobPage> =>
  call({ id: "listJobs", method: "GET", path: "/v1/jobs", query: ["state", "cursor", "limit"] }, asked);

export interface GetJobInput {
  /** Id of a job, or its beginning if no other id begins so. */
  job_id: string;
  /** Answer when it has ended, or after so long. */
  wait_s?: number;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}
/** Show a job, and what it has printed so far. `GET /v1/jobs/{job_id}` */
export const getJob = (asked: GetJobInput): Call<m.Job> =>
  call({ id: "getJob", method: "GET", path: "/v1/jobs/{job_id}", query: ["wait_s", "encoding"] }, asked);

export interface CancelJobInput {
  /** Id of a job, or its beginning if no other id begins so. */
  job_id: string;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}
/** Cancel a job: answers with what it had printed; one that has ended stays as it is. `DELETE /v1/jobs/{job_id}` */
export const cancelJob = (asked: CancelJobInput): Call<m.Job> =>
  call({ id: "cancelJob", method: "DELETE", path: "/v1/jobs/{job_id}", query: ["encoding"], repeatable: true }, asked);

export interface RunCellInput extends m.RunCell {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Run a cell in a session; it runs on when you disconnect. `POST /v1/sessions/{session_id}/cells` */
export const runCell = (asked: RunCellInput): Call<m.Cell> =>
  call({ id: "runCell", method: "POST", path: "/v1/sessions/{session_id}/cells", sends: "json" }, asked);

export interface StartSessionInput extends m.StartSession {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Start an interpreter that keeps its state. `POST /v1/sessions` */
export const startSession = (asked: StartSessionInput): Call<m.Session> =>
  call({ id: "startSession", method: "POST", path: "/v1/sessions", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 180.0 }, asked);

export interface ListSessionsInput {
  sandbox_id?: string | null;
  /** As recorded: busy and frozen ones are `ready`. Default: all but ended. */
  state?: "starting" | "ready" | "died" | "ended" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List sessions, newest first. `GET /v1/sessions` */
export const listSessions = (asked: ListSessionsInput = {}): Call<m.SessionPage> =>
  call({ id: "listSessions", method: "GET", path: "/v1/sessions", query: ["sandbox_id", "state", "cursor", "limit"] }, asked);

export interface GetSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Show a session. `GET /v1/sessions/{session_id}` */
export const getSession = (asked: GetSessionInput): Call<m.Session> =>
  call({ id: "getSession", method: "GET", path: "/v1/sessions/{session_id}" }, asked);

export interface EndSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** End a session, and its sandbox if that was made for it; ended already is success. `DELETE /v1/sessions/{session_id}` */
export const endSession = (asked: EndSessionInput): Call<m.Session> =>
  call({ id: "endSession", method: "DELETE", path: "/v1/sessions/{session_id}", repeatable: true }, asked);

export interface ListCellsInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** List a session's cells that are still kept, oldest first. `GET /v1/sessions/{session_id}/cells` */
export const listCells = (asked: ListCellsInput): Call<m.CellList> =>
  call({ id: "listCells", method: "GET", path: "/v1/sessions/{session_id}/cells" }, asked);

export interface GetCellInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
  /** Cells count from 1. */
  n: number;
  /** Wait so long for its end. */
  wait_s?: number;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  /** Streamed: go on after this event. */
  last_event_id?: string | null;
}
/** Show a cell, wait for it, or follow it while it runs. `GET /v1/sessions/{session_id}/cells/{n}` */
export const getCell = (asked: GetCellInput): Call<m.Cell> =>
  call({ id: "getCell", method: "GET", path: "/v1/sessions/{session_id}/cells/{n}", query: ["wait_s", "encoding"], headers: {"last_event_id": "last-event-id"} }, asked);

export interface InterruptSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Stop the running cell as Ctrl-C would; the state stays. `POST /v1/sessions/{session_id}/interrupt` */
export const interruptSession = (asked: InterruptSessionInput): Call<m.Interrupted> =>
  call({ id: "interruptSession", method: "POST", path: "/v1/sessions/{session_id}/interrupt" }, asked);

export interface RestartSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Start a fresh interpreter: variables are lost, files are not. `POST /v1/sessions/{session_id}/restart` */
export const restartSession = (asked: RestartSessionInput): Call<m.Session> =>
  call({ id: "restartSession", method: "POST", path: "/v1/sessions/{session_id}/restart", patience_s: 180.0 }, asked);

export interface FreezeSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Freeze a session: its sandbox is paused in memory. `POST /v1/sessions/{session_id}/freeze` */
export const freezeSession = (asked: FreezeSessionInput): Call<m.Session> =>
  call({ id: "freezeSession", method: "POST", path: "/v1/sessions/{session_id}/freeze", patience_s: 180.0 }, asked);

export interface ThawSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Let a frozen session go on. `POST /v1/sessions/{session_id}/thaw` */
export const thawSession = (asked: ThawSessionInput): Call<m.Session> =>
  call({ id: "thawSession", method: "POST", path: "/v1/sessions/{session_id}/thaw", patience_s: 180.0 }, asked);

export interface BoostSessionInput extends m.Boost {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Give a session more CPUs, and 2 GB of memory with each, at once. `POST /v1/sessions/{session_id}/boost` */
export const boostSession = (asked: BoostSessionInput): Call<m.Session> =>
  call({ id: "boostSession", method: "POST", path: "/v1/sessions/{session_id}/boost", sends: "json" }, asked);

export interface UnboostSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Take back what a boost gave a session; not boosted is success. `POST /v1/sessions/{session_id}/unboost` */
export const unboostSession = (asked: UnboostSessionInput): Call<m.Session> =>
  call({ id: "unboostSession", method: "POST", path: "/v1/sessions/{session_id}/unboost", patience_s: 180.0 }, asked);

export interface LockSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Lock a session: ending its sandbox then needs a second proof. `POST /v1/sessions/{session_id}/lock` */
export const lockSession = (asked: LockSessionInput): Call<m.Session> =>
  call({ id: "lockSession", method: "POST", path: "/v1/sessions/{session_id}/lock", patience_s: 180.0 }, asked);

export interface UnlockSessionInput {
  /** Id of a session, or its beginning if no other id begins so; or the name of a session of one's own. */
  session_id: string;
}
/** Unlock a session. `POST /v1/sessions/{session_id}/unlock` */
export const unlockSession = (asked: UnlockSessionInput): Call<m.Session> =>
  call({ id: "unlockSession", method: "POST", path: "/v1/sessions/{session_id}/unlock", patience_s: 180.0 }, asked);

export interface RunCommandInput extends m.RunCommand {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Server-sent events, as `Accept: text/event-stream` asks for. */
  stream?: boolean;
}
/** Run a command to its end. `POST /v1/sandboxes/{sandbox_id}/exec` */
export const runCommand = (asked: RunCommandInput): Call<m.ExecResult> =>
  call({ id: "runCommand", method: "POST", path: "/v1/sandboxes/{sandbox_id}/exec", query: ["stream"], sends: "json" }, asked);

export interface StartProcessInput extends m.StartProcess {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Start a process in the background. `POST /v1/sandboxes/{sandbox_id}/processes` */
export const startProcess = (asked: StartProcessInput): Call<m.Process> =>
  call({ id: "startProcess", method: "POST", path: "/v1/sandboxes/{sandbox_id}/processes", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface ListProcessesInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** List background processes, oldest first. `GET /v1/sandboxes/{sandbox_id}/processes` */
export const listProcesses = (asked: ListProcessesInput): Call<m.ProcessList> =>
  call({ id: "listProcesses", method: "GET", path: "/v1/sandboxes/{sandbox_id}/processes" }, asked);

export interface GetProcessInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
}
/** Show a process. `GET /v1/sandboxes/{sandbox_id}/processes/{process_id}` */
export const getProcess = (asked: GetProcessInput): Call<m.Process> =>
  call({ id: "getProcess", method: "GET", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}" }, asked);

export interface AttachProcessInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
  /** Id of the last event seen: bytes of stdout, a dot, bytes of stderr. */
  after?: string | null;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  /** False: end after what is there, without `exit`. */
  follow?: boolean;
  /** As `after`. */
  last_event_id?: string | null;
}
/** Follow a process's output: what is kept, then what comes. `GET /v1/sandboxes/{sandbox_id}/processes/{process_id}/output` */
export const attachProcess = (asked: AttachProcessInput): Call<void> =>
  call({ id: "attachProcess", method: "GET", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}/output", query: ["after", "encoding", "follow"], headers: {"last_event_id": "last-event-id"}, reads: "events" }, asked);

export interface WriteStdinInput extends m.WriteStdin {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
}
/** Write to a process's stdin. `POST /v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin` */
export const writeStdin = (asked: WriteStdinInput): Call<m.StdinWritten> =>
  call({ id: "writeStdin", method: "POST", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin", sends: "json", patience_s: 3600.0 }, asked);

export interface CloseStdinInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
}
/** Close a process's stdin. `DELETE /v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin` */
export const closeStdin = (asked: CloseStdinInput): Call<void> =>
  call({ id: "closeStdin", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}/stdin", reads: "none", patience_s: 3600.0 }, asked);

export interface SignalProcessInput extends m.SendSignal {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
}
/** Send a process a signal; ended already is success. `POST /v1/sandboxes/{sandbox_id}/processes/{process_id}/signal` */
export const signalProcess = (asked: SignalProcessInput): Call<void> =>
  call({ id: "signalProcess", method: "POST", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}/signal", sends: "json", reads: "none" }, asked);

export interface WaitProcessInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
  timeout_s?: number;
}
/** Wait for a process to end, or for the time to be over. `GET /v1/sandboxes/{sandbox_id}/processes/{process_id}/wait` */
export const waitProcess = (asked: WaitProcessInput): Call<m.Process> =>
  call({ id: "waitProcess", method: "GET", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}/wait", query: ["timeout_s"] }, asked);

export interface EndProcessInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  process_id: string;
}
/** Kill a process and everything it started, and forget it. `DELETE /v1/sandboxes/{sandbox_id}/processes/{process_id}` */
export const endProcess = (asked: EndProcessInput): Call<void> =>
  call({ id: "endProcess", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/processes/{process_id}", reads: "none" }, asked);

export interface ListTerminalsInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** List terminals, oldest first. `GET /v1/sandboxes/{sandbox_id}/terminals` */
export const listTerminals = (asked: ListTerminalsInput): Call<m.TerminalList> =>
  call({ id: "listTerminals", method: "GET", path: "/v1/sandboxes/{sandbox_id}/terminals" }, asked);

export interface EndTerminalInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  terminal_id: string;
}
/** End a terminal and what runs in it. `DELETE /v1/sandboxes/{sandbox_id}/terminals/{terminal_id}` */
export const endTerminal = (asked: EndTerminalInput): Call<void> =>
  call({ id: "endTerminal", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/terminals/{terminal_id}", reads: "none" }, asked);

export interface ReadFileInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** One range, as `bytes=0-99`. */
  range?: string | null;
}
/** Read a file, or a part of it. `GET /v1/sandboxes/{sandbox_id}/files/content` */
export const readFile = (asked: ReadFileInput): Call<Uint8Array> =>
  call({ id: "readFile", method: "GET", path: "/v1/sandboxes/{sandbox_id}/files/content", query: ["path"], headers: {"range": "range"}, reads: "bytes" }, asked);

export interface HeadFileInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
}
/** Ask for the size of a file. `HEAD /v1/sandboxes/{sandbox_id}/files/content` */
export const headFile = (asked: HeadFileInput): Call<void> =>
  call({ id: "headFile", method: "HEAD", path: "/v1/sandboxes/{sandbox_id}/files/content", query: ["path"], reads: "none" }, asked);

export interface WriteFileInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** Permission bits, as a decimal number. */
  mode?: number | null;
  /** Make missing folders. */
  parents?: boolean;
  /** What is sent. */
  body: Body;
}
/** Write a file; it is replaced only when the whole body arrived. `PUT /v1/sandboxes/{sandbox_id}/files/content` */
export const writeFile = (asked: WriteFileInput): Call<m.FileInfo> =>
  call({ id: "writeFile", method: "PUT", path: "/v1/sandboxes/{sandbox_id}/files/content", query: ["path", "mode", "parents"], sends: "application/octet-stream", repeatable: true }, asked);

export interface DeleteFileInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** Also a folder with content. */
  recursive?: boolean;
}
/** Remove a file or folder. `DELETE /v1/sandboxes/{sandbox_id}/files/content` */
export const deleteFile = (asked: DeleteFileInput): Call<void> =>
  call({ id: "deleteFile", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}/files/content", query: ["path", "recursive"], reads: "none" }, asked);

export interface ListFilesInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** 1: the folder itself. */
  depth?: number;
  cursor?: string | null;
  limit?: number;
}
/** List a folder, by path. `GET /v1/sandboxes/{sandbox_id}/files` */
export const listFiles = (asked: ListFilesInput): Call<m.FilePage> =>
  call({ id: "listFiles", method: "GET", path: "/v1/sandboxes/{sandbox_id}/files", query: ["path", "depth", "cursor", "limit"] }, asked);

export interface StatFileInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** False: of a link itself. */
  follow?: boolean;
}
/** Show a file, folder or link. `GET /v1/sandboxes/{sandbox_id}/files/stat` */
export const statFile = (asked: StatFileInput): Call<m.FileInfo> =>
  call({ id: "statFile", method: "GET", path: "/v1/sandboxes/{sandbox_id}/files/stat", query: ["path", "follow"] }, asked);

export interface MakeDirectoryInput extends m.MakeDirectory {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Make a folder. `POST /v1/sandboxes/{sandbox_id}/files/mkdir` */
export const makeDirectory = (asked: MakeDirectoryInput): Call<void> =>
  call({ id: "makeDirectory", method: "POST", path: "/v1/sandboxes/{sandbox_id}/files/mkdir", sends: "json", reads: "none" }, asked);

export interface MoveFileInput extends m.MoveFile {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Move or rename a file or folder. `POST /v1/sandboxes/{sandbox_id}/files/move` */
export const moveFile = (asked: MoveFileInput): Call<void> =>
  call({ id: "moveFile", method: "POST", path: "/v1/sandboxes/{sandbox_id}/files/move", sends: "json", reads: "none" }, asked);

export interface RemoveFileInput extends m.RemoveFile {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Remove a file or folder. `POST /v1/sandboxes/{sandbox_id}/files/remove` */
export const removeFile = (asked: RemoveFileInput): Call<void> =>
  call({ id: "removeFile", method: "POST", path: "/v1/sandboxes/{sandbox_id}/files/remove", sends: "json", reads: "none" }, asked);

export interface WatchFilesInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** Also in folders below. */
  recursive?: boolean;
}
/** Follow changes in a folder. `GET /v1/sandboxes/{sandbox_id}/files/watch` */
export const watchFiles = (asked: WatchFilesInput): Call<void> =>
  call({ id: "watchFiles", method: "GET", path: "/v1/sandboxes/{sandbox_id}/files/watch", query: ["path", "recursive"], reads: "events" }, asked);

export interface PackFolderInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
}
/** Download a folder as tar. `GET /v1/sandboxes/{sandbox_id}/files/tar` */
export const packFolder = (asked: PackFolderInput): Call<Uint8Array> =>
  call({ id: "packFolder", method: "GET", path: "/v1/sandboxes/{sandbox_id}/files/tar", query: ["path"], reads: "bytes" }, asked);

export interface UnpackFolderInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Absolute path; any bytes but NUL, percent-encoded. */
  path: string;
  /** What is sent. */
  body: Body;
}
/** Unpack a tar into a folder, once all of it arrived. `PUT /v1/sandboxes/{sandbox_id}/files/tar` */
export const unpackFolder = (asked: UnpackFolderInput): Call<m.TarUnpacked> =>
  call({ id: "unpackFolder", method: "PUT", path: "/v1/sandboxes/{sandbox_id}/files/tar", query: ["path"], sends: "application/x-tar", repeatable: true }, asked);

export interface BuyKeyInput extends m.BuyKey {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Buy a tier for some months; a wallet without a key gets one. `POST /v1/keys/purchase` */
export const buyKey = (asked: BuyKeyInput): Call<m.BoughtKey> =>
  call({ id: "buyKey", method: "POST", path: "/v1/keys/purchase", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 120.0 }, asked);

export interface TopUpInput extends m.TopUp {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Buy credit for an account; anyone may pay for any. `POST /v1/topups` */
export const topUp = (asked: TopUpInput): Call<m.Bought> =>
  call({ id: "topUp", method: "POST", path: "/v1/topups", headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 120.0 }, asked);

export interface ListPaymentsInput {
  cursor?: string | null;
  limit?: number;
}
/** List payments for this account, newest first. `GET /v1/payments` */
export const listPayments = (asked: ListPaymentsInput = {}): Call<m.PaymentPage> =>
  call({ id: "listPayments", method: "GET", path: "/v1/payments", query: ["cursor", "limit"] }, asked);

export interface GetPaymentInput {
  payment_id: string;
}
/** Show what became of a payment. `GET /v1/payments/{payment_id}` */
export const getPayment = (asked: GetPaymentInput): Call<m.Payment> =>
  call({ id: "getPayment", method: "GET", path: "/v1/payments/{payment_id}" }, asked);

/** Show where payments by x402 are taken. `GET /.well-known/x402` */
export const getX402 = (): Call<m.WellKnown> =>
  call({ id: "getX402", method: "GET", path: "/.well-known/x402" }, {});

/** List what is for sale, with offers at the least price. `GET /discovery/resources` */
export const listGoods = (): Call<m.Goods> =>
  call({ id: "listGoods", method: "GET", path: "/discovery/resources" }, {});

/** List what each coin is worth in US dollars, and who says so. `GET /v1/rates` */
export const listRates = (): Call<m.RateList> =>
  call({ id: "listRates", method: "GET", path: "/v1/rates" }, {});

/** Show every price. `GET /v1/pricing` */
export const getPricing = (): Call<m.Pricing> =>
  call({ id: "getPricing", method: "GET", path: "/v1/pricing" }, {});

/** Show every price, at the address where agents look for it. `GET /pricing-for-agents.json` */
export const getPricingForAgents = (): Call<m.Pricing> =>
  call({ id: "getPricingForAgents", method: "GET", path: "/pricing-for-agents.json" }, {});

export interface AskQuoteInput extends m.AskQuote {
}
/** Quote what a sandbox would cost; create and extend may name the quote and pay these rates. `POST /v1/quotes` */
export const askQuote = (asked: AskQuoteInput = {}): Call<m.Quote> =>
  call({ id: "askQuote", method: "POST", path: "/v1/quotes", sends: "json" }, asked);

export interface CreateInvoiceInput extends m.AskInvoice {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Make an invoice: an address and an exact amount, for a tier or for sats. `POST /v1/invoices` */
export const createInvoice = (asked: CreateInvoiceInput): Call<m.NewInvoice> =>
  call({ id: "createInvoice", method: "POST", path: "/v1/invoices", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface GetInvoiceInput {
  /** Id of an invoice; not to be guessed. */
  invoice_id: string;
}
/** Show what has arrived for an invoice; ask every 14 seconds. `GET /v1/invoices/{invoice_id}` */
export const getInvoice = (asked: GetInvoiceInput): Call<m.Invoice> =>
  call({ id: "getInvoice", method: "GET", path: "/v1/invoices/{invoice_id}" }, asked);

export interface DrawInvoiceInput {
  /** Id of an invoice; not to be guessed. */
  invoice_id: string;
}
/** Draw an invoice's payment URI as a QR code. `GET /v1/invoices/{invoice_id}/qr.svg` */
export const drawInvoice = (asked: DrawInvoiceInput): Call<Uint8Array> =>
  call({ id: "drawInvoice", method: "GET", path: "/v1/invoices/{invoice_id}/qr.svg", reads: "bytes" }, asked);

export interface FollowInvoiceInput {
  /** Id of an invoice; not to be guessed. */
  invoice_id: string;
}
/** Follow an invoice until it is settled. `GET /v1/invoices/{invoice_id}/events` */
export const followInvoice = (asked: FollowInvoiceInput): Call<void> =>
  call({ id: "followInvoice", method: "GET", path: "/v1/invoices/{invoice_id}/events", reads: "events" }, asked);

export interface ListInvoicesInput {
  state?: "awaiting" | "double_spent" | "dust" | "partial" | "seen" | "confirming" | "paid" | "over" | "reorged" | "expired" | "underpaid" | "late" | "awaiting_rate" | "credited" | "refund_due" | "refunded" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List every invoice, newest first (owner). `GET /v1/invoices` */
export const listInvoices = (asked: ListInvoicesInput = {}): Call<m.InvoiceList> =>
  call({ id: "listInvoices", method: "GET", path: "/v1/invoices", query: ["state", "cursor", "limit"] }, asked);

export interface LookAtInvoiceInput {
  /** Id of an invoice; not to be guessed. */
  invoice_id: string;
}
/** Look at an invoice's address now, also if it ended long ago (owner). `POST /v1/invoices/{invoice_id}/look` */
export const lookAtInvoice = (asked: LookAtInvoiceInput): Call<m.Invoice> =>
  call({ id: "lookAtInvoice", method: "POST", path: "/v1/invoices/{invoice_id}/look" }, asked);

export interface ListRefundsInput {
  state?: "queued" | "sending" | "sent" | "confirmed" | "withdrawn" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List refunds, oldest first (owner). `GET /v1/refunds` */
export const listRefunds = (asked: ListRefundsInput = {}): Call<m.RefundList> =>
  call({ id: "listRefunds", method: "GET", path: "/v1/refunds", query: ["state", "cursor", "limit"] }, asked);

export interface MarkRefundSentInput extends m.SentRefund {
  /** Id of a refund. */
  refund_id: string;
}
/** Record the transaction in which a refund was sent (owner). `POST /v1/refunds/{refund_id}/sent` */
export const markRefundSent = (asked: MarkRefundSentInput): Call<m.Refund> =>
  call({ id: "markRefundSent", method: "POST", path: "/v1/refunds/{refund_id}/sent", sends: "json" }, asked);

export interface ShowApprovalInput {
  /** From the link that asks. */
  token: string;
}
/** Show what an approval link asks. `GET /v1/gift-cards/approvals/{token}` */
export const showApproval = (asked: ShowApprovalInput): Call<Uint8Array> =>
  call({ id: "showApproval", method: "GET", path: "/v1/gift-cards/approvals/{token}", reads: "bytes" }, asked);

export interface ApproveRedemptionInput {
  /** From the link that asks. */
  token: string;
}
/** Approve a redemption; the link works once. `POST /v1/gift-cards/approvals/{token}/approve` */
export const approveRedemption = (asked: ApproveRedemptionInput): Call<m.Redemption> =>
  call({ id: "approveRedemption", method: "POST", path: "/v1/gift-cards/approvals/{token}/approve" }, asked);

export interface DenyRedemptionInput {
  /** From the link that asks. */
  token: string;
}
/** Deny a redemption; the amount is on the card again. `POST /v1/gift-cards/approvals/{token}/deny` */
export const denyRedemption = (asked: DenyRedemptionInput): Call<m.Redemption> =>
  call({ id: "denyRedemption", method: "POST", path: "/v1/gift-cards/approvals/{token}/deny" }, asked);

/** Show what gift cards there are, how they are paid and guarded. `GET /v1/gift-cards/pricing` */
export const getGiftPricing = (): Call<m.GiftPricing> =>
  call({ id: "getGiftPricing", method: "GET", path: "/v1/gift-cards/pricing" }, {});

export interface BuyGiftCardInput extends m.BuyGiftCard {
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Buy a gift card: by invoice, from one's balance, or given by the operator. `POST /v1/gift-cards` */
export const buyGiftCard = (asked: BuyGiftCardInput): Call<m.NewGiftCard> =>
  call({ id: "buyGiftCard", method: "POST", path: "/v1/gift-cards", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface ListGiftCardsInput {
  state?: "awaiting_payment" | "active" | "spent" | "revoked" | "refunded" | "reversed" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List every gift card, newest first (owner). `GET /v1/gift-cards` */
export const listGiftCards = (asked: ListGiftCardsInput = {}): Call<m.GiftCardList> =>
  call({ id: "listGiftCards", method: "GET", path: "/v1/gift-cards", query: ["state", "cursor", "limit"] }, asked);

export interface RedeemGiftCardInput extends m.Redeem {
}
/** Redeem a gift card's four words for a tier or for sats, whole or in part. `POST /v1/gift-cards/redeem` */
export const redeemGiftCard = (asked: RedeemGiftCardInput): Call<m.NewRedemption> =>
  call({ id: "redeemGiftCard", method: "POST", path: "/v1/gift-cards/redeem", sends: "json", repeatable: true }, asked);

export interface GetGiftBalanceInput extends m.AskBalance {
}
/** Show what is left on a gift card, by its four words. `POST /v1/gift-cards/balance` */
export const getGiftBalance = (asked: GetGiftBalanceInput): Call<m.CardBalance> =>
  call({ id: "getGiftBalance", method: "POST", path: "/v1/gift-cards/balance", sends: "json", repeatable: true }, asked);

export interface GetRedemptionInput {
  /** Id of a redemption; not to be guessed. */
  redemption_id: string;
}
/** Show what became of a redemption; ask every 14 seconds. `GET /v1/gift-cards/redemptions/{redemption_id}` */
export const getRedemption = (asked: GetRedemptionInput): Call<m.Redemption> =>
  call({ id: "getRedemption", method: "GET", path: "/v1/gift-cards/redemptions/{redemption_id}" }, asked);

export interface GetGiftCardInput {
  /** Id of a gift card; not to be guessed, and redeems nothing. */
  card_id: string;
}
/** Show a gift card; ask every 14 seconds until it is paid. `GET /v1/gift-cards/{card_id}` */
export const getGiftCard = (asked: GetGiftCardInput): Call<m.GiftCard> =>
  call({ id: "getGiftCard", method: "GET", path: "/v1/gift-cards/{card_id}" }, asked);

export interface ShowGiftCodeInput extends m.ShowCode {
  /** Id of a gift card; not to be guessed, and redeems nothing. */
  card_id: string;
}
/** Show the four words of a paid gift card, once (buyer). `POST /v1/gift-cards/{card_id}/code` */
export const showGiftCode = (asked: ShowGiftCodeInput): Call<m.ShownCode> =>
  call({ id: "showGiftCode", method: "POST", path: "/v1/gift-cards/{card_id}/code", sends: "json" }, asked);

export interface RevokeGiftCardInput extends m.Revoke {
  /** Id of a gift card; not to be guessed, and redeems nothing. */
  card_id: string;
}
/** Revoke a gift card: nothing can be redeemed any more (buyer, owner). `POST /v1/gift-cards/{card_id}/revoke` */
export const revokeGiftCard = (asked: RevokeGiftCardInput): Call<m.GiftCard> =>
  call({ id: "revokeGiftCard", method: "POST", path: "/v1/gift-cards/{card_id}/revoke", sends: "json", repeatable: true }, asked);

export interface RefundGiftCardInput extends m.RefundCard {
  /** Id of a gift card; not to be guessed, and redeems nothing. */
  card_id: string;
}
/** Refund what is left on a gift card: as sats, or to a coin address less a fee (buyer, owner). `POST /v1/gift-cards/{card_id}/refund` */
export const refundGiftCard = (asked: RefundGiftCardInput): Call<m.RefundedCard> =>
  call({ id: "refundGiftCard", method: "POST", path: "/v1/gift-cards/{card_id}/refund", sends: "json" }, asked);

export interface ListImagesInput {
  /** Which published ones. */
  filter?: "all" | "owned" | "shared" | "public" | (string & {});
  cursor?: string | null;
  limit?: number;
}
/** List images: the host's own, and published ones that you may use. `GET /v1/images` */
export const listImages = (asked: ListImagesInput = {}): Call<m.ImageList> =>
  call({ id: "listImages", method: "GET", path: "/v1/images", query: ["filter", "cursor", "limit"] }, asked);

/** List the profiles of this platform. `GET /v1/profiles` */
export const listProfiles = (): Call<m.ProfileList> =>
  call({ id: "listProfiles", method: "GET", path: "/v1/profiles" }, {});

export interface ExplainRouteInput {
  /** Id of a profile, with or without `profile.`; see GET /v1/profiles. */
  profile_id: string;
  isolation?: "policy" | "container" | "strong" | "microvm" | (string & {}) | null;
  strategy?: "explicit" | "prefer-self-hosted" | "lowest-cost" | "lowest-latency" | (string & {}) | null;
  /** Where it stands. */
  region?: string | null;
  /** GPUs for it alone. */
  gpus?: number;
  /** Their model. */
  gpu?: string | null;
  /** The most that it may cost. */
  max_sats_per_hour?: number | null;
  /** What can be done with it; repeatable. */
  capability?: Array<"stop" | "freeze" | "snapshot" | "resize" | "images" | "volumes" | "memory" | (string & {})>;
}
/** Say of every backend whether it would make your sandbox of a profile, and why. `GET /v1/profiles/{profile_id}/route` */
export const explainRoute = (asked: ExplainRouteInput): Call<m.RouteExplanation> =>
  call({ id: "explainRoute", method: "GET", path: "/v1/profiles/{profile_id}/route", query: ["isolation", "strategy", "region", "gpus", "gpu", "max_sats_per_hour", "capability"] }, asked);

export interface ListLanguagesInput {
  /** Only what this image on this host has. */
  image?: string | null;
  /** Only what runs here, or only what does not. */
  available?: boolean | null;
}
/** List languages, and whether they run here. `GET /v1/languages` */
export const listLanguages = (asked: ListLanguagesInput = {}): Call<m.LanguageList> =>
  call({ id: "listLanguages", method: "GET", path: "/v1/languages", query: ["image", "available"] }, asked);

export interface GetLanguageInput {
  /** Name, alias or extension of a language. */
  name: string;
}
/** Show a language, by name, alias or extension. `GET /v1/languages/{name}` */
export const getLanguage = (asked: GetLanguageInput): Call<m.Language> =>
  call({ id: "getLanguage", method: "GET", path: "/v1/languages/{name}" }, asked);

export interface ListShellsInput {
  /** Only what this image on this host has. */
  image?: string | null;
  /** Only what runs here, or only what does not. */
  available?: boolean | null;
}
/** List shells, and whether they run here. `GET /v1/shells` */
export const listShells = (asked: ListShellsInput = {}): Call<m.ShellList> =>
  call({ id: "listShells", method: "GET", path: "/v1/shells", query: ["image", "available"] }, asked);

/** Show what this host can do and holds (owner). `GET /v1/host` */
export const inspectHost = (): Call<m.Host> =>
  call({ id: "inspectHost", method: "GET", path: "/v1/host" }, {});

/** List disks and processes that no record accounts for (owner). `GET /v1/host/stale` */
export const listStale = (): Call<m.StaleList> =>
  call({ id: "listStale", method: "GET", path: "/v1/host/stale" }, {});

/** Remove disks and processes that no record accounts for (owner). `POST /v1/host/reap-stale` */
export const reapStale = (): Call<m.Reaped> =>
  call({ id: "reapStale", method: "POST", path: "/v1/host/reap-stale" }, {});

/** List what nobody needs any more, and when it is removed (owner). `GET /v1/host/garbage` */
export const listGarbage = (): Call<m.Garbage> =>
  call({ id: "listGarbage", method: "GET", path: "/v1/host/garbage" }, {});

export interface CollectGarbageInput {
  /** Also what is still in its time of grace. */
  now?: boolean;
}
/** Remove what nobody needs any more; the platform does this by itself, too (owner). `POST /v1/host/collect-garbage` */
export const collectGarbage = (asked: CollectGarbageInput = {}): Call<m.Collected> =>
  call({ id: "collectGarbage", method: "POST", path: "/v1/host/collect-garbage", query: ["now"] }, asked);

/** Get this document. `GET /openapi.json` */
export const getOpenapi = (): Call<Uint8Array> =>
  call({ id: "getOpenapi", method: "GET", path: "/openapi.json", reads: "bytes" }, {});

/** Show what this is and how to begin: a page for people, a text for agents. `GET /` */
export const showFrontPage = (): Call<Uint8Array> =>
  call({ id: "showFrontPage", method: "GET", path: "/", reads: "bytes" }, {});

/** Get a text for agents: what this is, how to authenticate and pay, every operation in one line. `GET /llms.txt` */
export const getLlmsText = (): Call<Uint8Array> =>
  call({ id: "getLlmsText", method: "GET", path: "/llms.txt", reads: "bytes" }, {});

/** Show what this is, where its documents and prices are, and how requests are signed. `GET /.well-known/sandboxer.json` */
export const discover = (): Call<m.Discovery> =>
  call({ id: "discover", method: "GET", path: "/.well-known/sandboxer.json" }, {});

/** Say whether database and disks take writes, and backends can make sandboxes. `GET /health` */
export const health = (): Call<m.Health> =>
  call({ id: "health", method: "GET", path: "/health", also: [503] }, {});

/** Say whether it takes requests. `GET /readyz` */
export const ready = (): Call<m.Readiness> =>
  call({ id: "ready", method: "GET", path: "/readyz", also: [503] }, {});

/** Get metrics, for callers on this host. `GET /metrics` */
export const metrics = (): Call<Uint8Array> =>
  call({ id: "metrics", method: "GET", path: "/metrics", reads: "bytes" }, {});

/** Show what this platform can do. `GET /v1/capabilities` */
export const getCapabilities = (): Call<m.Capabilities> =>
  call({ id: "getCapabilities", method: "GET", path: "/v1/capabilities" }, {});

/** Show the hosts, what they can do, and how much is free. `GET /v1/cluster` */
export const showCluster = (): Call<m.Cluster> =>
  call({ id: "showCluster", method: "GET", path: "/v1/cluster" }, {});

/** Show how many sandboxes are kept ready, and the storage of disks. `GET /v1/pools` */
export const listPools = (): Call<m.Pools> =>
  call({ id: "listPools", method: "GET", path: "/v1/pools" }, {});

/** Count sandboxes, jobs, sessions and services, by state. `GET /v1/stats` */
export const showStats = (): Call<m.Stats> =>
  call({ id: "showStats", method: "GET", path: "/v1/stats" }, {});

/** Show what this key may still do: requests this minute, slots, caps, longest and largest sandbox. `GET /v1/limits` */
export const showLimits = (): Call<m.Limits> =>
  call({ id: "showLimits", method: "GET", path: "/v1/limits" }, {});

export interface CreateSandboxInput extends m.CreateSandbox {
  /** Answer only when it is ready. */
  wait?: boolean;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Create a sandbox. `POST /v1/sandboxes` */
export const createSandbox = (asked: CreateSandboxInput = {}): Call<m.Sandbox> =>
  call({ id: "createSandbox", method: "POST", path: "/v1/sandboxes", query: ["wait"], headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 180.0 }, asked);

export interface ListSandboxesInput {
  /** Default: all but destroyed. */
  state?: "requested" | "provisioning" | "ready" | "active" | "frozen" | "stopped" | "grace" | "reaped" | "expired" | "failed" | "destroying" | "destroyed" | (string & {}) | null;
  /** `key=value`; all must match. */
  label?: Array<string>;
  cursor?: string | null;
  limit?: number;
}
/** List sandboxes, newest first. `GET /v1/sandboxes` */
export const listSandboxes = (asked: ListSandboxesInput = {}): Call<m.SandboxPage> =>
  call({ id: "listSandboxes", method: "GET", path: "/v1/sandboxes", query: ["state", "label", "cursor", "limit"] }, asked);

/** Show the sandboxes of this account, those that they made from inside, and what was spent. `GET /v1/tree` */
export const getSandboxTree = (): Call<m.SandboxTree> =>
  call({ id: "getSandboxTree", method: "GET", path: "/v1/tree" }, {});

export interface ExpireSandboxesInput {
  /** False: only say what would end. */
  apply?: boolean;
}
/** End sandboxes that are past their time (owner). `POST /v1/sandboxes/expire` */
export const expireSandboxes = (asked: ExpireSandboxesInput = {}): Call<m.Expired> =>
  call({ id: "expireSandboxes", method: "POST", path: "/v1/sandboxes/expire", query: ["apply"] }, asked);

export interface GetSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Show a sandbox. `GET /v1/sandboxes/{sandbox_id}` */
export const getSandbox = (asked: GetSandboxInput): Call<m.Sandbox> =>
  call({ id: "getSandbox", method: "GET", path: "/v1/sandboxes/{sandbox_id}" }, asked);

export interface ChangeSandboxInput extends m.ChangeSandbox {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Change the name and the labels of a sandbox. `PATCH /v1/sandboxes/{sandbox_id}` */
export const changeSandbox = (asked: ChangeSandboxInput): Call<m.Sandbox> =>
  call({ id: "changeSandbox", method: "PATCH", path: "/v1/sandboxes/{sandbox_id}", sends: "json", repeatable: true }, asked);

export interface DestroySandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Delete a sandbox; deleted already is success. `DELETE /v1/sandboxes/{sandbox_id}` */
export const destroySandbox = (asked: DestroySandboxInput): Call<m.DestroyedSandbox> =>
  call({ id: "destroySandbox", method: "DELETE", path: "/v1/sandboxes/{sandbox_id}", repeatable: true }, asked);

export interface RecreateSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Give a sandbox a new disk from its image; the id stays. `POST /v1/sandboxes/{sandbox_id}/recreate` */
export const recreateSandbox = (asked: RecreateSandboxInput): Call<m.Sandbox> =>
  call({ id: "recreateSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/recreate", patience_s: 180.0 }, asked);

export interface LockSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Lock a sandbox: deleting, recreating and unlocking it then need a second proof. `POST /v1/sandboxes/{sandbox_id}/lock` */
export const lockSandbox = (asked: LockSandboxInput): Call<m.Sandbox> =>
  call({ id: "lockSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/lock", patience_s: 180.0 }, asked);

export interface UnlockSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Unlock a sandbox. `POST /v1/sandboxes/{sandbox_id}/unlock` */
export const unlockSandbox = (asked: UnlockSandboxInput): Call<m.Sandbox> =>
  call({ id: "unlockSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/unlock", patience_s: 180.0 }, asked);

export interface StopSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Keep what runs too: it goes on when it is resumed. Refused where its backend keeps files alone. Without it, what was kept of one that is stopped ends. */
  memory?: boolean;
}
/** Stop a sandbox: its processes end or are kept with its memory, its disk is kept. `POST /v1/sandboxes/{sandbox_id}/stop` */
export const stopSandbox = (asked: StopSandboxInput): Call<m.Sandbox> =>
  call({ id: "stopSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/stop", query: ["memory"], patience_s: 180.0 }, asked);

export interface ResumeSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Start a stopped sandbox again, on its own disk; what was kept of its memory goes on. `POST /v1/sandboxes/{sandbox_id}/resume` */
export const resumeSandbox = (asked: ResumeSandboxInput): Call<m.Sandbox> =>
  call({ id: "resumeSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/resume", patience_s: 180.0 }, asked);

export interface FreezeSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Freeze a sandbox: every process is paused in memory. `POST /v1/sandboxes/{sandbox_id}/freeze` */
export const freezeSandbox = (asked: FreezeSandboxInput): Call<m.Sandbox> =>
  call({ id: "freezeSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/freeze", patience_s: 180.0 }, asked);

export interface ThawSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Let a frozen sandbox go on. `POST /v1/sandboxes/{sandbox_id}/thaw` */
export const thawSandbox = (asked: ThawSandboxInput): Call<m.Sandbox> =>
  call({ id: "thawSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/thaw", patience_s: 180.0 }, asked);

export interface ExtendTtlInput extends m.ChangeTtl {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Give a sandbox more time. `PATCH /v1/sandboxes/{sandbox_id}/ttl` */
export const extendTtl = (asked: ExtendTtlInput): Call<m.Sandbox> =>
  call({ id: "extendTtl", method: "PATCH", path: "/v1/sandboxes/{sandbox_id}/ttl", headers: {"idempotency_key": "idempotency-key"}, sends: "json" }, asked);

export interface GetReachabilityInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Show whether a sandbox answers, and by which ways. `GET /v1/sandboxes/{sandbox_id}/reachability` */
export const getReachability = (asked: GetReachabilityInput): Call<m.Reachability> =>
  call({ id: "getReachability", method: "GET", path: "/v1/sandboxes/{sandbox_id}/reachability" }, asked);

export interface GetUsageInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Show what a sandbox uses now. `GET /v1/sandboxes/{sandbox_id}/usage` */
export const getUsage = (asked: GetUsageInput): Call<m.Usage> =>
  call({ id: "getUsage", method: "GET", path: "/v1/sandboxes/{sandbox_id}/usage" }, asked);

export interface BoostSandboxInput extends m.Boost {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Give a sandbox more CPUs, and 2 GB of memory with each, at once and without a restart. `POST /v1/sandboxes/{sandbox_id}/boost` */
export const boostSandbox = (asked: BoostSandboxInput): Call<m.Sandbox> =>
  call({ id: "boostSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/boost", sends: "json" }, asked);

export interface UnboostSandboxInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
}
/** Take back what a boost gave a sandbox; not boosted is success. `POST /v1/sandboxes/{sandbox_id}/unboost` */
export const unboostSandbox = (asked: UnboostSandboxInput): Call<m.Sandbox> =>
  call({ id: "unboostSandbox", method: "POST", path: "/v1/sandboxes/{sandbox_id}/unboost" }, asked);

export interface FollowEventsInput {
  /** Id of a sandbox, or its beginning if no other id begins so; or the name of a sandbox of one's own. */
  sandbox_id: string;
  /** Only events after this id. */
  after?: number;
  /** False: end after what is already known. */
  follow?: boolean;
  /** As `after`, sent by browsers that reconnect. */
  last_event_id?: number | null;
}
/** Follow what happens to a sandbox: what is known from an id on, then what comes. `GET /v1/sandboxes/{sandbox_id}/events` */
export const followEvents = (asked: FollowEventsInput): Call<void> =>
  call({ id: "followEvents", method: "GET", path: "/v1/sandboxes/{sandbox_id}/events", query: ["after", "follow"], headers: {"last_event_id": "last-event-id"}, reads: "events" }, asked);

export interface CreateServiceInput extends m.CreateService {
  /** Answer only when it runs, or it is known why it does not. */
  wait?: boolean;
  /** The same key with the same request answers as the first time. */
  idempotency_key?: string;
}
/** Create a service: a process with a name that is kept running, in a sandbox of its own. `POST /v1/services` */
export const createService = (asked: CreateServiceInput): Call<m.Service> =>
  call({ id: "createService", method: "POST", path: "/v1/services", query: ["wait"], headers: {"idempotency_key": "idempotency-key"}, sends: "json", patience_s: 960.0 }, asked);

export interface ListServicesInput {
  /** Default: all. */
  state?: "creating" | "starting" | "running" | "unhealthy" | "restarting" | "sleeping" | "stopped" | "crash_looping" | "failed" | "removed" | (string & {}) | null;
  cursor?: string | null;
  limit?: number;
}
/** List services, newest first. `GET /v1/services` */
export const listServices = (asked: ListServicesInput = {}): Call<m.ServicePage> =>
  call({ id: "listServices", method: "GET", path: "/v1/services", query: ["state", "cursor", "limit"] }, asked);

export interface GetServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Show a service. `GET /v1/services/{service}` */
export const getService = (asked: GetServiceInput): Call<m.Service> =>
  call({ id: "getService", method: "GET", path: "/v1/services/{service}" }, asked);

export interface ChangeServiceInput extends m.ChangeService {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
  /** Answer only when it runs, or it is known why it does not. */
  wait?: boolean;
}
/** Change a service's settings; a change of env or port starts a new process. `PATCH /v1/services/{service}` */
export const changeService = (asked: ChangeServiceInput): Call<m.Service> =>
  call({ id: "changeService", method: "PATCH", path: "/v1/services/{service}", query: ["wait"], sends: "json", patience_s: 960.0 }, asked);

export interface RemoveServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Delete a service with its sandbox, its disk and its log. `DELETE /v1/services/{service}` */
export const removeService = (asked: RemoveServiceInput): Call<m.Service> =>
  call({ id: "removeService", method: "DELETE", path: "/v1/services/{service}" }, asked);

export interface RedeployServiceInput extends m.RedeployService {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
  /** Answer only when it runs, or it is known why it does not. */
  wait?: boolean;
}
/** Deploy a new program, files or environment; the old process goes on until the new one is healthy. `POST /v1/services/{service}/redeploy` */
export const redeployService = (asked: RedeployServiceInput): Call<m.Service> =>
  call({ id: "redeployService", method: "POST", path: "/v1/services/{service}/redeploy", query: ["wait"], sends: "json", patience_s: 960.0 }, asked);

export interface FreezeServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Put a service to sleep: frozen in memory, at the frozen price. `POST /v1/services/{service}/freeze` */
export const freezeService = (asked: FreezeServiceInput): Call<m.Service> =>
  call({ id: "freezeService", method: "POST", path: "/v1/services/{service}/freeze", repeatable: true, patience_s: 960.0 }, asked);

export interface ThawServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Wake a service. `POST /v1/services/{service}/thaw` */
export const thawService = (asked: ThawServiceInput): Call<m.Service> =>
  call({ id: "thawService", method: "POST", path: "/v1/services/{service}/thaw", repeatable: true, patience_s: 960.0 }, asked);

export interface StopServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Stop a service: its process ends, its sandbox is stopped, its disk is kept. `POST /v1/services/{service}/stop` */
export const stopService = (asked: StopServiceInput): Call<m.Service> =>
  call({ id: "stopService", method: "POST", path: "/v1/services/{service}/stop", repeatable: true, patience_s: 960.0 }, asked);

export interface StartServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
  /** Answer only when it runs, or it is known why it does not. */
  wait?: boolean;
}
/** Start a service that was stopped, has failed, or was given up. `POST /v1/services/{service}/start` */
export const startService = (asked: StartServiceInput): Call<m.Service> =>
  call({ id: "startService", method: "POST", path: "/v1/services/{service}/start", query: ["wait"], repeatable: true, patience_s: 960.0 }, asked);

export interface LockServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Lock a service: deleting and unlocking it then need a second proof. `POST /v1/services/{service}/lock` */
export const lockService = (asked: LockServiceInput): Call<m.Service> =>
  call({ id: "lockService", method: "POST", path: "/v1/services/{service}/lock", repeatable: true, patience_s: 960.0 }, asked);

export interface UnlockServiceInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Unlock a service. `POST /v1/services/{service}/unlock` */
export const unlockService = (asked: UnlockServiceInput): Call<m.Service> =>
  call({ id: "unlockService", method: "POST", path: "/v1/services/{service}/unlock", repeatable: true, patience_s: 960.0 }, asked);

export interface ReadServiceLogsInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
  /** How many of the last lines. */
  tail?: number;
  /** Go on with what comes. */
  follow?: boolean;
  /** Only lines with a greater number. */
  after?: number | null;
  /** As `after`. */
  last_event_id?: string | null;
}
/** Read a service's log: the last lines, or as it comes. `GET /v1/services/{service}/logs` */
export const readServiceLogs = (asked: ReadServiceLogsInput): Call<m.LogPage> =>
  call({ id: "readServiceLogs", method: "GET", path: "/v1/services/{service}/logs", query: ["tail", "follow", "after"], headers: {"last_event_id": "last-event-id"} }, asked);

export interface GetServiceVaultInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** List the names in a service's vault; values are never shown. `GET /v1/services/{service}/env` */
export const getServiceVault = (asked: GetServiceVaultInput): Call<m.Vault> =>
  call({ id: "getServiceVault", method: "GET", path: "/v1/services/{service}/env" }, asked);

export interface SetServiceVaultInput extends m.SetVault {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Replace a service's vault; its next process has it. `PUT /v1/services/{service}/env` */
export const setServiceVault = (asked: SetServiceVaultInput): Call<m.Vault> =>
  call({ id: "setServiceVault", method: "PUT", path: "/v1/services/{service}/env", sends: "json", repeatable: true }, asked);

export interface ChangeServiceVaultInput extends m.ChangeVault {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Set or remove single names of a service's vault. `PATCH /v1/services/{service}/env` */
export const changeServiceVault = (asked: ChangeServiceVaultInput): Call<m.Vault> =>
  call({ id: "changeServiceVault", method: "PATCH", path: "/v1/services/{service}/env", sends: "json" }, asked);

export interface WipeServiceVaultInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Empty a service's vault. `DELETE /v1/services/{service}/env` */
export const wipeServiceVault = (asked: WipeServiceVaultInput): Call<m.Vault> =>
  call({ id: "wipeServiceVault", method: "DELETE", path: "/v1/services/{service}/env" }, asked);

export interface ListServiceDomainsInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** List a service's domains, verified or not. `GET /v1/services/{service}/domains` */
export const listServiceDomains = (asked: ListServiceDomainsInput): Call<m.DomainList> =>
  call({ id: "listServiceDomains", method: "GET", path: "/v1/services/{service}/domains" }, asked);

export interface ClaimServiceDomainInput extends m.ClaimDomain {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
}
/** Add a domain to a service; says what it must serve to prove that it is yours. `POST /v1/services/{service}/domains` */
export const claimServiceDomain = (asked: ClaimServiceDomainInput): Call<m.Domain> =>
  call({ id: "claimServiceDomain", method: "POST", path: "/v1/services/{service}/domains", sends: "json" }, asked);

export interface VerifyServiceDomainInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
  /** A domain of one's own, in ASCII. */
  domain: string;
}
/** Verify a domain: once it serves the token, it leads to the service. `POST /v1/services/{service}/domains/{domain}/verify` */
export const verifyServiceDomain = (asked: VerifyServiceDomainInput): Call<m.Domain> =>
  call({ id: "verifyServiceDomain", method: "POST", path: "/v1/services/{service}/domains/{domain}/verify" }, asked);

export interface RemoveServiceDomainInput {
  /** Id of a service, or its beginning if no other id begins so; or the name of a service of one's own. */
  service: string;
  /** A domain of one's own, in ASCII. */
  domain: string;
}
/** Remove a domain from a service. `DELETE /v1/services/{service}/domains/{domain}` */
export const removeServiceDomain = (asked: RemoveServiceDomainInput): Call<void> =>
  call({ id: "removeServiceDomain", method: "DELETE", path: "/v1/services/{service}/domains/{domain}", reads: "none" }, asked);
