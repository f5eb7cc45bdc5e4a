/**
 * Carries calls over HTTP: signs them, pays what they cost, and tries again where that does no harm.
 *
 * A refused signature is repeated once when the server said how to do better (its clock, its start). A lost connection
 * and a gateway's or a busy platform's answer are tried again only for a call that may be repeated. A 402 is paid once,
 * by the wallet that was given, and a 428 is answered once by whoever confirms.
 */

import { type Body, type Call } from "./call.js";
import { type Confirmer, confirmed } from "./confirm.js";
import { type Credentials, Signer } from "./credentials.js";
import { ApiError, AuthenticationFailed, BrokenAnswer, Unreachable, apiError } from "./errors.js";
import { type ServerEvent, bytesOf, serverEvents } from "./events.js";

/** Makes of an x402 PaymentRequired document the value of PAYMENT-SIGNATURE; undefined: it will not pay that. */
export type Payer = (required: Readonly<Record<string, unknown>>) => Promise<string | undefined>;

const SAFE = new Set(["GET", "HEAD"]);
const PAUSES_MS = [100, 400];
const LONGEST_WAIT_S = 20;
// Between two pieces of a stream; the server sends comments to show that it is alive.
const STREAM_TIMEOUT_S = 120;
const MARGIN_S = 30;

export interface LineOptions {
  timeoutS?: number;
  wallet?: Payer | undefined;
  /** Signs where the platform asks for a second proof (428). */
  confirm?: Confirmer | undefined;
  fetch?: typeof fetch;
}

export class Line {
  readonly signer: Signer;
  readonly #url: string;
  readonly #timeoutS: number;
  readonly #wallet: Payer | undefined;
  readonly #confirm: Confirmer | undefined;
  readonly #fetch: typeof fetch;

  constructor(credentials: Credentials, options: LineOptions = {}) {
    this.signer = new Signer(credentials);
    this.#url = credentials.url.replace(/\/+$/, "");
    this.#timeoutS = options.timeoutS ?? 60;
    this.#wallet = options.wallet;
    this.#confirm = options.confirm;
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** Sends, waits for the whole answer, reads it. */
  async send<T>(call: Call<T>): Promise<T> {
    const response = await this.#open(call);
    const how = call.operation.reads;
    if (how === "none") {
      await response.body?.cancel();
      return undefined as T;
    }
    if (how === "bytes") return new Uint8Array(await response.arrayBuffer()) as T;
    const said = read(await response.text());
    this.#learnKey(response, said);
    return said as T;
  }

  /** Yields the answer's bytes as they come. */
  async *pieces(call: Call<unknown>): AsyncGenerator<Uint8Array, void, undefined> {
    const silence = new Silence(Math.max(STREAM_TIMEOUT_S, call.patienceS ?? 0));
    try {
      const response = await this.#open(call, silence.signal);
      if (response.body === null) return;
      const reader = response.body.getReader();
      try {
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
          silence.broken();
          yield piece.value;
        }
      } catch (error) {
        throw this.#unreachable(error);
      } finally {
        // Whoever stops reading hangs up, which ends what runs for this request alone.
        await reader.cancel().catch(() => undefined);
      }
    } finally {
      silence.over();
    }
  }

  /** Yields the events of a stream. */
  events(call: Call<unknown>): AsyncGenerator<ServerEvent, void, undefined> {
    return serverEvents(this.pieces(call));
  }

  async #open(first: Call<unknown>, signal?: AbortSignal): Promise<Response> {
    const body = await bytesToSend(first.body);
    let call = first;
    const tried = { lost: 0, hasResigned: false, hasPaid: false, hasConfirmed: false };
    for (;;) {
      let response: Response | undefined;
      let pauseMs: number | undefined;
      try {
        response = await this.#request(call, body, signal);
      } catch (error) {
        pauseMs = pauseAfter(call, tried.lost++, undefined);
        if (pauseMs === undefined) throw this.#unreachable(error);
      }
      if (response !== undefined) {
        if (response.status < 400 || call.operation.also?.includes(response.status)) return response;
        const error = await problemOf(response);
        const paid = tried.hasPaid ? undefined : await this.#paid(call, response);
        const proven = tried.hasConfirmed ? undefined : await this.#proven(call, error);
        if (!tried.hasResigned && (pauseMs = this.#afterRefusal(error)) !== undefined) {
          tried.hasResigned = true;
        } else if (paid !== undefined) {
          [call, tried.hasPaid, pauseMs] = [paid, true, 0];
        } else if (proven !== undefined) {
          [call, tried.hasConfirmed, pauseMs] = [proven, true, 0];
        } else if ((pauseMs = pauseAfter(call, tried.lost++, response)) === undefined) {
          throw error;
        }
      }
      if (pauseMs) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  async #request(call: Call<unknown>, body: Uint8Array | undefined, signal?: AbortSignal): Promise<Response> {
    const { method } = call.operation;
    const signed = await this.signer.headers(method, call.target, body);
    const seconds = call.patienceS === undefined ? this.#timeoutS : Math.max(call.patienceS, this.#timeoutS);
    return this.#fetch(this.#url + call.target, {
      method,
      headers: { ...signed, ...call.headers },
      redirect: "error",
      ...(body === undefined ? {} : { body: body as BodyInit }),
      signal: signal ?? AbortSignal.timeout((seconds + MARGIN_S) * 1000),
    });
  }

  #afterRefusal(error: ApiError): number | undefined {
    if (!(error instanceof AuthenticationFailed)) return undefined;
    const serverTime = secondsOf(error.fact("server_time"));
    if (error.reason === "clock_skew" && serverTime !== undefined) {
      this.signer.learn(serverTime);
      return 0;
    }
    // Timestamps are whole seconds: one signed in the second of the start looks older than it.
    return error.reason === "before_start" ? 1000 : undefined;
  }

  async #paid(call: Call<unknown>, response: Response): Promise<Call<unknown> | undefined> {
    const header = response.headers.get("payment-required");
    if (response.status !== 402 || header === null || this.#wallet === undefined) return undefined;
    const required = read(new TextDecoder().decode(bytesOf(header))) as Record<string, unknown>;
    const signed = await this.#wallet(required);
    if (signed === undefined) return undefined;
    // The same payment may be sent again: it pays once.
    return { ...call, headers: { ...call.headers, "payment-signature": signed }, isRepeatable: true };
  }

  async #proven(call: Call<unknown>, error: ApiError): Promise<Call<unknown> | undefined> {
    if (this.#confirm === undefined) return undefined;
    const proof = await confirmed(error, this.#url, this.#confirm);
    return proof === undefined ? undefined : { ...call, headers: { ...call.headers, ...proof } };
  }

  /** A wallet that had no key signs with the one it was given from now on. */
  #learnKey(response: Response, said: unknown): void {
    const { credentials } = this.signer;
    if (credentials.publicKey || credentials.bearerToken || !response.headers.has("payment-response")) return;
    const key = (said as { key?: { public_key?: unknown; secret_key?: unknown } }).key;
    if (typeof key?.public_key !== "string" || typeof key.secret_key !== "string") return;
    this.signer.credentials = { ...credentials, publicKey: key.public_key, secretKey: key.secret_key };
  }

  #unreachable(error: unknown): Error {
    if (error instanceof BrokenAnswer || error instanceof ApiError) return error;
    const found = error as Error & { cause?: Error };
    if (found.name === "TimeoutError") return new Unreachable(`${this.#url} did not answer in time.`, error);
    return new Unreachable(`Could not reach ${this.#url}: ${found.cause?.message || found.message}`, error);
  }
}

/** Gives a stream up from which nothing came for so long. */
class Silence {
  readonly #control = new AbortController();
  readonly #seconds: number;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(seconds: number) {
    this.#seconds = seconds;
    this.broken();
  }

  get signal(): AbortSignal {
    return this.#control.signal;
  }

  broken(): void {
    this.over();
    const giveUp = (): void => this.#control.abort(new DOMException("nothing came", "TimeoutError"));
    this.#timer = setTimeout(giveUp, this.#seconds * 1000);
  }

  over(): void {
    clearTimeout(this.#timer);
  }
}

async function bytesToSend(body: Body | undefined): Promise<Uint8Array | undefined> {
  if (body === undefined) return undefined;
  if (typeof body === "string") return new TextEncoder().encode(body);
  return body instanceof Uint8Array ? body : new Uint8Array(await new Response(body).arrayBuffer());
}

async function problemOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  const requestId = response.headers.get("x-request-id") ?? undefined;
  try {
    const problem = JSON.parse(text) as Record<string, unknown>;
    if (typeof problem === "object" && problem !== null) return apiError(response.status, problem, requestId);
  } catch {
    // Not the platform's own words: a proxy's, say.
  }
  return apiError(response.status, { title: `HTTP ${response.status}`, detail: text.slice(0, 200) }, requestId);
}

function pauseAfter(call: Call<unknown>, attempt: number, response: Response | undefined): number | undefined {
  if (!(SAFE.has(call.operation.method) || call.isRepeatable) || attempt >= PAUSES_MS.length) return undefined;
  if (response === undefined || response.status === 502 || response.status === 504) return PAUSES_MS[attempt];
  const wait = response.headers.get("retry-after");
  if ((response.status !== 429 && response.status !== 503) || wait === null || !/^\d+$/.test(wait)) return undefined;
  return Number(wait) <= LONGEST_WAIT_S ? Number(wait) * 1000 : undefined;
}

function secondsOf(value: unknown): number | undefined {
  const seconds = typeof value === "string" && !/^[\d.]+$/.test(value) ? Date.parse(value) / 1000 : Number(value);
  return value === undefined || Number.isNaN(seconds) ? undefined : seconds;
}

function read(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new BrokenAnswer(`The answer is no JSON: ${text.slice(0, 80)}`);
  }
}
