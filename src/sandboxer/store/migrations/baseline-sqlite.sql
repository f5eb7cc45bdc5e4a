-- Everything up to revision 0035, as the steps that led there left it. Never changed: what comes later is a step.

CREATE TABLE accounts (
	id TEXT NOT NULL, 
	public_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	status TEXT NOT NULL, 
	status_reason TEXT NOT NULL, 
	tier INTEGER, 
	entitled_until DATETIME, 
	caps JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	status_since DATETIME NOT NULL, 
	CONSTRAINT pk_accounts PRIMARY KEY (id), 
	CONSTRAINT uq_accounts_public_id UNIQUE (public_id)
);
CREATE TABLE audit_head (
	id INTEGER NOT NULL, 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	CONSTRAINT pk_audit_head PRIMARY KEY (id)
);
INSERT INTO "audit_head" VALUES(1,0,'0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE audit_log (
	seq BIGINT NOT NULL, 
	at DATETIME NOT NULL, 
	actor TEXT NOT NULL, 
	action TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	data JSON NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	CONSTRAINT pk_audit_log PRIMARY KEY (seq), 
	CONSTRAINT uq_audit_log_previous UNIQUE (previous)
);
CREATE TABLE chain_heads (
	network TEXT NOT NULL, 
	height BIGINT NOT NULL, 
	seen_at DATETIME NOT NULL, 
	CONSTRAINT pk_chain_heads PRIMARY KEY (network)
);
CREATE TABLE challenges (
	nonce TEXT NOT NULL, 
	purpose TEXT NOT NULL, 
	account TEXT NOT NULL, 
	bound_to TEXT NOT NULL, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_challenges PRIMARY KEY (nonce)
);
CREATE TABLE delegated_keys (
	account TEXT NOT NULL, 
	public_key TEXT NOT NULL, 
	name TEXT NOT NULL, 
	parent TEXT NOT NULL, 
	root TEXT NOT NULL, 
	path TEXT NOT NULL, 
	generation INTEGER NOT NULL, 
	cut_by TEXT NOT NULL, 
	scopes JSON NOT NULL, 
	depth INTEGER NOT NULL, 
	slots INTEGER, 
	expires_at DATETIME, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	returned_sats BIGINT, 
	kept_sats BIGINT, 
	CONSTRAINT pk_delegated_keys PRIMARY KEY (account), 
	CONSTRAINT uq_delegated_keys_public_key UNIQUE (public_key)
);
CREATE TABLE disk_heads (
	sandbox_id TEXT NOT NULL, 
	snapshot_id TEXT NOT NULL, 
	CONSTRAINT pk_disk_heads PRIMARY KEY (sandbox_id)
);
CREATE TABLE egress_outlets (
	sandbox_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	certificate BLOB NOT NULL, 
	sealed_key BLOB NOT NULL, 
	sent BIGINT NOT NULL, 
	received BIGINT NOT NULL, 
	charged BIGINT NOT NULL, 
	charges INTEGER NOT NULL, 
	denials JSON NOT NULL, 
	CONSTRAINT pk_egress_outlets PRIMARY KEY (sandbox_id)
);
CREATE TABLE egress_policies (
	subject TEXT NOT NULL, 
	account TEXT NOT NULL, 
	policy JSON NOT NULL, 
	version INTEGER NOT NULL, 
	changed_at DATETIME NOT NULL, 
	CONSTRAINT pk_egress_policies PRIMARY KEY (subject)
);
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	subject TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	data JSON NOT NULL
);
CREATE TABLE gift_cards (
	id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	source TEXT NOT NULL, 
	cents BIGINT NOT NULL, 
	written_off BIGINT NOT NULL, 
	lookup TEXT, 
	claim_hash TEXT NOT NULL, 
	account TEXT, 
	invoice TEXT, 
	approval JSON NOT NULL, 
	approval_secret BLOB, 
	reason TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	paid_at DATETIME, 
	shown_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_gift_cards PRIMARY KEY (id)
);
CREATE TABLE gift_mails (
	redemption TEXT NOT NULL, 
	address TEXT NOT NULL, 
	state TEXT NOT NULL, 
	tries INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	due_at DATETIME, 
	CONSTRAINT pk_gift_mails PRIMARY KEY (redemption)
);
CREATE TABLE gift_redemptions (
	id TEXT NOT NULL, 
	card TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	state TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	tier INTEGER, 
	months INTEGER, 
	cents BIGINT NOT NULL, 
	sats BIGINT, 
	rate TEXT, 
	account TEXT NOT NULL, 
	is_new_account BOOLEAN NOT NULL, 
	claim_hash TEXT, 
	public_key TEXT, 
	entitled_until DATETIME, 
	reason TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	CONSTRAINT pk_gift_redemptions PRIMARY KEY (id)
);
CREATE TABLE idempotency (
	scope TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	claim TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	state TEXT NOT NULL, 
	status INTEGER, 
	headers JSON, 
	body BLOB, 
	begun_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, made TEXT, owner TEXT DEFAULT '' NOT NULL, bytes INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (scope, "key")
);
CREATE TABLE identity_secrets (
	name TEXT NOT NULL, 
	sealed BLOB NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_identity_secrets PRIMARY KEY (name)
);
CREATE TABLE image_grants (
	image_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	granted_at DATETIME NOT NULL, 
	CONSTRAINT pk_image_grants PRIMARY KEY (image_id, account)
);
CREATE TABLE installation (
	only INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	beat BIGINT NOT NULL, 
	made_at DATETIME NOT NULL, 
	PRIMARY KEY (only)
);
CREATE TABLE invoice_chains (
	chain TEXT NOT NULL, 
	next_index BIGINT NOT NULL, 
	tip BIGINT NOT NULL, 
	looked_at DATETIME, 
	CONSTRAINT pk_invoice_chains PRIMARY KEY (chain)
);
CREATE TABLE invoice_outputs (
	chain TEXT NOT NULL, 
	txid TEXT NOT NULL, 
	output TEXT NOT NULL, 
	invoice TEXT NOT NULL, 
	amount TEXT NOT NULL, 
	depth INTEGER NOT NULL, 
	block TEXT, 
	height BIGINT, 
	is_there BOOLEAN NOT NULL, 
	is_unlocked BOOLEAN NOT NULL, 
	missed INTEGER NOT NULL, 
	is_in_time BOOLEAN NOT NULL, 
	first_seen_at DATETIME NOT NULL, 
	settled TEXT NOT NULL, 
	sale_sats BIGINT NOT NULL, 
	bucket_sats BIGINT NOT NULL, 
	is_for_price BOOLEAN NOT NULL, 
	round INTEGER NOT NULL, 
	CONSTRAINT pk_invoice_outputs PRIMARY KEY (chain, txid, output)
);
CREATE TABLE invoice_steps (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	invoice TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	state TEXT NOT NULL, 
	signal TEXT NOT NULL, 
	data JSON NOT NULL
);
CREATE TABLE invoices (
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	tier INTEGER, 
	months INTEGER, 
	cents BIGINT, 
	reference TEXT, 
	asset TEXT NOT NULL, 
	atomic TEXT NOT NULL, 
	sats BIGINT NOT NULL, 
	usd TEXT, 
	btc_usd TEXT, 
	rate_sources JSON NOT NULL, 
	state TEXT NOT NULL, 
	address TEXT NOT NULL, 
	address_index BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	is_new_account BOOLEAN NOT NULL, 
	claim_hash TEXT, 
	public_key TEXT, 
	refund_address TEXT, 
	confirmations INTEGER NOT NULL, 
	asked_by TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	confirm_by DATETIME NOT NULL, 
	deliveries INTEGER NOT NULL, 
	is_delivered BOOLEAN NOT NULL, 
	granted JSON NOT NULL, 
	watch_until DATETIME, 
	updated_at DATETIME NOT NULL, 
	steps INTEGER NOT NULL, asked_near TEXT, 
	CONSTRAINT pk_invoices PRIMARY KEY (id)
);
CREATE TABLE jobs (
	id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	is_owner BOOLEAN NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	language TEXT NOT NULL, 
	submission JSON, 
	webhook_url TEXT, 
	sandbox_id TEXT, 
	compile_process TEXT, 
	run_process TEXT, 
	sats INTEGER NOT NULL, 
	problem JSON, 
	created_at DATETIME NOT NULL, 
	not_before DATETIME, 
	started_at DATETIME, 
	deadline DATETIME, 
	ended_at DATETIME, 
	result BLOB, size_bytes INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (id)
);
CREATE TABLE keys (
	public_key TEXT NOT NULL, 
	account TEXT NOT NULL, 
	name TEXT NOT NULL, 
	sealed_secret BLOB NOT NULL, 
	is_owner BOOLEAN NOT NULL, 
	accepts_v1 BOOLEAN NOT NULL, 
	created_at DATETIME NOT NULL, 
	revoked_at DATETIME, secret_hash TEXT, expires_at DATETIME, suspended_at DATETIME, suspended_why TEXT, rotated_at DATETIME, claim_hash TEXT, revealed_at DATETIME, 
	CONSTRAINT pk_keys PRIMARY KEY (public_key)
);
CREATE TABLE ledger_accounts (
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	asset TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	may_overdraw BOOLEAN NOT NULL, 
	debits_posted BIGINT NOT NULL, 
	credits_posted BIGINT NOT NULL, 
	debits_pending BIGINT NOT NULL, 
	credits_pending BIGINT NOT NULL, 
	transfers BIGINT NOT NULL, 
	digest BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_ledger_accounts PRIMARY KEY (id), 
	CONSTRAINT ck_ledger_accounts_covered CHECK (may_overdraw OR credits_posted - debits_posted - debits_pending >= 0), 
	CONSTRAINT ck_ledger_accounts_pendings CHECK (debits_pending >= 0 AND credits_pending >= 0)
);
CREATE TABLE ledger_pendings (
	id TEXT NOT NULL, 
	debit TEXT NOT NULL, 
	amount BIGINT NOT NULL, 
	CONSTRAINT pk_ledger_pendings PRIMARY KEY (id)
);
CREATE TABLE ledger_transfers (
	seq INTEGER NOT NULL PRIMARY KEY, 
	id TEXT NOT NULL, 
	debit TEXT NOT NULL, 
	credit TEXT NOT NULL, 
	amount BIGINT NOT NULL, 
	asset TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	phase TEXT NOT NULL, 
	pending_id TEXT, 
	reason TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	data JSON, 
	digest BIGINT NOT NULL, 
	CONSTRAINT ck_ledger_transfers_amount CHECK (amount > 0), 
	CONSTRAINT ck_ledger_transfers_sides CHECK (debit <> credit)
);
CREATE TABLE meter_segments (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	rate_msats BIGINT NOT NULL, 
	began_at DATETIME NOT NULL, 
	ended_at DATETIME NOT NULL, 
	msats BIGINT NOT NULL, "key" TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT uq_meter_segments_id UNIQUE (id)
);
CREATE TABLE meters (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	rate_msats BIGINT NOT NULL, 
	began_at DATETIME NOT NULL, 
	closed_at DATETIME, 
	segments INTEGER NOT NULL, 
	step BIGINT NOT NULL, "key" TEXT DEFAULT '' NOT NULL, rated_at DATETIME, 
	CONSTRAINT pk_meters PRIMARY KEY (id)
);
CREATE TABLE money_buckets (
	owner TEXT NOT NULL, 
	rate_msats BIGINT NOT NULL, 
	settled_at DATETIME NOT NULL, 
	carried_nsats BIGINT NOT NULL, 
	settlements BIGINT NOT NULL, 
	standing TEXT NOT NULL, 
	grace_began_at DATETIME, 
	last_receipt_at DATETIME, 
	warned_s INTEGER, 
	due_at DATETIME, has_grace BOOLEAN DEFAULT 1 NOT NULL, look_at DATETIME, collected_sats BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_money_buckets PRIMARY KEY (owner)
);
CREATE TABLE money_policy (
	name TEXT NOT NULL, 
	grace_us BIGINT NOT NULL, 
	grace_cap_us BIGINT NOT NULL, 
	reserve_us BIGINT NOT NULL, deposit_us BIGINT DEFAULT '0' NOT NULL, gaps_until DATETIME, 
	PRIMARY KEY (name)
);
INSERT INTO "money_policy" VALUES('money',60000000,600000000,600000000,0,NULL);
CREATE TABLE payments (
	id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	network TEXT NOT NULL, 
	payer TEXT NOT NULL, 
	nonce TEXT NOT NULL, 
	payload_hash TEXT NOT NULL, 
	identifier TEXT, 
	scheme TEXT NOT NULL, 
	asset TEXT NOT NULL, 
	amount TEXT NOT NULL, 
	sats BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	purpose TEXT NOT NULL, 
	details JSON NOT NULL, 
	payload JSON, 
	requirements JSON, 
	txid TEXT, 
	block TEXT, 
	valid_until DATETIME, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	look_at DATETIME, 
	looks INTEGER NOT NULL, height BIGINT, reversed_at DATETIME, restored_at DATETIME, 
	CONSTRAINT pk_payments PRIMARY KEY (id)
);
CREATE TABLE previews (
	id TEXT NOT NULL, 
	sandbox_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	port INTEGER NOT NULL, 
	is_public BOOLEAN NOT NULL, 
	is_one_time BOOLEAN NOT NULL, 
	wakes BOOLEAN NOT NULL, 
	hold_s INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	used_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_previews PRIMARY KEY (id)
);
CREATE TABLE published_images (
	id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT NOT NULL, 
	description TEXT NOT NULL, 
	visibility TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	source TEXT NOT NULL, 
	backend TEXT NOT NULL, 
	base TEXT NOT NULL, 
	profile TEXT NOT NULL, 
	resources JSON NOT NULL, 
	config JSON NOT NULL, 
	digest TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	files BIGINT NOT NULL, 
	findings JSON NOT NULL, 
	findings_count INTEGER NOT NULL, 
	stripped JSON NOT NULL, 
	stripped_count INTEGER NOT NULL, 
	rate_msats BIGINT NOT NULL, 
	hands INTEGER NOT NULL, 
	offered_to TEXT, 
	created_at DATETIME NOT NULL, 
	state_since DATETIME NOT NULL, 
	verified_at DATETIME, 
	expires_at DATETIME, 
	ended_at DATETIME, 
	locked_at DATETIME, 
	CONSTRAINT pk_published_images PRIMARY KEY (id)
);
CREATE TABLE quarantine (
	backend TEXT NOT NULL, 
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	first_seen DATETIME NOT NULL, 
	last_seen DATETIME NOT NULL, 
	seen_for_ms BIGINT NOT NULL, 
	PRIMARY KEY (backend, id)
);
CREATE TABLE quotes (
	id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	profile TEXT NOT NULL, 
	vcpu_thousandths BIGINT NOT NULL, 
	memory_mb BIGINT NOT NULL, 
	disk_mb BIGINT NOT NULL, 
	running_msats BIGINT NOT NULL, 
	frozen_msats BIGINT NOT NULL, 
	stored_msats BIGINT NOT NULL, 
	egress_gb_msats BIGINT NOT NULL, 
	duration_s BIGINT NOT NULL, 
	sats BIGINT NOT NULL, 
	quoted_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	used_by TEXT, 
	PRIMARY KEY (id)
);
CREATE TABLE refunds (
	id TEXT NOT NULL, 
	invoice TEXT NOT NULL, 
	chain TEXT NOT NULL, 
	txid TEXT NOT NULL, 
	output TEXT NOT NULL, 
	received TEXT NOT NULL, 
	amount TEXT NOT NULL, 
	kept TEXT NOT NULL, 
	address TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	sent_txid TEXT, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, prepared_txid TEXT, prepared TEXT, fee TEXT, held TEXT, 
	CONSTRAINT pk_refunds PRIMARY KEY (id)
);
CREATE TABLE run_sandboxes (
	sandbox_id TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_run_sandboxes PRIMARY KEY (sandbox_id)
);
CREATE TABLE sandbox_labels (
	sandbox_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_sandbox_labels PRIMARY KEY (sandbox_id, "key"), 
	CONSTRAINT fk_sandbox_labels_sandbox_id_sandboxes FOREIGN KEY(sandbox_id) REFERENCES sandboxes (id)
);
CREATE TABLE sandbox_secrets (
	sandbox_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	sealed BLOB NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	in_env BOOLEAN NOT NULL, 
	in_file BOOLEAN NOT NULL, 
	injected_at DATETIME NOT NULL, 
	CONSTRAINT pk_sandbox_secrets PRIMARY KEY (sandbox_id, name)
);
CREATE TABLE sandboxes (
	id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	profile TEXT NOT NULL, 
	profile_version TEXT NOT NULL, 
	backend TEXT NOT NULL, 
	image TEXT NOT NULL, 
	trust TEXT NOT NULL, 
	resources JSON NOT NULL, 
	env JSON NOT NULL, 
	labels JSON NOT NULL, 
	inputs JSON NOT NULL, 
	consumer JSON NOT NULL, 
	ttl_s FLOAT NOT NULL, 
	ttl_max_s FLOAT NOT NULL, 
	idle_timeout_s FLOAT, 
	created_at DATETIME NOT NULL, 
	state_since DATETIME NOT NULL, 
	ready_at DATETIME, 
	expires_at DATETIME, 
	ended_at DATETIME, 
	ttl_left_s FLOAT, 
	handle JSON, 
	timings_ms JSON NOT NULL, 
	report JSON, terms JSON, locked_at DATETIME, boosted_from JSON, origin TEXT, volumes JSON, 
	CONSTRAINT pk_sandboxes PRIMARY KEY (id)
);
CREATE TABLE secrets (
	account TEXT NOT NULL, 
	name TEXT NOT NULL, 
	sealed BLOB NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	CONSTRAINT pk_secrets PRIMARY KEY (account, name)
);
CREATE TABLE server_beats (
	name TEXT NOT NULL, 
	moment DATETIME NOT NULL, 
	boot_us BIGINT NOT NULL, 
	boot_id TEXT NOT NULL, witnessed_at DATETIME, 
	PRIMARY KEY (name)
);
CREATE TABLE server_claim (
	id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	holder TEXT NOT NULL, 
	probes INTEGER NOT NULL, key_check TEXT, 
	CONSTRAINT pk_server_claim PRIMARY KEY (id)
);
INSERT INTO "server_claim" VALUES(1,0,'',0,NULL);
CREATE TABLE service_domains (
	domain TEXT NOT NULL, 
	service_id TEXT NOT NULL, 
	token TEXT NOT NULL, 
	verified_at DATETIME, 
	created_at DATETIME NOT NULL, failing_since DATETIME, 
	CONSTRAINT pk_service_domains PRIMARY KEY (domain, service_id), 
	CONSTRAINT fk_service_domains_service_id_services FOREIGN KEY(service_id) REFERENCES services (id)
);
CREATE TABLE services (
	id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT NOT NULL, 
	slug TEXT NOT NULL, 
	sandbox_id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	state_since DATETIME NOT NULL, 
	is_wanted BOOLEAN NOT NULL, 
	spec JSON NOT NULL, 
	vault BLOB, 
	vault_names JSON NOT NULL, 
	vault_at DATETIME, 
	process_id TEXT, 
	port INTEGER, 
	launched_at DATETIME, 
	run INTEGER NOT NULL, 
	crashes JSON NOT NULL, 
	restart_at DATETIME, 
	created_at DATETIME NOT NULL, 
	deployed_at DATETIME NOT NULL, 
	CONSTRAINT pk_services PRIMARY KEY (id), 
	CONSTRAINT uq_services_slug UNIQUE (slug), 
	CONSTRAINT uq_services_sandbox_id UNIQUE (sandbox_id)
);
CREATE TABLE sessions (
	id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT, 
	sandbox_id TEXT NOT NULL, 
	owns_sandbox BOOLEAN NOT NULL, 
	language TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	process_id TEXT NOT NULL, 
	generation INTEGER NOT NULL, 
	env JSON NOT NULL, 
	cwd TEXT, 
	idle_s FLOAT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	last_active_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	CONSTRAINT pk_sessions PRIMARY KEY (id)
);
CREATE TABLE snapshots (
	id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	sandbox_id TEXT NOT NULL, 
	parent_id TEXT, 
	backend TEXT NOT NULL, 
	image TEXT NOT NULL, 
	profile TEXT NOT NULL, 
	resources JSON NOT NULL, 
	content TEXT NOT NULL, 
	labels JSON NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	is_measured BOOLEAN NOT NULL, 
	rate_msats BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	state_since DATETIME NOT NULL, 
	expires_at DATETIME, 
	paid_expires_at DATETIME, 
	ended_at DATETIME, 
	locked_at DATETIME, 
	took_ms JSON NOT NULL, 
	CONSTRAINT pk_snapshots PRIMARY KEY (id)
);
CREATE TABLE spent_days (
	account TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	day DATETIME NOT NULL, 
	used_sats BIGINT NOT NULL, 
	used_nsats BIGINT NOT NULL, 
	moved_sats BIGINT NOT NULL, 
	CONSTRAINT pk_spent_days PRIMARY KEY (account, "key", day)
);
CREATE TABLE ssh_keys (
	id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT NOT NULL, 
	sandbox_id TEXT, 
	algorithm TEXT NOT NULL, 
	public_key TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_ssh_keys PRIMARY KEY (id)
);
CREATE TABLE time_gaps (
	seq INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	began_at DATETIME NOT NULL, 
	ended_at DATETIME NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE volume_attachments (
	volume_id TEXT NOT NULL, 
	sandbox_id TEXT NOT NULL, 
	path TEXT NOT NULL, 
	is_read_only BOOLEAN NOT NULL, 
	attached_at DATETIME NOT NULL, 
	CONSTRAINT pk_volume_attachments PRIMARY KEY (volume_id, sandbox_id)
);
CREATE TABLE volumes (
	id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	account TEXT NOT NULL, 
	created_by TEXT NOT NULL, 
	name TEXT NOT NULL, 
	taken_name TEXT, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	backend TEXT NOT NULL, 
	size_mb BIGINT NOT NULL, 
	origin TEXT, 
	labels JSON NOT NULL, 
	rate_msats BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	state_since DATETIME NOT NULL, 
	expires_at DATETIME, 
	ended_at DATETIME, 
	locked_at DATETIME, 
	CONSTRAINT pk_volumes PRIMARY KEY (id), 
	CONSTRAINT uq_volumes_taken_name UNIQUE (taken_name)
);
CREATE TABLE wallet_sessions (
	id TEXT NOT NULL, 
	address TEXT NOT NULL, 
	account TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	CONSTRAINT pk_wallet_sessions PRIMARY KEY (id)
);
CREATE TABLE wallets (
	address TEXT NOT NULL, 
	account TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	CONSTRAINT pk_wallets PRIMARY KEY (address)
);
CREATE TABLE webhook_attempts (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	delivery TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	took_ms INTEGER NOT NULL, 
	status INTEGER, 
	outcome TEXT NOT NULL, 
	reason TEXT NOT NULL
);
CREATE TABLE webhook_cursors (
	feed TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	CONSTRAINT pk_webhook_cursors PRIMARY KEY (feed)
);
CREATE TABLE webhook_deliveries (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	endpoint TEXT NOT NULL, 
	account TEXT NOT NULL, 
	lane TEXT NOT NULL, 
	message TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	body TEXT NOT NULL, 
	url TEXT, 
	secret BLOB, 
	state TEXT NOT NULL, 
	tries INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	due_at DATETIME, 
	ended_at DATETIME, 
	CONSTRAINT uq_webhook_deliveries_id UNIQUE (id), 
	CONSTRAINT uq_webhook_deliveries_endpoint_message UNIQUE (endpoint, message)
);
CREATE TABLE webhook_endpoints (
	id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	url TEXT NOT NULL, 
	kinds JSON NOT NULL, 
	hears_all BOOLEAN NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	disabled_reason TEXT NOT NULL, 
	secret BLOB NOT NULL, 
	old_secret BLOB, 
	old_secret_until DATETIME, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id)
);
CREATE INDEX ix_events_subject_id ON events (subject, id);
CREATE INDEX ix_keys_account ON keys (account);
CREATE INDEX ix_idempotency_expires_at ON idempotency (expires_at);
CREATE INDEX ix_sandboxes_account_created_at_id ON sandboxes (account, created_at, id);
CREATE INDEX ix_sandboxes_state ON sandboxes (state);
CREATE INDEX ix_sandbox_labels_key_value ON sandbox_labels ("key", value);
CREATE INDEX ix_ledger_accounts_owner ON ledger_accounts (owner);
CREATE UNIQUE INDEX uq_ledger_transfers_id ON ledger_transfers (id);
CREATE UNIQUE INDEX uq_ledger_transfers_pending_id ON ledger_transfers (pending_id) WHERE pending_id IS NOT NULL;
CREATE INDEX ix_ledger_transfers_debit_seq ON ledger_transfers (debit, seq);
CREATE INDEX ix_ledger_transfers_credit_seq ON ledger_transfers (credit, seq);
CREATE INDEX ix_ledger_pendings_debit ON ledger_pendings (debit);
CREATE INDEX ix_money_buckets_due_at ON money_buckets (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ix_meters_owner ON meters (owner);
CREATE INDEX ix_meters_subject ON meters (subject);
CREATE INDEX ix_meter_segments_owner_ended_at ON meter_segments (owner, ended_at);
CREATE INDEX ix_meter_segments_subject ON meter_segments (subject);
CREATE INDEX ix_wallets_account ON wallets (account);
CREATE INDEX ix_challenges_purpose_account ON challenges (purpose, account);
CREATE INDEX ix_challenges_expires_at ON challenges (expires_at);
CREATE INDEX ix_wallet_sessions_address ON wallet_sessions (address);
CREATE INDEX ix_wallet_sessions_expires_at ON wallet_sessions (expires_at);
CREATE INDEX ix_accounts_created_at_id ON accounts (created_at, id);
CREATE INDEX ix_delegated_keys_parent_state ON delegated_keys (parent, state);
CREATE INDEX ix_delegated_keys_root ON delegated_keys (root);
CREATE INDEX ix_delegated_keys_cut_by ON delegated_keys (cut_by);
CREATE INDEX ix_delegated_keys_state_expires_at ON delegated_keys (state, expires_at);
CREATE INDEX ix_audit_log_subject_seq ON audit_log (subject, seq);
CREATE INDEX ix_quotes_expires_at ON quotes (expires_at);
CREATE INDEX ix_webhook_endpoints_account_created_at ON webhook_endpoints (account, created_at);
CREATE INDEX ix_webhook_deliveries_lane_due_at_seq ON webhook_deliveries (lane, due_at, seq) WHERE due_at IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_endpoint_seq ON webhook_deliveries (endpoint, seq);
CREATE INDEX ix_webhook_deliveries_ended_at ON webhook_deliveries (ended_at);
CREATE INDEX ix_webhook_attempts_delivery_seq ON webhook_attempts (delivery, seq);
CREATE UNIQUE INDEX uq_payments_network_payer_nonce ON payments (network, payer, nonce);
CREATE UNIQUE INDEX uq_payments_payer_identifier ON payments (payer, identifier) WHERE identifier IS NOT NULL;
CREATE INDEX ix_payments_account_created_at ON payments (account, created_at);
CREATE INDEX ix_payments_look_at ON payments (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX ix_invoices_account ON invoices (account);
CREATE INDEX ix_invoices_asked_by_state ON invoices (asked_by, state);
CREATE INDEX ix_invoices_asset_watch_until ON invoices (asset, watch_until) WHERE watch_until IS NOT NULL;
CREATE INDEX ix_invoices_created_at_id ON invoices (created_at, id);
CREATE UNIQUE INDEX uq_invoices_asset_address ON invoices (asset, address);
CREATE UNIQUE INDEX uq_invoices_asset_address_index ON invoices (asset, address_index);
CREATE INDEX ix_invoice_outputs_invoice ON invoice_outputs (invoice);
CREATE UNIQUE INDEX uq_invoice_steps_invoice_number ON invoice_steps (invoice, number);
CREATE INDEX ix_refunds_invoice ON refunds (invoice);
CREATE INDEX ix_refunds_state_created_at ON refunds (state, created_at);
CREATE UNIQUE INDEX uq_gift_cards_lookup ON gift_cards (lookup);
CREATE INDEX ix_gift_cards_created_at_id ON gift_cards (created_at, id);
CREATE UNIQUE INDEX uq_gift_redemptions_card_request_id ON gift_redemptions (card, request_id);
CREATE INDEX ix_gift_redemptions_expires_at ON gift_redemptions (expires_at) WHERE state = 'pending_approval';
CREATE INDEX ix_gift_mails_due_at ON gift_mails (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ix_jobs_account_created_at_id ON jobs (account, created_at, id);
CREATE INDEX ix_jobs_state_created_at ON jobs (state, created_at);
CREATE INDEX ix_jobs_ended_at ON jobs (ended_at);
CREATE INDEX ix_jobs_sandbox_id ON jobs (sandbox_id);
CREATE INDEX ix_run_sandboxes_created_at ON run_sandboxes (created_at);
CREATE INDEX ix_sessions_account_created_at_id ON sessions (account, created_at, id);
CREATE INDEX ix_sessions_state ON sessions (state);
CREATE INDEX ix_sessions_sandbox_id ON sessions (sandbox_id);
CREATE UNIQUE INDEX ix_services_account_name ON services (account, name) WHERE state <> 'removed';
CREATE UNIQUE INDEX ix_service_domains_verified ON service_domains (domain) WHERE verified_at IS NOT NULL;
CREATE INDEX ix_service_domains_service_id ON service_domains (service_id);
CREATE INDEX ix_snapshots_account_created_at_id ON snapshots (account, created_at, id);
CREATE INDEX ix_snapshots_state ON snapshots (state);
CREATE INDEX ix_snapshots_sandbox_id ON snapshots (sandbox_id);
CREATE INDEX ix_snapshots_parent_id ON snapshots (parent_id);
CREATE INDEX ix_published_images_account_created_at_id ON published_images (account, created_at, id);
CREATE INDEX ix_published_images_visibility_created_at_id ON published_images (visibility, created_at, id);
CREATE INDEX ix_published_images_state ON published_images (state);
CREATE INDEX ix_image_grants_account ON image_grants (account);
CREATE INDEX ix_volumes_account_created_at_id ON volumes (account, created_at, id);
CREATE INDEX ix_volumes_state ON volumes (state);
CREATE INDEX ix_ssh_keys_account_created_at ON ssh_keys (account, created_at);
CREATE INDEX ix_ssh_keys_fingerprint ON ssh_keys (fingerprint);
CREATE INDEX ix_meters_open ON meters (owner) WHERE closed_at IS NULL;
CREATE INDEX ix_spent_days_account_day ON spent_days (account, day);
CREATE INDEX ix_quotes_account_expires_at ON quotes (account, expires_at);
CREATE INDEX ix_webhook_endpoints_of_all ON webhook_endpoints (id) WHERE hears_all;
CREATE INDEX ix_previews_sandbox_id_created_at ON previews (sandbox_id, created_at);
CREATE INDEX ix_jobs_state_account_size_bytes ON jobs (state, account, size_bytes);
CREATE INDEX ix_time_gaps_ended_at ON time_gaps (ended_at);
CREATE INDEX ix_invoices_asked_near_state ON invoices (asked_near, state);
CREATE INDEX ix_invoices_state_asked_near ON invoices (state, asked_near);
CREATE INDEX ix_idempotency_kept ON idempotency (owner, begun_at, bytes);
