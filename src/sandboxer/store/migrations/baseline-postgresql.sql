-- Everything up to revision 0035, as the steps that led there left it. Never changed: what comes later is a step.

CREATE TABLE accounts (
    id text NOT NULL,
    public_id text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    status text NOT NULL,
    status_reason text NOT NULL,
    tier integer,
    entitled_until timestamp with time zone,
    caps json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    status_since timestamp with time zone NOT NULL
);

CREATE TABLE audit_head (
    id integer NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL
);

CREATE TABLE audit_log (
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    reason text NOT NULL,
    data json NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL
);

CREATE TABLE chain_heads (
    network text NOT NULL,
    height bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL
);

CREATE TABLE challenges (
    nonce text NOT NULL,
    purpose text NOT NULL,
    account text NOT NULL,
    bound_to text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE delegated_keys (
    account text NOT NULL,
    public_key text NOT NULL,
    name text NOT NULL,
    parent text NOT NULL,
    root text NOT NULL,
    path text NOT NULL,
    generation integer NOT NULL,
    cut_by text NOT NULL,
    scopes json NOT NULL,
    depth integer NOT NULL,
    slots integer,
    expires_at timestamp with time zone,
    state text NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    returned_sats bigint,
    kept_sats bigint
);

CREATE TABLE disk_heads (
    sandbox_id text NOT NULL,
    snapshot_id text NOT NULL
);

CREATE TABLE egress_outlets (
    sandbox_id text NOT NULL,
    account text NOT NULL,
    certificate bytea NOT NULL,
    sealed_key bytea NOT NULL,
    sent bigint NOT NULL,
    received bigint NOT NULL,
    charged bigint NOT NULL,
    charges integer NOT NULL,
    denials json NOT NULL
);

CREATE TABLE egress_policies (
    subject text NOT NULL,
    account text NOT NULL,
    policy json NOT NULL,
    version integer NOT NULL,
    changed_at timestamp with time zone NOT NULL
);

CREATE TABLE events (
    id bigint NOT NULL,
    subject text NOT NULL,
    kind text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone NOT NULL,
    data json NOT NULL
);

CREATE SEQUENCE events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE events_id_seq OWNED BY events.id;

CREATE TABLE gift_cards (
    id text NOT NULL,
    state text NOT NULL,
    source text NOT NULL,
    cents bigint NOT NULL,
    written_off bigint NOT NULL,
    lookup text,
    claim_hash text NOT NULL,
    account text,
    invoice text,
    approval json NOT NULL,
    approval_secret bytea,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    paid_at timestamp with time zone,
    shown_at timestamp with time zone,
    revoked_at timestamp with time zone
);

CREATE TABLE gift_mails (
    redemption text NOT NULL,
    address text NOT NULL,
    state text NOT NULL,
    tries integer NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone
);

CREATE TABLE gift_redemptions (
    id text NOT NULL,
    card text NOT NULL,
    request_id text NOT NULL,
    fingerprint text NOT NULL,
    state text NOT NULL,
    kind text NOT NULL,
    tier integer,
    months integer,
    cents bigint NOT NULL,
    sats bigint,
    rate text,
    account text NOT NULL,
    is_new_account boolean NOT NULL,
    claim_hash text,
    public_key text,
    entitled_until timestamp with time zone,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone
);

CREATE TABLE idempotency (
    scope text NOT NULL,
    key text NOT NULL,
    claim text NOT NULL,
    request_hash text NOT NULL,
    state text NOT NULL,
    status integer,
    headers json,
    body bytea,
    begun_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    made text,
    owner text DEFAULT ''::text NOT NULL,
    bytes integer DEFAULT 0 NOT NULL
);

CREATE TABLE identity_secrets (
    name text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE TABLE image_grants (
    image_id text NOT NULL,
    account text NOT NULL,
    granted_at timestamp with time zone NOT NULL
);

CREATE TABLE installation (
    "only" integer NOT NULL,
    id text NOT NULL,
    beat bigint NOT NULL,
    made_at timestamp with time zone NOT NULL
);

CREATE SEQUENCE installation_only_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE installation_only_seq OWNED BY installation."only";

CREATE TABLE invoice_chains (
    chain text NOT NULL,
    next_index bigint NOT NULL,
    tip bigint NOT NULL,
    looked_at timestamp with time zone
);

CREATE TABLE invoice_outputs (
    chain text NOT NULL,
    txid text NOT NULL,
    output text NOT NULL,
    invoice text NOT NULL,
    amount text NOT NULL,
    depth integer NOT NULL,
    block text,
    height bigint,
    is_there boolean NOT NULL,
    is_unlocked boolean NOT NULL,
    missed integer NOT NULL,
    is_in_time boolean NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    settled text NOT NULL,
    sale_sats bigint NOT NULL,
    bucket_sats bigint NOT NULL,
    is_for_price boolean NOT NULL,
    round integer NOT NULL
);

CREATE TABLE invoice_steps (
    seq bigint NOT NULL,
    invoice text NOT NULL,
    number integer NOT NULL,
    at timestamp with time zone NOT NULL,
    state text NOT NULL,
    signal text NOT NULL,
    data json NOT NULL
);

CREATE SEQUENCE invoice_steps_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE invoice_steps_seq_seq OWNED BY invoice_steps.seq;

CREATE TABLE invoices (
    id text NOT NULL,
    kind text NOT NULL,
    tier integer,
    months integer,
    cents bigint,
    reference text,
    asset text NOT NULL,
    atomic text NOT NULL,
    sats bigint NOT NULL,
    usd text,
    btc_usd text,
    rate_sources json NOT NULL,
    state text NOT NULL,
    address text NOT NULL,
    address_index bigint NOT NULL,
    account text NOT NULL,
    is_new_account boolean NOT NULL,
    claim_hash text,
    public_key text,
    refund_address text,
    confirmations integer NOT NULL,
    asked_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    confirm_by timestamp with time zone NOT NULL,
    deliveries integer NOT NULL,
    is_delivered boolean NOT NULL,
    granted json NOT NULL,
    watch_until timestamp with time zone,
    updated_at timestamp with time zone NOT NULL,
    steps integer NOT NULL,
    asked_near text
);

CREATE TABLE jobs (
    id text NOT NULL,
    version integer NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    is_owner boolean NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    language text NOT NULL,
    submission json,
    webhook_url text,
    sandbox_id text,
    compile_process text,
    run_process text,
    sats integer NOT NULL,
    problem json,
    created_at timestamp with time zone NOT NULL,
    not_before timestamp with time zone,
    started_at timestamp with time zone,
    deadline timestamp with time zone,
    ended_at timestamp with time zone,
    result bytea,
    size_bytes integer DEFAULT 0 NOT NULL
);

CREATE TABLE keys (
    public_key text NOT NULL,
    account text NOT NULL,
    name text NOT NULL,
    sealed_secret bytea NOT NULL,
    is_owner boolean NOT NULL,
    accepts_v1 boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    secret_hash text,
    expires_at timestamp with time zone,
    suspended_at timestamp with time zone,
    suspended_why text,
    rotated_at timestamp with time zone,
    claim_hash text,
    revealed_at timestamp with time zone
);

CREATE TABLE ledger_accounts (
    id text NOT NULL,
    kind text NOT NULL,
    asset text NOT NULL,
    owner text NOT NULL,
    may_overdraw boolean NOT NULL,
    debits_posted bigint NOT NULL,
    credits_posted bigint NOT NULL,
    debits_pending bigint NOT NULL,
    credits_pending bigint NOT NULL,
    transfers bigint NOT NULL,
    digest bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_ledger_accounts_covered CHECK ((may_overdraw OR (((credits_posted - debits_posted) - debits_pending) >= 0))),
    CONSTRAINT ck_ledger_accounts_pendings CHECK (((debits_pending >= 0) AND (credits_pending >= 0)))
);

CREATE TABLE ledger_pendings (
    id text NOT NULL,
    debit text NOT NULL,
    amount bigint NOT NULL
);

CREATE TABLE ledger_transfers (
    seq bigint NOT NULL,
    id text NOT NULL,
    debit text NOT NULL,
    credit text NOT NULL,
    amount bigint NOT NULL,
    asset text NOT NULL,
    kind text NOT NULL,
    phase text NOT NULL,
    pending_id text,
    reason text NOT NULL,
    at timestamp with time zone NOT NULL,
    data json,
    digest bigint NOT NULL,
    CONSTRAINT ck_ledger_transfers_amount CHECK ((amount > 0)),
    CONSTRAINT ck_ledger_transfers_sides CHECK ((debit <> credit))
);

CREATE SEQUENCE ledger_transfers_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE ledger_transfers_seq_seq OWNED BY ledger_transfers.seq;

CREATE TABLE meter_segments (
    seq bigint NOT NULL,
    id text NOT NULL,
    owner text NOT NULL,
    subject text NOT NULL,
    kind text NOT NULL,
    rate_msats bigint NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    msats bigint NOT NULL,
    key text DEFAULT ''::text NOT NULL
);

CREATE SEQUENCE meter_segments_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE meter_segments_seq_seq OWNED BY meter_segments.seq;

CREATE TABLE meters (
    id text NOT NULL,
    owner text NOT NULL,
    subject text NOT NULL,
    kind text NOT NULL,
    rate_msats bigint NOT NULL,
    began_at timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    segments integer NOT NULL,
    step bigint NOT NULL,
    key text DEFAULT ''::text NOT NULL,
    rated_at timestamp with time zone
);

CREATE TABLE money_buckets (
    owner text NOT NULL,
    rate_msats bigint NOT NULL,
    settled_at timestamp with time zone NOT NULL,
    carried_nsats bigint NOT NULL,
    settlements bigint NOT NULL,
    standing text NOT NULL,
    grace_began_at timestamp with time zone,
    last_receipt_at timestamp with time zone,
    warned_s integer,
    due_at timestamp with time zone,
    has_grace boolean DEFAULT true NOT NULL,
    look_at timestamp with time zone,
    collected_sats bigint DEFAULT '0'::bigint NOT NULL
);

CREATE TABLE money_policy (
    name text NOT NULL,
    grace_us bigint NOT NULL,
    grace_cap_us bigint NOT NULL,
    reserve_us bigint NOT NULL,
    deposit_us bigint DEFAULT '0'::bigint NOT NULL,
    gaps_until timestamp with time zone
);

CREATE TABLE payments (
    id text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    network text NOT NULL,
    payer text NOT NULL,
    nonce text NOT NULL,
    payload_hash text NOT NULL,
    identifier text,
    scheme text NOT NULL,
    asset text NOT NULL,
    amount text NOT NULL,
    sats bigint NOT NULL,
    account text NOT NULL,
    purpose text NOT NULL,
    details json NOT NULL,
    payload json,
    requirements json,
    txid text,
    block text,
    valid_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    look_at timestamp with time zone,
    looks integer NOT NULL,
    height bigint,
    reversed_at timestamp with time zone,
    restored_at timestamp with time zone
);

CREATE TABLE previews (
    id text NOT NULL,
    sandbox_id text NOT NULL,
    account text NOT NULL,
    port integer NOT NULL,
    is_public boolean NOT NULL,
    is_one_time boolean NOT NULL,
    wakes boolean NOT NULL,
    hold_s integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    used_at timestamp with time zone,
    revoked_at timestamp with time zone
);

CREATE TABLE published_images (
    id text NOT NULL,
    version integer NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    visibility text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    source text NOT NULL,
    backend text NOT NULL,
    base text NOT NULL,
    profile text NOT NULL,
    resources json NOT NULL,
    config json NOT NULL,
    digest text NOT NULL,
    size_bytes bigint NOT NULL,
    files bigint NOT NULL,
    findings json NOT NULL,
    findings_count integer NOT NULL,
    stripped json NOT NULL,
    stripped_count integer NOT NULL,
    rate_msats bigint NOT NULL,
    hands integer NOT NULL,
    offered_to text,
    created_at timestamp with time zone NOT NULL,
    state_since timestamp with time zone NOT NULL,
    verified_at timestamp with time zone,
    expires_at timestamp with time zone,
    ended_at timestamp with time zone,
    locked_at timestamp with time zone
);

CREATE TABLE quarantine (
    backend text NOT NULL,
    id text NOT NULL,
    kind text NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    seen_for_ms bigint NOT NULL
);

CREATE TABLE quotes (
    id text NOT NULL,
    account text NOT NULL,
    profile text NOT NULL,
    vcpu_thousandths bigint NOT NULL,
    memory_mb bigint NOT NULL,
    disk_mb bigint NOT NULL,
    running_msats bigint NOT NULL,
    frozen_msats bigint NOT NULL,
    stored_msats bigint NOT NULL,
    egress_gb_msats bigint NOT NULL,
    duration_s bigint NOT NULL,
    sats bigint NOT NULL,
    quoted_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_by text
);

CREATE TABLE refunds (
    id text NOT NULL,
    invoice text NOT NULL,
    chain text NOT NULL,
    txid text NOT NULL,
    output text NOT NULL,
    received text NOT NULL,
    amount text NOT NULL,
    kept text NOT NULL,
    address text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    sent_txid text,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    prepared_txid text,
    prepared text,
    fee text,
    held text
);

CREATE TABLE run_sandboxes (
    sandbox_id text NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE TABLE sandbox_labels (
    sandbox_id text NOT NULL,
    key text NOT NULL,
    value text NOT NULL
);

CREATE TABLE sandbox_secrets (
    sandbox_id text NOT NULL,
    name text NOT NULL,
    sealed bytea NOT NULL,
    size_bytes integer NOT NULL,
    in_env boolean NOT NULL,
    in_file boolean NOT NULL,
    injected_at timestamp with time zone NOT NULL
);

CREATE TABLE sandboxes (
    id text NOT NULL,
    version integer NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text,
    state text NOT NULL,
    reason text NOT NULL,
    profile text NOT NULL,
    profile_version text NOT NULL,
    backend text NOT NULL,
    image text NOT NULL,
    trust text NOT NULL,
    resources json NOT NULL,
    env json NOT NULL,
    labels json NOT NULL,
    inputs json NOT NULL,
    consumer json NOT NULL,
    ttl_s double precision NOT NULL,
    ttl_max_s double precision NOT NULL,
    idle_timeout_s double precision,
    created_at timestamp with time zone NOT NULL,
    state_since timestamp with time zone NOT NULL,
    ready_at timestamp with time zone,
    expires_at timestamp with time zone,
    ended_at timestamp with time zone,
    ttl_left_s double precision,
    handle json,
    timings_ms json NOT NULL,
    report json,
    terms json,
    locked_at timestamp with time zone,
    boosted_from json,
    origin text,
    volumes json
);

CREATE TABLE secrets (
    account text NOT NULL,
    name text NOT NULL,
    sealed bytea NOT NULL,
    size_bytes integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);

CREATE TABLE server_beats (
    name text NOT NULL,
    moment timestamp with time zone NOT NULL,
    boot_us bigint NOT NULL,
    boot_id text NOT NULL,
    witnessed_at timestamp with time zone
);

CREATE TABLE server_claim (
    id integer NOT NULL,
    epoch integer NOT NULL,
    holder text NOT NULL,
    probes integer NOT NULL,
    key_check text
);

CREATE SEQUENCE server_claim_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE server_claim_id_seq OWNED BY server_claim.id;

CREATE TABLE service_domains (
    domain text NOT NULL,
    service_id text NOT NULL,
    token text NOT NULL,
    verified_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    failing_since timestamp with time zone
);

CREATE TABLE services (
    id text NOT NULL,
    version integer NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text NOT NULL,
    slug text NOT NULL,
    sandbox_id text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    state_since timestamp with time zone NOT NULL,
    is_wanted boolean NOT NULL,
    spec json NOT NULL,
    vault bytea,
    vault_names json NOT NULL,
    vault_at timestamp with time zone,
    process_id text,
    port integer,
    launched_at timestamp with time zone,
    run integer NOT NULL,
    crashes json NOT NULL,
    restart_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    deployed_at timestamp with time zone NOT NULL
);

CREATE TABLE sessions (
    id text NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text,
    sandbox_id text NOT NULL,
    owns_sandbox boolean NOT NULL,
    language text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    process_id text NOT NULL,
    generation integer NOT NULL,
    env json NOT NULL,
    cwd text,
    idle_s double precision NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    last_active_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone
);

CREATE TABLE snapshots (
    id text NOT NULL,
    version integer NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text,
    state text NOT NULL,
    reason text NOT NULL,
    sandbox_id text NOT NULL,
    parent_id text,
    backend text NOT NULL,
    image text NOT NULL,
    profile text NOT NULL,
    resources json NOT NULL,
    content text NOT NULL,
    labels json NOT NULL,
    size_bytes bigint NOT NULL,
    is_measured boolean NOT NULL,
    rate_msats bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    state_since timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    paid_expires_at timestamp with time zone,
    ended_at timestamp with time zone,
    locked_at timestamp with time zone,
    took_ms json NOT NULL
);

CREATE TABLE spent_days (
    account text NOT NULL,
    key text NOT NULL,
    day timestamp with time zone NOT NULL,
    used_sats bigint NOT NULL,
    used_nsats bigint NOT NULL,
    moved_sats bigint NOT NULL
);

CREATE TABLE ssh_keys (
    id text NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text NOT NULL,
    sandbox_id text,
    algorithm text NOT NULL,
    public_key text NOT NULL,
    fingerprint text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);

CREATE TABLE time_gaps (
    seq bigint NOT NULL,
    kind text NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL
);

CREATE SEQUENCE time_gaps_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE time_gaps_seq_seq OWNED BY time_gaps.seq;

CREATE TABLE volume_attachments (
    volume_id text NOT NULL,
    sandbox_id text NOT NULL,
    path text NOT NULL,
    is_read_only boolean NOT NULL,
    attached_at timestamp with time zone NOT NULL
);

CREATE TABLE volumes (
    id text NOT NULL,
    version integer NOT NULL,
    account text NOT NULL,
    created_by text NOT NULL,
    name text NOT NULL,
    taken_name text,
    state text NOT NULL,
    reason text NOT NULL,
    backend text NOT NULL,
    size_mb bigint NOT NULL,
    origin text,
    labels json NOT NULL,
    rate_msats bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    state_since timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    ended_at timestamp with time zone,
    locked_at timestamp with time zone
);

CREATE TABLE wallet_sessions (
    id text NOT NULL,
    address text NOT NULL,
    account text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone
);

CREATE TABLE wallets (
    address text NOT NULL,
    account text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone
);

CREATE TABLE webhook_attempts (
    seq bigint NOT NULL,
    delivery text NOT NULL,
    at timestamp with time zone NOT NULL,
    took_ms integer NOT NULL,
    status integer,
    outcome text NOT NULL,
    reason text NOT NULL
);

CREATE SEQUENCE webhook_attempts_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE webhook_attempts_seq_seq OWNED BY webhook_attempts.seq;

CREATE TABLE webhook_cursors (
    feed text NOT NULL,
    "position" bigint NOT NULL
);

CREATE TABLE webhook_deliveries (
    seq bigint NOT NULL,
    id text NOT NULL,
    endpoint text NOT NULL,
    account text NOT NULL,
    lane text NOT NULL,
    message text NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    url text,
    secret bytea,
    state text NOT NULL,
    tries integer NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone,
    ended_at timestamp with time zone
);

CREATE SEQUENCE webhook_deliveries_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE webhook_deliveries_seq_seq OWNED BY webhook_deliveries.seq;

CREATE TABLE webhook_endpoints (
    id text NOT NULL,
    account text NOT NULL,
    url text NOT NULL,
    kinds json NOT NULL,
    hears_all boolean NOT NULL,
    enabled boolean NOT NULL,
    disabled_reason text NOT NULL,
    secret bytea NOT NULL,
    old_secret bytea,
    old_secret_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL
);

ALTER TABLE events ALTER COLUMN id SET DEFAULT nextval('events_id_seq'::regclass);

ALTER TABLE installation ALTER COLUMN "only" SET DEFAULT nextval('installation_only_seq'::regclass);

ALTER TABLE invoice_steps ALTER COLUMN seq SET DEFAULT nextval('invoice_steps_seq_seq'::regclass);

ALTER TABLE ledger_transfers ALTER COLUMN seq SET DEFAULT nextval('ledger_transfers_seq_seq'::regclass);

ALTER TABLE meter_segments ALTER COLUMN seq SET DEFAULT nextval('meter_segments_seq_seq'::regclass);

ALTER TABLE server_claim ALTER COLUMN id SET DEFAULT nextval('server_claim_id_seq'::regclass);

ALTER TABLE time_gaps ALTER COLUMN seq SET DEFAULT nextval('time_gaps_seq_seq'::regclass);

ALTER TABLE webhook_attempts ALTER COLUMN seq SET DEFAULT nextval('webhook_attempts_seq_seq'::regclass);

ALTER TABLE webhook_deliveries ALTER COLUMN seq SET DEFAULT nextval('webhook_deliveries_seq_seq'::regclass);

ALTER TABLE installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY ("only");

ALTER TABLE money_policy
    ADD CONSTRAINT money_policy_pkey PRIMARY KEY (name);

ALTER TABLE accounts
    ADD CONSTRAINT pk_accounts PRIMARY KEY (id);

ALTER TABLE audit_head
    ADD CONSTRAINT pk_audit_head PRIMARY KEY (id);

ALTER TABLE audit_log
    ADD CONSTRAINT pk_audit_log PRIMARY KEY (seq);

ALTER TABLE chain_heads
    ADD CONSTRAINT pk_chain_heads PRIMARY KEY (network);

ALTER TABLE challenges
    ADD CONSTRAINT pk_challenges PRIMARY KEY (nonce);

ALTER TABLE delegated_keys
    ADD CONSTRAINT pk_delegated_keys PRIMARY KEY (account);

ALTER TABLE disk_heads
    ADD CONSTRAINT pk_disk_heads PRIMARY KEY (sandbox_id);

ALTER TABLE egress_outlets
    ADD CONSTRAINT pk_egress_outlets PRIMARY KEY (sandbox_id);

ALTER TABLE egress_policies
    ADD CONSTRAINT pk_egress_policies PRIMARY KEY (subject);

ALTER TABLE events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);

ALTER TABLE gift_cards
    ADD CONSTRAINT pk_gift_cards PRIMARY KEY (id);

ALTER TABLE gift_mails
    ADD CONSTRAINT pk_gift_mails PRIMARY KEY (redemption);

ALTER TABLE gift_redemptions
    ADD CONSTRAINT pk_gift_redemptions PRIMARY KEY (id);

ALTER TABLE idempotency
    ADD CONSTRAINT pk_idempotency PRIMARY KEY (scope, key);

ALTER TABLE identity_secrets
    ADD CONSTRAINT pk_identity_secrets PRIMARY KEY (name);

ALTER TABLE image_grants
    ADD CONSTRAINT pk_image_grants PRIMARY KEY (image_id, account);

ALTER TABLE invoice_chains
    ADD CONSTRAINT pk_invoice_chains PRIMARY KEY (chain);

ALTER TABLE invoice_outputs
    ADD CONSTRAINT pk_invoice_outputs PRIMARY KEY (chain, txid, output);

ALTER TABLE invoice_steps
    ADD CONSTRAINT pk_invoice_steps PRIMARY KEY (seq);

ALTER TABLE invoices
    ADD CONSTRAINT pk_invoices PRIMARY KEY (id);

ALTER TABLE jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);

ALTER TABLE keys
    ADD CONSTRAINT pk_keys PRIMARY KEY (public_key);

ALTER TABLE ledger_accounts
    ADD CONSTRAINT pk_ledger_accounts PRIMARY KEY (id);

ALTER TABLE ledger_pendings
    ADD CONSTRAINT pk_ledger_pendings PRIMARY KEY (id);

ALTER TABLE ledger_transfers
    ADD CONSTRAINT pk_ledger_transfers PRIMARY KEY (seq);

ALTER TABLE meter_segments
    ADD CONSTRAINT pk_meter_segments PRIMARY KEY (seq);

ALTER TABLE meters
    ADD CONSTRAINT pk_meters PRIMARY KEY (id);

ALTER TABLE money_buckets
    ADD CONSTRAINT pk_money_buckets PRIMARY KEY (owner);

ALTER TABLE payments
    ADD CONSTRAINT pk_payments PRIMARY KEY (id);

ALTER TABLE previews
    ADD CONSTRAINT pk_previews PRIMARY KEY (id);

ALTER TABLE published_images
    ADD CONSTRAINT pk_published_images PRIMARY KEY (id);

ALTER TABLE refunds
    ADD CONSTRAINT pk_refunds PRIMARY KEY (id);

ALTER TABLE run_sandboxes
    ADD CONSTRAINT pk_run_sandboxes PRIMARY KEY (sandbox_id);

ALTER TABLE sandbox_labels
    ADD CONSTRAINT pk_sandbox_labels PRIMARY KEY (sandbox_id, key);

ALTER TABLE sandbox_secrets
    ADD CONSTRAINT pk_sandbox_secrets PRIMARY KEY (sandbox_id, name);

ALTER TABLE sandboxes
    ADD CONSTRAINT pk_sandboxes PRIMARY KEY (id);

ALTER TABLE secrets
    ADD CONSTRAINT pk_secrets PRIMARY KEY (account, name);

ALTER TABLE server_claim
    ADD CONSTRAINT pk_server_claim PRIMARY KEY (id);

ALTER TABLE service_domains
    ADD CONSTRAINT pk_service_domains PRIMARY KEY (domain, service_id);

ALTER TABLE services
    ADD CONSTRAINT pk_services PRIMARY KEY (id);

ALTER TABLE sessions
    ADD CONSTRAINT pk_sessions PRIMARY KEY (id);

ALTER TABLE snapshots
    ADD CONSTRAINT pk_snapshots PRIMARY KEY (id);

ALTER TABLE spent_days
    ADD CONSTRAINT pk_spent_days PRIMARY KEY (account, key, day);

ALTER TABLE ssh_keys
    ADD CONSTRAINT pk_ssh_keys PRIMARY KEY (id);

ALTER TABLE volume_attachments
    ADD CONSTRAINT pk_volume_attachments PRIMARY KEY (volume_id, sandbox_id);

ALTER TABLE volumes
    ADD CONSTRAINT pk_volumes PRIMARY KEY (id);

ALTER TABLE wallet_sessions
    ADD CONSTRAINT pk_wallet_sessions PRIMARY KEY (id);

ALTER TABLE wallets
    ADD CONSTRAINT pk_wallets PRIMARY KEY (address);

ALTER TABLE webhook_attempts
    ADD CONSTRAINT pk_webhook_attempts PRIMARY KEY (seq);

ALTER TABLE webhook_cursors
    ADD CONSTRAINT pk_webhook_cursors PRIMARY KEY (feed);

ALTER TABLE webhook_deliveries
    ADD CONSTRAINT pk_webhook_deliveries PRIMARY KEY (seq);

ALTER TABLE webhook_endpoints
    ADD CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id);

ALTER TABLE quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (backend, id);

ALTER TABLE quotes
    ADD CONSTRAINT quotes_pkey PRIMARY KEY (id);

ALTER TABLE server_beats
    ADD CONSTRAINT server_beats_pkey PRIMARY KEY (name);

ALTER TABLE time_gaps
    ADD CONSTRAINT time_gaps_pkey PRIMARY KEY (seq);

ALTER TABLE accounts
    ADD CONSTRAINT uq_accounts_public_id UNIQUE (public_id);

ALTER TABLE audit_log
    ADD CONSTRAINT uq_audit_log_previous UNIQUE (previous);

ALTER TABLE delegated_keys
    ADD CONSTRAINT uq_delegated_keys_public_key UNIQUE (public_key);

ALTER TABLE meter_segments
    ADD CONSTRAINT uq_meter_segments_id UNIQUE (id);

ALTER TABLE services
    ADD CONSTRAINT uq_services_sandbox_id UNIQUE (sandbox_id);

ALTER TABLE services
    ADD CONSTRAINT uq_services_slug UNIQUE (slug);

ALTER TABLE volumes
    ADD CONSTRAINT uq_volumes_taken_name UNIQUE (taken_name);

ALTER TABLE webhook_deliveries
    ADD CONSTRAINT uq_webhook_deliveries_endpoint_message UNIQUE (endpoint, message);

ALTER TABLE webhook_deliveries
    ADD CONSTRAINT uq_webhook_deliveries_id UNIQUE (id);

CREATE INDEX ix_accounts_created_at_id ON accounts USING btree (created_at, id);

CREATE INDEX ix_audit_log_subject_seq ON audit_log USING btree (subject, seq);

CREATE INDEX ix_challenges_expires_at ON challenges USING btree (expires_at);

CREATE INDEX ix_challenges_purpose_account ON challenges USING btree (purpose, account);

CREATE INDEX ix_delegated_keys_cut_by ON delegated_keys USING btree (cut_by);

CREATE INDEX ix_delegated_keys_parent_state ON delegated_keys USING btree (parent, state);

CREATE INDEX ix_delegated_keys_root ON delegated_keys USING btree (root);

CREATE INDEX ix_delegated_keys_state_expires_at ON delegated_keys USING btree (state, expires_at);

CREATE INDEX ix_events_subject_id ON events USING btree (subject, id);

CREATE INDEX ix_gift_cards_created_at_id ON gift_cards USING btree (created_at, id);

CREATE INDEX ix_gift_mails_due_at ON gift_mails USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX ix_gift_redemptions_expires_at ON gift_redemptions USING btree (expires_at) WHERE (state = 'pending_approval'::text);

CREATE INDEX ix_idempotency_expires_at ON idempotency USING btree (expires_at);

CREATE INDEX ix_idempotency_kept ON idempotency USING btree (owner, begun_at, bytes);

CREATE INDEX ix_image_grants_account ON image_grants USING btree (account);

CREATE INDEX ix_invoice_outputs_invoice ON invoice_outputs USING btree (invoice);

CREATE INDEX ix_invoices_account ON invoices USING btree (account);

CREATE INDEX ix_invoices_asked_by_state ON invoices USING btree (asked_by, state);

CREATE INDEX ix_invoices_asked_near_state ON invoices USING btree (asked_near, state);

CREATE INDEX ix_invoices_asset_watch_until ON invoices USING btree (asset, watch_until) WHERE (watch_until IS NOT NULL);

CREATE INDEX ix_invoices_created_at_id ON invoices USING btree (created_at, id);

CREATE INDEX ix_invoices_state_asked_near ON invoices USING btree (state, asked_near);

CREATE INDEX ix_jobs_account_created_at_id ON jobs USING btree (account, created_at, id);

CREATE INDEX ix_jobs_ended_at ON jobs USING btree (ended_at);

CREATE INDEX ix_jobs_sandbox_id ON jobs USING btree (sandbox_id);

CREATE INDEX ix_jobs_state_account_size_bytes ON jobs USING btree (state, account, size_bytes);

CREATE INDEX ix_jobs_state_created_at ON jobs USING btree (state, created_at);

CREATE INDEX ix_keys_account ON keys USING btree (account);

CREATE INDEX ix_ledger_accounts_owner ON ledger_accounts USING btree (owner);

CREATE INDEX ix_ledger_pendings_debit ON ledger_pendings USING btree (debit);

CREATE INDEX ix_ledger_transfers_credit_seq ON ledger_transfers USING btree (credit, seq);

CREATE INDEX ix_ledger_transfers_debit_seq ON ledger_transfers USING btree (debit, seq);

CREATE INDEX ix_meter_segments_owner_ended_at ON meter_segments USING btree (owner, ended_at);

CREATE INDEX ix_meter_segments_subject ON meter_segments USING btree (subject);

CREATE INDEX ix_meters_open ON meters USING btree (owner) WHERE (closed_at IS NULL);

CREATE INDEX ix_meters_owner ON meters USING btree (owner);

CREATE INDEX ix_meters_subject ON meters USING btree (subject);

CREATE INDEX ix_money_buckets_due_at ON money_buckets USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX ix_payments_account_created_at ON payments USING btree (account, created_at);

CREATE INDEX ix_payments_look_at ON payments USING btree (look_at) WHERE (look_at IS NOT NULL);

CREATE INDEX ix_previews_sandbox_id_created_at ON previews USING btree (sandbox_id, created_at);

CREATE INDEX ix_published_images_account_created_at_id ON published_images USING btree (account, created_at, id);

CREATE INDEX ix_published_images_state ON published_images USING btree (state);

CREATE INDEX ix_published_images_visibility_created_at_id ON published_images USING btree (visibility, created_at, id);

CREATE INDEX ix_quotes_account_expires_at ON quotes USING btree (account, expires_at);

CREATE INDEX ix_quotes_expires_at ON quotes USING btree (expires_at);

CREATE INDEX ix_refunds_invoice ON refunds USING btree (invoice);

CREATE INDEX ix_refunds_state_created_at ON refunds USING btree (state, created_at);

CREATE INDEX ix_run_sandboxes_created_at ON run_sandboxes USING btree (created_at);

CREATE INDEX ix_sandbox_labels_key_value ON sandbox_labels USING btree (key, value);

CREATE INDEX ix_sandboxes_account_created_at_id ON sandboxes USING btree (account, created_at, id);

CREATE INDEX ix_sandboxes_state ON sandboxes USING btree (state);

CREATE INDEX ix_service_domains_service_id ON service_domains USING btree (service_id);

CREATE UNIQUE INDEX ix_service_domains_verified ON service_domains USING btree (domain) WHERE (verified_at IS NOT NULL);

CREATE UNIQUE INDEX ix_services_account_name ON services USING btree (account, name) WHERE (state <> 'removed'::text);

CREATE INDEX ix_sessions_account_created_at_id ON sessions USING btree (account, created_at, id);

CREATE INDEX ix_sessions_sandbox_id ON sessions USING btree (sandbox_id);

CREATE INDEX ix_sessions_state ON sessions USING btree (state);

CREATE INDEX ix_snapshots_account_created_at_id ON snapshots USING btree (account, created_at, id);

CREATE INDEX ix_snapshots_parent_id ON snapshots USING btree (parent_id);

CREATE INDEX ix_snapshots_sandbox_id ON snapshots USING btree (sandbox_id);

CREATE INDEX ix_snapshots_state ON snapshots USING btree (state);

CREATE INDEX ix_spent_days_account_day ON spent_days USING btree (account, day);

CREATE INDEX ix_ssh_keys_account_created_at ON ssh_keys USING btree (account, created_at);

CREATE INDEX ix_ssh_keys_fingerprint ON ssh_keys USING btree (fingerprint);

CREATE INDEX ix_time_gaps_ended_at ON time_gaps USING btree (ended_at);

CREATE INDEX ix_volumes_account_created_at_id ON volumes USING btree (account, created_at, id);

CREATE INDEX ix_volumes_state ON volumes USING btree (state);

CREATE INDEX ix_wallet_sessions_address ON wallet_sessions USING btree (address);

CREATE INDEX ix_wallet_sessions_expires_at ON wallet_sessions USING btree (expires_at);

CREATE INDEX ix_wallets_account ON wallets USING btree (account);

CREATE INDEX ix_webhook_attempts_delivery_seq ON webhook_attempts USING btree (delivery, seq);

CREATE INDEX ix_webhook_deliveries_ended_at ON webhook_deliveries USING btree (ended_at);

CREATE INDEX ix_webhook_deliveries_endpoint_seq ON webhook_deliveries USING btree (endpoint, seq);

CREATE INDEX ix_webhook_deliveries_lane_due_at_seq ON webhook_deliveries USING btree (lane, due_at, seq) WHERE (due_at IS NOT NULL);

CREATE INDEX ix_webhook_endpoints_account_created_at ON webhook_endpoints USING btree (account, created_at);

CREATE INDEX ix_webhook_endpoints_of_all ON webhook_endpoints USING btree (id) WHERE hears_all;

CREATE UNIQUE INDEX uq_gift_cards_lookup ON gift_cards USING btree (lookup);

CREATE UNIQUE INDEX uq_gift_redemptions_card_request_id ON gift_redemptions USING btree (card, request_id);

CREATE UNIQUE INDEX uq_invoice_steps_invoice_number ON invoice_steps USING btree (invoice, number);

CREATE UNIQUE INDEX uq_invoices_asset_address ON invoices USING btree (asset, address);

CREATE UNIQUE INDEX uq_invoices_asset_address_index ON invoices USING btree (asset, address_index);

CREATE UNIQUE INDEX uq_ledger_transfers_id ON ledger_transfers USING btree (id);

CREATE UNIQUE INDEX uq_ledger_transfers_pending_id ON ledger_transfers USING btree (pending_id) WHERE (pending_id IS NOT NULL);

CREATE UNIQUE INDEX uq_payments_network_payer_nonce ON payments USING btree (network, payer, nonce);

CREATE UNIQUE INDEX uq_payments_payer_identifier ON payments USING btree (payer, identifier) WHERE (identifier IS NOT NULL);

ALTER TABLE sandbox_labels
    ADD CONSTRAINT fk_sandbox_labels_sandbox_id_sandboxes FOREIGN KEY (sandbox_id) REFERENCES sandboxes(id);

ALTER TABLE service_domains
    ADD CONSTRAINT fk_service_domains_service_id_services FOREIGN KEY (service_id) REFERENCES services(id);

INSERT INTO audit_head VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

INSERT INTO money_policy VALUES ('money', 60000000, 600000000, 600000000, 0, NULL);

INSERT INTO server_claim VALUES (1, 0, '', 0, NULL);
