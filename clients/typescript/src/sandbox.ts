/// <reference lib="esnext.disposable" preserve="true" />
/** One sandbox: commands, files, sessions and snapshots. */

import { newIdempotencyKey, streamed, within } from "./call.js";
import { Sandboxer, type Settings } from "./client.js";
import { type Chunk, type Said, type ServerEvent } from "./events.js";
import { Files } from "./files.js";
import * as calls from "./generated/calls.js";
import type * as m from "./generated/models.js";
import { Processes } from "./processes.js";
import { type Session } from "./session.js";

/** Text for a shell, or the words of one program. */
export type What = string | readonly string[];
export type RunOptions = Omit<calls.RunCommandInput, "sandbox_id" | "command" | "argv" | "stream">;

const LONGEST_DEFAULT_S = 60;
const MARGIN_S = 30;

export function named(what: What): { command: string } | { argv: string[] } {
  return typeof what === "string" ? { command: what } : { argv: [...what] };
}

export class Sandbox {
  readonly id: string;
  readonly client: Sandboxer;
  readonly files: Files;
  readonly processes: Processes;
  /** What the platform last said about it; undefined before the first `refresh`. */
  info: m.Sandbox | undefined;

  constructor(client: Sandboxer, id: string, info?: m.Sandbox) {
    [this.client, this.id, this.info] = [client, id, info];
    this.files = new Files(client, id);
    this.processes = new Processes(client, id);
  }

  /** Makes a sandbox at the platform that is given, or that the environment names. */
  static create(asked: calls.CreateSandboxInput = {}, at: Sandboxer | Settings = {}): Promise<Sandbox> {
    return platform(at).create(asked);
  }

  /** Finds a sandbox by name or id. */
  static get(nameOrId: string, at: Sandboxer | Settings = {}): Promise<Sandbox> {
    return platform(at).get(nameOrId);
  }

  /** Runs a command to its end. A string goes to a shell, a list of words does not. */
  run(what: What, asked: RunOptions = {}): Promise<m.ExecResult> {
    const call = calls.runCommand({ ...asked, ...named(what), sandbox_id: this.id });
    return this.client.send(within(call, (asked.timeout_s ?? LONGEST_DEFAULT_S) + MARGIN_S));
  }

  /** Does the same piece by piece, as it is written; the last piece says `exit`. */
  stream(what: What, asked: Omit<RunOptions, "encoding"> = {}): AsyncGenerator<Chunk | Said, void, undefined> {
    const call = calls.runCommand({ ...asked, ...named(what), sandbox_id: this.id, encoding: "base64" });
    return this.client.told(streamed(call));
  }

  /** Starts an interpreter in this sandbox, which keeps its state between cells. */
  session(language = "python", asked: Omit<calls.StartSessionInput, "language" | "sandbox_id"> = {}): Promise<Session> {
    return this.client.session(language, { ...asked, sandbox_id: this.id });
  }

  /** Keeps its disk as it is now; `create({ snapshot })` begins with it. */
  async snapshot(asked: Omit<calls.TakeSnapshotInput, "sandbox_id"> = {}): Promise<m.Snapshot> {
    const key = asked.idempotency_key ?? newIdempotencyKey();
    return this.client.send(calls.takeSnapshot({ ...asked, sandbox_id: this.id, idempotency_key: key }));
  }

  /** Yields what happened to it since event `after`, then what happens. */
  events(asked: Omit<calls.FollowEventsInput, "sandbox_id"> = {}): AsyncGenerator<ServerEvent, void, undefined> {
    return this.client.events(calls.followEvents({ ...asked, sandbox_id: this.id }));
  }

  /** Asks how it stands now. */
  async refresh(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.getSandbox({ sandbox_id: this.id })));
  }

  /** Pauses all its processes in memory; `thaw` goes on where they were. */
  async freeze(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.freezeSandbox({ sandbox_id: this.id })));
  }

  async thaw(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.thawSandbox({ sandbox_id: this.id })));
  }

  /** Ends its processes and keeps its disk; `resume` starts it again under the same id. */
  async stop(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.stopSandbox({ sandbox_id: this.id })));
  }

  async resume(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.resumeSandbox({ sandbox_id: this.id })));
  }

  /** Makes destroying, recreating and unlocking it need a second proof (`confirm`). */
  async lock(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.lockSandbox({ sandbox_id: this.id })));
  }

  async unlock(): Promise<m.Sandbox> {
    return (this.info = await this.client.send(calls.unlockSandbox({ sandbox_id: this.id })));
  }

  /** Gives it more time from now on: `30m`, `2h`, `1d`. */
  async extend(duration: string): Promise<m.Sandbox> {
    const asked = { sandbox_id: this.id, duration, idempotency_key: newIdempotencyKey() };
    return (this.info = await this.client.send(calls.extendTtl(asked)));
  }

  /** Removes it with its disk; gone already is success. */
  destroy(): Promise<m.DestroyedSandbox> {
    return this.client.send(calls.destroySandbox({ sandbox_id: this.id }));
  }

  /** `await using sandbox = …` destroys it at the end of the block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy();
  }
}

function platform(at: Sandboxer | Settings): Sandboxer {
  return at instanceof Sandboxer ? at : new Sandboxer(at);
}
