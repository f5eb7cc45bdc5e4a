"""The texts wallets are asked to sign: where, what for and until when, for those who read before signing."""

from __future__ import annotations

from sandboxer.identity.sessions.challenges import Challenge

_FIRST_LINES = {
    "session": "Sign this message to authenticate with sandboxer.",
    "link": "Sign this message to link this wallet to an account of sandboxer.",
}


def challenge_message(challenge: Challenge, domain: str) -> str:
    lines = [_FIRST_LINES[challenge.purpose], "", f"Domain: {domain}"]
    if challenge.account:
        lines.append(f"Account: {challenge.account}")
    lines += [f"Nonce: {challenge.nonce}", f"Expires: {int(challenge.expires_at.timestamp())}"]
    return "\n".join(lines)
