/** One call to the platform as a value: what to send, and how its answer is read. */

import { SandboxerError } from "./errors.js";

/** Bytes to send. They are held in memory, since a signature names their hash before the first is sent. */
export type Body = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

/** What the generated calls say of an operation. */
export interface Operation {
  id: string;
  method: string;
  path: string;
  query?: readonly string[];
  /** Words of a request that travel as headers, with the names of these. */
  headers?: Readonly<Record<string, string>>;
  /** `json`: the other words are a body of JSON; else the media type of a `body` of bytes. */
  sends?: string;
  reads?: "bytes" | "events" | "none";
  /** Statuses of 400 and above whose answers are no problems. */
  also?: readonly number[];
  repeatable?: boolean;
  patience_s?: number;
}

export interface Call<T> {
  readonly operation: Operation;
  /** Path with query, exactly as it is signed and sent. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Body | undefined;
  /** Sending it twice does what sending it once does. */
  readonly isRepeatable: boolean;
  /** How long the server may take, where that is not the client's default. */
  readonly patienceS?: number;
  /** Only for types: what `send` gives. */
  readonly answer?: T;
}

/** Makes the call that these words ask for. What neither path, query nor head takes goes into the body. */
export function call<T>(operation: Operation, asked: object): Call<T> {
  const left = new Map(Object.entries(asked).filter(([, value]) => value !== undefined && value !== null));
  const target = operation.path.replace(/\{(\w+)\}/g, (_, name: string) => quoted(String(taken(left, name, operation))));
  const pairs: string[] = [];
  for (const name of operation.query ?? []) {
    const value = left.get(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined) pairs.push(`${quoted(name)}=${quoted(String(one))}`);
    }
    left.delete(name);
  }
  const headers: Record<string, string> = {};
  for (const [name, header] of Object.entries(operation.headers ?? {})) {
    const value = left.get(name);
    if (value !== undefined) headers[header] = String(value);
    left.delete(name);
  }
  let body: Body | undefined;
  if (operation.sends === "json") {
    headers["content-type"] = "application/json";
    body = JSON.stringify(Object.fromEntries(left));
  } else if (operation.sends !== undefined) {
    headers["content-type"] = operation.sends;
    body = left.get("body") as Body;
  }
  if (operation.reads === "events") headers["accept"] = "text/event-stream";
  return {
    operation,
    target: pairs.length ? `${target}?${pairs.join("&")}` : target,
    headers,
    body,
    isRepeatable: operation.repeatable === true || "idempotency-key" in headers,
    ...(operation.patience_s === undefined ? {} : { patienceS: operation.patience_s }),
  };
}

/** Returns the same call, answered as server-sent events. */
export function streamed<T>(made: Call<T>): Call<void> {
  return { ...made, headers: { ...made.headers, accept: "text/event-stream" } } as Call<void>;
}

/** Returns the same call, for which the server may take so long. */
export function within<T>(made: Call<T>, seconds: number): Call<T> {
  return { ...made, patienceS: seconds };
}

function taken(left: Map<string, unknown>, name: string, operation: Operation): unknown {
  const value = left.get(name);
  if (value === undefined || value === "") {
    throw new SandboxerError(`${operation.id} needs ${name}.`, { nextStep: `Say ${name}.` });
  }
  left.delete(name);
  return value;
}

/** Percent-encoded so that no URL parser changes a byte of it: what is signed is what is sent. */
export function quoted(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Returns a key that no other call has. */
export function newIdempotencyKey(): string {
  return randomText(18);
}

/** So many random bytes as base 64 for URLs. */
export function randomText(bytes: number): string {
  const made = crypto.getRandomValues(new Uint8Array(bytes));
  return btoa(String.fromCharCode(...made)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}
