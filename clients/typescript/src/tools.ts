/** The tools that a model is offered, whatever framework it runs in: the same table that MCP and Python's adapters have. */

import { type Call, newIdempotencyKey } from "./call.js";
import { type Sandboxer } from "./client.js";
import { SandboxerError } from "./errors.js";
import { bytesOf } from "./events.js";
import * as calls from "./generated/calls.js";
import { TOOLS } from "./generated/tools.js";

/** `core`: the dozen with which most can be done. `standard`: what an agent may want. `all`: all there is. */
export type Offer = "core" | "standard" | "all";
const OFFERS: readonly Offer[] = ["core", "standard", "all"];

export interface Tool {
  name: string;
  /** The operation that it sends. */
  operation: string;
  offer: Offer;
  description: string;
  /** It takes `content` and `encoding` for what is sent. */
  isUpload?: boolean;
  /** It takes an idempotency key. */
  isKeyed?: boolean;
  /** JSON Schema of what it takes. */
  parameters: Record<string, unknown>;
}

type Asked = Record<string, unknown>;
const BUILDERS = calls as unknown as Record<string, (asked: Asked) => Call<unknown>>;
// What one answer may take of a model's memory.
const MOST_TEXT = 20_000;

/** Returns the tools of an offer with those of the smaller ones, or those that are named. */
export function tools(offered: Offer | readonly string[] = "core"): readonly Tool[] {
  if (typeof offered === "string") {
    const smaller = OFFERS.slice(0, OFFERS.indexOf(offered) + 1);
    return TOOLS.filter((one) => smaller.includes(one.offer));
  }
  return offered.map((name) => {
    const found = TOOLS.find((one) => one.name === name);
    if (found === undefined) throw new SandboxerError(`There is no tool ${name}.`, { code: "unknown_tool" });
    return found;
  });
}

/** Does what a model asked for. A refusal is an answer too: the model reads what to do about it. */
export async function runTool(client: Sandboxer, tool: Tool, asked: Asked): Promise<unknown> {
  try {
    return shown(withoutSecret(client, await client.send(made(tool, asked))));
  } catch (error) {
    if (!(error instanceof SandboxerError)) throw error;
    return { error: { code: error.code, detail: error.message, next_step: error.nextStep } };
  }
}

function made(tool: Tool, asked: Asked): Call<unknown> {
  const build = BUILDERS[tool.operation];
  if (build === undefined) throw new SandboxerError(`There is no operation ${tool.operation}.`);
  const words: Asked = { ...asked };
  if (tool.isUpload === true) {
    const content = String(words["content"] ?? "");
    words["body"] = words["encoding"] === "base64" ? bytesOf(content) : content;
    delete words["content"];
    delete words["encoding"];
  }
  // With a key a lost answer is asked for again. It is ours: ids of tool calls repeat where models are small.
  if (tool.isKeyed === true) words["idempotency_key"] = newIdempotencyKey();
  return build(words);
}

/** A first payment brings the key that the client signs with from then on: a model has no use for its secret. */
function withoutSecret(client: Sandboxer, said: unknown): unknown {
  const key = (said as { key?: { public_key?: unknown } } | undefined)?.key;
  if (key === undefined || key === null || key.public_key !== client.credentials.publicKey) return said;
  return { ...(said as Asked), key: { ...key, secret_key: "kept by the client, which signs with it" } };
}

/** An answer as a model reads it: bytes as text, and long texts cut. */
function shown(value: unknown): unknown {
  if (value === undefined) return { done: true };
  if (value instanceof Uint8Array) return shownText(value);
  if (typeof value === "string") {
    return value.length <= MOST_TEXT ? value : `${value.slice(0, MOST_TEXT)}… (${value.length - MOST_TEXT} more characters)`;
  }
  if (Array.isArray(value)) return value.map(shown);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shown(inner)]));
}

function shownText(bytes: Uint8Array): unknown {
  try {
    return shown(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return `[${bytes.length} bytes that are no text]`;
  }
}
