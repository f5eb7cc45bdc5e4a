// Run by tests/clients against a platform with real walls: the fake of the other tests has no interpreters.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox, Sandboxer } from "../src/index.js";

test("a session in a sandbox keeps its state, and says what it prints as it does", async () => {
  const sandbox = await Sandbox.create({ ttl: "10m" });
  const session = await sandbox.session("python");
  assert.equal(session.info?.sandbox_id, sandbox.id);
  await session.run("x = 6 * 7");
  assert.equal((await session.run("print(x)")).stdout, "42\n");
  let text = "";
  const seen: string[] = [];
  for await (const piece of session.stream("for i in range(3): print(i)")) {
    if (piece.kind === "said") seen.push(piece.name);
    else text += piece.text;
  }
  assert.equal(text, "0\n1\n2\n");
  assert.equal(seen.at(-1), "done");
  await session.end();
  await sandbox.destroy();
});

test("code runs once in a sandbox of its own", async () => {
  const done = await new Sandboxer().execute("print(6 * 7)", { language: "python" });
  assert.deepEqual([done.exit_code, done.stdout], [0, "42\n"]);
});

test("whoever stops reading hangs up, which ends the command", async () => {
  const sandbox = await Sandbox.create({ ttl: "10m" });
  for await (const piece of sandbox.stream("echo begun; sleep 600; touch /workspace/lasted")) {
    if (piece.kind === "stdout" && piece.text.includes("begun")) break;
  }
  let left = "sleep";
  for (const until = Date.now() + 20_000; left !== "" && Date.now() < until; ) {
    left = (await sandbox.run("pgrep -x sleep || true")).stdout;
  }
  assert.equal(left, "");
  await sandbox.destroy();
});

test("files that are larger than any buffer come back whole, and changes are seen", async () => {
  const sandbox = await Sandbox.create({ ttl: "10m" });
  const bytes = new Uint8Array(24 << 20).map((_, at) => at % 251);
  await sandbox.files.write("/workspace/large", bytes);
  assert.deepEqual(await sandbox.files.read("/workspace/large"), bytes);
  let writing: Promise<unknown> | undefined;
  const onReady = (): void => void (writing = sandbox.files.write("/workspace/new", "x"));
  for await (const change of sandbox.files.watch("/workspace", { onReady })) {
    assert.match(change.path, /^\/workspace\//);
    break;
  }
  await writing;
  await sandbox.destroy();
});
