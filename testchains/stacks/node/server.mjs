// The chain's HTTP face, in the words of a Stacks node and its API; what begins with /test moves the chain.
//   node server.mjs <port> <deployer address> [milliseconds between blocks]
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { Chain } from './chain.mjs';
import { Rejected } from './checks.mjs';

const [port, deployer, blockTime] = process.argv.slice(2);
const folder = new URL('./contracts/', import.meta.url);
const contracts = Object.fromEntries(readdirSync(folder).filter((name) => name.endsWith('.clar'))
  .map((name) => [name.replace('.clar', ''), readFileSync(new URL(name, folder), 'utf8')]));
const chain = new Chain(deployer, contracts);
await chain.open();
let ticking = Number(blockTime ?? 0) ? setInterval(() => chain.mempool.size && chain.mine(), Number(blockTime)) : null;

function told(entry) {
  return {
    tx_id: `0x${entry.txid}`, nonce: entry.nonce, fee_rate: String(entry.fee), sender_address: entry.origin,
    sponsored: entry.sponsor !== null, sponsor_address: entry.sponsor ?? undefined,
    sponsor_nonce: entry.sponsorNonce ?? undefined, tx_status: entry.status,
    block_height: entry.height, block_hash: entry.block && `0x${entry.block}`, canonical: true,
    block_time: entry.time, burn_block_time: entry.time,
  };
}

function balances(address) {
  const fungible = Object.fromEntries(Object.entries(chain.tokens).map(([contract, token]) => [
    `${contract}::${token}`, { balance: String(chain.balance(`${contract}::${token}`, address)) }]));
  return { stx: { balance: String(chain.balance('STX', address)) }, fungible_tokens: fungible };
}

function nonces(address) {
  const last = chain.nonce(address) - 1;
  const pending = chain.pendingOf(address).filter((e) => e.origin === address).map((e) => e.nonce);
  return {
    last_executed_tx_nonce: last < 0 ? null : last, possible_next_nonce: chain.nextNonce(address),
    last_mempool_tx_nonce: pending.length ? Math.max(...pending) : null,
  };
}

const mined = (address) => chain.blocks.flatMap((block) => block.txs)
  .filter((e) => [e.origin, e.sponsor, e.moved.recipient].includes(address)).reverse();
const known = (txid) => chain.seen.get(txid.replace(/^0x/, ''));
const missing = (txid) => [404, { error: `could not find transaction by ID ${txid}` }];

const blockAt = (height) => {
  const block = chain.blocks[Number(height) - 1];
  return block ? [200, { canonical: true, height: block.height, hash: `0x${block.hash}` }]
    : [404, { error: `cannot find block by height ${height}` }];
};

const READS = [
  [/^\/extended\/v2\/blocks\/(\d+)$/, blockAt],
  [/^\/v2\/info$/, () => [200, { network_id: 0x80000000, stacks_tip_height: chain.height, stacks_tip: chain.tip }]],
  [/^\/v2\/accounts\/([^/]+)$/, (who) => [200, {
    balance: `0x${chain.balance('STX', who).toString(16).padStart(32, '0')}`, nonce: chain.nonce(who) }]],
  [/^\/extended\/v1\/address\/([^/]+)\/nonces$/, (who) => [200, nonces(who)]],
  [/^\/extended\/v1\/address\/([^/]+)\/balances$/, (who) => [200, balances(who)]],
  [/^\/extended\/v1\/address\/([^/]+)\/transactions$/, (who) => [200, { results: mined(who).map(told) }]],
  [/^\/extended\/v1\/address\/([^/]+)\/mempool$/, (who) => [200, { results: chain.pendingOf(who).map(told) }]],
  [/^\/extended\/v1\/tx\/([^/]+)\/raw$/, (id) => (known(id) ? [200, { raw_tx: `0x${known(id).raw}` }] : missing(id))],
  [/^\/extended\/v1\/tx\/([^/]+)$/, (id) => (known(id) ? [200, told(known(id))] : missing(id))],
];

const ACTS = {
  '/v2/transactions': (body) => chain.submit(body),
  '/test/mint': (body) => { const { asset, to, amount } = JSON.parse(body); return chain.mint(asset, to, amount).hash; },
  '/test/mine': (body) => {
    for (let left = JSON.parse(body).count; left > 0; left -= 1) chain.mine();
    return chain.height;
  },
  '/test/block-time': (body) => {
    clearInterval(ticking);
    const { milliseconds } = JSON.parse(body);
    ticking = milliseconds ? setInterval(() => chain.mempool.size && chain.mine(), milliseconds) : null;
    return milliseconds;
  },
  '/test/drop': (body) => { chain.drop(JSON.parse(body).txid); return true; },
  '/test/reorg': async (body) => { await chain.reorg(JSON.parse(body).depth); return chain.height; },
};

async function answer(request) {
  const { pathname } = new URL(request.url, 'http://node');
  if (request.method === 'GET') {
    for (const [pattern, read] of READS) {
      const found = pattern.exec(pathname);
      if (found) return read(...found.slice(1));
    }
    return [404, { error: 'no such route' }];
  }
  const act = ACTS[pathname];
  if (!act) return [404, { error: 'no such route' }];
  const parts = [];
  for await (const part of request) parts.push(part);
  try {
    return [200, await act(Buffer.concat(parts))];
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return [400, { error: 'transaction rejected', reason: error.reason, reason_data: { message: error.message, ...error.data } }];
  }
}

// One after the other: a reorganisation takes seconds, and nothing may happen in its middle.
let queue = Promise.resolve();
createServer((request, response) => {
  queue = queue.then(() => answer(request)).catch((error) => {
    console.error(error);
    return [500, { error: String(error) }];
  }).then(([status, body]) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  });
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
