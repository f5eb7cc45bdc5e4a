// Needs no platform.
import assert from "node:assert/strict";
import { test } from "node:test";
import { quoted } from "../src/call.js";
import { ownText } from "../src/confirm.js";
import { ApiError } from "../src/errors.js";
import { type ServerEvent, pieceOf, serverEvents } from "../src/events.js";

async function* cut(text: string, size: number): AsyncGenerator<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

test("events are the same, however their bytes are cut", async () => {
  const text = ": alive\n\nevent: a\r\ndata: gr\u00fc\u00df\ndata: 2\n\nid: 7\ndata:x\n\nevent: end\n\n";
  for (const size of [1, 2, 3, 7, 1000]) {
    const seen: ServerEvent[] = [];
    for await (const event of serverEvents(cut(text, size))) seen.push(event);
    assert.deepEqual(seen, [
      { name: "a", data: "gr\u00fc\u00df\n2" },
      { name: "message", data: "x", id: "7" },
      { name: "end", data: "", id: "7" },
    ]);
  }
});

test("an event of a broken stream is thrown as the problem it is", () => {
  const event = { name: "error", data: '{"status": 503, "code": "no_capacity", "detail": "full"}' };
  assert.throws(() => pieceOf(event), (error: ApiError) => error.status === 503 && error.code === "no_capacity");
});

test("no text is signed but the platform's own, for the address that was asked", () => {
  const expires = Math.floor(Date.now() / 1000) + 300;
  const text = (domain: string, more = ""): string =>
    `Sign this message to authenticate with sandboxer.\n\nDomain: ${domain}\nNonce: n1\nExpires: ${expires}${more}`;
  assert.equal(ownText(text("x.example"), "signIn", "n1", "https://x.example:443"), text("x.example"));
  const foreign: Array<[string, string]> = [
    [text("y.example"), "n1"],
    [text("x.example"), "n2"],
    [text("x.example", "\nPay: all"), "n1"],
    [text("x.example\u007f"), "n1"],
    [text("x.example").replace("authenticate", "pay"), "n1"],
    [text("x.example").replace(String(expires), String(expires + 7200)), "n1"],
  ];
  for (const [shown, nonce] of foreign) {
    assert.throws(() => ownText(shown, "signIn", nonce, "https://x.example"), /Nothing was signed/, shown);
  }
});

test("no URL parser changes what was quoted", () => {
  const text = "a b'(c)!*~+\u00fc%20/?#&=";
  const url = new URL(`http://x/?path=${quoted(text)}`);
  assert.equal(url.search, `?path=${quoted(text)}`);
  assert.equal(url.searchParams.get("path"), text);
});
