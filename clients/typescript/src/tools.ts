/** The tools that a model is offered, whatever framework it runs in: operations of the table, and two for files. */

import { type Call, newIdempotencyKey } from "./call.js";
import { type Sandboxer } from "./client.js";
import { SandboxerError } from "./errors.js";
import * as calls from "./generated/calls.js";
import { OPERATIONS } from "./generated/tools.js";

export interface ToolEntry {
  name: string;
  /** The operation that it sends; none: it is done by the functions of this module. */
  operation?: string;
  description: string;
  /** JSON Schema of what it takes. */
  parameters: Record<string, unknown>;
}

const FILE = { sandbox_id: { type: "string" }, path: { type: "string", description: "Absolute, inside the sandbox." } };

function ofFile(name: string, description: string, more: Record<string, unknown> = {}): ToolEntry {
  const properties = { ...FILE, ...more };
  return {
    name,
    description,
    parameters: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  };
}

export const TOOLS: readonly ToolEntry[] = [
  ...OPERATIONS,
  ofFile("read_file", "Read a text file of a sandbox."),
  ofFile("write_file", "Write a text file of a sandbox; it replaces one that is there.", { content: { type: "string" } }),
];

// What one answer may take of a model's memory.
const MOST_TEXT = 20_000;
type Asked = Record<string, unknown>;
const BUILDERS = calls as unknown as Record<string, (asked: Asked) => Call<unknown>>;
const BY_HAND: Record<string, (client: Sandboxer, asked: Asked) => Promise<unknown>> = {
  read_file: async (client, asked) => ({ content: await client.sandbox(String(asked["sandbox_id"])).files.readText(String(asked["path"])) }),
  write_file: (client, asked) =>
    client.sandbox(String(asked["sandbox_id"])).files.write(String(asked["path"]), String(asked["content"])),
};

/** Does what a model asked for. A refusal is an answer too: the model reads what to do about it. */
export async function runTool(client: Sandboxer, tool: ToolEntry, asked: Asked): Promise<unknown> {
  try {
    return shortened(await done(client, tool, asked));
  } catch (error) {
    if (!(error instanceof SandboxerError)) throw error;
    return { error: { code: error.code, detail: error.message, next_step: error.nextStep } };
  }
}

function done(client: Sandboxer, tool: ToolEntry, asked: Asked): Promise<unknown> {
  const byHand = BY_HAND[tool.name];
  if (byHand !== undefined) return byHand(client, asked);
  const build = BUILDERS[tool.operation ?? ""];
  if (build === undefined) throw new SandboxerError(`There is no tool ${tool.name}.`);
  const made = build({ ...asked });
  // With a key a lost answer is asked for again. It is ours: ids of tool calls repeat where models are small.
  const isKeyed = made.operation.headers?.["idempotency_key"] !== undefined;
  return client.send(isKeyed ? build({ ...asked, idempotency_key: newIdempotencyKey() }) : made);
}

function shortened(value: unknown): unknown {
  if (typeof value === "string") {
    return value.length <= MOST_TEXT ? value : `${value.slice(0, MOST_TEXT)}… (${value.length - MOST_TEXT} more characters)`;
  }
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shortened(inner)]));
}
