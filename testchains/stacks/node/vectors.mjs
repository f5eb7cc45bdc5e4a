// Makes tests/payments/stacks/vectors.json with @stacks/transactions, the reference our codec is held to:
//   npm ci && node vectors.mjs > ../../../tests/payments/stacks/vectors.json
// Signing is deterministic (RFC 6979), so the same file comes out every time.
import {
  AddressHashMode, ClarityVersion, Cl, Pc, PostConditionMode, addressFromPublicKeys, addressToString,
  getAddressFromPrivateKey, makeContractCall, makeContractDeploy, makeSTXTokenTransfer,
  makeUnsignedSTXTokenTransfer, privateKeyToPublic, publicKeyToHex, sponsorTransaction,
  postConditionToWire, serializePostConditionWire, TransactionSigner, createStacksPublicKey,
  deserializeTransaction, createSingleSigSpendingCondition, createStandardAuth,
} from '@stacks/transactions';

const ORIGIN = '753b7cc01a1a2e86221266a154af739463fce51219d97e4f856cd7200c3bd2a601';
const SPONSOR = 'edf9aee84d9b7abc145504dde6726c64f369d37ee34ded868fabd876c26570bc01';
const OTHER = 'cb3df38053d132895220b9ce471f6b676db5b9bf0b4adefb55f2118ece2478df01';
const CHAINS = { mainnet: 'mainnet', testnet: 'testnet' };
const address = (key, network) => getAddressFromPrivateKey(key, network);
const TOKENS = {
  mainnet: ['SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4', 'sbtc-token', 'sbtc-token'],
  testnet: ['ST1F7QA2MDF17S807EPA36TSS8AMEFY4KA9TVGWXT', 'sbtc-token', 'sbtc-token'],
};

const addresses = [];
for (const network of Object.keys(CHAINS))
  for (const [name, key] of Object.entries({ ORIGIN, SPONSOR, OTHER }))
    addresses.push({ name, network, key, address: address(key, network) });

const deep = Cl.tuple({ b: Cl.list([Cl.some(Cl.tuple({ x: Cl.bufferFromHex('00ff') }))]), a: Cl.ok(Cl.none()) });
const values = {
  int: Cl.int(-5), 'int-min': Cl.int(-(2n ** 127n)), uint: Cl.uint(7), 'uint-max': Cl.uint(2n ** 128n - 1n),
  buffer: Cl.bufferFromHex('0102ff'), 'empty-buffer': Cl.bufferFromHex(''), true: Cl.bool(true),
  false: Cl.bool(false), principal: Cl.principal(address(ORIGIN, 'testnet')),
  contract: Cl.principal(TOKENS.mainnet.slice(0, 2).join('.')), ok: Cl.ok(Cl.uint(1)), err: Cl.error(Cl.uint(4)),
  none: Cl.none(), some: Cl.some(Cl.int(1)), list: Cl.list([Cl.uint(1), Cl.uint(2)]), 'empty-list': Cl.list([]),
  tuple: Cl.tuple({ zeta: Cl.uint(1), alpha: Cl.stringAscii('a'), 'mid-1': Cl.bool(false) }),
  ascii: Cl.stringAscii('hello world'), utf8: Cl.stringUtf8('grüße 🙂'), deep,
};
const clarity = Object.entries(values).map(([name, value]) => ({ name, hex: Cl.serialize(value) }));

const me = address(ORIGIN, 'testnet');
const token = TOKENS.testnet.slice(0, 2).join('.');
const conditions = [];
for (const code of ['willSendEq', 'willSendGt', 'willSendGte', 'willSendLt', 'willSendLte']) {
  conditions.push({ name: `stx-${code}`, value: Pc.principal(me)[code](9).ustx() });
  conditions.push({ name: `ft-${code}`, value: Pc.principal(me)[code](1500).ft(token, 'sbtc-token') });
}
conditions.push({ name: 'ft-contract', value: Pc.principal(token).willSendEq(1).ft(token, 'sbtc-token') });
conditions.push({ name: 'ft-origin', value: Pc.origin().willSendEq(1).ft(token, 'sbtc-token') });
conditions.push({ name: 'nft-sends', value: Pc.principal(me).willSendAsset().nft(token, 'cards', Cl.uint(3)) });
conditions.push({ name: 'nft-keeps', value: Pc.principal(me).willNotSendAsset().nft(token, 'cards', deep) });
const postConditions = conditions.map(({ name, value }) => ({
  name, hex: serializePostConditionWire(postConditionToWire(value)),
}));

const transactions = [];
function add(name, tx, network, more = {}) {
  const sponsor = tx.auth.sponsorSpendingCondition;
  transactions.push({ name, network, hex: tx.serialize(), txid: tx.txid(), sponsored: Boolean(sponsor), ...more });
}

for (const network of Object.keys(CHAINS)) {
  const [owner, contract, asset] = TOKENS[network];
  const sender = address(ORIGIN, network);
  const recipient = address(OTHER, network);
  const call = (extra) => makeContractCall({
    contractAddress: owner, contractName: contract, functionName: 'transfer', senderKey: ORIGIN, network,
    functionArgs: [Cl.uint(1500), Cl.principal(sender), Cl.principal(recipient), extra.memo ?? Cl.none()],
    postConditionMode: PostConditionMode.Deny,
    postConditions: [Pc.principal(sender).willSendEq(1500).ft(`${owner}.${contract}`, asset)],
    fee: 0, nonce: 3, validateWithAbi: false, ...extra,
  });
  const known = { sender, recipient, nonce: 3 };
  const open = await call({ sponsored: true });
  add('sip010-sponsored', open, network, { ...known, amount: 1500 });
  const paid = await sponsorTransaction({
    transaction: deserializeTransaction(open.serialize()), sponsorPrivateKey: SPONSOR, fee: 400, sponsorNonce: 11, network,
  });
  add('sip010-sponsor-signed', paid, network, { ...known, sponsor: address(SPONSOR, network) });
  add('sip010-standard', await call({ fee: 180, nonce: 0 }), network, { sender, nonce: 0 });
  add('sip010-memo', await call({ sponsored: true, memo: Cl.some(Cl.bufferFromUtf8('invoice 7')) }), network, known);
  add('sip010-allow', await call({ sponsored: true, postConditionMode: PostConditionMode.Allow, postConditions: [] }), network, known);
  add('sip010-deny-nothing', await call({ sponsored: true, postConditions: [] }), network, known);

  const stx = (extra) => makeSTXTokenTransfer({
    recipient, amount: 250000, senderKey: ORIGIN, network, fee: 0, nonce: 3, memo: '', ...extra,
  });
  const stxOpen = await stx({ sponsored: true });
  add('stx-sponsored', stxOpen, network, { ...known, amount: 250000 });
  add('stx-sponsor-signed', await sponsorTransaction({
    transaction: deserializeTransaction(stxOpen.serialize()), sponsorPrivateKey: SPONSOR, fee: 300, sponsorNonce: 12, network,
  }), network, { ...known, sponsor: address(SPONSOR, network) });
  add('stx-standard-memo', await stx({ fee: 200, memo: 'thank you' }), network, known);
  add('stx-to-contract', await stx({ fee: 200, recipient: `${owner}.${contract}` }), network, { sender, nonce: 3 });

  // Segwit-in-P2SH and an uncompressed key: rarer, and valid.
  for (const [name, mode, key] of [
    ['stx-p2wpkh', AddressHashMode.P2WPKH, ORIGIN], ['stx-uncompressed', AddressHashMode.P2PKH, ORIGIN.slice(0, 64)],
  ]) {
    const publicKey = publicKeyToHex(privateKeyToPublic(key));
    const tx = await makeUnsignedSTXTokenTransfer({ recipient, amount: 5, publicKey, network, fee: 200, nonce: 1 });
    tx.auth = createStandardAuth(createSingleSigSpendingCondition(mode, publicKey, 1, 200));
    new TransactionSigner(tx).signOrigin(key);
    const version = { P2WPKH: { mainnet: 20, testnet: 21 }, P2PKH: { mainnet: 22, testnet: 26 } };
    const kind = mode === AddressHashMode.P2WPKH ? 'P2WPKH' : 'P2PKH';
    const wire = addressFromPublicKeys(version[kind][network], mode, 1, [createStacksPublicKey(publicKey)]);
    add(name, tx, network, { sender: addressToString(wire), nonce: 1 });
  }
}

const keys = [ORIGIN, OTHER];
const multisig = await makeSTXTokenTransfer({
  recipient: address(OTHER, 'testnet'), amount: 1, network: 'testnet', fee: 200, nonce: 0, numSignatures: 2,
  publicKeys: keys.map((key) => publicKeyToHex(privateKeyToPublic(key))), signerKeys: keys,
});
const deploy = await makeContractDeploy({
  contractName: 'hello', codeBody: '(define-public (hi) (ok u1))', senderKey: ORIGIN, network: 'testnet', fee: 300,
  nonce: 0, clarityVersion: ClarityVersion.Clarity3,
});
const refused = [
  { name: 'multisig', reason: 'multisig', hex: multisig.serialize() },
  { name: 'deploy', reason: 'unsupported_payload', hex: deploy.serialize() },
];
console.log(JSON.stringify({ made_by: '@stacks/transactions 7.6.0', addresses, clarity, post_conditions: postConditions, transactions, refused }, null, 1));
