// Run by tests/clients against a platform that is paid on a local chain.
import assert from "node:assert/strict";
import { test } from "node:test";
import { privateKeyToAccount } from "viem/accounts";
import { type Cap, ApiError, PaymentRequired, Sandbox, Sandboxer, calls, confirmWithWallet, payWith } from "../src/index.js";

const env = process.env as Record<"PAYER_KEY" | "NETWORK" | "ASSET" | "URL", string>;
const account = privateKeyToAccount(env.PAYER_KEY as `0x${string}`);
const url = env.URL;
const cap = (perPayment: bigint, inTotal = 5_000_000n): Cap => ({ network: env.NETWORK, asset: env.ASSET, perPayment, inTotal });

// The one that has the key: a wallet is given one, once.
let owner: Sandboxer;

test("nothing is signed beyond a cap, or in another asset", async () => {
  const caps = [cap(10n), { ...cap(5_000_000n), asset: `0x${"12".repeat(20)}` }, { ...cap(5_000_000n), network: "eip155:1" }];
  const wallet = payWith(account, caps);
  const error = await Sandbox.create({}, { url, wallet }).catch((one: unknown) => one);
  assert.ok(error instanceof PaymentRequired, String(error));
  assert.ok(error.offers.length > 0);
  assert.equal(wallet.spent.size, 0);
});

test("a wallet without a key buys a sandbox, and signs with the key it was given", async () => {
  const most = cap(5_000_000n);
  const wallet = payWith(account, [most]);
  const client = new Sandboxer({ url, wallet });
  assert.equal(client.credentials.publicKey, "");
  owner = client;
  const sandbox = await Sandbox.create({ ttl: "10m" }, client);
  assert.match(client.credentials.publicKey, /^sbx-pk-/);
  assert.equal((await sandbox.run("echo paid for")).stdout, "paid for\n");
  const { payments } = await client.send(calls.listPayments());
  assert.deepEqual(payments.map((one) => one.purpose), ["create"]);
  const { payment } = await client.send(calls.topUp({ sats: 1000 }));
  assert.equal(payment.state, "confirmed");
  console.log(`spent=${wallet.spent.get(most)}`);
  await sandbox.destroy();
});

test("what is locked goes with the wallet's word, and a session signs in", async () => {
  const client = owner;
  const sandbox = await client.create({ ttl: "5m" });
  await sandbox.lock();
  const refused = await sandbox.destroy().catch((one: unknown) => one);
  assert.ok(refused instanceof ApiError && refused.status === 428, String(refused));
  const { publicKey, secretKey } = client.credentials;
  const confirming = new Sandboxer({ url, publicKey, secretKey, confirm: confirmWithWallet(account) });
  assert.equal((await confirming.sandbox(sandbox.id).destroy()).state, "destroyed");
  const { token } = await new Sandboxer(client.credentials).signIn(account);
  const me = await new Sandboxer({ url, session: token }).me();
  assert.equal(me.account.id, (await client.me()).account.id);
});

test("the total of a cap holds over several payments", async () => {
  const wallet = payWith(account, [cap(1_000_000n, 1_500_000n)]);
  const client = new Sandboxer({ url, wallet });
  await assert.rejects(client.send(calls.topUp({ sats: 1001 })), PaymentRequired);
  await client.send(calls.topUp({ sats: 1000 }));
  await assert.rejects(client.send(calls.topUp({ sats: 600 })), PaymentRequired);
  await client.send(calls.topUp({ sats: 500 }));
  assert.deepEqual([...wallet.spent.values()], [1_500_000n]);
});
