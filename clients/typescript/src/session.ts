/// <reference lib="esnext.disposable" preserve="true" />
/** An interpreter that stays: what one cell sets, the next one finds. */

import { streamed, within } from "./call.js";
import { type Sandboxer } from "./client.js";
import { type Chunk, type Said } from "./events.js";
import * as calls from "./generated/calls.js";
import type * as m from "./generated/models.js";

export type CellOptions = Omit<calls.RunCellInput, "session_id" | "code" | "stream">;

const CELL_TIMEOUT_S = 300;
const MARGIN_S = 30;

export class Session {
  readonly id: string;
  readonly client: Sandboxer;
  info: m.Session | undefined;

  constructor(client: Sandboxer, id: string, info?: m.Session) {
    [this.client, this.id, this.info] = [client, id, info];
  }

  /** Runs a cell to its end. */
  run(code: string, asked: CellOptions = {}): Promise<m.Cell> {
    const call = calls.runCell({ ...asked, code, session_id: this.id });
    return this.client.send(within(call, (asked.timeout_s ?? CELL_TIMEOUT_S) + MARGIN_S));
  }

  /** Does the same piece by piece; the last piece says `done`. */
  stream(code: string, asked: Omit<CellOptions, "encoding"> = {}): AsyncGenerator<Chunk | Said, void, undefined> {
    return this.client.told(streamed(calls.runCell({ ...asked, code, session_id: this.id, encoding: "base64" })));
  }

  /** Interrupts what runs, as Ctrl-C would. */
  interrupt(): Promise<m.Interrupted> {
    return this.client.send(calls.interruptSession({ session_id: this.id }));
  }

  /** Ends it, with the sandbox that was made for it; ended already is success. */
  async end(): Promise<m.Session> {
    return (this.info = await this.client.send(calls.endSession({ session_id: this.id })));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}
