// Makes the JSON vectors beside it with other people's implementations. Keys are throw-away.
// In a scratch folder: npm i @stacks/transactions @stacks/encryption bitcoinjs-message bitcoinjs-lib \
//   bip322-js ethers c32check paseto-ts ecpair; then node generate.mjs <this folder>, run from the scratch folder.
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "x.js"));
const target = resolve(process.argv[2]);
const save = (name, value) => writeFileSync(join(target, name), JSON.stringify(value, null, 1) + "\n");
const key = (label) => createHash("sha256").update(`throw-away ${label}`).digest();
const MESSAGES = ["", "Hello World", "Sign in\n\nNonce: 00ff\nExpires: 1", "größe ✓ 𝄞", "x".repeat(300)];

async function evm() {
  const { Wallet } = require("ethers");
  const out = [];
  for (const label of ["a", "b"])
    for (const message of MESSAGES) {
      const wallet = new Wallet("0x" + key(label).toString("hex"));
      out.push({ address: wallet.address, message, signature: await wallet.signMessage(message) });
    }
  save("eip191.json", out);
}

function bitcoin() {
  const lib = require("bitcoinjs-lib");
  const ecc = require("@bitcoinerlab/secp256k1");
  lib.initEccLib(ecc.default ?? ecc);
  const ECPair = require("ecpair").default(ecc.default ?? ecc);
  const bms = require("bitcoinjs-message");
  const { Signer } = require("bip322-js");
  const bip137 = [], bip322 = [];
  for (const network of ["bitcoin", "testnet", "regtest"])
    for (const label of ["a", "b"]) {
      const pair = ECPair.fromPrivateKey(key(label), { network: lib.networks[network] });
      const pubkey = Buffer.from(pair.publicKey), net = { network: lib.networks[network] };
      const p2wpkh = lib.payments.p2wpkh({ pubkey, ...net });
      const addresses = {
        p2pkh: lib.payments.p2pkh({ pubkey, ...net }).address,
        "p2sh-p2wpkh": lib.payments.p2sh({ redeem: p2wpkh, ...net }).address,
        p2wpkh: p2wpkh.address,
        p2tr: lib.payments.p2tr({ internalPubkey: pubkey.subarray(1), ...net }).address,
      };
      for (const message of MESSAGES) {
        for (const [kind, segwitType] of [["p2pkh", null], ["p2sh-p2wpkh", "p2sh(p2wpkh)"], ["p2wpkh", "p2wpkh"]]) {
          const signature = bms
            .sign(message, key(label), true, segwitType ? { segwitType } : {})
            .toString("base64");
          bip137.push({ network, kind, address: addresses[kind], message, signature });
        }
        for (const kind of ["p2sh-p2wpkh", "p2wpkh", "p2tr"])
          bip322.push({
            network, kind, address: addresses[kind], message,
            signature: Signer.sign(pair.toWIF(), addresses[kind], message).toString("base64"),
          });
      }
      const long = ECPair.fromPrivateKey(key(label), { network: lib.networks[network], compressed: false });
      const address = lib.payments.p2pkh({ pubkey: Buffer.from(long.publicKey), ...net }).address;
      const signature = bms.sign("Hello World", key(label), false).toString("base64");
      bip137.push({ network, kind: "p2pkh-uncompressed", address, message: "Hello World", signature });
    }
  save("bip137.json", bip137);
  save("bip322.json", bip322);
}

function stacks() {
  const t = require("@stacks/transactions");
  const { hashMessage } = require("@stacks/encryption");
  const { c32address } = require("c32check");
  const { Cl } = t;
  const hex = (bytes) => Buffer.from(bytes).toString("hex");
  const values = [
    ["uint", "0", Cl.uint(0)], ["uint", "340282366920938463463374607431768211455", Cl.uint((1n << 128n) - 1n)],
    ["int", "-1", Cl.int(-1)], ["int", "170141183460469231731687303715884105727", Cl.int((1n << 127n) - 1n)],
    ["ascii", "Hello World", Cl.stringAscii("Hello World")], ["ascii", "", Cl.stringAscii("")],
    ["utf8", "größe ✓ 𝄞", Cl.stringUtf8("größe ✓ 𝄞")], ["buffer", "00ff10", Cl.bufferFromHex("00ff10")],
    ["bool", true, Cl.bool(true)], ["bool", false, Cl.bool(false)], ["none", null, Cl.none()],
    ["principal", "SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7", Cl.principal("SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7")],
    ["tuple", { b: 1, a: 2, "a-b": 3, aa: 4 },
      Cl.tuple({ b: Cl.uint(1), a: Cl.uint(2), "a-b": Cl.uint(3), aa: Cl.uint(4) })],
    ["list", [1, 2], Cl.list([Cl.uint(1), Cl.uint(2)])],
  ].map(([kind, value, cv]) => ({ kind, value, hex: t.serializeCV(cv) }));
  const c32 = [];
  for (const version of [22, 26, 20, 21])
    for (const hash of ["0".repeat(40), "f".repeat(40), "00".repeat(3) + "ab".repeat(17),
      createHash("sha256").update(`h${version}`).digest("hex").slice(0, 40)])
      c32.push({ version, hash, address: c32address(version, hash) });
  const sip018 = [], plain = [];
  for (const [network, chain] of [["mainnet", 1], ["testnet", 2147483648]])
    for (const label of ["a", "b"]) {
      const privateKey = key(label).toString("hex") + "01";
      const address = t.getAddressFromPrivateKey(privateKey, network);
      const domain = Cl.tuple({ name: Cl.stringAscii("Test App"), version: Cl.stringAscii("1.0.0"), "chain-id": Cl.uint(chain) });
      for (const ascii of ["Hello World", "", "a".repeat(200)]) {
        const message = Cl.stringAscii(ascii);
        sip018.push({
          network, address, ascii, domain: { name: "Test App", version: "1.0.0", chain_id: chain },
          hash: hex(createHash("sha256").update(t.encodeStructuredDataBytes({ message, domain })).digest()),
          signature: t.signStructuredData({ message, domain, privateKey }),
        });
      }
      for (const message of MESSAGES) {
        const hash = hex(hashMessage(message));
        plain.push({ network, address, message, hash, signature: t.signMessageHashRsv({ messageHash: hash, privateKey }) });
      }
    }
  save("stacks.json", { values, c32, sip018, plain });
}

async function paseto() {
  const { encrypt } = await import(pathToFileURL(resolve("node_modules/paseto-ts/dist/v4/index.js")));
  const out = [];
  for (const [payload, footer, assertion] of [
    [{ sub: "x", n: 1 }, "", ""], [{ sub: "größe ✓" }, "kid-1", ""], [{ data: "y".repeat(300) }, '{"kid":"k"}', "implicit"],
  ]) {
    const secret = key(`paseto ${assertion}${footer}`);
    const token = await encrypt(`k4.local.${secret.toString("base64url")}`, payload, { footer, assertion, addExp: false, addIat: false });
    out.push({ key: secret.toString("hex"), payload, footer, assertion, token });
  }
  save("paseto.json", out);
}

await evm();
bitcoin();
stacks();
await paseto();
