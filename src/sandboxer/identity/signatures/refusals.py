"""What a verifier says when it says no: one sentence for all wrong signatures; more would help forgers."""

from __future__ import annotations

from sandboxer.kernel.errors import InvalidRequest, Unauthenticated


def bad_signature(scheme: str) -> Unauthenticated:
    return Unauthenticated(
        why=f"the signature is not one of this message by this address ({scheme})",
        reason="bad_signature",
        hint="Sign the exact text that was handed out, with the key of the address you name.",
    )


def malformed_signature(scheme: str, wanted: str) -> Unauthenticated:
    return Unauthenticated(
        why=f"the signature is not {wanted} ({scheme})",
        reason="malformed_signature",
        hint=f"Send it as {wanted}.",
    )


def bad_address(kind: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        field="address",
        why=f"not a {kind} address: {why}",
        reason="bad_address",
        hint="Copy the address from the wallet; one wrong letter breaks its checksum.",
    )
