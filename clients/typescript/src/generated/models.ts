// Written by scripts/generate-clients from the OpenAPI document. Do not edit.

export interface Account {
  id: string;
  /** By this anyone may pay for it. */
  public_id: string;
  kind: "owner" | "customer" | "delegated" | (string & {});
  name: string;
  status: "active" | "suspended" | "closed" | (string & {});
  /** Entitled to now. */
  tier?: number | null;
  entitled_until?: string | null;
  caps: Record<string, number>;
  /** RFC 3339, UTC. */
  created_at: string;
}

export interface AccountEgress {
  /** 0: there were never any. */
  version: number;
  rules: Array<RuleFacts>;
  /** By this very change. */
  ended_connections?: number;
}

export interface AccountPage {
  accounts: Array<Account>;
  next_after?: string | null;
}

export interface AccountReport {
  account: Account;
  money?: Balance | null;
}

export interface AddSshKey {
  /** One line, as in id_ed25519.pub. Never a private key. */
  public_key: string;
  /** What to call it; its comment if not given. */
  name?: string | null;
  /** The one it opens; every one of the account's if not given. */
  sandbox_id?: string | null;
  /** How long it works; until revoked if not given. */
  ttl?: string | null;
}

export interface AdjustAccount {
  /** Above zero gives, below takes; not zero. */
  sats: number;
  /** Chosen by you before the call: the same id moves money once. */
  id: string;
  /** Why; it is written down. */
  reason: string;
}

/** What a program gets that asked to act for this account. What is left out gives little. */
export interface AllowClient {
  /** Of its key. Default: as it calls itself. */
  name?: string | null;
  /** Moved from your balance to its own. */
  budget_sats?: number;
  /** What it may do. Default: what it asked for. */
  scopes?: Array<string> | null;
  /** Sandboxes at once. */
  slots?: number | null;
  /** Default: in 30 days. */
  expires_at?: string | null;
}

/** A wish that nothing depends on, and what came of it. */
export interface Answered {
  wish: string;
  honoured: boolean;
  reason: string;
}

export interface Artifact {
  name: string;
  size: number;
  mode: number;
  /** Base 64. */
  content: string;
}

/** Whom to ask before anything of the card is redeemed; at least one. */
export interface AskApproval {
  email?: string | null;
  /** Signed with the card's own secret. */
  webhook?: string | null;
}

export interface AskBalance {
  /** The four words; case, spaces and hyphens do not matter. */
  code: string;
  work?: Work | null;
}

/** Either `tier` and `months`, or `sats`. Without `account` a new one is made, with a key. */
export interface AskInvoice {
  /** What is paid in; the platform may take fewer. */
  currency: "BTC" | "LTC" | "DOGE" | "XMR" | (string & {});
  tier?: number | null;
  months?: number | null;
  sats?: number | null;
  /** Public id of the account it is for. */
  account?: string | null;
  /** Where late or too small payments go back, less 9 %. Without it they become sats. */
  refund_address?: string | null;
}

export interface AskQuote {
  profile?: string | null;
  resources?: WantedResources;
  /** A whole number and a unit: s, m, h or d. */
  duration?: string;
}

export interface AttachedVolume {
  /** Id of a volume. */
  volume_id: string;
  /** Where it is seen inside. */
  path: string;
  /** `rw`: read and write, one sandbox alone; `ro`: read, with any number of others. */
  mode: "rw" | "ro" | (string & {});
}

/** A backend that was asked to make it. */
export interface Attempt {
  backend: string;
  made: boolean;
  reason: string;
  took_ms: number;
}

export interface AuditEntry {
  seq: number;
  /** RFC 3339, UTC. */
  at: string;
  actor: string;
  action: string;
  subject: string;
  reason: string;
  data: Record<string, unknown>;
  previous: string;
  hash: string;
}

export interface AuditPage {
  entries: Array<AuditEntry>;
  next_after?: number | null;
}

export interface AuditProof {
  is_whole: boolean;
  rows: number;
  head_seq: number;
  head_hash: string;
  broken_at?: number | null;
  why?: string | null;
}

export interface BackendCapabilities {
  name: string;
  healthy: boolean;
  capabilities: Array<string>;
  walls: Array<string>;
  lacks?: Array<Lack>;
}

/** All in sats, as of this moment; reading charges nothing. */
export interface Balance {
  balance: number;
  /** Set aside for creates and budgets. */
  held: number;
  /** Kept for what runs. */
  reserved: number;
  available: number;
  debt: number;
  /** Announced and not final. */
  incoming: number;
  /** What runs costs so much per second, in thousandths. */
  rate_msats: number;
  standing: string;
  dry_at?: string | null;
  reap_at?: string | null;
}

export interface Boost {
  /** CPUs in all, more than it has; each brings 2 GB of memory. */
  vcpus: number;
}

/** What came of a payment. `key` is shown once, to a wallet whose account had none. */
export interface Bought {
  payment: Payment;
  /** Public id of the account that was paid for. */
  account: string;
  key?: NewKey | null;
}

export interface BoughtKey {
  payment: Payment;
  /** Public id of the account that was paid for. */
  account: string;
  key?: NewKey | null;
  tier?: number | null;
  entitled_until?: string | null;
}

/** Paid by invoice (`currency`), from one's sats (`pay_with: sats`, signed), or given by the operator. */
export interface BuyGiftCard {
  /** US cents. */
  cents: number;
  /** `operator`: free of charge, by the owner. */
  pay_with?: "invoice" | "sats" | "operator" | (string & {});
  currency?: "BTC" | "LTC" | "DOGE" | "XMR" | (string & {}) | null;
  /** Where a refund goes, less restocking. */
  refund_address?: string | null;
  approval?: AskApproval | null;
  /** Why; needed from an operator. */
  reason?: string;
}

export interface BuyKey {
  tier: number;
  months: number;
}

export interface CapAccount {
  caps: Caps;
  /** Why; it is written down. */
  reason: string;
}

export interface Capabilities {
  name?: string;
  version: string;
  api?: string;
  backends: Array<BackendCapabilities>;
  trust_levels: Array<string>;
  features: Array<string>;
  signatures: Array<SignatureVersion>;
  limits: Record<string, number>;
  /** What it provides, for registries of capabilities. */
  provides?: Array<Provided>;
}

export interface Caps {
  per_key_sats?: number | null;
  per_sandbox_sats?: number | null;
  per_day_sats?: number | null;
}

export interface CardBalance {
  id: string;
  cents: number;
  left_cents: number;
  needs_approval: boolean;
}

export interface Cell {
  /** Cells count from 1. */
  n: number;
  status: "queued" | "running" | "ok" | "error" | "interrupted" | "timed_out" | "died" | "cancelled" | (string & {});
  error?: CellError | null;
  /** Of a shell's last command. */
  exit_code?: number | null;
  /** It printed more than is kept (1 MiB a stream). */
  truncated?: boolean;
  /** RFC 3339, UTC. */
  asked_at: string;
  began_at?: string | null;
  ended_at?: string | null;
  duration_ms?: number | null;
  code: string;
  stdout: string;
  stderr: string;
  /** What it showed, each by media type; pictures in base 64. */
  results: Array<Record<string, string>>;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}

/** How it stands, without what it printed. */
export interface CellEnd {
  /** Cells count from 1. */
  n: number;
  status: "queued" | "running" | "ok" | "error" | "interrupted" | "timed_out" | "died" | "cancelled" | (string & {});
  error?: CellError | null;
  /** Of a shell's last command. */
  exit_code?: number | null;
  /** It printed more than is kept (1 MiB a stream). */
  truncated?: boolean;
  /** RFC 3339, UTC. */
  asked_at: string;
  began_at?: string | null;
  ended_at?: string | null;
  duration_ms?: number | null;
}

export interface CellError {
  /** Its type; `session_died` if the interpreter went. */
  name: string;
  message: string;
  traceback?: string;
}

export interface CellList {
  cells: Array<CellEnd>;
}

export interface ChangeAccount {
  /** Why; it is written down. */
  reason: string;
}

/** Changes to the account's rules. A rule that is there already is not added twice. */
export interface ChangeAccountEgress {
  /** Rules to add. */
  add?: Array<Rule>;
  /** Rules to take away, written as they stand. */
  remove?: Array<Rule>;
  /** Only if this version stands. */
  version?: number | null;
}

/** Changes to the policy that stands. A rule that is there already is not added twice. */
export interface ChangeEgress {
  default?: "allow" | "deny" | (string & {}) | null;
  /** Rules to add. */
  add?: Array<Rule>;
  /** Rules to take away, written as they stand. */
  remove?: Array<Rule>;
  secrets?: Array<HeaderSecret> | null;
  limits?: LimitsInput | null;
  /** Only if this version stands. */
  version?: number | null;
}

/** What is left out stays as it is. */
export interface ChangeImage {
  name?: string | null;
  description?: string | null;
  visibility?: "private" | "unlisted" | "public" | (string & {}) | null;
}

/** What is left out stays as it is. */
export interface ChangeSandbox {
  /** Another name; its id stays. */
  name?: string | null;
  /** Labels to set; null takes one away. Others stay. */
  labels?: Record<string, string | null>;
}

/** What is left out stays. A change of `env` or `port` makes a new process, as a redeploy does. */
export interface ChangeService {
  /** Replaces the plain environment. */
  env?: Record<string, string> | null;
  /** 0: it listens on $PORT. */
  port?: number | null;
  health?: HealthInput | null;
  restart?: Restart | null;
  idle_s?: number | null;
  wake?: boolean | null;
  public?: boolean | null;
  drain_s?: number | null;
  stop_timeout_s?: number | null;
  /** CPUs in all, each with 2 GB; at once, while it runs. 0: as it was made. */
  vcpus?: number | null;
  inspect?: "refuse" | "warn" | "no" | (string & {}) | null;
}

/** What is left out stays as it is. */
export interface ChangeSnapshot {
  name?: string | null;
  labels?: Record<string, string> | null;
  /** Dropped so long from now. */
  ttl?: string | null;
}

export interface ChangeTtl {
  /** Added to the current expiry; the whole life stays within the profile's maximum. */
  duration: string;
  quote_id?: string | null;
}

export interface ChangeVault {
  /** Names to set; null takes a name out. Others stay. */
  secrets: Record<string, string | null>;
}

/** What is left out stays as it is. */
export interface ChangeVolume {
  /** Another name; its id stays. */
  name?: string | null;
  /** At once, also while it is attached; not below what it holds. */
  size_mb?: number | null;
  labels?: Record<string, string> | null;
}

export interface ChangeWebhook {
  url?: string | null;
  kinds?: Array<string> | null;
  enabled?: boolean | null;
}

export interface ClaimDomain {
  /** A domain of one's own, in ASCII. */
  domain: string;
}

/** A program that asks to act for whoever allows it. Nobody has checked its name. */
export interface ClientRequest {
  code: string;
  client_id: string;
  client_name: string;
  /** Where its answer, and with it the key, goes. */
  answered_at: string;
  scopes: Array<string>;
  /** RFC 3339, UTC. */
  ends_at: string;
}

/** What is left out is as in the original; a clone is private unless it says otherwise. */
export interface CloneImage {
  name?: string | null;
  description?: string | null;
  /** `private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone. */
  visibility?: "private" | "unlisted" | "public" | (string & {});
}

/** What new sandboxes shall be like; what is left out is as it was when the snapshot was taken. */
export interface CloneSnapshot {
  /** How many, all at once. */
  count?: number;
  /** With a number behind it if there are several. */
  name?: string | null;
  profile?: string | null;
  trust?: "zero" | "semi" | (string & {}) | null;
  network?: string | null;
  /** How long each lives once ready. */
  ttl?: string | null;
  idle_timeout?: string | null;
  resources?: WantedResources | null;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
  /** Disks to attach to each. Several clones can have one only to read (`ro`). */
  volumes?: Array<WantedVolume>;
}

/** Each was made, or not, by itself. */
export interface Clones {
  sandboxes: Array<Sandbox>;
  failed?: Array<FailedClone>;
  /** What the sandbox had attached of which they are clones, and they have not. */
  volumes_left_out?: Array<AttachedVolume>;
}

export interface Cluster {
  /** `pooled`: some kinds of sandbox stand ready before anyone asks. */
  mode: "pooled" | "on_demand" | (string & {});
  hosts: Array<ClusterHost>;
  /** Sandboxes that shall stand ready. */
  pool_size: number;
  /** Those that do. */
  available: number;
  /** Sandboxes that are kept: yours; everyone's for the owner. */
  allocated: number;
  /** Of these, being made now. */
  spawning: number;
}

export interface ClusterHost {
  backend: BackendCapabilities;
  /** What may be promised to sandboxes; null: the backend does not count. */
  total?: Resources | null;
  /** What of it is promised to nobody. */
  free?: Resources | null;
  /** What it saw of its host (owner only). */
  facts?: Record<string, string>;
}

export interface Collected {
  removed: Array<GarbageItem>;
}

/** The compile step, for languages that have one. */
export interface Compiled {
  /** None while it runs. */
  exit_code?: number | null;
  /** Written as `encoding` says. */
  stdout: string;
  /** Written as `encoding` says. */
  stderr: string;
  stdout_dropped?: number;
  stderr_dropped?: number;
  timed_out?: boolean;
  duration_ms?: number | null;
}

/** A backend, and why it was taken or not. */
export interface Considered {
  backend: string;
  /** `fallback`: it is asked if those before it fail. */
  verdict: "chosen" | "fallback" | "refused" | (string & {});
  reason: string;
  /** What this sandbox costs there; null: nobody knows. */
  rate_msats_per_s?: number | null;
  /** How long it takes to make one, measured; null: not lately. */
  latency_ms?: number | null;
}

export interface CreateAccount {
  id?: string | null;
  name?: string;
  caps?: Caps;
  /** Why; it is written down. */
  reason: string;
}

export interface CreateKey {
  /** A name for people; needs not be unique. */
  name: string;
  account?: string | null;
  /** Also accept version 1 signatures, which cannot tell a replay from an honest repeat. */
  accepts_v1?: boolean;
}

export interface CreatePreview {
  /** Port inside the sandbox. */
  port: number;
  /** How long it opens the port, at most 90d; 24h, and for a public one until revoked. */
  ttl?: string | null;
  /** Open to everyone who knows the address, no token. */
  public?: boolean;
  /** The link works once; the browser that used it goes on by a cookie. */
  one_time?: boolean;
  /** A request thaws or resumes a sleeping sandbox, which then costs again: needs `sandboxes:manage`, and is so by default for a key that has it. */
  wakes?: boolean | null;
  /** How long a request waits while nothing listens there yet; then it is answered 502. */
  hold_s?: number;
  inspect?: "refuse" | "warn" | "no" | (string & {}) | null;
}

/** Everything is optional: an empty body makes a sandbox of the default profile. */
export interface CreateSandbox {
  /** See GET /v1/profiles. */
  profile?: string | null;
  /** For people; no two of yours that live have the same. */
  name?: string | null;
  /** See GET /v1/images. */
  image?: string | null;
  /** `zero`: no network; `semi`: filtered. `network` says it by intent. */
  trust?: "zero" | "semi" | (string & {}) | null;
  network?: string | null;
  /** How long it lives once ready, as 30s, 15m, 4h or 2d. */
  ttl?: string | null;
  /** How long it may do nothing before it ends. */
  idle_timeout?: string | null;
  /** Limits; the profile says what is left out. */
  resources?: WantedResources | null;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
  /** Parameters of the profile; each is the environment variable SANDBOXER_INPUT_<NAME>. `repo`, an http or https URL, is cloned into /workspace before it is ready, at the branch, tag or commit `repo_ref`. */
  inputs?: Record<string, JsonValue>;
  /** Who this is for, kept with the sandbox and its events as it is. */
  consumer?: Record<string, JsonValue>;
  quote_id?: string | null;
  /** Begin as a copy of this snapshot, instead of an image; it says what is left out. */
  snapshot?: string | null;
  /** Disks to attach, until the sandbox is destroyed; see POST /v1/volumes. */
  volumes?: Array<WantedVolume>;
  inception?: WantedInception | null;
  scope?: "session" | "agent" | "shared" | (string & {}) | null;
  workspace?: WantedWorkspace | null;
  setup?: WantedSetup | null;
  setup_metadata?: SetupMetadata | null;
  placement?: WantedPlacement | null;
  isolation?: "policy" | "container" | "strong" | "microvm" | (string & {}) | null;
  checkpoint?: "none" | "files" | "memory" | (string & {}) | null;
  route?: WantedRoute | null;
}

/** Exactly one of `bootstrap` and `command`. */
export interface CreateService {
  /** A DNS label, unique in the account. */
  name: string;
  bootstrap?: string | null;
  command?: string | null;
  /** Written before it starts. */
  files?: Array<ServiceFile>;
  cwd?: string | null;
  user?: string | null;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Environment that is sealed at rest; only names are ever told. */
  secrets?: Record<string, string>;
  /** Where it listens, if that is fixed. Left out: it listens on $PORT, and a redeploy drops no request. */
  port?: number | null;
  health?: HealthInput;
  restart?: Restart;
  /** After so long without a request it sleeps (frozen); 0: never. */
  idle_s?: number;
  /** A request wakes it. */
  wake?: boolean;
  /** Anyone may reach it; else only by a preview link. */
  public?: boolean;
  /** How long the old process goes on after a redeploy. */
  drain_s?: number;
  /** How long it may take to end after SIGTERM, before it is killed. */
  stop_timeout_s?: number;
  /** Default: `profile.service`. */
  profile?: string | null;
  image?: string | null;
  trust?: "zero" | "semi" | (string & {}) | null;
  network?: string | null;
  /** Default: as long as the profile allows; see the guide. */
  ttl?: string | null;
  resources?: WantedResources | null;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
  quote_id?: string | null;
  /** Its disk begins as a copy of this snapshot, not of an image. */
  snapshot?: string | null;
  /** Disks to attach, until the sandbox is destroyed; see POST /v1/volumes. */
  volumes?: Array<WantedVolume>;
  inspect?: "refuse" | "warn" | "no" | (string & {}) | null;
}

export interface CreateVolume {
  /** Unique among the volumes of an account. */
  name: string;
  /** Left out: as the volume that the snapshot was taken of. */
  size_mb?: number | null;
  /** Begin as a copy of this snapshot of a volume; else empty. */
  from_snapshot?: string | null;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
}

export interface CreateWebhook {
  /** Where to; https, and a public address unless the operator allows others. */
  url: string;
  /** What it hears of. */
  kinds?: Array<string>;
  /** Hear of every account (owner). */
  all_accounts?: boolean;
}

/** A child key: never more than its parent has left. The defaults give little. */
export interface DelegateKey {
  /** A name for people; needs not be unique. */
  name: string;
  /** Moved from your balance to its own. */
  budget_sats?: number;
  /** What it may do. */
  scopes: Array<string>;
  /** Generations it may delegate to below itself. */
  depth?: number;
  /** Sandboxes at once. */
  slots?: number | null;
  expires_at?: string | null;
  caps?: Caps;
}

export interface DelegatedKey {
  public_key: string;
  account: string;
  name: string;
  parent: string;
  generation: number;
  scopes: Array<string>;
  depth: number;
  slots?: number | null;
  expires_at?: string | null;
  state: string;
  reason: string;
  /** RFC 3339, UTC. */
  created_at: string;
  ended_at?: string | null;
}

export interface Delivery {
  id: string;
  /** The webhook-id header: the same at every try. */
  message_id: string;
  kind: string;
  state: "pending" | "retrying" | "delivered" | "dead" | (string & {});
  /** How the last try went, in words. */
  reason: string;
  /** RFC 3339, UTC. */
  created_at: string;
  next_try_at?: string | null;
  ended_at?: string | null;
  attempts: Array<DeliveryAttempt>;
}

export interface DeliveryAttempt {
  /** RFC 3339, UTC. */
  at: string;
  took_ms: number;
  /** What the receiver answered, if it did. */
  status?: number | null;
  /** accepted, or why not: dns, forbidden_address, refused, tls, timeout, status, redirect, body_too_large, broken_answer, invalid_url, unsigned. */
  outcome: string;
  reason: string;
}

export interface DeliveryPage {
  deliveries: Array<Delivery>;
  next_cursor?: string | null;
}

export interface DestroyedSandbox {
  /** Id of a sandbox. */
  id: string;
  name?: string | null;
  state: "requested" | "provisioning" | "ready" | "active" | "frozen" | "stopped" | "grace" | "reaped" | "expired" | "failed" | "destroying" | "destroyed" | (string & {});
  /** Why it is in this state. */
  reason?: string | null;
  profile: string;
  profile_version?: string | null;
  backend: string;
  image: string;
  /** Which network the sandbox gets: `zero` none at all, `semi` through the egress proxy. */
  trust: "zero" | "semi" | (string & {});
  /** What it was made with; none: what its profile says. */
  network?: string | null;
  resources: Resources;
  labels?: Record<string, string>;
  inputs?: Record<string, JsonValue>;
  consumer?: Record<string, JsonValue>;
  /** Counted from ready_at. */
  ttl?: string | null;
  idle_timeout?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  ready_at?: string | null;
  expires_at?: string | null;
  ended_at?: string | null;
  /** Since when destroying, recreating and unlocking it need a second proof. */
  locked_at?: string | null;
  /** Where the time of the establishment went, by step. */
  timings_ms?: Record<string, number>;
  /** What the profile's report command said of the host, seen from inside. */
  report?: Record<string, JsonValue> | null;
  /** The quote that promised its rates. */
  quote_id?: string | null;
  /** Of which its disk began as a copy. */
  snapshot?: string | null;
  volumes?: Array<AttachedVolume>;
  /** What it was granted; null: it may not speak to this API. */
  inception?: Inception | null;
  /** With whom it is shared. */
  scope?: string | null;
  /** The folder for work, and who may write to it. */
  workspace?: Workspace | null;
  /** Names of the secrets that it was asked to be made with. */
  secret_refs?: Array<string>;
  /** What became of what was only preferred, wish by wish. */
  answered?: Array<Answered>;
  /** Why its backend was chosen. */
  route?: Route | null;
  /** What it cost in all, rounded up; told when it is destroyed. */
  spent_sats?: number | null;
  /** What it sent outwards in all; told when it is destroyed. */
  egress_sent_bytes?: number | null;
  /** What came back to it in all; told when it is destroyed. */
  egress_received_bytes?: number | null;
  /** What it costs now, in thousandths of a sat a second. */
  rate_msats_per_s?: number;
  /** It goes on when it is resumed. */
  kept_memory_mb?: number;
  /** null: nothing, or it had ended before. */
  made_inside?: MadeInside | null;
  /** `removed`, and `left`. */
  cleanup?: Record<string, Array<string>> | null;
}

/** What a stranger needs to begin who knows only the address of the platform. */
export interface Discovery {
  name?: string;
  version: string;
  api?: string;
  /** Where the API is. */
  url: string;
  /** Addresses of documents, prices, first operations. */
  links: Record<string, string>;
  /** Whether sandboxes cost sats here. */
  is_charged: boolean;
  /** Whether a wallet without an account may buy; else the operator opens it. */
  takes_strangers: boolean;
  /** `Authorization: Bearer sk_…`, on the platform's machine or over TLS. */
  takes_bearer_tokens: boolean;
  signatures: Array<SignatureVersion>;
  /** `E2B_API_URL` of E2B's unmodified clients. */
  e2b_url: string;
}

export interface Domain {
  domain: string;
  /** To be served by the domain as it is, as text. */
  token: string;
  /** Where the token must be served for the proof. */
  proof_url: string;
  verified: boolean;
  verified_at?: string | null;
  /** It no longer serves the token; if that goes on, it leads here no more. */
  failing_since?: string | null;
}

export interface DomainList {
  domains: Array<Domain>;
}

export interface Egress {
  /** Id of a sandbox. */
  sandbox_id: string;
  version: number;
  /** RFC 3339, UTC. */
  changed_at: string;
  default: "allow" | "deny" | (string & {});
  rules: Array<RuleFacts>;
  secrets: Array<HeaderSecretFacts>;
  limits: LimitFacts;
  /** From the sandbox outwards, so far. */
  sent_bytes: number;
  received_bytes: number;
  open_connections: number;
  /** By this very change. */
  ended_connections?: number;
}

export interface EgressDenial {
  /** RFC 3339, UTC. */
  first_at: string;
  /** RFC 3339, UTC. */
  last_at: string;
  count: number;
  host: string;
  port: number;
  method: string;
  path: string;
  reason: string;
  why: string;
  rule: string;
}

export interface EgressDenialList {
  denials: Array<EgressDenial>;
}

export interface EgressExplained {
  url: string;
  method: string;
  allowed: boolean;
  reason: string;
  why: string;
  /** The rule that decided. */
  rule: string | null;
  /** Whether the proxy looks into its TLS. */
  tls_opened: boolean;
}

export interface EntitleAccount {
  tier?: number | null;
  until?: string | null;
  /** Why; it is written down. */
  reason: string;
}

export interface Event {
  /** Grows; give the last one seen as `after` (or Last-Event-ID). */
  id: number;
  /** Id of what it happened to. */
  subject: string;
  kind: string;
  /** Who caused it: a key, or a part of the platform. */
  actor: string;
  reason: string;
  /** RFC 3339, UTC. */
  at: string;
  data?: Record<string, JsonValue>;
}

/** Last event (`exit`) of a streamed answer. A broken stream ends with `error`, a problem, instead. */
export interface ExecExit {
  exit_code: number;
  timed_out: boolean;
  truncated: boolean;
  /** Absent for a background process. */
  duration_ms?: number | null;
  reason?: string | null;
  /** Bytes of `stdin` that its pipe took. */
  stdin_bytes?: number | null;
}

/** Event `stdout` or `stderr` of a streamed answer. */
export interface ExecOutput {
  /** Written as `encoding` says. */
  data: string;
  /** Bytes lost just before this, because nobody read them. */
  dropped?: number;
  /** Bytes of this stream up to the end of this piece. */
  offset?: number;
}

export interface ExecResult {
  /** As the command ended; 128 + signal when a signal ended it. */
  exit_code: number;
  /** Written as `encoding` says. */
  stdout: string;
  /** Written as `encoding` says. */
  stderr: string;
  timed_out: boolean;
  /** stdout or stderr was longer than the limit. */
  truncated: boolean;
  duration_ms: number;
  /** Why it ended, when that was not its own doing. */
  reason?: string | null;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  /** Bytes of `stdin` that its pipe took; fewer than given: it read no more. */
  stdin_bytes?: number | null;
}

/** First event (`started`) of a streamed answer. */
export interface ExecStarted {
  process_id: string;
  pid: number;
}

/** Code, and how to run it. Code, stdin and files together: at most 8 MiB. */
export interface ExecuteCode {
  code: string;
  /** Name, alias or file extension (GET /v1/languages). Default: what the code's first line says (`#!/usr/bin/env python3`). */
  language?: string | null;
  /** Words for the program. */
  argv?: Array<string>;
  /** Given to the program, then closed. Without it the program reads an end at once. */
  stdin?: string | null;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  stdin_encoding?: "utf-8" | "base64" | (string & {});
  /** Put into the working folder, beside the code. */
  files?: Array<InputFile>;
  /** Environment variables. */
  env?: Record<string, string>;
  trust?: "zero" | "semi" | (string & {}) | null;
  network?: string | null;
  /** Seconds for compiling and running; then all is killed. */
  ttl_s?: number;
  vcpus?: number | null;
  memory_mb?: number | null;
  disk_mb?: number | null;
  /** Recipe of the sandbox. Default: one that has the language. */
  profile?: string | null;
  /** See GET /v1/images. Default: one that has the language. */
  image?: string | null;
  /** Disks to attach, until the sandbox is destroyed; see POST /v1/volumes. */
  volumes?: Array<WantedVolume>;
  /** Files to bring back. */
  artifacts?: Array<string>;
  /** Kept of stdout and of stderr, each; the rest is counted. */
  output_limit_bytes?: number;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}

/** The same, as a job. */
export interface ExecuteLater {
  code: string;
  /** Name, alias or file extension (GET /v1/languages). Default: what the code's first line says (`#!/usr/bin/env python3`). */
  language?: string | null;
  /** Words for the program. */
  argv?: Array<string>;
  /** Given to the program, then closed. Without it the program reads an end at once. */
  stdin?: string | null;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  stdin_encoding?: "utf-8" | "base64" | (string & {});
  /** Put into the working folder, beside the code. */
  files?: Array<InputFile>;
  /** Environment variables. */
  env?: Record<string, string>;
  trust?: "zero" | "semi" | (string & {}) | null;
  network?: string | null;
  /** Seconds for compiling and running; then all is killed. */
  ttl_s?: number;
  vcpus?: number | null;
  memory_mb?: number | null;
  disk_mb?: number | null;
  /** Recipe of the sandbox. Default: one that has the language. */
  profile?: string | null;
  /** See GET /v1/images. Default: one that has the language. */
  image?: string | null;
  /** Disks to attach, until the sandbox is destroyed; see POST /v1/volumes. */
  volumes?: Array<WantedVolume>;
  /** Files to bring back. */
  artifacts?: Array<string>;
  /** Kept of stdout and of stderr, each; the rest is counted. */
  output_limit_bytes?: number;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  /** Told when the job has ended, signed with the account's secret for such messages (POST /v1/webhooks/once/rotate-secret). */
  webhook_url?: string | null;
}

/** How it went. A failed compile has its exit code here too, and `reason` `compile_failed`. */
export interface Execution {
  language: string;
  /** Of the language, as the image's package says it. */
  version?: string | null;
  sandbox_id?: string | null;
  /** 128 + signal when a signal ended it; None while it runs. */
  exit_code?: number | null;
  /** Written as `encoding` says. */
  stdout?: string;
  /** Written as `encoding` says. */
  stderr?: string;
  /** Bytes beyond the limit, or lost. */
  stdout_dropped?: number;
  stderr_dropped?: number;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  timed_out?: boolean;
  /** Something of an output is missing. */
  truncated?: boolean;
  /** Why it ended, when that was not its own doing. */
  reason?: string | null;
  /** Of the program, without its compiling. */
  duration_ms?: number | null;
  /** Of the whole request; the sandbox is removed after it. */
  total_ms?: number | null;
  compile?: Compiled | null;
  artifacts?: Array<Artifact>;
  left_out?: Array<LeftOut>;
  /** What it has cost when this was said. */
  sats?: number;
}

/** What `expire` found past its time, and whether it was acted upon. */
export interface Expired {
  applied: boolean;
  sandbox_ids: Array<string>;
}

export interface ExplainEgress {
  url: string;
  method?: string;
}

export interface ExposedFile {
  path: string;
  /** A file that holds a secret by its name or content; or the insides of a git folder. */
  kind: "secret" | "git" | (string & {});
  /** Permission bits. */
  mode: number;
  /** The same as `chmod` takes it. */
  permissions?: string;
}

/** What a program that serves files would show to whoever reaches it. */
export interface Exposure {
  /** By path; `chmod o-rwx` takes one from the list. */
  findings: Array<ExposedFile>;
  /** Where was looked, and below. */
  folders: Array<string>;
  /** Files and folders. */
  looked_at: number;
  /** False: not everything was looked at; `why` says why. */
  complete: boolean;
  why?: string | null;
}

export interface FailedClone {
  /** Which of the clones, from 0. */
  number: number;
  problem: Problem;
}

/** Event `change` of a watch. `overflow` means: changes were lost, look again. */
export interface FileEvent {
  path: string;
  /** The exact bytes, percent-encoded; present when `path` had to replace broken UTF-8. */
  raw_path?: string | null;
  change: "created" | "modified" | "removed" | "moved" | "overflow" | (string & {});
}

export interface FileInfo {
  path: string;
  /** The exact bytes, percent-encoded; present when `path` had to replace broken UTF-8. */
  raw_path?: string | null;
  name: string;
  kind: "file" | "directory" | "symlink" | "other" | (string & {});
  size: number;
  /** Permission bits. */
  mode: number;
  uid: number;
  gid: number;
  /** RFC 3339, UTC. */
  modified_at: string;
  link_target?: string | null;
}

export interface FilePage {
  files: Array<FileInfo>;
  next_cursor?: string | null;
}

export interface Finding {
  path: string;
  kind: string;
}

export interface Garbage {
  /** How long what nobody needs stays. */
  grace: string;
  garbage: Array<GarbageItem>;
}

export interface GarbageItem {
  /** Name of an image tree, or id of a snapshot or volume. */
  id: string;
  /** A disk without a record; or an older build of an image that nothing lies over. */
  tier: "leftover" | "base" | (string & {});
  why: string;
  /** Where the disk lies; null for a tree. */
  backend: string | null;
  /** null: nobody has counted. */
  size_bytes: number | null;
  /** Since when nobody has needed it. */
  since: string;
  /** When it is removed; null: never, other servers may have disks over it. */
  goes_at: string | null;
}

export interface GenesisChallenge {
  nonce: string;
  account: string;
  /** Fill in {btc}, {stx} and {timestamp}, then sign. */
  btc_message: string;
  sip018_domain: Record<string, unknown>;
  sip018_message: Record<string, string>;
  /** RFC 3339, UTC. */
  expires_at: string;
}

export interface GiftCard {
  id: string;
  state: "awaiting_payment" | "active" | "spent" | "revoked" | "refunded" | "reversed" | (string & {});
  /** What it was bought for. */
  cents: number;
  /** What can be redeemed. */
  left_cents: number;
  /** What waits for approval. */
  held_cents: number;
  /** How it was paid. */
  source: "invoice" | "sats" | "operator" | (string & {});
  needs_approval: boolean;
  /** The code was shown. */
  is_shown: boolean;
  invoice?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  paid_at?: string | null;
  /** Ask again after so many seconds. */
  poll_after_s?: number;
}

export interface GiftCardList {
  cards: Array<GiftCard>;
  /** None: no more. */
  next_cursor?: string | null;
}

export interface GiftPricing {
  min_cents: number;
  max_cents: number;
  /** Coins that an invoice may be paid in. */
  currencies: Array<string>;
  pays_with_sats: boolean;
  /** Now, rounded down; null: no rate. */
  sats_per_dollar?: number | null;
  /** Kept of a refund to a coin address. */
  restocking_percent: number;
  approval_by: Array<"webhook" | "email" | (string & {})>;
  words: number;
  /** How many words there are to choose from. */
  word_list: number;
  /** Wrong codes, of everybody together. */
  attempts_per_minute: number;
  /** Of the puzzle that an attempt needs now; 0: none. */
  work_bits: number;
  /** Where the prices of tiers are. */
  tiers?: string;
}

/** Something for sale, as the bazaar extension of x402 lists it. */
export interface Good {
  resource: string;
  type: "http";
  x402Version: 2;
  operation: string;
  accepts: Array<Record<string, unknown>>;
  extensions: Record<string, unknown>;
  mimeType?: string | null;
  serviceName?: string | null;
  tags?: Array<string>;
}

export interface Goods {
  x402Version?: 2;
  items: Array<Good>;
}

export interface GrantImage {
  /** Who may use it: an account's id or public id. */
  account: string;
}

/** A secret of the account's vault that is put into requests to a host, outside of the sandbox. */
export interface HeaderSecret {
  /** One host by its whole name. */
  host: string;
  header: string;
  /** Its name; see /v1/secrets. */
  secret: string;
  /** `{}` stands for the value. */
  form?: string;
}

export interface HeaderSecretFacts {
  host: string;
  header: string;
  secret: string;
  form: string;
}

/** How the platform tells that it is well. */
export interface HealthInput {
  /** A GET of this must be answered by 200 to 399. Left out: it takes connections. */
  path?: string | null;
  interval_s?: number;
  timeout_s?: number;
  /** So many failures in a row make it unhealthy. */
  threshold?: number;
  /** How long a new process may take to get well. */
  start_timeout_s?: number;
}

export interface Health {
  status?: "ok" | "degraded" | (string & {});
  /** Each part that was tried: the database, the journal of nonces, the state folder, each backend and what it needs. Why one is failing is in the server's log. */
  checks?: Record<string, "ok" | "failing" | (string & {})>;
}

export interface HealthView {
  path: string | null;
  interval_s: number;
  timeout_s: number;
  threshold: number;
  start_timeout_s: number;
}

export interface Host {
  version: string;
  uptime_s: number;
  backends: Array<BackendCapabilities>;
  /** What the backends saw of this host. */
  facts: Record<string, string>;
  /** How many, by state. */
  sandboxes: Record<string, number>;
}

export interface Image {
  name: string;
  size_bytes?: number | null;
  built_at?: string | null;
  facts?: Record<string, string>;
}

export interface ImageGrants {
  /** Who may use it beside its owner. */
  accounts: Array<string>;
}

export interface ImageList {
  /** Base images of the host, by name. */
  images: Array<Image>;
  /** By accounts, newest first; page by page. */
  published?: Array<PublishedImage>;
  next_cursor?: string | null;
}

/** What it may do from inside. */
export interface Inception {
  budget_sats: number;
  depth: number;
  slots?: number | null;
  scopes: Array<string>;
  on_parent_end: "end" | "adopt" | (string & {});
}

export interface InjectSecrets {
  /** Of the account, as they are now. */
  names?: Array<string>;
  /** For this sandbox alone, by name. */
  values?: Record<string, string>;
  /** As variables of every command started from now on. */
  env?: boolean;
  /** As /run/secrets/NAME: in memory, mode 0400, never on the disk. */
  files?: boolean;
}

export interface InjectedSecret {
  /** A variable's and a file's name at once. */
  name: string;
  size_bytes: number;
  /** Commands find it in their environment. */
  env: boolean;
  /** Its file inside; null: it has none. */
  file: string | null;
  /** RFC 3339, UTC. */
  injected_at: string;
}

export interface InjectedSecretList {
  secrets: Array<InjectedSecret>;
}

export interface InputFile {
  /** Relative to the working folder, without `.` and `..` parts. */
  name: string;
  /** Written as `encoding` says. */
  content: string;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}

export interface Interrupted {
  /** The cell that was asked to stop; null if none ran. */
  cell: number | null;
}

export interface Invoice {
  id: string;
  state: "awaiting" | "double_spent" | "dust" | "partial" | "seen" | "confirming" | "paid" | "over" | "reorged" | "expired" | "underpaid" | "late" | "awaiting_rate" | "credited" | "refund_due" | "refunded" | (string & {});
  /** Nothing more is expected; no need to ask again. */
  is_settled: boolean;
  /** What is bought: tier, sats, or goods of another room. */
  kind: string;
  tier?: number | null;
  months?: number | null;
  usd_cents?: number | null;
  /** The price in sats. */
  sats: number;
  currency: string;
  /** Exactly so much of the coin. */
  amount: string;
  /** In the coin's smallest unit, as text. */
  atomic: string;
  /** Dollars for one coin, locked. */
  usd_rate?: string | null;
  btc_usd_rate?: string | null;
  address: string;
  /** What a wallet scans; GET …/qr.svg draws it. */
  payment_uri: string;
  refund_address?: string | null;
  confirmations_needed: number;
  /** Of the least deep output that counts. */
  confirmations: number;
  received: string;
  payments: Array<CoinPayment>;
  refunds: Array<Refund>;
  history: Array<InvoiceStep>;
  /** The key of a new account; fetch its secret with the claim, once. */
  public_key?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  /** RFC 3339, UTC. */
  expires_at: string;
  /** Ask again after so many seconds. */
  poll_after_s?: number;
}

export interface InvoiceList {
  invoices: Array<Invoice>;
  /** None: no more. */
  next_cursor?: string | null;
}

export interface InvoiceStep {
  /** RFC 3339, UTC. */
  at: string;
  state: "awaiting" | "double_spent" | "dust" | "partial" | "seen" | "confirming" | "paid" | "over" | "reorged" | "expired" | "underpaid" | "late" | "awaiting_rate" | "credited" | "refund_due" | "refunded" | (string & {});
  signal: string;
}

export interface Job {
  id: string;
  /** `finished`: the program ended by itself, whatever its exit code. `failed`: it did not compile or could not be started. `lost`: its sandbox went away under it. */
  state: "queued" | "running" | "finished" | "failed" | "cancelled" | "timed_out" | "lost" | (string & {});
  reason: string;
  language: string;
  sandbox_id?: string | null;
  sats?: number;
  webhook_url?: string | null;
  problem?: JobProblem | null;
  /** RFC 3339, UTC. */
  created_at: string;
  started_at?: string | null;
  ended_at?: string | null;
  /** What there is of it so far; whole once it ended. */
  result?: Execution | null;
}

export interface JobPage {
  jobs: Array<JobSummary>;
  next_cursor?: string | null;
}

/** Why a job could not be started, or was lost. */
export interface JobProblem {
  code: string;
  detail: string;
  next_step?: string;
  facts?: Record<string, unknown>;
}

export interface JobSummary {
  id: string;
  /** `finished`: the program ended by itself, whatever its exit code. `failed`: it did not compile or could not be started. `lost`: its sandbox went away under it. */
  state: "queued" | "running" | "finished" | "failed" | "cancelled" | "timed_out" | "lost" | (string & {});
  reason: string;
  language: string;
  sandbox_id?: string | null;
  sats?: number;
  webhook_url?: string | null;
  problem?: JobProblem | null;
  /** RFC 3339, UTC. */
  created_at: string;
  started_at?: string | null;
  ended_at?: string | null;
}

export type JsonValue = unknown;

export interface Key {
  public_key: string;
  name: string;
  account: string;
  is_owner: boolean;
  accepts_v1: boolean;
  /** RFC 3339, UTC. */
  created_at: string;
  revoked_at?: string | null;
  suspended_at?: string | null;
  expires_at?: string | null;
}

export interface KeyList {
  keys: Array<Key>;
}

/** An account with what hangs below it, in sats. */
export interface KeyNode {
  account: string;
  key?: DelegatedKey | null;
  given: number;
  returned: number;
  /** Paid in by anyone else. */
  outside: number;
  passed_on: number;
  spent: number;
  balance: number;
  subtree_spent: number;
  children: Array<KeyNode>;
}

export interface KeyReport {
  public_key: string;
  is_valid: boolean;
  /** invalid_key, suspended or expired. */
  reason?: string | null;
  expires_at?: string | null;
  expired_ago_s?: number | null;
  tier?: KeyTier | null;
}

export interface KeyTier {
  level: number;
  requests_per_minute: number;
  slots: number;
  until?: string | null;
}

export interface KnownName {
  /** The name, which is served here. */
  domain: string;
}

export interface Lack {
  what: string;
  why: string;
  remedy: string;
}

export interface Language {
  name: string;
  title: string;
  aliases: Array<string>;
  extension: string;
  is_shell: boolean;
  /** How it is compiled in a folder of its own; null: it runs as it is written. */
  compile?: Array<string> | null;
  /** How it is run in that folder. */
  run: Array<string>;
  /** The smallest of our images that has it. */
  image: string;
  /** Images on this host that have it. */
  images: Array<string>;
  /** It runs here: an image on this host has it. */
  available: boolean;
  /** Of its package in the first of these images. */
  version?: string | null;
  /** A whole program that says hello. */
  hello: string;
}

export interface LanguageList {
  languages: Array<Language>;
  /** Other words for them: word to name. */
  aliases: Record<string, string>;
  /** How many are listed, all shells together counted as one. */
  count: number;
}

export interface LedgerProof {
  is_whole: boolean;
  accounts: number;
  transfers: number;
  segments: number;
  sums: Record<string, number>;
  faults: Array<string>;
}

export interface LedgerTotals {
  /** By asset and kind of account. */
  totals: Record<string, Record<string, number>>;
}

/** A file that was asked for and is not in the answer. */
export interface LeftOut {
  name: string;
  why: string;
  size?: number | null;
}

export interface LimitFacts {
  max_bytes: number | null;
  bytes_per_s: number | null;
  connections: number;
}

export interface LimitsInput {
  /** Both ways, over its whole life. */
  max_bytes?: number | null;
  bytes_per_s?: number | null;
  /** At once; more wait inside. */
  connections?: number;
}

export interface Limits {
  /** Empty: not limited. */
  requests: Array<RequestLimit>;
  /** Sandboxes at once; null: no limit but money. */
  slots?: number | null;
  slots_in_use: number;
  /** Of them run at rate zero by the tier of this account. */
  free_slots: number;
  /** Of spending, in sats. */
  caps: Record<string, number>;
  /** Generations of delegated keys that may still follow. */
  depth: number;
  expires_at?: string | null;
  /** How long and how large a sandbox may be. */
  profiles: Array<ProfileLimit>;
  /** The most that single requests may ask for. */
  maxima: Record<string, number>;
}

export interface LinkWallet {
  /** From the challenge. */
  nonce: string;
  /** A wallet: bare, or as CAIP-10. */
  address: string;
  /** As the wallet gives it: hex for EVM and Stacks, base 64 for Bitcoin. */
  signature: string;
}

export interface LogLine {
  /** Grows by one with each line; `after` takes it. */
  number: number;
  /** RFC 3339, UTC. */
  at: string;
  /** Which of its processes printed it. */
  run: number;
  /** `system`: a word of the platform. */
  stream: "stdout" | "stderr" | "system" | (string & {});
  text: string;
}

export interface LogPage {
  lines: Array<LogLine>;
}

/** What programs in a sandbox had made, of all generations, when that ended. */
export interface MadeInside {
  /** Whether it ends with it; else it goes on with what it has. */
  ends: boolean;
  count: number;
  /** The first hundred. */
  sandbox_ids: Array<string>;
}

export interface MakeDirectory {
  /** Absolute path inside the sandbox. */
  path: string;
  /** Permission bits. */
  mode?: number;
  parents?: boolean;
  /** `percent`: paths here are percent-encoded bytes, for names that are not UTF-8. */
  path_encoding?: "text" | "percent" | (string & {});
}

export interface Me {
  account: Account;
  money: Balance;
  /** From the root to this account. */
  ancestry: Array<string>;
  scopes: Array<string>;
  /** Generations of delegated keys that may still follow. */
  depth: number;
  /** Sandboxes at once, children's included. */
  slots?: number | null;
  expires_at?: string | null;
  /** None: no limit. */
  requests_per_minute?: number | null;
}

export interface MoveFile {
  /** Absolute path inside the sandbox. */
  source: string;
  /** Absolute path inside the sandbox. */
  target: string;
  overwrite?: boolean;
  /** `percent`: paths here are percent-encoded bytes, for names that are not UTF-8. */
  path_encoding?: "text" | "percent" | (string & {});
}

export interface Moved {
  id: string;
  sats: number;
  /** False: this very transfer was made before. */
  is_new: boolean;
}

/** The only answer that ever holds the token; a hash of it is stored. */
export interface NewBearer {
  public_key: string;
  /** For `Authorization: Bearer …`, on this host or by TLS. */
  bearer_token: string;
}

/** Its secret is shown this once. */
export interface NewDelegatedKey {
  public_key: string;
  account: string;
  name: string;
  parent: string;
  generation: number;
  scopes: Array<string>;
  depth: number;
  slots?: number | null;
  expires_at?: string | null;
  state: string;
  reason: string;
  /** RFC 3339, UTC. */
  created_at: string;
  ended_at?: string | null;
  secret_key: string;
  budget_sats: number;
}

export interface NewGiftCard {
  id: string;
  state: "awaiting_payment" | "active" | "spent" | "revoked" | "refunded" | "reversed" | (string & {});
  /** What it was bought for. */
  cents: number;
  /** What can be redeemed. */
  left_cents: number;
  /** What waits for approval. */
  held_cents: number;
  /** How it was paid. */
  source: "invoice" | "sats" | "operator" | (string & {});
  needs_approval: boolean;
  /** The code was shown. */
  is_shown: boolean;
  invoice?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  paid_at?: string | null;
  /** Ask again after so many seconds. */
  poll_after_s?: number;
  /** Proves the buyer; shown here and never again. */
  claim: string;
  /** The four words, if it is paid already; shown here and never again. */
  code?: string | null;
  /** Signs the webhooks that ask for approval; shown once. */
  approval_secret?: string | null;
  /** What to pay, if it is paid by invoice. */
  bill?: NewInvoice | null;
}

export interface NewInvoice {
  id: string;
  state: "awaiting" | "double_spent" | "dust" | "partial" | "seen" | "confirming" | "paid" | "over" | "reorged" | "expired" | "underpaid" | "late" | "awaiting_rate" | "credited" | "refund_due" | "refunded" | (string & {});
  /** Nothing more is expected; no need to ask again. */
  is_settled: boolean;
  /** What is bought: tier, sats, or goods of another room. */
  kind: string;
  tier?: number | null;
  months?: number | null;
  usd_cents?: number | null;
  /** The price in sats. */
  sats: number;
  currency: string;
  /** Exactly so much of the coin. */
  amount: string;
  /** In the coin's smallest unit, as text. */
  atomic: string;
  /** Dollars for one coin, locked. */
  usd_rate?: string | null;
  btc_usd_rate?: string | null;
  address: string;
  /** What a wallet scans; GET …/qr.svg draws it. */
  payment_uri: string;
  refund_address?: string | null;
  confirmations_needed: number;
  /** Of the least deep output that counts. */
  confirmations: number;
  received: string;
  payments: Array<CoinPayment>;
  refunds: Array<Refund>;
  history: Array<InvoiceStep>;
  /** The key of a new account; fetch its secret with the claim, once. */
  public_key?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  /** RFC 3339, UTC. */
  expires_at: string;
  /** Ask again after so many seconds. */
  poll_after_s?: number;
  /** Shown here and never again; POST /v1/keys/{public_key}/reveal takes it. */
  claim?: string | null;
}

/** The only answer that ever holds the secret; it is never stored, also not for an Idempotency-Key. */
export interface NewKey {
  public_key: string;
  secret_key: string;
  name: string;
  account: string;
  accepts_v1: boolean;
}

export interface NewPreview {
  /** Id of a preview. */
  id: string;
  /** Id of a sandbox. */
  sandbox_id: string;
  /** Port inside the sandbox; 0 stands for every port. */
  port: number;
  public: boolean;
  one_time: boolean;
  wakes: boolean;
  hold_s: number;
  /** RFC 3339, UTC. */
  created_at: string;
  expires_at: string | null;
  used_at: string | null;
  /** Its address; in a new private one with its token, shown this once. */
  url: string | null;
  /** For X-Sandboxer-Preview, or `?sandboxer_token=`; none for a public one. */
  token: string | null;
  /** Null: nobody looked. */
  exposure?: Exposure | null;
}

export interface NewRedemption {
  id: string;
  state: "pending_approval" | "granted" | "denied" | "expired" | "cancelled" | (string & {});
  kind: "tier" | "sats" | (string & {});
  tier?: number | null;
  months?: number | null;
  /** What it takes from the card. */
  cents: number;
  /** What it gave, once granted. */
  sats?: number | null;
  /** At which the cents became sats. */
  btc_usd_rate?: string | null;
  /** What can still be redeemed of the card. */
  left_cents: number;
  /** Public id of who gets it. */
  account?: string | null;
  /** The key of a new account; fetch its secret with the claim, once. */
  public_key?: string | null;
  entitled_until?: string | null;
  reason: string;
  /** RFC 3339, UTC. */
  created_at: string;
  /** Until when it may be approved. */
  expires_at?: string | null;
  poll_after_s?: number;
  request_id: string;
  /** For a new account; POST /v1/keys/{public_key}/reveal takes it, once. */
  claim?: string | null;
}

export interface NewWebhook {
  id: string;
  account: string;
  url: string;
  kinds: Array<string>;
  all_accounts: boolean;
  enabled: boolean;
  disabled_reason: string;
  old_secret_until?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  /** whsec_ and base64; shown this once. */
  secret: string;
}

export interface OfferImage {
  /** Whom it is offered to, by id or public id; null takes it back. */
  account: string | null;
}

export interface OpenSession {
  /** From the challenge. */
  nonce: string;
  /** As the wallet gives it: hex for EVM and Stacks, base 64 for Bitcoin. */
  signature: string;
  /** Needed for wallets other than EVM, whose signatures name them. */
  address?: string | null;
}

export interface PayOut {
  /** Whole sats. */
  sats: number;
  /** Chosen by you before the call: the same id moves money once. */
  id: string;
  /** Why; it is written down. */
  reason: string;
}

export interface PaymentCoin {
  coin: string;
  is_on: boolean;
  /** Why no invoice in it is given out now. */
  reason?: string | null;
}

export interface PaymentNetwork {
  /** CAIP-2. */
  network: string;
  is_on: boolean;
  /** Why nothing can be paid there now. */
  reason?: string | null;
}

export interface PaymentPage {
  payments: Array<Payment>;
  next_cursor?: string | null;
}

export interface Pools {
  warm: Array<WarmPool>;
  storage: Array<StoragePool>;
}

export interface Preview {
  /** Id of a preview. */
  id: string;
  /** Id of a sandbox. */
  sandbox_id: string;
  /** Port inside the sandbox; 0 stands for every port. */
  port: number;
  public: boolean;
  one_time: boolean;
  wakes: boolean;
  hold_s: number;
  /** RFC 3339, UTC. */
  created_at: string;
  expires_at: string | null;
  used_at: string | null;
  /** Its address; in a new private one with its token, shown this once. */
  url: string | null;
}

export interface PreviewList {
  previews: Array<Preview>;
}

export interface Pricing {
  /** What sandboxes spend. */
  unit?: string;
  rates: Rates;
  profiles: Array<ProfilePrice>;
  tiers: Array<TierPrice>;
  /** False: these are only what would hold; nothing is charged. */
  is_charged?: boolean;
  /** Where one can pay by x402. */
  networks?: Array<PaymentNetwork>;
  /** What one can pay in by invoice. */
  coins?: Array<PaymentCoin>;
}

/** Further members are facts of this very error (RFC 9457, section 3.2). */
export interface Problem {
  /** Stable. */
  type: string;
  title: string;
  status: number;
  detail: string;
  /** Stable; meant for programs. */
  code: string;
  /** `caller`: change something and retry. `platform`: ours; retry later. */
  fault: "caller" | "platform" | (string & {});
  /** What to do now. */
  next_step: string;
  request_id: string;
  [fact: string]: unknown;
}

export interface Process {
  process_id: string;
  /** As seen inside the sandbox. */
  pid: number;
  argv: Array<string>;
  tag?: string;
  /** RFC 3339, UTC. */
  started_at: string;
  has_terminal: boolean;
  running: boolean;
  exit_code?: number | null;
  signal?: number | null;
  timed_out?: boolean;
  reason?: string | null;
  /** When it will be killed. */
  deadline?: string | null;
  /** Bytes that its stdin took so far; absent where an older sandbox does not say. */
  stdin_bytes?: number | null;
}

export interface ProcessList {
  processes: Array<Process>;
}

export interface Profile {
  id: string;
  version: string;
  title?: string;
  backend: string;
  image: string;
  /** Which network the sandbox gets: `zero` none at all, `semi` through the egress proxy. */
  trust: "zero" | "semi" | (string & {});
  resources: Resources;
  ttl_default: string;
  ttl_max: string;
  idle_timeout?: string | null;
  /** Creating and extending need a genesis proof: POST /v1/auth/genesis. */
  genesis_required?: boolean;
  metadata?: Record<string, string>;
}

export interface ProfileLimit {
  profile: string;
  ttl_default: string;
  ttl_max: string;
  resources_max: Resources;
}

export interface ProfileList {
  profiles: Array<Profile>;
}

export interface ProfilePrice {
  profile: string;
  is_free: boolean;
  /** Per second, at the profile's own resources. */
  running_msats: number;
  frozen_msats: number;
  stored_msats: number;
}

/** A capability as registries of capabilities name it. */
export interface Provided {
  id: string;
  name: string;
  summary: string;
  owner: string;
  status: "draft" | "active" | (string & {});
  domain: string;
  tags: Array<string>;
  consumption_modes: Array<string>;
  /** Those whose backend this platform uses. */
  profiles: Array<string>;
}

/** Exactly one of `snapshot`, `sandbox` and `service`. */
export interface PublishImage {
  snapshot?: string | null;
  /** Its disk as it is now. */
  sandbox?: string | null;
  /** Its id or name: the disk of its sandbox as it is now. */
  service?: string | null;
  /** A name for people; needs not be unique. */
  name: string;
  description?: string;
  /** `private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone. */
  visibility?: "private" | "unlisted" | "public" | (string & {});
  /** Leave out files in which something looks like a secret. */
  clean?: boolean;
}

export interface PublishedImage {
  /** Id of a published image. */
  id: string;
  name: string;
  description?: string;
  /** Whose it is. */
  account: string;
  /** `private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone. */
  visibility: "private" | "unlisted" | "public" | (string & {});
  state: "taking" | "kept" | "unpaid" | "dropping" | "dropped" | "failed" | "lost" | (string & {});
  /** Why it is in this state. */
  reason?: string | null;
  /** What it was made of: a snapshot, a sandbox, a service, another image, `import`, `build@sha256:…`, or a reference with its digest (`docker://…@sha256:…`). */
  source: string;
  backend: string;
  /** The host's tree that it is a layer over; `scratch`: it brings everything. */
  base: string;
  profile: string;
  resources: Resources;
  /** As an OCI image's: Env, Entrypoint, Cmd, WorkingDir, User. Env holds inside. */
  config?: Record<string, unknown>;
  /** Over all paths, modes, owners and contents. */
  digest?: string;
  size_bytes?: number;
  files?: number;
  /** What looks like a secret in it (the first 100); told to its owner. */
  findings?: Array<Finding>;
  findings_count?: number;
  /** Files left out of it (the first 100); told to its owner. */
  stripped?: Array<string>;
  stripped_count?: number;
  /** Who may accept it as theirs. */
  offered_to?: string | null;
  /** What keeping it costs, in thousandths of a sat a second. */
  rate_msats_per_s?: number;
  /** RFC 3339, UTC. */
  created_at: string;
  /** When every file was last checked. */
  verified_at?: string | null;
  /** When it goes unless somebody pays. */
  expires_at?: string | null;
  ended_at?: string | null;
  locked_at?: string | null;
}

/** Which image of which registry, and what to make of it. */
export interface PullImage {
  /** As `python:3.12`, or `docker://registry.example.com/who/what:1@sha256:…`. What names no registry is of the operator's default one. */
  reference: string;
  /** A name for people; else the image's. */
  name?: string | null;
  description?: string;
  /** `private`: you and whom you grant it; `unlisted`: who knows its id; `public`: everyone. */
  visibility?: "private" | "unlisted" | "public" | (string & {});
  /** Leave out files that look like secrets. */
  clean?: boolean;
  /** What sandboxes of it are made as. */
  profile?: string | null;
  /** Of the registry; kept nowhere. */
  user?: RegistryUser | null;
  /** Ask the registry without TLS. */
  plain_http?: boolean;
}

export interface PutSecret {
  /** Text without NUL, at most 64 KiB as UTF-8; never shown again. */
  value: string;
}

export interface Quote {
  /** Name it as quote_id in one create or extend, before expires_at. */
  id: string;
  profile: string;
  vcpus: number;
  memory_mb: number;
  disk_mb: number;
  duration: string;
  /** If it runs all the time, rounded up. */
  sats: number;
  running_msats: number;
  frozen_msats: number;
  stored_msats: number;
  egress_gb_msats: number;
  /** RFC 3339, UTC. */
  quoted_at: string;
  /** Until then these rates hold. */
  expires_at: string;
  /** False: nothing is charged here, and it costs nothing. */
  is_charged?: boolean;
}

export interface RateLine {
  asset: string;
  /** US dollars for one whole unit; null: no rate now. */
  usd: string | null;
  at?: string | null;
  sources: Array<string>;
  /** Why there is none. */
  why?: string | null;
  /** Why no invoice in it is given out now. */
  off?: string | null;
}

export interface RateList {
  rates: Array<RateLine>;
}

/** Thousandths of a sat per second; egress per GB. */
export interface Rates {
  running_msats: number;
  vcpu_msats: number;
  memory_gb_msats: number;
  disk_gb_msats: number;
  frozen_memory_gb_msats: number;
  stored_disk_gb_msats: number;
  egress_gb_msats: number;
}

/** Ways to reach what runs inside. A sandbox has no address: everything goes through this API. */
export interface Reachability {
  /** Id of a sandbox. */
  sandbox_id: string;
  reachable: boolean;
  state: "requested" | "provisioning" | "ready" | "active" | "frozen" | "stopped" | "grace" | "reaped" | "expired" | "failed" | "destroying" | "destroyed" | (string & {});
  /** One question to the supervisor inside. */
  latency_ms?: number | null;
  /** Path of the route that runs commands. */
  exec: string;
  files: string;
  terminal: string;
  reason?: string | null;
  /** Address of its SSH; null: this platform has no gateway. */
  ssh?: string | null;
  /** The folder for work inside: /workspace. */
  remote_dir?: string | null;
  /** Opens its ports: what the profile names for it, or the address that makes links. */
  tunnel?: string | null;
  /** Gives keys for it: what the profile names, or the address that takes SSH keys. */
  identity?: string | null;
  /** Address that says how it is. */
  poll?: string | null;
  /** Address that streams what happens to it. */
  events?: string | null;
  /** Address where to ask to be told: POST it a URL and kinds. */
  webhook?: string | null;
}

export interface Readiness {
  status: "ready" | "starting" | "stopping" | (string & {});
}

export interface Reaped {
  removed: Array<Stale>;
}

/** `tier` and `months`, or `cents` to be turned into sats; without either, all that is left is. */
export interface Redeem {
  /** The four words; case, spaces and hyphens do not matter. */
  code: string;
  /** Random, chosen by you: the same one redeems once and is answered again. */
  request_id?: string | null;
  tier?: number | null;
  months?: number | null;
  cents?: number | null;
  /** Whom it is for; without it the caller, or if nobody signed, a new account. */
  account?: string | null;
  work?: Work | null;
}

export interface Redemption {
  id: string;
  state: "pending_approval" | "granted" | "denied" | "expired" | "cancelled" | (string & {});
  kind: "tier" | "sats" | (string & {});
  tier?: number | null;
  months?: number | null;
  /** What it takes from the card. */
  cents: number;
  /** What it gave, once granted. */
  sats?: number | null;
  /** At which the cents became sats. */
  btc_usd_rate?: string | null;
  /** What can still be redeemed of the card. */
  left_cents: number;
  /** Public id of who gets it. */
  account?: string | null;
  /** The key of a new account; fetch its secret with the claim, once. */
  public_key?: string | null;
  entitled_until?: string | null;
  reason: string;
  /** RFC 3339, UTC. */
  created_at: string;
  /** Until when it may be approved. */
  expires_at?: string | null;
  poll_after_s?: number;
}

/** Everything is optional: an empty body starts the same again, with the vault as it is now. */
export interface RedeployService {
  bootstrap?: string | null;
  command?: string | null;
  /** Written before it starts. */
  files?: Array<ServiceFile>;
  /** Replaces the plain environment. */
  env?: Record<string, string> | null;
}

export interface Refund {
  id: string;
  invoice: string;
  currency: string;
  state: "queued" | "sending" | "sent" | "confirmed" | "withdrawn" | (string & {});
  reason: string;
  /** The payment it returns; it spends that very output. */
  txid: string;
  output: string;
  /** In the coin's smallest unit, as text. */
  received_atomic: string;
  amount: string;
  /** In the coin's smallest unit, as text. */
  amount_atomic: string;
  /** What is not sent back; the network's fee is paid from it. */
  kept_atomic: string;
  /** The network's fee, once the hot wallet has signed; part of what is kept. */
  fee_atomic?: string | null;
  address: string;
  sent_txid?: string | null;
  /** Why the hot wallet has not sent it: the operator may, spending that very output. */
  held?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  /** RFC 3339, UTC. */
  updated_at: string;
}

export interface RefundCard {
  claim?: string | null;
  /** An account's sats, or the coin it was paid with, less restocking. */
  to: "sats" | "address" | (string & {});
  account?: string | null;
  address?: string | null;
}

export interface RefundList {
  refunds: Array<Refund>;
  next_cursor?: string | null;
}

export interface RefundedCard {
  card: GiftCard;
  to: "sats" | "address" | (string & {});
  /** What the account got. */
  sats?: number | null;
  /** What is queued to go back, in the smallest unit. */
  atomic?: string | null;
}

export interface RegistryUser {
  username: string;
  password: string;
}

export interface RemoveFile {
  /** Absolute path inside the sandbox. */
  path: string;
  recursive?: boolean;
  /** `percent`: paths here are percent-encoded bytes, for names that are not UTF-8. */
  path_encoding?: "text" | "percent" | (string & {});
}

/** Rules for all sandboxes of the account, beside each one's own. A deny wins over every allow. */
export interface ReplaceAccountEgress {
  rules: Array<Rule>;
  /** Only if this version stands. */
  version?: number | null;
}

/** The whole policy, instead of the one that stands. */
export interface ReplaceEgress {
  /** What happens to hosts that no rule names. */
  default?: "allow" | "deny" | (string & {});
  rules?: Array<Rule>;
  secrets?: Array<HeaderSecret>;
  limits?: LimitsInput;
  /** Only if this version stands. */
  version?: number | null;
}

export interface RequestLimit {
  /** Counted for this key, for the account at its root, or for where it comes from. */
  what: "key" | "account" | "address" | (string & {});
  per_minute: number;
  left: number;
}

/** Of the whole platform since it started (owner only). */
export interface RequestStats {
  answered: number;
  by_status: Record<string, number>;
  refused_signatures: number;
}

/** Client to server. */
export interface Resize {
  type: "resize";
  cols: number;
  rows: number;
}

export interface Resources {
  vcpus: number;
  memory_mb: number;
  disk_mb: number;
  pids: number;
}

/** What follows the end of its process. */
export interface Restart {
  policy?: "always" | "on-failure" | "never" | (string & {});
  /** Pause before the first restart; doubled with every further one. */
  backoff_s?: number;
  backoff_max_s?: number;
  /** More ends than this within the window: `crash_looping`. */
  max_crashes?: number;
  window_s?: number;
}

export interface RestartView {
  policy: string;
  backoff_s: number;
  backoff_max_s: number;
  max_crashes: number;
  window_s: number;
}

export interface RestoreVolume {
  /** A snapshot of this volume, or of another one of the same account. */
  snapshot: string;
}

export interface RevealKey {
  /** What the payer was given. */
  claim: string;
  /** The 15 minutes are over: have a new secret instead, once. */
  regenerate?: boolean;
}

export interface Revoke {
  claim?: string | null;
  reason?: string;
}

export interface RotateSecret {
  /** How long the old secret still signs; 0s if it leaked. */
  overlap?: string;
}

/** How its backend was chosen when it was created. */
export interface Route {
  strategy: string;
  /** Those that could make it first. */
  considered?: Array<Considered>;
  /** Of how many more nothing was kept. */
  more?: number;
  /** Those that were asked, in order. */
  attempts?: Array<Attempt>;
}

export interface RouteExplanation {
  profile: string;
  strategy: string;
  /** The least that is needed. */
  isolation: string;
  /** Why more is needed than the profile says. */
  isolation_since?: string | null;
  considered: Array<Considered>;
}

export interface Rule {
  action: "allow" | "deny" | (string & {});
  /** `example.com`; `*.example.com` for all names below it; `*` for every one. */
  host: string;
  /** 443 and 80 unless given; a deny without methods and path then holds on every port. Empty: every port but 25. */
  ports?: Array<number>;
  /** Empty: every one. A rule with methods or a path has TLS opened. */
  methods?: Array<string>;
  path?: string | null;
  /** For whoever reads the rules. */
  note?: string;
}

export interface RuleFacts {
  action: "allow" | "deny" | (string & {});
  /** `example.com`; `*.example.com` for all names below it; `*` for every one. */
  host: string;
  ports: Array<number>;
  methods: Array<string>;
  path: string | null;
  note: string;
}

export interface RunCell {
  code: string;
  /** Then it is interrupted; the state stays. */
  timeout_s?: number;
  /** False: answer at once, and look later. */
  wait?: boolean;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}

/** `command` (for a shell) or `argv` (without one), exactly one of both. */
export interface RunCommand {
  /** Run by bash (sh if there is none), not as a login shell. */
  command?: string | null;
  /** Run without a shell. */
  argv?: Array<string> | null;
  /** Default: /workspace if there is one, else /. */
  cwd?: string | null;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Name or uid known inside; default root. */
  user?: string | null;
  /** Give it `TRACEPARENT` and answer with `traceparent`, even if the request has none. */
  trace?: boolean;
  /** Given to the command, then closed. */
  stdin?: string | null;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  stdin_encoding?: "utf-8" | "base64" | (string & {});
  /** After this, everything the command started is killed and `timed_out` is true. */
  timeout_s?: number;
  /** Kept of stdout and of stderr, each; the rest is read and dropped, and `truncated` is true. Default 1 MiB; a streamed answer has no limit unless one is given. */
  output_limit_bytes?: number | null;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
}

export interface Sandbox {
  /** Id of a sandbox. */
  id: string;
  name?: string | null;
  state: "requested" | "provisioning" | "ready" | "active" | "frozen" | "stopped" | "grace" | "reaped" | "expired" | "failed" | "destroying" | "destroyed" | (string & {});
  /** Why it is in this state. */
  reason?: string | null;
  profile: string;
  profile_version?: string | null;
  backend: string;
  image: string;
  /** Which network the sandbox gets: `zero` none at all, `semi` through the egress proxy. */
  trust: "zero" | "semi" | (string & {});
  /** What it was made with; none: what its profile says. */
  network?: string | null;
  resources: Resources;
  labels?: Record<string, string>;
  inputs?: Record<string, JsonValue>;
  consumer?: Record<string, JsonValue>;
  /** Counted from ready_at. */
  ttl?: string | null;
  idle_timeout?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  ready_at?: string | null;
  expires_at?: string | null;
  ended_at?: string | null;
  /** Since when destroying, recreating and unlocking it need a second proof. */
  locked_at?: string | null;
  /** Where the time of the establishment went, by step. */
  timings_ms?: Record<string, number>;
  /** What the profile's report command said of the host, seen from inside. */
  report?: Record<string, JsonValue> | null;
  /** The quote that promised its rates. */
  quote_id?: string | null;
  /** Of which its disk began as a copy. */
  snapshot?: string | null;
  volumes?: Array<AttachedVolume>;
  /** What it was granted; null: it may not speak to this API. */
  inception?: Inception | null;
  /** With whom it is shared. */
  scope?: string | null;
  /** The folder for work, and who may write to it. */
  workspace?: Workspace | null;
  /** Names of the secrets that it was asked to be made with. */
  secret_refs?: Array<string>;
  /** What became of what was only preferred, wish by wish. */
  answered?: Array<Answered>;
  /** Why its backend was chosen. */
  route?: Route | null;
  /** What it cost in all, rounded up; told when it is destroyed. */
  spent_sats?: number | null;
  /** What it sent outwards in all; told when it is destroyed. */
  egress_sent_bytes?: number | null;
  /** What came back to it in all; told when it is destroyed. */
  egress_received_bytes?: number | null;
  /** What it costs now, in thousandths of a sat a second. */
  rate_msats_per_s?: number;
  /** It goes on when it is resumed. */
  kept_memory_mb?: number;
}

export interface SandboxPage {
  sandboxes: Array<Sandbox>;
  next_cursor?: string | null;
}

/** Each before those that it made. One that has ended is there while something that it made is. */
export interface SandboxTree {
  sandboxes: Array<TreeEntry>;
}

export interface Secret {
  /** A variable's and a file's name at once. */
  name: string;
  /** Of the value, as UTF-8. */
  size_bytes: number;
  /** RFC 3339, UTC. */
  created_at: string;
  /** RFC 3339, UTC. */
  updated_at: string;
}

export interface SecretList {
  secrets: Array<Secret>;
}

export interface SendSats {
  /** The receiver's public id. */
  to: string;
  /** Whole sats. */
  sats: number;
  /** Chosen by you before the call: the same id moves money once. */
  id: string;
  /** Why; it is written down. */
  reason: string;
}

export interface SendSignal {
  signal: "HUP" | "INT" | "QUIT" | "KILL" | "USR1" | "USR2" | "TERM" | "CONT" | "STOP" | "TSTP" | "WINCH" | "ABRT" | "ALRM" | (string & {});
  /** With KILL: end everything the process started, re-parented children included. */
  tree?: boolean;
}

export interface SentRefund {
  /** Id of a transaction on its chain. */
  txid: string;
}

export interface Service {
  /** Id of a service. */
  id: string;
  /** A DNS label, unique in the account. */
  name: string;
  /** Id of a sandbox. */
  sandbox_id: string;
  state: "creating" | "starting" | "running" | "unhealthy" | "restarting" | "sleeping" | "stopped" | "crash_looping" | "failed" | "removed" | (string & {});
  /** Why it is in this state. */
  reason: string;
  /** RFC 3339, UTC. */
  state_since: string;
  /** Its name below the platform's domain. */
  host: string;
  /** Where it answers; null: no reverse proxy here. */
  url?: string | null;
  /** Proven domains of its own. */
  domains: Array<string>;
  public: boolean;
  /** Where its present process listens, inside. */
  port?: number | null;
  /** How many processes it has had. */
  run: number;
  /** Ends of processes within the restart window. */
  crashes: number;
  restart_at?: string | null;
  command?: string | null;
  bootstrap?: string | null;
  cwd?: string | null;
  user?: string | null;
  env: Record<string, string>;
  /** Names of what is in its vault. */
  secrets: Array<string>;
  fixed_port?: number | null;
  health: HealthView;
  restart: RestartView;
  idle_s: number;
  wake: boolean;
  drain_s: number;
  stop_timeout_s: number;
  /** CPUs of its sandbox. */
  vcpus?: number | null;
  memory_mb?: number | null;
  /** Of its sandbox. */
  volumes?: Array<AttachedVolume>;
  locked_at?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  /** RFC 3339, UTC. */
  deployed_at: string;
  /** When its sandbox ends by itself. */
  expires_at?: string | null;
  /** What it costs now, in thousandths of a sat. */
  rate_msats_per_s?: number;
  /** What was found when it was opened to everyone; null: nobody looked lately. */
  exposure?: Exposure | null;
}

export interface ServiceFile {
  /** Where it is written; below /workspace unless it begins with /. */
  path: string;
  content: string;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  /** Permissions. */
  mode?: number | null;
}

export interface ServicePage {
  services: Array<Service>;
  next_cursor?: string | null;
}

export interface SessionChallenge {
  nonce: string;
  /** Sign exactly this text. */
  message: string;
  /** RFC 3339, UTC. */
  expires_at: string;
}

export interface SessionPage {
  sessions: Array<Session>;
  next_cursor?: string | null;
}

export interface SessionsEnded {
  /** How many sessions were open. */
  ended: number;
}

export interface SetExpiry {
  /** None: never. */
  expires_at?: string | null;
}

export interface SetVault {
  /** All there shall be, by name. */
  secrets: Record<string, string>;
}

/** As `setup`, by reference. */
export interface SetupMetadata {
  /** Of a file in the repository that `inputs` names: run as `setup.instructions`. Any other is handed on as SANDBOXER_SETUP_INSTRUCTIONS_REF. */
  instructions_ref?: string | null;
  secret_refs?: Array<string> | null;
}

export interface ShellList {
  shells: Array<Language>;
  count: number;
}

export interface ShowCode {
  claim?: string | null;
  /** Make new words if some were shown before; the old ones end then. */
  again?: boolean;
}

export interface ShownCode {
  id: string;
  /** The four words; kept nowhere. */
  code: string;
  cents: number;
}

export interface SignIn {
  /** The signed text. */
  message: string;
  /** As the wallet gives it: hex for EVM and Stacks, base 64 for Bitcoin. */
  signature: string;
}

export interface SignatureVersion {
  name: string;
  canonical: string;
  headers: Array<string>;
}

/** What a client completes with address and chain, and signs (CAIP-122). */
export interface SiwxOffer {
  domain: string;
  uri: string;
  version: string;
  nonce: string;
  issuedAt: string;
  expirationTime: string;
  statement: string;
  resources: Array<string>;
}

export interface Snapshot {
  /** Id of a snapshot. */
  id: string;
  name?: string | null;
  state: "taking" | "kept" | "unpaid" | "dropping" | "dropped" | "failed" | "lost" | (string & {});
  /** Why it is in this state. */
  reason?: string | null;
  /** Of which it was taken; that may be gone. */
  sandbox_id?: string | null;
  /** Of which it was taken, if not of a sandbox. */
  volume_id?: string | null;
  /** The snapshot that the sandbox's disk descended from then. */
  parent_id?: string | null;
  /** `files`: processes start anew; `files_and_memory`: they go on where they were. */
  content: "files" | "files_and_memory" | (string & {});
  backend: string;
  /** What its files are a layer over. */
  image: string;
  profile: string;
  resources: Resources;
  labels?: Record<string, string>;
  /** What it holds, shared with others or not; see `size_is_exact`. */
  size_bytes: number;
  /** False: at most that much, nobody has looked at every file yet. */
  size_is_exact?: boolean;
  /** What would come free at least if it alone were dropped; told for one snapshot. */
  exclusive_bytes?: number | null;
  /** What keeping it costs, in thousandths of a sat a second. */
  rate_msats_per_s?: number;
  /** RFC 3339, UTC. */
  created_at: string;
  /** When it is dropped; none: never. */
  expires_at?: string | null;
  ended_at?: string | null;
  /** Since when dropping and unlocking it need a second proof. */
  locked_at?: string | null;
  /** How long it took. */
  took_ms?: Record<string, number>;
}

/** One line of the lineage: parents come before their children. */
export interface SnapshotLine {
  /** Id of a snapshot. */
  id: string;
  /** None for the oldest that is known. */
  parent_id?: string | null;
  /** How far from its root. */
  depth: number;
  name?: string | null;
  state: "taking" | "kept" | "unpaid" | "dropping" | "dropped" | "failed" | "lost" | (string & {});
  sandbox_id?: string | null;
  volume_id?: string | null;
  size_bytes: number;
  /** RFC 3339, UTC. */
  created_at: string;
  locked_at?: string | null;
  /** Living sandboxes whose disk descends from this one, and no later one. */
  sandbox_ids: Array<string>;
  /** Volumes that descend from it in the same way. */
  volume_ids?: Array<string>;
}

export interface SnapshotPage {
  snapshots: Array<Snapshot>;
  next_cursor?: string | null;
}

export interface SnapshotTree {
  lines: Array<SnapshotLine>;
}

/** What new sandboxes shall be like; what is left out is as its source was. */
export interface SpawnImage {
  /** How many, all at once. */
  count?: number;
  /** With a number behind it if there are several. */
  name?: string | null;
  profile?: string | null;
  trust?: "zero" | "semi" | (string & {}) | null;
  network?: string | null;
  /** How long each lives once ready. */
  ttl?: string | null;
  idle_timeout?: string | null;
  resources?: WantedResources | null;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
  /** Disks to attach to each. Several sandboxes can have one only to read (`ro`). */
  volumes?: Array<WantedVolume>;
}

export interface SshGateway {
  host: string;
  port: number;
  /** For known_hosts, behind the host's name. */
  host_key: string;
  fingerprint: string;
}

export interface SshKey {
  /** Id of an SSH key. */
  id: string;
  name: string;
  algorithm: string;
  public_key: string;
  /** As ssh-keygen -l shows it. */
  fingerprint: string;
  sandbox_id: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
  expires_at: string | null;
}

export interface SshKeyList {
  ssh_keys: Array<SshKey>;
}

/** Something on this host that no record accounts for. It stays until `goes_at` or `reap-stale`. */
export interface Stale {
  id: string;
  sandbox_id: string;
  kind: "sandbox" | "snapshot" | "image" | "volume" | "process" | (string & {});
  backend: string;
  why: string;
  /** RFC 3339, UTC. */
  first_seen: string;
  /** RFC 3339, UTC. */
  goes_at: string;
}

export interface StaleList {
  stale: Array<Stale>;
}

/** `command` (for a shell) or `argv` (without one), exactly one of both. Runs on after the answer. */
export interface StartProcess {
  /** Run by bash (sh if there is none), not as a login shell. */
  command?: string | null;
  /** Run without a shell. */
  argv?: Array<string> | null;
  /** Default: /workspace if there is one, else /. */
  cwd?: string | null;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Name or uid known inside; default root. */
  user?: string | null;
  /** Give it `TRACEPARENT` and answer with `traceparent`, even if the request has none. */
  trace?: boolean;
  /** Keep a pipe to write to; otherwise stdin is /dev/null. */
  has_stdin?: boolean;
  /** After this, everything it started is killed. Default: no limit. */
  timeout_s?: number | null;
  /** Words of your own, listed with the process. */
  tag?: string;
}

/** A language, and where: in a sandbox that is there, or in one of its own, made and ended with it. */
export interface StartSession {
  /** A name, alias or extension of GET /v1/languages or /v1/shells. */
  language: string;
  /** Default: a sandbox of its own. */
  sandbox_id?: string | null;
  /** For people; needs not be unique. */
  name?: string | null;
  /** Of its own sandbox. */
  profile?: string | null;
  /** Of its own sandbox. Default: the smallest that has the language. */
  image?: string | null;
  /** Of its own sandbox. */
  trust?: "zero" | "semi" | (string & {}) | null;
  /** Of its own sandbox: what it may reach. */
  network?: string | null;
  /** Of its own sandbox; each brings 2 GB of memory. */
  vcpus?: number | null;
  /** Of its own sandbox; `vcpus` above wins. */
  resources?: WantedResources | null;
  /** Disks to attach, until the sandbox is destroyed; see POST /v1/volumes. */
  volumes?: Array<WantedVolume>;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Default: /workspace. */
  cwd?: string | null;
  /** Default 1h, at most 24h; each cell adds 15 minutes. */
  ttl?: string | null;
  /** How long it may go without a cell. Default 15m. */
  idle?: string | null;
}

export interface Stats {
  /** Whose: yours, or everyone's (owner). */
  of: "account" | "platform" | (string & {});
  uptime_s: number;
  /** How many, by state. */
  sandboxes: Record<string, number>;
  /** Jobs, sessions and services: how many, by state. */
  work: Record<string, Record<string, number>>;
  requests?: RequestStats | null;
}

/** All of it is in the process's pipe. When it took only a part, the answer is `stdin_not_taken`. */
export interface StdinWritten {
  written_bytes: number;
  closed: boolean;
}

export interface StoragePool {
  backend: string;
  kind: string;
  /** What it takes of the host's disk now. */
  size_mb: number;
  /** By the file system's own count. */
  used_mb: number;
  /** What it may grow to now. */
  most_mb: number;
  /** To the disks of sandboxes. */
  promised_mb: number;
  /** That may still be promised. */
  free_mb: number;
}

export interface SuspendKey {
  /** Why; it is written down. */
  why: string;
}

/** Everything is optional. */
export interface TakeSnapshot {
  /** For people; needs not be unique. */
  name?: string | null;
  /** Dropped after this long; left out: kept until it is dropped. */
  ttl?: string | null;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
  /** Keep what runs too: processes, memory, open files and listening ports go on in what begins as a copy. Refused where its backend keeps files alone. */
  memory?: boolean;
}

/** Everything is optional. */
export interface TakeVolumeSnapshot {
  /** For people; needs not be unique. */
  name?: string | null;
  /** Dropped after this long; left out: kept until it is dropped. */
  ttl?: string | null;
  /** Words to find it by; lists can filter on them. */
  labels?: Record<string, string>;
}

export interface TarUnpacked {
  path: string;
  received_bytes: number;
}

export interface Terminal {
  terminal_id: string;
  argv: Array<string>;
  /** RFC 3339, UTC. */
  started_at: string;
  running: boolean;
  exit_code?: number | null;
}

/** Server to client, once: the program ended. The server closes with 1000 after it. */
export interface TerminalExit {
  type?: "exit";
  exit_code: number;
  reason?: string | null;
}

export interface TerminalList {
  terminals: Array<Terminal>;
}

/** Server to client, once: the terminal broke. The server closes with 1011 after it. */
export interface TerminalProblem {
  type?: "error";
  problem: Problem;
}

/** Server to client, once, before the first byte. `terminal_id` re-attaches later. */
export interface TerminalReady {
  type?: "ready";
  terminal_id: string;
  reattached: boolean;
}

export interface TierPrice {
  tier: number;
  months: number;
  usd_cents: number;
  discount_percent: number;
  requests_per_minute: number;
  /** Sandboxes at once at rate zero. */
  slots: number;
  /** Generations of delegated keys, and of sandboxes that make sandboxes. */
  depth?: number | null;
}

export interface TopUp {
  /** How much credit to buy. */
  sats: number;
  /** Whom to pay for, by public id; one's own account otherwise. */
  account?: string | null;
}

export interface TopUpKey {
  /** Whole sats. */
  sats: number;
  /** Chosen by you before the call: the same id moves money once. */
  id: string;
}

export interface TransferLine {
  seq: number;
  /** RFC 3339, UTC. */
  at: string;
  id: string;
  kind: string;
  phase: string;
  asset: string;
  debit: string;
  credit: string;
  amount: number;
  /** What it did to this account. */
  change: number;
  reason: string;
  data: Record<string, unknown>;
}

export interface TransferPage {
  transfers: Array<TransferLine>;
  next_cursor?: string | null;
}

export interface TreeEntry {
  /** Id of a sandbox. */
  id: string;
  name?: string | null;
  state: "requested" | "provisioning" | "ready" | "active" | "frozen" | "stopped" | "grace" | "reaped" | "expired" | "failed" | "destroying" | "destroyed" | (string & {});
  /** 0: this account made it; 1: one of those did; and so on. */
  depth: number;
  /** The sandbox that made it. */
  parent?: string | null;
  /** By all that was made from inside it; null: it may make nothing. */
  spent_sats?: number | null;
  /** Of what it was given; null: nothing was. */
  left_sats?: number | null;
  /** What it costs itself now. */
  rate_msats_per_s?: number;
}

export interface Usage {
  /** Id of a sandbox. */
  sandbox_id: string;
  /** CPU time used since the start, in seconds. */
  cpu_s: number;
  memory_bytes: number;
  memory_limit_bytes: number;
  disk_bytes: number;
  disk_limit_bytes: number;
  processes: number;
  processes_limit: number;
  /** From the sandbox outwards in its life so far; these are charged. */
  egress_sent_bytes: number;
  /** Back to it; these cost nothing. */
  egress_received_bytes: number;
}

export interface UsageLine {
  subject: string;
  use: string;
  /** RFC 3339, UTC. */
  began_at: string;
  /** RFC 3339, UTC. */
  ended_at: string;
  seconds: number;
  msats: number;
}

export interface UsageOfSandbox {
  /** The same by pull and by push (`hub.usage`). */
  id: string;
  sandbox_id: string;
  extension_id: string;
  profile_id: string;
  account: string;
  consumer: Record<string, JsonValue>;
  /** From ready to gone. */
  duration_s: number;
  /** Exact; null without the operator's own rate. */
  actual_usd: string | null;
  /** Billionths of a sat, exact. */
  actual_nsats: number;
  usd_per_btc: string | null;
}

export interface UsageOfSandboxesPage {
  sandboxes: Array<UsageOfSandbox>;
  /** Give it as `after` to read on; keep it between pulls. */
  next_after: number;
}

export interface UsageReport {
  account: string;
  /** RFC 3339, UTC. */
  since: string;
  /** RFC 3339, UTC. */
  until: string;
  usage: Array<UsageLine>;
  total_msats: number;
}

export interface UsageSegment {
  seq: number;
  id: string;
  account: string;
  subject: string;
  use: string;
  rate_msats: number;
  /** RFC 3339, UTC. */
  began_at: string;
  /** RFC 3339, UTC. */
  ended_at: string;
  /** Below zero: time of an earlier segment is given back. */
  seconds: number;
  /** Rounded down; the rate and the times say it exactly. */
  msats: number;
}

export interface UsageSegmentPage {
  segments: Array<UsageSegment>;
  /** Give it as `after` to read on; keep it between pulls. */
  next_after: number;
}

export interface ValidateKey {
  public_key: string;
}

/** Names only: values go in and never come out. */
export interface Vault {
  names: Array<string>;
  updated_at?: string | null;
  /** The present process was started with what is in it now. */
  in_use: boolean;
}

export interface Volume {
  /** Id of a volume. */
  id: string;
  /** Unique among the volumes of an account. */
  name: string;
  state: "making" | "ready" | "unpaid" | "dropping" | "dropped" | "failed" | "lost" | (string & {});
  /** Why it is in this state. */
  reason?: string | null;
  backend: string;
  size_mb: number;
  /** What it holds now, or at most that; told for one volume. */
  used_bytes?: number | null;
  from_snapshot?: string | null;
  labels?: Record<string, string>;
  /** The sandboxes that have it, until they are destroyed. */
  attachments?: Array<VolumeAttachment>;
  /** What having it costs, in thousandths of a sat a second. */
  rate_msats_per_s?: number;
  /** RFC 3339, UTC. */
  created_at: string;
  /** When it is dropped unless somebody pays; none: never. */
  expires_at?: string | null;
  ended_at?: string | null;
  /** Since when dropping and unlocking it need a second proof. */
  locked_at?: string | null;
}

export interface VolumeAttachment {
  /** Id of a sandbox. */
  sandbox_id: string;
  /** Where it is seen inside. */
  path: string;
  /** `rw`: read and write, one sandbox alone; `ro`: read, with any number of others. */
  mode: "rw" | "ro" | (string & {});
  /** RFC 3339, UTC. */
  attached_at: string;
}

export interface VolumePage {
  volumes: Array<Volume>;
  next_cursor?: string | null;
}

export interface Wallet {
  /** CAIP-10. */
  address: string;
  /** RFC 3339, UTC. */
  created_at: string;
  revoked_at?: string | null;
}

export interface WalletList {
  wallets: Array<Wallet>;
}

/** Lets programs in it speak to this API, within these bounds, by `/run/sandboxer/api.sock`. No key exists inside. */
export interface WantedInception {
  /** Moved from your balance; what is left comes back. */
  budget_sats?: number;
  /** Generations that sandboxes made by it may grant in turn. */
  depth?: number;
  /** Sandboxes at once, of all generations; null: as many as you. */
  slots?: number | null;
  /** What it may do, as for a delegated key; null: make, use and end sandboxes. */
  scopes?: Array<string> | null;
  /** When it ends, those that it made end too, or go on with what they were given. */
  on_parent_end?: "end" | "adopt" | (string & {});
}

/** Names of hosts, the first first. Where none of them is there, it stands elsewhere and `answered` says so. */
export interface WantedPlacement {
  prefer?: Array<string>;
  fallback?: Array<string>;
}

/** What the sandbox may use at most. What is left out comes from the profile. */
export interface WantedResources {
  /** CPU cores. */
  vcpus?: number | null;
  /** Memory in MiB. */
  memory_mb?: number | null;
  /** Disk in MiB. */
  disk_mb?: number | null;
  /** Processes and threads. */
  pids?: number | null;
}

/** What the backend must be. What none can meet is refused, with the reason of each. */
export interface WantedRoute {
  strategy?: "explicit" | "prefer-self-hosted" | "lowest-cost" | "lowest-latency" | (string & {}) | null;
  /** Where it stands. */
  region?: string | null;
  /** GPUs for this sandbox alone. */
  gpus?: number;
  /** Their model; alone: one of them. */
  gpu?: string | null;
  /** The most that it may cost while it runs. */
  max_sats_per_hour?: number | null;
  /** What can be done with it. */
  capabilities?: Array<"stop" | "freeze" | "snapshot" | "resize" | "images" | "volumes" | "memory" | (string & {})>;
  /** Keys of your own at providers, by backend: names of secrets of your account. You pay the platform its fee alone then. A key is read when the sandbox is made, and kept nowhere. */
  keys?: Record<string, string>;
}

export interface WantedSetup {
  /** A script, for /bin/sh unless it begins with `#!`. It runs in /workspace as root before the sandbox is ready; unless it exits with 0, the create fails with its output. */
  instructions?: string | null;
  secret_refs?: Array<string> | null;
}

export interface WantedVolume {
  /** Id of a volume, or its beginning if no other id begins so; or the name of a volume of one's own. */
  volume: string;
  /** Where it is seen inside; made if missing. Not in /proc, /dev, /sys, /run, /etc. */
  path: string;
  /** `rw`: read and write, one sandbox alone; `ro`: read, with any number of others. */
  mode?: "rw" | "ro" | (string & {});
}

/** The folder /workspace. */
export interface WantedWorkspace {
  mode?: "mirror" | "remote" | "remote-canonical" | (string & {}) | null;
  access?: "none" | "ro" | "rw" | (string & {}) | null;
}

export interface WarmPool {
  backend: string;
  image: string;
  trust: string;
  resources: Resources;
  wanted: number;
  ready: number;
}

/** First event (`ready`) of a watch: from here on no change is missed. */
export interface WatchReady {
  path: string;
  recursive: boolean;
}

export interface Webhook {
  id: string;
  account: string;
  url: string;
  kinds: Array<string>;
  all_accounts: boolean;
  enabled: boolean;
  disabled_reason: string;
  old_secret_until?: string | null;
  /** RFC 3339, UTC. */
  created_at: string;
}

export interface WebhookList {
  webhooks: Array<Webhook>;
}

/** What there is to find for who knows x402 and nothing else. */
export interface WellKnown {
  version?: 1;
  x402Version?: 2;
  resources: Array<string>;
  networks: Array<string>;
  pricing: string;
  discovery: string;
  document: string;
}

export interface WipedSecrets {
  wiped: Array<string>;
  /** Running processes that were started meanwhile: a variable cannot be taken back from them, so end them if it matters. */
  may_still_hold: Array<string>;
}

/** A solved puzzle of a 428 answer: SHA-256 of `challenge:solution` begins with so many zero bits. */
export interface Work {
  challenge: string;
  solution: string;
}

export interface Workspace {
  path: string;
  mode: string;
  access: "none" | "ro" | "rw" | (string & {});
}

export interface WriteStdin {
  data: string;
  /** How bytes are written in JSON. `utf-8`: as text, broken sequences become U+FFFD; `base64`: exactly, as standard base 64. */
  encoding?: "utf-8" | "base64" | (string & {});
  /** Close stdin afterwards. */
  close?: boolean;
  /** How many bytes were written before these. What its stdin took already is not written again: a write that was broken off can be repeated as it was. */
  offset?: number | null;
}

export interface WalletSession {
  /** Send it as `Authorization: Bearer …`; sign nothing else. */
  token: string;
  address: string;
  account: string;
  /** RFC 3339, UTC. */
  expires_at: string;
}

/** One output that reached the invoice's address. */
export interface CoinPayment {
  id: string;
  txid: string;
  amount: string;
  /** In the coin's smallest unit, as text. */
  atomic: string;
  confirmations: number;
  /** False: another transaction took its place, or it vanished. */
  is_there: boolean;
  is_in_time: boolean;
  /** What became of it. */
  settled: "open" | "credited" | "refund" | "kept" | (string & {});
  /** What it was credited as, sale included. */
  sats: number;
}

export interface Payment {
  id: string;
  state: "queued" | "broadcasting" | "settlement_pending" | "doubted" | "mempool" | "confirmed" | "failed" | "replaced" | "not_found" | (string & {});
  /** Why it is in this state. */
  reason: string;
  purpose: "create" | "extend" | "topup" | "key" | (string & {});
  /** CAIP-2. */
  network: string;
  scheme: string;
  asset: string;
  /** In the asset's smallest unit. */
  amount: string;
  /** What it is worth here. */
  sats: number;
  payer: string;
  /** Its id on the chain, once known. */
  transaction?: string | null;
  sandbox_id?: string | null;
  created_at: string;
  updated_at: string;
}

export interface Session {
  /** Id of a session. */
  id: string;
  name?: string | null;
  language: string;
  state: "starting" | "ready" | "busy" | "frozen" | "died" | "ended" | (string & {});
  /** Why it is in this state. */
  reason: string;
  /** Id of a sandbox. */
  sandbox_id: string;
  /** Its sandbox ends with it. */
  owns_sandbox: boolean;
  /** How often an interpreter was started. */
  generation: number;
  /** Number of its last cell. */
  cells: number;
  /** A whole number and a unit: s, m, h or d. */
  idle: string;
  /** RFC 3339, UTC. */
  created_at: string;
  /** RFC 3339, UTC. */
  expires_at: string;
  /** RFC 3339, UTC. */
  last_active_at: string;
  ended_at?: string | null;
}
