/**
 * sandboxer for the Vercel AI SDK (`ai` 7): tools for `generateText`, `streamText` and agents.
 *
 *     const client = new Sandboxer({ wallet: payWith(account, [cap]) });
 *     await generateText({ model, tools: sandboxerTools(client), stopWhen: isStepCount(20), prompt });
 */

import { type ToolSet, jsonSchema, tool } from "ai";
import { type Sandboxer } from "./client.js";
import { type Offer, runTool, tools } from "./tools.js";

/** Returns the tools of an offer, or those that are named. Payments are the client's: its wallet and its caps. */
export function sandboxerTools(client: Sandboxer, offered: Offer | readonly string[] = "core"): ToolSet {
  return Object.fromEntries(
    tools(offered).map((one) => [
      one.name,
      tool({
        description: one.description,
        inputSchema: jsonSchema<Record<string, unknown>>(one.parameters),
        execute: (asked) => runTool(client, one, asked),
      }),
    ]),
  );
}
