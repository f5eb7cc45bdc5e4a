/** `sandbox.files`: paths are absolute, inside the sandbox. */

import { type Body } from "./call.js";
import { type Sandboxer } from "./client.js";
import { SandboxerError } from "./errors.js";
import * as calls from "./generated/calls.js";
import type * as m from "./generated/models.js";

export class Files {
  readonly #client: Sandboxer;
  readonly #id: string;

  constructor(client: Sandboxer, id: string) {
    [this.#client, this.#id] = [client, id];
  }

  /** Yields what is in a folder, and below it as deep as `depth` says. */
  list(path = "/", asked: { depth?: number } = {}): AsyncGenerator<m.FileInfo, void, undefined> {
    return this.#client.items(
      (cursor) => calls.listFiles({ ...asked, sandbox_id: this.#id, path, cursor }),
      (page) => page.files,
    );
  }

  /** Says kind, size, owner and mode of a path; with `follow: false`, of a link itself. */
  stat(path: string, asked: { follow?: boolean } = {}): Promise<m.FileInfo> {
    return this.#client.send(calls.statFile({ ...asked, sandbox_id: this.#id, path }));
  }

  /** Returns the content, or `length` bytes from `offset` on. */
  read(path: string, asked: { offset?: number; length?: number } = {}): Promise<Uint8Array> {
    const { offset = 0, length } = asked;
    const range = length === undefined ? `bytes=${offset}-` : `bytes=${offset}-${offset + length - 1}`;
    const isPart = offset > 0 || length !== undefined;
    return this.#client.send(calls.readFile({ sandbox_id: this.#id, path, ...(isPart ? { range } : {}) }));
  }

  async readText(path: string): Promise<string> {
    return new TextDecoder().decode(await this.read(path));
  }

  /** Yields the content piece by piece, however large it is. */
  chunks(path: string): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#client.pieces(calls.readFile({ sandbox_id: this.#id, path }));
  }

  /** Writes a file; the old one stays until all has arrived. */
  write(path: string, body: Body, asked: { mode?: number; parents?: boolean } = {}): Promise<m.FileInfo> {
    return this.#client.send(calls.writeFile({ ...asked, sandbox_id: this.#id, path, body }));
  }

  async mkdir(path: string, asked: { mode?: number; parents?: boolean } = {}): Promise<void> {
    await this.#client.send(calls.makeDirectory({ parents: true, ...asked, sandbox_id: this.#id, path }));
  }

  async move(source: string, target: string, asked: { overwrite?: boolean } = {}): Promise<void> {
    await this.#client.send(calls.moveFile({ ...asked, sandbox_id: this.#id, source, target }));
  }

  /** Deletes a file, or with `recursive` a folder and all in it. */
  async remove(path: string, asked: { recursive?: boolean } = {}): Promise<void> {
    await this.#client.send(calls.removeFile({ ...asked, sandbox_id: this.#id, path }));
  }

  /** Yields every change from the moment on that `onReady` is called. */
  async *watch(
    path: string,
    asked: { recursive?: boolean; onReady?: () => void } = {},
  ): AsyncGenerator<m.FileEvent, void, undefined> {
    const { onReady, ...rest } = asked;
    for await (const event of this.#client.events(calls.watchFiles({ ...rest, sandbox_id: this.#id, path }))) {
      if (event.name === "ready") onReady?.();
      else if (event.name === "change") yield JSON.parse(event.data) as m.FileEvent;
      else if (event.name === "error") throw new SandboxerError(`The watch broke: ${event.data}`, { nextStep: "Watch again." });
    }
  }

  /** Yields a folder's content as a tar. */
  tarOut(path: string): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#client.pieces(calls.packFolder({ sandbox_id: this.#id, path }));
  }

  /** Unpacks a tar into a folder of the sandbox. */
  tarIn(path: string, body: Body): Promise<m.TarUnpacked> {
    return this.#client.send(calls.unpackFolder({ sandbox_id: this.#id, path, body }));
  }
}
