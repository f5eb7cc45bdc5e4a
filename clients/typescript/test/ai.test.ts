// Run by tests/clients: the AI SDK itself, with a model that replays a plan, through a platform that is paid on a chain.
import assert from "node:assert/strict";
import { type AddressInfo } from "node:net";
import { createServer } from "node:http";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount } from "ai";
import { privateKeyToAccount } from "viem/accounts";
import { sandboxerTools } from "../src/ai.js";
import { Sandboxer, calls, payWith } from "../src/index.js";
import { tools } from "../src/tools.js";

type Seen = Record<string, Record<string, any>>;
type Step = readonly [tool: string, asked: (seen: Seen) => object];

const sandboxOf = (seen: Seen): object => ({ sandbox_id: seen["createSandbox"]?.["id"] });
const PLAN: readonly Step[] = [
  ["discover", () => ({})],
  ["getPricing", () => ({})],
  ["topUp", () => ({ sats: 2000 })],
  ["createSandbox", () => ({ name: "by-a-model", ttl: "10m" })],
  ["writeFile", (seen) => ({ ...sandboxOf(seen), path: "/workspace/a.txt", content: "kept" })],
  ["runCommand", (seen) => ({ ...sandboxOf(seen), command: "echo from the model" })],
  ["createSnapshot", (seen) => ({ ...sandboxOf(seen), name: "after" })],
  ["destroySandbox", sandboxOf],
  ["runCommand", (seen) => ({ ...sandboxOf(seen), command: "true" })],
];

/** Serves the plan as a model: each request gets the next call, made of what the calls before it answered. */
async function scriptedModel(): Promise<{ url: string; offered: () => string[]; close: () => void }> {
  let offered: string[] = [];
  const answer = (text: string): object => {
    const asked = JSON.parse(text);
    offered = asked.tools.map((one: any) => one.function.name);
    const results = asked.messages.filter((one: any) => one.role === "tool").map((one: any) => JSON.parse(one.content));
    const seen: Seen = Object.fromEntries(results.map((one: any, at: number) => [PLAN[at]![0], one]));
    const next = PLAN[results.length];
    const said = next && [{ id: `call_${results.length}`, type: "function", function: { name: next[0], arguments: JSON.stringify(next[1](seen)) } }];
    const message = said ? { role: "assistant", content: null, tool_calls: said } : { role: "assistant", content: "It is done." };
    const choices = [{ index: 0, message, finish_reason: said ? "tool_calls" : "stop" }];
    const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
    return { id: "1", object: "chat.completion", created: 0, model: "plan", choices, usage };
  };
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += String(piece);
    response.setHeader("content-type", "application/json");
    try {
      response.end(JSON.stringify(answer(text)));
    } catch (error) {
      response.writeHead(400).end(JSON.stringify({ error: { message: String(error) } }));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  return { url, offered: () => offered, close: () => server.close() };
}

test("a model discovers, pays, creates, runs, keeps and destroys", async () => {
  const env = process.env as Record<"PAYER_KEY" | "NETWORK" | "ASSET" | "URL", string>;
  const cap = { network: env.NETWORK, asset: env.ASSET, perPayment: 3_000_000n, inTotal: 5_000_000n };
  const wallet = payWith(privateKeyToAccount(env.PAYER_KEY as `0x${string}`), [cap]);
  const client = new Sandboxer({ url: env.URL, wallet });
  const scripted = await scriptedModel();
  const model = createOpenAICompatible({ name: "plan", baseURL: scripted.url }).chatModel("plan");
  const offered = ["discover", ...tools("standard").map((one) => one.name)];
  try {
    const done = await generateText({ model, tools: sandboxerTools(client, offered), stopWhen: isStepCount(20), prompt: "Go." });
    assert.equal(done.text, "It is done.");
    const results = done.steps.flatMap((step) => step.toolResults) as Array<{ toolName: string; output: any }>;
    assert.deepEqual(results.map((one) => one.toolName), PLAN.map(([name]) => name));
    const outputs = results.map((one) => one.output);
    assert.match(outputs[0].url, /^http/);
    assert.equal(outputs[2].payment.state, "confirmed");
    // The key that came with it is the client's: what the model reads goes to whoever runs the model.
    assert.equal(outputs[2].key.public_key, client.credentials.publicKey);
    assert.ok(!JSON.stringify(results).includes(client.credentials.secretKey), "the model was shown the secret");
    assert.equal(outputs[5].stdout, "from the model\n");
    assert.match(outputs[6].id, /^snp_/);
    assert.equal(outputs[7].state, "destroyed");
    assert.ok(outputs[8].error.code && outputs[8].error.next_step, "a refusal is an answer too");
  } finally {
    scripted.close();
  }
  assert.ok(scripted.offered().includes("readFile"));
  assert.equal(wallet.spent.get(cap), 2_000_000n);
  assert.match((await client.send(calls.showMe())).account.id, /^acc_/);
});

test("tools that there are not are no tools", () => {
  const client = new Sandboxer({ url: "http://127.0.0.1:9", publicKey: "sbx-pk-x", secretKey: "x" });
  assert.deepEqual(Object.keys(sandboxerTools(client, ["runCommand"])), ["runCommand"]);
  assert.throws(() => sandboxerTools(client, ["rm"]), /no tool rm/);
  const [core, standard] = [sandboxerTools(client), sandboxerTools(client, "standard")].map((one) => Object.keys(one));
  assert.equal(core!.length, 12);
  assert.ok(core!.every((name) => standard!.includes(name)) && standard!.includes("topUp") && !core!.includes("topUp"));
});
