// What a Stacks node checks and simnet does not: signatures of origin and sponsor, and post-conditions.
import {
  AddressHashMode, AuthType, ClarityType, PayloadType, PostConditionMode,
  addressFromPublicKeys, addressToString, cvToString, nextVerification, wireToPostCondition,
} from '@stacks/transactions';

export class Rejected extends Error {
  constructor(reason, message, data = {}) {
    super(message);
    this.reason = reason;
    this.data = data;
  }
}

const VERSIONS = { [AddressHashMode.P2PKH]: 26, [AddressHashMode.P2WPKH]: 21 };

export function addressOf(condition) {
  const version = VERSIONS[condition.hashMode];
  if (version === undefined) throw new Rejected('SignatureValidation', 'multisig is beyond this chain');
  return addressToString({ version, hash160: condition.signer, type: 0 });
}

export function checkSignatures(tx) {
  try {
    const afterOrigin = tx.verifyOrigin();
    if (tx.auth.authType !== AuthType.Sponsored) return;
    const sponsor = tx.auth.sponsorSpendingCondition;
    const { pubKey } = nextVerification(
      afterOrigin, AuthType.Sponsored, sponsor.fee, sponsor.nonce, sponsor.keyEncoding, sponsor.signature.data);
    const signer = addressFromPublicKeys(0, sponsor.hashMode, 1, [pubKey]).hash160;
    if (signer !== sponsor.signer) throw new Error('the sponsor did not sign');
  } catch (error) {
    throw new Rejected('SignatureValidation', String(error.message ?? error));
  }
}

// What the transaction will move, known beforehand: only native transfers and our own tokens are taken.
export function movementOf(tx, tokens) {
  const { payload } = tx;
  const origin = addressOf(tx.auth.spendingCondition);
  if (payload.payloadType === PayloadType.TokenTransfer) {
    if (tx.postConditions.values.length)
      throw new Rejected('Serialization', 'TokenTransfer transactions do not support post-conditions');
    return { asset: 'STX', sender: origin, amount: BigInt(payload.amount), recipient: cvToString(payload.recipient).replace(/^'/, '') };
  }
  if (payload.payloadType !== PayloadType.ContractCall) throw new Rejected('Serialization', 'only transfers are taken');
  const contract = `${addressToString(payload.contractAddress)}.${payload.contractName.content}`;
  const token = tokens[contract];
  if (!token) throw new Rejected('NoSuchContract', contract);
  const [amount, sender, recipient] = payload.functionArgs;
  if (payload.functionName.content !== 'transfer' || payload.functionArgs.length !== 4 || amount.type !== ClarityType.UInt)
    throw new Rejected('BadFunctionArgument', 'only transfer (uint, principal, principal, optional buff) is taken');
  return {
    contract, asset: `${contract}::${token}`, sender: cvToString(sender).replace(/^'/, ''),
    recipient: cvToString(recipient).replace(/^'/, ''), amount: BigInt(amount.value), args: payload.functionArgs,
  };
}

const COMPARE = {
  eq: (sent, amount) => sent === amount, gt: (sent, amount) => sent > amount, gte: (sent, amount) => sent >= amount,
  lt: (sent, amount) => sent < amount, lte: (sent, amount) => sent <= amount,
};

// SIP-005: each condition has to hold, and in deny mode each movement has to be spoken of.
export function postConditionsHold(tx, moved) {
  const origin = addressOf(tx.auth.spendingCondition);
  let covered = false;
  for (const wire of tx.postConditions.values) {
    const condition = wireToPostCondition(wire);
    if (condition.type === 'nft-postcondition') return false;
    const asset = condition.type === 'stx-postcondition' ? 'STX' : condition.asset;
    const who = condition.address === 'origin' ? origin : condition.address;
    const about = asset === moved.asset && who === moved.sender;
    covered ||= about;
    if (!COMPARE[condition.condition](about ? moved.amount : 0n, BigInt(condition.amount))) return false;
  }
  const deny = tx.postConditionMode === PostConditionMode.Deny;
  return !deny || covered || moved.asset === 'STX';
}
