/**
 * sandboxer for the Vercel AI SDK (`ai` 7): tools for `generateText`, `streamText` and agents.
 *
 *     const client = new Sandboxer({ wallet: payWith(account, [cap]) });
 *     await generateText({ model, tools: sandboxerTools(client), stopWhen: isStepCount(20), prompt });
 */

import { type ToolSet, jsonSchema, tool } from "ai";
import { type Sandboxer } from "./client.js";
import { TOOLS, runTool } from "./tools.js";

/** Returns the tools of the table, or only those that are named. Payments are the client's: its wallet and its caps. */
export function sandboxerTools(client: Sandboxer, only?: readonly string[]): ToolSet {
  const missing = only?.filter((name) => !TOOLS.some((one) => one.name === name)) ?? [];
  if (missing.length) throw new TypeError(`There is no tool ${missing.join(", ")}.`);
  const offered = TOOLS.filter((one) => only?.includes(one.name) ?? true);
  return Object.fromEntries(
    offered.map((one) => [
      one.name,
      tool({
        description: one.description,
        inputSchema: jsonSchema<Record<string, unknown>>(one.parameters),
        execute: (asked) => runTool(client, one, asked),
      }),
    ]),
  );
}
