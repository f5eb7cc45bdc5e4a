// Run by tests/clients against a real server, whose address and key are in the environment.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type AddressInfo } from "node:net";
import { test } from "node:test";
import { type Chunk, NotFound, Sandbox, Sandboxer, Unreachable, calls } from "../src/index.js";

test("a sandbox is made, used and destroyed", async () => {
  const sandbox = await Sandbox.create({ ttl: "10m" });
  assert.match(sandbox.id, /^sbx_/);
  assert.equal(sandbox.info?.state, "ready");
  const done = await sandbox.run("echo hi; exit 3");
  assert.deepEqual([done.exit_code, done.stdout], [3, "hi\n"]);
  assert.equal((await sandbox.run(["echo", "a b"])).stdout, "a b\n");
  assert.equal((await sandbox.destroy()).state, "destroyed");
  await assert.rejects(sandbox.run("true"), (error: NotFound) => error.status >= 404 && error.nextStep !== "");
});

test("a block of `await using` destroys it", async () => {
  const client = new Sandboxer();
  const made = await client.create();
  await made[Symbol.asyncDispose]();
  assert.equal((await made.refresh()).state, "destroyed");
});

test("files of any name and content come back as they were", async () => {
  const sandbox = await Sandbox.create();
  const bytes = crypto.getRandomValues(new Uint8Array(60_000));
  const path = "/workspace/a b'(c)!*~ü%20.bin";
  const kept = await sandbox.files.write(path, bytes);
  assert.equal(kept.size, bytes.length);
  assert.deepEqual(await sandbox.files.read(path), bytes);
  assert.deepEqual(await sandbox.files.read(path, { offset: 10, length: 5 }), bytes.slice(10, 15));
  assert.equal((await sandbox.files.stat(path)).path, path);
  let size = 0;
  for await (const chunk of sandbox.files.chunks(path)) size += chunk.length;
  assert.equal(size, bytes.length);
  await sandbox.files.mkdir("/workspace/deep/folder");
  await sandbox.files.move(path, "/workspace/deep/folder/moved");
  const names = [];
  for await (const one of sandbox.files.list("/workspace", { depth: 3 })) names.push(one.path);
  assert.ok(names.includes("/workspace/deep/folder/moved"), String(names));
  await sandbox.files.write("/workspace/text", new Blob(["gr\u00fc\u00df"]));
  assert.equal(await sandbox.files.readText("/workspace/text"), "gr\u00fc\u00df");
  await sandbox.files.remove("/workspace/deep", { recursive: true });
  await assert.rejects(sandbox.files.read("/workspace/deep/folder/moved"), NotFound);
  await sandbox.destroy();
});

test("output comes as it is written, and then how it ended", async () => {
  const sandbox = await Sandbox.create();
  const seen: string[] = [];
  let text = "";
  for await (const piece of sandbox.stream("echo one; echo two >&2; exit 4")) {
    seen.push(piece.kind === "said" ? piece.name : piece.kind);
    if (piece.kind !== "said") text += piece.text;
    else if (piece.name === "exit") assert.equal(piece.value["exit_code"], 4);
  }
  assert.deepEqual(seen, ["started", "stdout", "stderr", "exit"]);
  assert.equal(text, "one\ntwo\n");
  await sandbox.destroy();
});

test("a background process outlives its request", async () => {
  const sandbox = await Sandbox.create();
  const process = await sandbox.processes.start("cat", { has_stdin: true });
  await sandbox.processes.writeStdin(process.process_id, "said\n", { close: true });
  const pieces: Chunk[] = [];
  for await (const piece of sandbox.processes.output(process.process_id)) if (piece.kind !== "said") pieces.push(piece);
  assert.equal(pieces.map((one) => one.text).join(""), "said\n");
  assert.equal((await sandbox.processes.wait(process.process_id)).exit_code, 0);
  await sandbox.processes.end(process.process_id);
  await sandbox.destroy();
});

test("a snapshot is where another sandbox begins", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.write("/workspace/kept", "kept");
  const snapshot = await sandbox.snapshot({ name: "from-typescript" });
  const copy = await Sandbox.create({ snapshot: snapshot.id });
  assert.equal(await copy.files.readText("/workspace/kept"), "kept");
  await Promise.all([sandbox.destroy(), copy.destroy()]);
});

test("lists go on over pages, and an idempotency key makes one sandbox", async () => {
  const client = new Sandboxer();
  const key = { idempotency_key: `pages-${crypto.randomUUID()}`, labels: { of: "pages" } };
  const made = await Promise.all([client.create(key), client.create({ labels: { of: "pages" } })]);
  assert.equal((await client.create(key)).id, made[0].id);
  const ids = [];
  for await (const one of client.list({ label: ["of=pages"], limit: 1 })) ids.push(one.id);
  assert.deepEqual(new Set(ids), new Set(made.map((one) => one.id)));
  await Promise.all(made.map((one) => one.destroy()));
});

test("every generated call can be sent", async () => {
  const client = new Sandboxer();
  assert.equal((await client.me()).scopes?.length !== undefined, true);
  assert.equal((await client.send(calls.health())).status, "ok");
  assert.equal(await client.send(calls.putSecret({ name: "TOKEN", value: "x" })).then((one) => one.name), "TOKEN");
  assert.equal(await client.send(calls.removeSecret({ name: "TOKEN" })), undefined);
  const text = new TextDecoder().decode(await client.send(calls.getLlmsText()));
  assert.match(text, /sandboxer/);
});

test("a wrong clock is mended by what the server says", async () => {
  const real = Date.now;
  try {
    const client = new Sandboxer();
    Date.now = () => real() + 3_600_000;
    assert.ok((await client.me()).account.id);
  } finally {
    Date.now = real;
  }
});

/** Leads to the platform, but hangs up instead of giving the first answer back; counts what it led. */
async function losing(url: string): Promise<{ url: string; led: () => number; close: () => void }> {
  let led = 0;
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const { host: _, connection: __, "transfer-encoding": ___, "content-length": ____, ...headers } = request.headers;
    const sent = { method: request.method!, headers: headers as Record<string, string>, body: Buffer.concat(pieces) };
    const answer = await fetch(url + request.url!, request.method === "GET" ? { ...sent, body: null } : sent);
    const text = await answer.text();
    if ((led += 1) === 1) request.socket.destroy();
    else response.writeHead(answer.status, { "content-type": "application/json" }).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = (): void => (server.closeAllConnections(), void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, led: () => led, close };
}

test("a lost answer is asked for again, and makes nothing twice", async () => {
  const client = new Sandboxer();
  const door = await losing(client.credentials.url);
  const made = await new Sandboxer({ url: door.url }).create({ labels: { of: "losing" } });
  assert.equal(door.led(), 2);
  const ids = [];
  for await (const one of client.list({ label: ["of=losing"] })) ids.push(one.id);
  assert.deepEqual(ids, [made.id]);
  await client.sandbox(made.id).destroy();
  door.close();
});

test("what may not be done twice is not sent twice", async () => {
  const sandbox = await Sandbox.create();
  const door = await losing(sandbox.client.credentials.url);
  const lost = new Sandboxer({ url: door.url }).sandbox(sandbox.id).run("echo once >> /workspace/times");
  await assert.rejects(lost, Unreachable);
  assert.equal(door.led(), 1);
  await sandbox.destroy();
  door.close();
});

test("nobody there is said so", async () => {
  const client = new Sandboxer({ url: "http://127.0.0.1:9", publicKey: "sbx-pk-x", secretKey: "x" });
  await assert.rejects(client.me(), Unreachable);
});

test("a bearer token does not go where others read it", () => {
  assert.throws(() => new Sandboxer({ url: "http://sandboxes.example", apiKey: "sk_x" }), /on its way/);
});
