/** The client of sandboxer: `Sandbox.create()` is where most programs begin. */

export { type Body, type Call, newIdempotencyKey, streamed, within } from "./call.js";
export { Sandboxer, type Settings } from "./client.js";
export { type Confirmer, type Demand, type Proof, type TextSigner, confirmWithWallet } from "./confirm.js";
export { type Credentials, type Given, findCredentials } from "./credentials.js";
export * from "./errors.js";
export { type Chunk, type Said, type ServerEvent } from "./events.js";
export { Files } from "./files.js";
export * as calls from "./generated/calls.js";
export type * as models from "./generated/models.js";
export { type Payer } from "./line.js";
export { type Account, type Cap, payWith } from "./payer.js";
export { Processes } from "./processes.js";
export { type RunOptions, Sandbox, type What } from "./sandbox.js";
export { type CellOptions, Session } from "./session.js";
