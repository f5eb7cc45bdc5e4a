// SPDX-License-Identifier: MIT
pragma solidity 0.8.28;

// Our own stand-in for x402's proxy for `upto`: the same call, bound in the same way, on the real Permit2. It is
// not the official contract; it lets the tests settle what the package signs.

struct TokenPermissions {
    address token;
    uint256 amount;
}

struct PermitTransferFrom {
    TokenPermissions permitted;
    uint256 nonce;
    uint256 deadline;
}

struct SignatureTransferDetails {
    address to;
    uint256 requestedAmount;
}

interface Permit2 {
    function permitWitnessTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 witness,
        string calldata witnessType,
        bytes calldata signature
    ) external;
}

contract UptoProxy {
    struct Witness {
        address to;
        address facilitator;
        uint256 validAfter;
    }

    Permit2 private constant PERMIT2 = Permit2(0x000000000022D473030F116dDEE9F6B43aC78BA3);
    bytes32 private constant WITNESS = keccak256("Witness(address to,address facilitator,uint256 validAfter)");
    // What follows the permit's own fields in its EIP-712 type; the structs in alphabetical order.
    string private constant REST =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,address facilitator,uint256 validAfter)";

    error AmountExceedsPermitted();
    error InvalidAmount();
    error PaymentTooEarly();
    error UnauthorizedFacilitator();

    // Recipient and facilitator are under the payer's signature; the amount is the facilitator's choice, up to the most.
    function settle(
        PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        if (msg.sender != witness.facilitator) revert UnauthorizedFacilitator();
        if (amount == 0) revert InvalidAmount();
        if (amount > permit.permitted.amount) revert AmountExceedsPermitted();
        if (block.timestamp < witness.validAfter) revert PaymentTooEarly();
        bytes32 signed = keccak256(abi.encode(WITNESS, witness.to, witness.facilitator, witness.validAfter));
        SignatureTransferDetails memory details = SignatureTransferDetails(witness.to, amount);
        PERMIT2.permitWitnessTransferFrom(permit, details, owner, signed, REST, signature);
    }
}
