// A chain around simnet: mempool, nonces, fees, blocks and reorganisations. Simnet keeps the balances.
import { createHash } from 'node:crypto';
import { getSDK } from '@stacks/clarinet-sdk';
import { AuthType, Cl, deserializeTransaction } from '@stacks/transactions';
import { Rejected, addressOf, checkSignatures, movementOf, postConditionsHold } from './checks.mjs';

const TESTNET = { version: 0x80, chainId: 0x80000000 };
const MINER = 'ST000000000000000000002AMW42H';
const MIN_FEE = 180n;
const OFFLINE = { enabled: false, api_url: 'http://127.0.0.1:1', use_mainnet_wasm_execution: false };

export class Chain {
  constructor(deployer, contracts) {
    this.deployer = deployer;
    this.contracts = contracts;
    // contract -> the name of its token
    this.tokens = Object.fromEntries(Object.entries(contracts).map(([name, source]) => [
      `${deployer}.${name}`, /define-fungible-token ([a-z0-9-]+)/.exec(source)[1]]));
    this.blocks = [];
    this.mempool = new Map();
    this.seen = new Map();
    this.nonces = new Map();
    this.forks = 0;
  }

  async open() {
    this.sim ??= await getSDK({ trackCosts: false, trackCoverage: false });
    await this.sim.initEmptySession(OFFLINE);
    this.sim.setEpoch('3.1');
    this.sim.deployer = this.deployer;
    for (const [name, source] of Object.entries(this.contracts))
      this.sim.deployContract(name, source, { clarityVersion: 3 }, this.deployer);
  }

  // ------------------------------------------------------------------ reading
  get height() { return this.blocks.length; }
  get tip() { return this.blocks.at(-1)?.hash ?? '00'.repeat(32); }
  nonce(address) { return this.nonces.get(address) ?? 0; }

  balance(asset, address) {
    const [contract, token] = asset.split('::');
    const key = token ? `.${contract.split('.')[1]}.${token}` : 'STX';
    return this.sim.getAssetsMap().get(key)?.get(address) ?? 0n;
  }

  pendingOf(address) {
    return [...this.mempool.values()].filter((entry) => entry.origin === address || entry.sponsor === address);
  }

  nextNonce(address) {
    let next = this.nonce(address);
    const taken = new Set(this.pendingOf(address).map((e) => (e.origin === address ? e.nonce : e.sponsorNonce)));
    while (taken.has(next)) next += 1;
    return next;
  }

  // ------------------------------------------------------------------ admission
  submit(raw) {
    let tx;
    try {
      tx = deserializeTransaction(raw);
    } catch (error) {
      throw new Rejected('Deserialization', String(error.message ?? error));
    }
    const txid = tx.txid();
    if (this.mempool.has(txid)) return txid;
    if (tx.transactionVersion !== TESTNET.version || tx.chainId !== TESTNET.chainId)
      throw new Rejected('NetworkVersionMismatch', 'signed for another network');
    checkSignatures(tx);
    const entry = this.#entry(txid, tx, raw);
    this.#checkAccounts(entry);
    this.#replace(entry);
    this.mempool.set(txid, entry);
    this.seen.set(txid, entry);
    return txid;
  }

  #entry(txid, tx, raw) {
    const origin = tx.auth.spendingCondition;
    const sponsored = tx.auth.authType === AuthType.Sponsored;
    const payer = sponsored ? tx.auth.sponsorSpendingCondition : origin;
    return {
      txid, tx, raw: raw.toString('hex'), status: 'pending', moved: movementOf(tx, this.tokens),
      origin: addressOf(origin), nonce: Number(origin.nonce), fee: BigInt(payer.fee),
      sponsor: sponsored ? addressOf(payer) : null, sponsorNonce: sponsored ? Number(payer.nonce) : null,
      receivedAt: Date.now(),
    };
  }

  #checkAccounts(entry) {
    for (const [who, nonce] of [[entry.origin, entry.nonce], [entry.sponsor, entry.sponsorNonce]]) {
      if (who === null) continue;
      const expected = this.nonce(who);
      if (nonce < expected || nonce > expected + 25)
        throw new Rejected('BadNonce', `nonce ${nonce} of ${who}`, { expected, actual: nonce, principal: who });
    }
    if (entry.fee < MIN_FEE) throw new Rejected('FeeTooLow', `a fee of at least ${MIN_FEE} is needed`);
    const payer = entry.sponsor ?? entry.origin;
    if (this.balance('STX', payer) < entry.fee) throw new Rejected('NotEnoughFunds', `${payer} cannot pay the fee`);
    if (this.balance(entry.moved.asset, entry.moved.sender) < entry.moved.amount && entry.moved.asset === 'STX')
      throw new Rejected('NotEnoughFunds', `${entry.moved.sender} has too few STX`);
  }

  #replace(entry) {
    for (const other of this.mempool.values()) {
      const same = other.origin === entry.origin && other.nonce === entry.nonce;
      const sponsors = entry.sponsor && other.sponsor === entry.sponsor && other.sponsorNonce === entry.sponsorNonce;
      if (!same && !sponsors) continue;
      if (entry.fee <= other.fee) throw new Rejected('ConflictingNonceInMempool', other.txid);
      this.drop(other.txid, 'dropped_replace_by_fee');
    }
  }

  drop(txid, status = 'dropped_stale_garbage_collect') {
    const entry = this.mempool.get(txid);
    if (!entry) return;
    this.mempool.delete(txid);
    entry.status = status;
  }

  // ------------------------------------------------------------------ blocks
  mine() {
    const block = { height: this.height + 1, txs: [], mints: [] };
    for (let progress = true; progress;) {
      progress = false;
      for (const entry of this.mempool.values()) {
        if (this.nonce(entry.origin) !== entry.nonce) continue;
        if (entry.sponsor && this.nonce(entry.sponsor) !== entry.sponsorNonce) continue;
        this.#execute(entry);
        block.txs.push(entry);
        progress = true;
      }
    }
    return this.#seal(block);
  }

  mint(asset, to, amount) {
    const block = { height: this.height + 1, txs: [], mints: [[asset, to, amount]] };
    this.#mint(asset, to, amount);
    return this.#seal(block);
  }

  #mint(asset, to, amount) {
    if (asset === 'STX') this.sim.mintSTX(to, BigInt(amount));
    else this.sim.callPublicFn(asset.split('::')[0], 'mint', [Cl.uint(amount), Cl.principal(to)], this.deployer);
  }

  #seal(block) {
    const text = JSON.stringify([block.height, this.tip, block.txs.map((e) => e.txid), this.forks]);
    block.hash = createHash('sha256').update(text).digest('hex');
    block.time = Math.floor(Date.now() / 1000);
    for (const entry of block.txs) Object.assign(entry, { height: block.height, block: block.hash, time: block.time });
    this.blocks.push(block);
    return block;
  }

  #execute(entry) {
    this.mempool.delete(entry.txid);
    this.sim.transferSTX(entry.fee, MINER, entry.sponsor ?? entry.origin);
    this.nonces.set(entry.origin, entry.nonce + 1);
    if (entry.sponsor) this.nonces.set(entry.sponsor, entry.sponsorNonce + 1);
    if (!postConditionsHold(entry.tx, entry.moved)) {
      entry.status = 'abort_by_post_condition';
      return;
    }
    const { moved } = entry;
    const done = moved.asset === 'STX'
      ? this.sim.transferSTX(moved.amount, moved.recipient, moved.sender)
      : this.sim.callPublicFn(moved.contract, 'transfer', moved.args, entry.origin);
    entry.status = done.result.type === 'ok' ? 'success' : 'abort_by_response';
    // Post-conditions were judged by what it would move; it must have moved just that.
    const events = done.events.filter((e) => /transfer/.test(e.event));
    if (entry.status === 'success' && (events.length !== 1 || BigInt(events[0].data.amount) !== moved.amount))
      throw new Error(`foretold another movement than happened in ${entry.txid}`);
  }

  // A real one: the state is made anew from the first block up to where the chains part.
  async reorg(depth) {
    const keep = this.blocks.slice(0, Math.max(0, this.height - depth));
    const lost = this.blocks.slice(keep.length);
    this.blocks = [];
    this.nonces = new Map();
    this.forks += 1;
    await this.open();
    for (const block of keep) {
      for (const mint of block.mints) this.#mint(...mint);
      for (const entry of block.txs) this.#execute(entry);
      this.blocks.push(block);
    }
    for (const block of lost) {
      for (const mint of block.mints) this.mint(...mint);
      for (const entry of block.txs) {
        Object.assign(entry, { status: 'pending', height: undefined, block: undefined, time: undefined });
        this.mempool.set(entry.txid, entry);
      }
    }
  }
}
