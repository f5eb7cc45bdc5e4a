/**
 * A wallet that pays by itself, within caps: EIP-3009 authorizations for x402's scheme `exact` on EVM networks.
 *
 * `account` is an account of viem (`privateKeyToAccount`), or anything that signs typed data as it does. Caps are in the
 * asset's own smallest units, never in what the other side says it is worth.
 */

import { base64Of } from "./events.js";
import { type Payer } from "./line.js";

/** What viem's local accounts are, as far as it is needed. */
export interface Account {
  address: `0x${string}`;
  signTypedData(asked: {
    domain: { name: string; version: string; chainId: number; verifyingContract: `0x${string}` };
    types: Record<string, ReadonlyArray<{ name: string; type: string }>>;
    primaryType: string;
    message: Record<string, unknown>;
  }): Promise<`0x${string}`>;
}

/** So much of one asset on one network (CAIP-2), at most. */
export interface Cap {
  network: string;
  asset: string;
  perPayment: bigint;
  inTotal: bigint;
}

interface Offer {
  scheme: string;
  network: string;
  asset: string;
  amount: string;
  payTo: string;
  maxTimeoutSeconds?: number;
  extra?: { name?: string; version?: string };
}

const TYPES = {
  TransferWithAuthorization: [
    { name: "from", type: "address" },
    { name: "to", type: "address" },
    { name: "value", type: "uint256" },
    { name: "validAfter", type: "uint256" },
    { name: "validBefore", type: "uint256" },
    { name: "nonce", type: "bytes32" },
  ],
};
// A clock of ours that is ahead must not make what we sign begin in the future.
const BEFORE_S = 600;

/** Returns a wallet for `new Sandboxer({ wallet })`; it pays what one of the caps covers, and nothing else. */
export function payWith(account: Account, caps: readonly Cap[]): Payer & { spent: ReadonlyMap<Cap, bigint> } {
  const spent = new Map<Cap, bigint>();
  const pay = async (required: Readonly<Record<string, unknown>>): Promise<string | undefined> => {
    const offers = Array.isArray(required["accepts"]) ? (required["accepts"] as Offer[]) : [];
    for (const offer of offers) {
      const cap = caps.find((one) => covers(one, offer, spent.get(one) ?? 0n));
      if (cap === undefined) continue;
      // Counted before it is signed: two calls at once must not both see what is left.
      spent.set(cap, (spent.get(cap) ?? 0n) + BigInt(offer.amount));
      return encoded(required, offer, await signed(account, offer));
    }
    return undefined;
  };
  return Object.assign(pay, { spent });
}

function covers(cap: Cap, offer: Offer, spent: bigint): boolean {
  const isSame = offer.network === cap.network && String(offer.asset).toLowerCase() === cap.asset.toLowerCase();
  const isExact = offer.scheme === "exact" && /^eip155:\d+$/.test(offer.network) && /^\d+$/.test(String(offer.amount));
  if (!isSame || !isExact) return false;
  const amount = BigInt(offer.amount);
  return amount <= cap.perPayment && amount + spent <= cap.inTotal;
}

async function signed(account: Account, offer: Offer): Promise<object> {
  const now = Math.floor(Date.now() / 1000);
  const random = crypto.getRandomValues(new Uint8Array(32));
  const nonce = `0x${Array.from(random, (one) => one.toString(16).padStart(2, "0")).join("")}`;
  const authorization = {
    from: account.address,
    to: offer.payTo,
    value: String(BigInt(offer.amount)),
    validAfter: String(now - BEFORE_S),
    validBefore: String(now + (offer.maxTimeoutSeconds ?? 60)),
    nonce,
  };
  const signature = await account.signTypedData({
    domain: {
      name: offer.extra?.name ?? "",
      version: offer.extra?.version ?? "",
      chainId: Number(offer.network.slice("eip155:".length)),
      verifyingContract: offer.asset as `0x${string}`,
    },
    types: TYPES,
    primaryType: "TransferWithAuthorization",
    message: {
      ...authorization,
      value: BigInt(authorization.value),
      validAfter: BigInt(authorization.validAfter),
      validBefore: BigInt(authorization.validBefore),
    },
  });
  return { authorization, signature };
}

function encoded(required: Readonly<Record<string, unknown>>, offer: Offer, payload: object): string {
  const { x402Version, resource, extensions } = required;
  const said = { x402Version, payload, accepted: offer, resource, extensions };
  return base64Of(new TextEncoder().encode(JSON.stringify(said)));
}
