/**
 * Texts of the platform that a wallet or a key signs: to sign in, and as the second proof that a 428 asks for.
 *
 * Whoever has a wallet's signature of a text has its word. So a platform that shows another text than these, a payment,
 * say, or the sign-in that a third platform handed out, gets no signature for it.
 */

import { ApiError, SandboxerError } from "./errors.js";

/** What is to be signed: show `message` to whoever signs, it says what it allows. */
export interface Demand {
  challenge: string;
  message: string;
  /** `wallet` or `api_key`. */
  factor: string;
}

/** A signature over the message of a demand, and the address or public key that made it. */
export interface Proof {
  by: string;
  signature: string;
}

/** Signs what is asked for; undefined: it cannot sign that. */
export type Confirmer = (demand: Demand) => Promise<Proof | undefined>;

/** What viem's local accounts are, as far as texts go. */
export interface TextSigner {
  address: string;
  signMessage(asked: { message: string }): Promise<string>;
}

const FORMS = {
  signIn: ["Sign this message to authenticate with sandboxer.", "Domain", "Nonce", "Expires"],
  confirm: [
    "Sign this message to confirm an action with sandboxer.",
    ...["Domain", "Account", "Action", "Resource", "Challenge", "Expires"],
  ],
} as const;
// A platform says five minutes; the rest is for a clock that is late.
const LONGEST_LIFE_S = 3600;

/** Confirms with a wallet, where the platform asks for one. */
export function confirmWithWallet(account: TextSigner): Confirmer {
  return async ({ factor, message }) =>
    factor === "wallet" ? { by: account.address, signature: await account.signMessage({ message }) } : undefined;
}

/** Returns a text that may be signed for whoever answers at `url` (undefined: anywhere). Throws for every other. */
export function ownText(text: string, form: keyof typeof FORMS, nonce: string, url: string | undefined): string {
  const fault = faultOf(text, form, nonce, url);
  if (fault === undefined) return text;
  throw new SandboxerError(`Nothing was signed: ${fault}.`, {
    code: "foreign_text",
    fault: "platform",
    nextStep: "Name the address that the platform has for itself (SANDBOXER_URL). If it is this one already, do not trust it.",
  });
}

function faultOf(text: string, form: keyof typeof FORMS, nonce: string, url: string | undefined): string | undefined {
  const [first, ...names] = FORMS[form];
  const lines = text.split("\n");
  const values = names.map((name, at) => lines[at + 2]?.startsWith(`${name}: `) && lines[at + 2]!.slice(name.length + 2));
  const isOfForm = lines[0] === first && lines[1] === "" && lines.length === names.length + 2;
  // Nothing that a terminal or a wallet would show as something else.
  if (!isOfForm || values.some((value) => typeof value !== "string" || /[\x00-\x1f\x7f]/.test(value))) {
    return `what the platform wants signed is not \`${first} …\`, each line as it has to be`;
  }
  const said = Object.fromEntries(names.map((name, at) => [name, String(values[at])]));
  const domain = (said["Domain"] ?? "").toLowerCase();
  if (url !== undefined && withoutPort(domain, url) !== withoutPort(new URL(url).host.toLowerCase(), url)) {
    return `what the platform wants signed is for ${domain}, and it was asked at ${url}`;
  }
  if (nonce !== said["Nonce"] && nonce !== said["Challenge"]) return "what the platform wants signed has another nonce than it said";
  const expires = said["Expires"] ?? "";
  if (!/^[0-9]{1,12}$/.test(expires) || Number(expires) > Date.now() / 1000 + LONGEST_LIFE_S) {
    return "what the platform wants signed is good for more than an hour, by this machine's clock";
  }
  return undefined;
}

function withoutPort(host: string, url: string): string {
  const usual = url.startsWith("https:") ? ":443" : ":80";
  return host.endsWith(usual) ? host.slice(0, -usual.length) : host;
}

/** The headers that answer a 428; undefined: it asked for nothing that is signed here. */
export async function confirmed(error: ApiError, url: string, confirm: Confirmer): Promise<Record<string, string> | undefined> {
  const [challenge, message, factor] = [error.fact("challenge"), error.fact("message"), error.fact("factor")];
  if (error.status !== 428 || typeof challenge !== "string" || typeof message !== "string" || typeof factor !== "string") {
    return undefined;
  }
  // A key proves nothing elsewhere: by whatever address a platform is asked, its own text is signed with it.
  ownText(message, "confirm", challenge, factor === "wallet" ? url : undefined);
  const proof = await confirm({ challenge, message, factor });
  if (proof === undefined) return undefined;
  return { "x-sudo-challenge": challenge, "x-sudo-by": proof.by, "x-sudo-otp": proof.signature };
}
