/**
 * Who a client is, and how it signs (signature v2).
 *
 * Found in this order: what is given, then SANDBOXER_PUBLIC_KEY with SANDBOXER_SECRET_KEY or SANDBOXER_API_KEY, then an
 * `owner.json` (SANDBOXER_CREDENTIALS, SANDBOXER_STATE_DIR). In a browser there is neither environment nor file.
 */

import { randomText } from "./call.js";
import { MissingCredentials } from "./errors.js";

export const DEFAULT_URL = "http://127.0.0.1:7777";

export interface Credentials {
  url: string;
  publicKey: string;
  secretKey: string;
  /** Sent instead of signing: a bearer token (sk_…) or the token of a wallet's session. */
  bearerToken?: string;
}

export interface Given {
  url?: string;
  publicKey?: string;
  secretKey?: string;
  /** A bearer token (sk_…), sent instead of signing. */
  apiKey?: string;
  /** The token of a wallet's session (`POST /v1/auth/session`), sent instead of signing. */
  session?: string;
  /** Path of an `owner.json`, or of a key as `sandboxer key delegate --json` prints it. */
  ownerFile?: string;
}

interface Hash {
  update(data: string | Uint8Array): Hash;
  digest(form: "hex"): string;
}

interface Builtin {
  "node:fs": { readFileSync(path: string, encoding: string): string };
  "node:crypto": { createHash(name: string): Hash; createHmac(name: string, key: string): Hash };
}

interface Process {
  env?: Record<string, string | undefined>;
  getBuiltinModule?: <Name extends keyof Builtin>(name: Name) => Builtin[Name];
}

// Node, Bun and Deno have it. It is not imported: a browser, and what packs for one, must not look for it.
const host: Process = (globalThis as { process?: Process }).process ?? {};

/** The first complete key found. `isOptional`: whoever has a wallet needs none, and must not borrow the owner's. */
export function findCredentials(given: Given, isOptional = false): Credentials {
  const env = host.env ?? {};
  const url = given.url ?? env["SANDBOXER_URL"];
  const said = given.publicKey || given.secretKey || given.apiKey || given.session;
  const isNamed = Boolean(said || given.ownerFile);
  const publicKey = given.publicKey ?? (isNamed ? undefined : env["SANDBOXER_PUBLIC_KEY"]);
  const secretKey = given.secretKey ?? (isNamed ? undefined : env["SANDBOXER_SECRET_KEY"]);
  const bearerToken = given.apiKey ?? given.session ?? (isNamed ? undefined : env["SANDBOXER_API_KEY"]);
  if (publicKey || secretKey) {
    if (!publicKey || !secretKey) throw new MissingCredentials("A public key needs its secret key, and the other way round.");
    return { url: url ?? DEFAULT_URL, publicKey, secretKey };
  }
  if (bearerToken) return demandPrivate({ url: url ?? DEFAULT_URL, publicKey: "", secretKey: "", bearerToken });
  if (isOptional && !given.ownerFile) return { url: url ?? DEFAULT_URL, publicKey: "", secretKey: "" };
  const folder = env["SANDBOXER_STATE_DIR"] ?? "/var/lib/sandboxer";
  return fromFile(given.ownerFile ?? env["SANDBOXER_CREDENTIALS"] ?? `${folder}/owner.json`, url);
}

function fromFile(path: string, url: string | undefined): Credentials {
  const files = host.getBuiltinModule?.("node:fs");
  if (files === undefined) throw new MissingCredentials("No key was given, and there are no files to look for one in.");
  let text: string;
  try {
    text = files.readFileSync(path, "utf8");
  } catch (error) {
    throw new MissingCredentials(`No key was given, and ${path} cannot be read: ${(error as Error).message}`);
  }
  try {
    const held = JSON.parse(text) as Record<string, unknown>;
    const [publicKey, secretKey] = [held["public_key"], held["secret_key"]];
    if (typeof publicKey !== "string" || typeof secretKey !== "string") throw new TypeError("it holds no key");
    return { url: url ?? String(held["url"] ?? DEFAULT_URL), publicKey, secretKey };
  } catch (error) {
    throw new MissingCredentials(`${path} is not an owner.json: ${(error as Error).message}`, "Name another file.");
  }
}

/** A bearer token goes by TLS or stays on this host: others could read it on its way. */
function demandPrivate(credentials: Credentials): Credentials {
  const { protocol, hostname } = new URL(credentials.url);
  const isHere = /^(localhost|127(\.\d+){3}|\[::1\])$|\.localhost$/.test(hostname);
  if (protocol === "https:" || isHere) return credentials;
  throw new MissingCredentials(
    `A bearer token would go to ${credentials.url} for everybody on its way to read.`,
    "Use https://, or a public and a secret key: these are never sent.",
  );
}

// Where it is there, nothing is waited for: WebCrypto asks another thread, twice for each request.
const native = host.getBuiltinModule?.("node:crypto");
const TEXT = new TextEncoder();
const EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/** Signs requests with one key, by the server's clock as far as it is known. */
export class Signer {
  credentials: Credentials;
  #offsetS = 0;
  #key: { secret: string; made: Promise<CryptoKey> } | undefined;

  constructor(credentials: Credentials) {
    this.credentials = credentials;
  }

  /** Returns the headers that say who calls; none for somebody who has no key yet. */
  async headers(method: string, target: string, body: Uint8Array | undefined): Promise<Record<string, string>> {
    const { publicKey, secretKey, bearerToken } = this.credentials;
    if (bearerToken) return { authorization: `Bearer ${bearerToken}` };
    if (!publicKey) return {};
    const stamp = String(Math.floor(Date.now() / 1000 + this.#offsetS));
    const nonce = randomText(18);
    const digest = body?.length ? await sha256(body) : EMPTY_SHA256;
    const canonical = `v2:${stamp}:${nonce}:${method}:${target}:${digest}`;
    const signature = native
      ? native.createHmac("sha256", secretKey).update(canonical).digest("hex")
      : hex(await crypto.subtle.sign("HMAC", await this.#imported(secretKey), TEXT.encode(canonical)));
    return {
      authorization: `Bearer ${publicKey}`,
      "x-timestamp": stamp,
      "x-nonce": nonce,
      "x-content-sha256": digest,
      "x-signature": signature,
    };
  }

  /** Believes the server's clock from now on; signatures are checked against it. */
  learn(serverTimeS: number): void {
    this.#offsetS = serverTimeS - Date.now() / 1000;
  }

  #imported(secret: string): Promise<CryptoKey> {
    if (this.#key?.secret !== secret) {
      const algorithm = { name: "HMAC", hash: "SHA-256" };
      this.#key = { secret, made: crypto.subtle.importKey("raw", TEXT.encode(secret), algorithm, false, ["sign"]) };
    }
    return this.#key.made;
  }
}

async function sha256(body: Uint8Array): Promise<string> {
  return native
    ? native.createHash("sha256").update(body).digest("hex")
    : hex(await crypto.subtle.digest("SHA-256", body as BufferSource));
}

const hex = (bytes: ArrayBuffer): string => Array.from(new Uint8Array(bytes), (one) => one.toString(16).padStart(2, "0")).join("");
