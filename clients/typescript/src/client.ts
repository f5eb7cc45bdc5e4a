/** The platform: the object that a program starts with. */

import { type Call, newIdempotencyKey } from "./call.js";
import { type TextSigner, ownText } from "./confirm.js";
import { type Credentials, type Given, findCredentials } from "./credentials.js";
import { type Chunk, type Said, type ServerEvent, pieceOf } from "./events.js";
import * as calls from "./generated/calls.js";
import type * as m from "./generated/models.js";
import { Line, type LineOptions } from "./line.js";
import { Sandbox } from "./sandbox.js";
import { Session } from "./session.js";

export type Settings = Given & LineOptions;

/** Speaks to one platform, with one key or one wallet. */
export class Sandboxer {
  readonly #line: Line;

  /** Without settings the key is found in the environment or in an `owner.json`. `wallet` pays what is asked for. */
  constructor(settings: Settings = {}) {
    this.#line = new Line(findCredentials(settings, settings.wallet !== undefined), settings);
  }

  /** Calls are signed with these. A key that came with a payment is shown once: keep it. */
  get credentials(): Credentials {
    return this.#line.signer.credentials;
  }

  /** Sends any call of `calls` and gives its answer, as it is on the wire. */
  send<T>(call: Call<T>): Promise<T> {
    return this.#line.send(call);
  }

  /** Yields the bytes of an answer as they come. */
  pieces(call: Call<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#line.pieces(call);
  }

  /** Yields the events of a stream as they come. */
  events(call: Call<unknown>): AsyncGenerator<ServerEvent, void, undefined> {
    return this.#line.events(call);
  }

  /** The same, each read as output or as what it says. */
  async *told(call: Call<unknown>): AsyncGenerator<Chunk | Said, void, undefined> {
    for await (const event of this.#line.events(call)) yield pieceOf(event);
  }

  /** Makes a sandbox, ready unless `wait` is false. */
  async create(asked: calls.CreateSandboxInput = {}): Promise<Sandbox> {
    const key = asked.idempotency_key ?? newIdempotencyKey();
    const info = await this.send(calls.createSandbox({ ...asked, idempotency_key: key }));
    return new Sandbox(this, info.id, info);
  }

  /** Finds a sandbox by its name, its id, or as much of its id as no other has. */
  async get(nameOrId: string): Promise<Sandbox> {
    const info = await this.send(calls.getSandbox({ sandbox_id: nameOrId }));
    return new Sandbox(this, info.id, info);
  }

  /** Returns the sandbox with this id, without asking the platform first. */
  sandbox(id: string): Sandbox {
    return new Sandbox(this, id);
  }

  /** Yields all sandboxes, page by page; `limit` is the size of a page. */
  list(asked: Omit<calls.ListSandboxesInput, "cursor"> = {}): AsyncGenerator<m.Sandbox, void, undefined> {
    return this.items((cursor) => calls.listSandboxes({ ...asked, cursor }), (page) => page.sandboxes);
  }

  /** Runs code once, in a sandbox of its own that is gone afterwards. */
  execute(code: string, asked: Omit<calls.ExecuteCodeInput, "code"> = {}): Promise<m.Execution> {
    return this.send(calls.executeCode({ ...asked, code }));
  }

  /** Starts an interpreter that keeps its state, in a sandbox of its own or in the one that is named. */
  async session(language: string, asked: Omit<calls.StartSessionInput, "language"> = {}): Promise<Session> {
    const key = asked.idempotency_key ?? newIdempotencyKey();
    const info = await this.send(calls.startSession({ ...asked, language, idempotency_key: key }));
    return new Session(this, info.id, info);
  }

  /** What a stranger finds: documents, prices and how requests are signed. Needs no key. */
  discover(): Promise<m.Discovery> {
    return this.send(calls.discover());
  }

  /** Who calls, and what the account has. */
  me(): Promise<m.Me> {
    return this.send(calls.showMe());
  }

  /** Opens a session for a wallet: `new Sandboxer({ url, session: token })` goes on with its token. */
  async signIn(account: TextSigner): Promise<m.WalletSession> {
    const { message, nonce } = await this.send(calls.challengeWallet());
    const text = ownText(message, "signIn", nonce, this.credentials.url);
    return this.send(calls.openSession({ nonce, signature: await account.signMessage({ message: text }) }));
  }

  /** Yields what is in page after page, each by a call that names where the one before it ended. */
  async *items<P extends { next_cursor?: string | null }, T>(
    call: (cursor: string | undefined) => Call<P>,
    of: (page: P) => readonly T[],
  ): AsyncGenerator<T, void, undefined> {
    for (let cursor: string | undefined; ; ) {
      const page = await this.send(call(cursor));
      yield* of(page);
      if (!page.next_cursor) return;
      cursor = page.next_cursor;
    }
  }
}
