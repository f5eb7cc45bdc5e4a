"""Signing in with a wallet: challenges, sessions, linked wallets, the genesis gate."""

from typing import Annotated, Any

from pydantic import Field

from sandboxer.wire.words import Answer, Moment, Request

Nonce = Annotated[str, Field(min_length=1, max_length=200, description="From the challenge.")]
Signature = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4096,
        description="As the wallet gives it: hex for EVM and Stacks, base 64 for Bitcoin.",
    ),
]
Address = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="A wallet: bare, or as CAIP-10.",
        examples=["eip155:1:0xd8da6bf26964af9d7eed9e03e53415d37aa96045"],
    ),
]


class SessionChallenge(Answer):
    nonce: str
    message: Annotated[str, Field(description="Sign exactly this text.")]
    expires_at: Moment


class OpenSession(Request):
    nonce: Nonce
    signature: Signature
    address: Annotated[
        Address | None, Field(description="Needed for wallets other than EVM, whose signatures name them.")
    ] = None


class Session(Answer):
    token: Annotated[
        str, Field(repr=False, description="Send it as `Authorization: Bearer …`; sign nothing else.")
    ]
    address: str
    account: str
    expires_at: Moment


class SiwxOffer(Answer):
    """What a client completes with address and chain, and signs (CAIP-122)."""

    domain: str
    uri: str
    version: str
    nonce: str
    issuedAt: str
    expirationTime: str
    statement: str
    resources: list[str]


class SignIn(Request):
    message: Annotated[str, Field(min_length=1, max_length=8192, description="The signed text.")]
    signature: Signature


class LinkWallet(Request):
    nonce: Nonce
    address: Address
    signature: Signature


class Wallet(Answer):
    address: Annotated[str, Field(description="CAIP-10.")]
    created_at: Moment
    revoked_at: Moment | None = None


class WalletList(Answer):
    wallets: list[Wallet]


class SessionsEnded(Answer):
    ended: Annotated[int, Field(description="How many sessions were open.")]


class GenesisChallenge(Answer):
    nonce: str
    account: str
    btc_message: Annotated[str, Field(description="Fill in {btc}, {stx} and {timestamp}, then sign.")]
    sip018_domain: dict[str, Any]
    sip018_message: dict[str, str]
    expires_at: Moment
