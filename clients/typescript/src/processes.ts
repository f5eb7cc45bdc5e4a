/** `sandbox.processes`: programs that outlive the request that started them. */

import { newIdempotencyKey, within } from "./call.js";
import { type Sandboxer } from "./client.js";
import { type Chunk, type Said, base64Of } from "./events.js";
import * as calls from "./generated/calls.js";
import type * as m from "./generated/models.js";
import { type What, named } from "./sandbox.js";

export type StartOptions = Omit<calls.StartProcessInput, "sandbox_id" | "command" | "argv">;

export class Processes {
  readonly #client: Sandboxer;
  readonly #id: string;

  constructor(client: Sandboxer, id: string) {
    [this.#client, this.#id] = [client, id];
  }

  start(what: What, asked: StartOptions = {}): Promise<m.Process> {
    const key = asked.idempotency_key ?? newIdempotencyKey();
    return this.#client.send(calls.startProcess({ ...asked, ...named(what), sandbox_id: this.#id, idempotency_key: key }));
  }

  async list(): Promise<m.Process[]> {
    return (await this.#client.send(calls.listProcesses({ sandbox_id: this.#id }))).processes;
  }

  get(processId: string): Promise<m.Process> {
    return this.#client.send(calls.getProcess({ sandbox_id: this.#id, process_id: processId }));
  }

  /** Yields what is kept of its output, then what follows, then its exit. */
  output(processId: string, asked: { after?: string; follow?: boolean } = {}): AsyncGenerator<Chunk | Said, void, undefined> {
    const words = { follow: true, ...asked, sandbox_id: this.#id, process_id: processId, encoding: "base64" };
    return this.#client.told(calls.attachProcess(words));
  }

  async writeStdin(processId: string, data: string | Uint8Array, asked: { close?: boolean } = {}): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const said = { data: base64Of(bytes), encoding: "base64", ...asked };
    await this.#client.send(calls.writeStdin({ ...said, sandbox_id: this.#id, process_id: processId }));
  }

  /** Sends a signal, named without SIG, as in `TERM`. */
  async signal(processId: string, name: string, asked: { tree?: boolean } = {}): Promise<void> {
    await this.#client.send(calls.signalProcess({ ...asked, sandbox_id: this.#id, process_id: processId, signal: name }));
  }

  /** Returns at its end, or when the time is over with its present state. */
  wait(processId: string, asked: { timeout_s?: number } = {}): Promise<m.Process> {
    const { timeout_s = 60 } = asked;
    const call = calls.waitProcess({ sandbox_id: this.#id, process_id: processId, timeout_s });
    return this.#client.send(within(call, timeout_s + 30));
  }

  /** Kills everything it started, and forgets it. */
  async end(processId: string): Promise<void> {
    await this.#client.send(calls.endProcess({ sandbox_id: this.#id, process_id: processId }));
  }
}
