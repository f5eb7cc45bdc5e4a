"""Reads and checks Sign-in-with-X (CAIP-122), one message form for EVM (where it is EIP-4361), Stacks and
Bitcoin wallets.

So a wallet with credit proves who it is without paying again: for a session, or for a single request. Reading
is strict: what is read and written again must be the same text, or we understood another than was signed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sandboxer.identity.keys import Caller
from sandboxer.identity.sessions.challenges import Challenges
from sandboxer.identity.sessions.sessions import OpenedSession, WalletSessions
from sandboxer.identity.signatures.wallets import Wallet, checksummed, verify_message, wallet_of
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Unauthenticated
from sandboxer.kernel.values import value_class

_CHAINS = {"eip155": "Ethereum", "stacks": "Stacks", "bip122": "Bitcoin"}
_NAMESPACES = {name: namespace for namespace, name in _CHAINS.items()}
_FIRST = re.compile(r"([!-~]{1,255}) wants you to sign in with your (Ethereum|Stacks|Bitcoin) account:")
_NONCE = re.compile(r"[A-Za-z0-9]{8,64}")
_REFERENCE = re.compile(r"[-_a-zA-Z0-9]{1,32}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
_LONGEST = 8192
_MAX_RESOURCES = 20
_FUTURE = timedelta(seconds=60)
_LONGEST_LIFE = timedelta(minutes=10)
_HOW = "Take the fields of GET /v1/auth/siwx unchanged, put in your address, and sign the text."
_OPTIONAL = ("Expiration Time", "Not Before", "Request ID")


@value_class
class SiwxMessage:
    domain: str
    # As the wallet writes it; EVM addresses with their checksum.
    address: str
    uri: str
    namespace: str = "eip155"
    # CAIP-2 reference: for EVM the chain id.
    chain_id: str
    nonce: str
    # RFC 3339, kept as written: it is part of what was signed.
    issued_at: str
    expiration_time: str | None = None
    not_before: str | None = None
    request_id: str | None = None
    statement: str | None = None
    resources: tuple[str, ...] = ()
    version: str = "1"

    def text(self) -> str:
        lines = [
            f"{self.domain} wants you to sign in with your {_CHAINS[self.namespace]} account:",
            self.address,
            "",
        ]
        if self.statement is not None:
            lines += [self.statement, ""]
        else:
            lines.append("")
        lines += [
            f"URI: {self.uri}",
            f"Version: {self.version}",
            f"Chain ID: {self.chain_id}",
            f"Nonce: {self.nonce}",
            f"Issued At: {self.issued_at}",
        ]
        values = (self.expiration_time, self.not_before, self.request_id)
        lines += [
            f"{name}: {value}" for name, value in zip(_OPTIONAL, values, strict=True) if value is not None
        ]
        if self.resources:
            lines += ["Resources:", *(f"- {resource}" for resource in self.resources)]
        return "\n".join(lines)

    @property
    def wallet(self) -> Wallet:
        return wallet_of(f"{self.namespace}:{self.chain_id}:{self.address}")


def parse(text: str) -> SiwxMessage:
    """Parses a message. Raises Unauthenticated (malformed) for anything that `SiwxMessage.text` would not
    write.
    """
    lines = text.split("\n") if len(text) <= _LONGEST else []
    first = _FIRST.fullmatch(lines[0]) if len(lines) > 5 else None
    if first is None:
        raise _malformed("the first line is not `{domain} wants you to sign in with your … account:`")
    rest = lines[3:]
    statement = None
    if rest[0]:
        statement, rest = rest[0], rest[1:]
    fields, resources = _fields(rest[1:])
    try:
        made = SiwxMessage(
            domain=first[1],
            namespace=_NAMESPACES[first[2]],
            address=lines[1],
            statement=statement,
            uri=fields["URI"],
            version=fields["Version"],
            chain_id=fields["Chain ID"],
            nonce=fields["Nonce"],
            issued_at=fields["Issued At"],
            expiration_time=fields.get("Expiration Time"),
            not_before=fields.get("Not Before"),
            request_id=fields.get("Request ID"),
            resources=resources,
        )
    except KeyError as missing:
        raise _malformed(f"it lacks `{missing.args[0]}: …`") from None
    if made.text() != text:
        raise _malformed("its lines are not in the order and form of CAIP-122")
    return made


def from_header(value: str) -> tuple[SiwxMessage, str]:
    """Reads the x402 form (`SIGN-IN-WITH-X`): base64 of JSON with the fields and the signature."""
    try:
        said: Any = json.loads(base64.b64decode(value.encode("ascii"), validate=True))
        namespace, _, reference = _string(said["chainId"]).partition(":")
        made = SiwxMessage(
            domain=_string(said["domain"]),
            namespace=namespace,
            address=_string(said["address"]),
            statement=_optional(said, "statement"),
            uri=_string(said["uri"]),
            version=_string(said["version"]),
            chain_id=reference,
            nonce=_string(said["nonce"]),
            issued_at=_string(said["issuedAt"]),
            expiration_time=_optional(said, "expirationTime"),
            not_before=_optional(said, "notBefore"),
            request_id=_optional(said, "requestId"),
            resources=_strings(said.get("resources")),
        )
        # A line break in a field could say something else to the wallet than to us.
        if parse(made.text()) != made:
            raise ValueError
        return made, _string(said["signature"])
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise _malformed(
            "SIGN-IN-WITH-X is not base64 of a JSON object with the fields of CAIP-122"
        ) from None


def check(
    message: SiwxMessage, *, domain: str, now: datetime, uri: str | None = None, target: str | None = None
) -> Wallet:
    """Returns the wallet that claims to have written this for us, now; its signature is checked afterwards.

    `uri` is ours: the message's must be of the same origin. `target` is the path asked for, where the message
    serves one request: if it names resources, the path must be one of them.
    """
    if message.domain != domain or not _is_of(message.uri, domain, uri):
        raise _refused("other_domain", f"the message was not written for {domain}")
    _check_resources(message.resources, domain, uri, target)
    if message.version != "1":
        raise _malformed("its version is not 1")
    if _NONCE.fullmatch(message.nonce) is None or _REFERENCE.fullmatch(message.chain_id) is None:
        raise _malformed("its nonce or chain id is malformed")
    issued, expires = _moment(message.issued_at), _moment(message.expiration_time)
    if issued > now + _FUTURE or expires <= now or expires - issued > _LONGEST_LIFE:
        raise _refused("expired_message", "the message is not of this time, or is good for too long")
    if message.not_before is not None and _moment(message.not_before) > now:
        raise _refused("expired_message", "the message is not good yet")
    wallet = message.wallet
    if message.namespace == "eip155" and message.address != checksummed(message.address):
        raise _malformed("the address is not in its checksummed form (EIP-55)")
    return wallet


@dataclass(eq=False, repr=False)
class Siwx:
    sessions: WalletSessions
    challenges: Challenges
    clock: Clock
    _: KW_ONLY
    domain: str
    uri: str
    statement: str = "Sign in to sandboxer."

    def offer(self, resources: tuple[str, ...] = ()) -> dict[str, object]:
        """Returns the `info` of the sign-in-with-x extension, which a client completes and signs. It costs
        nothing: every 402 to a stranger has one.
        """
        made = self.challenges.seal("siwx")
        return {
            "domain": self.domain,
            "uri": self.uri,
            "version": "1",
            "nonce": made.nonce,
            "issuedAt": _text(self.clock.now()),
            "expirationTime": _text(made.expires_at),
            "statement": self.statement,
            "resources": list(resources[:_MAX_RESOURCES]),
        }

    async def sign_in(self, text: str, signature: str, *, network: str = "") -> OpenedSession:
        """Opens a session for the wallet that signed `text`."""
        return await self.sessions.open_for(await self._prove(parse(text), signature), network=network)

    async def sign_in_by_header(self, value: str) -> OpenedSession:
        return await self.sessions.open_for(await self._prove(*from_header(value)))

    async def identify(self, value: str, target: str | None = None) -> Caller:
        """Returns who sent this SIGN-IN-WITH-X header, for one request (to `target`) and without a
        session.
        """
        message, signature = from_header(value)
        return await self.sessions.identify(await self._prove(message, signature, target))

    async def _prove(self, message: SiwxMessage, signature: str, target: str | None = None) -> Wallet:
        # Taken before anything else is looked at: a nonce serves one try.
        await self.challenges.take("siwx", message.nonce)
        wallet = check(message, domain=self.domain, now=self.clock.now(), uri=self.uri, target=target)
        verify_message(wallet, message.text(), signature)
        return wallet


def _is_of(uri: str, domain: str, ours: str | None) -> bool:
    """Says whether a URI is on our host and, where we know our own address, of our scheme, without a user
    part.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    schemes = ("http", "https") if ours is None else (urlsplit(ours).scheme,)
    return parts.netloc == domain and parts.scheme in schemes


def _check_resources(resources: tuple[str, ...], domain: str, uri: str | None, target: str | None) -> None:
    """Raises if the message names resources and this is none of them: a signature for one thing must not
    open another.
    """
    if not all(_is_of(resource, domain, uri) for resource in resources):
        raise _refused("other_resource", f"it names resources that are not of {domain}")
    if not resources or target is None:
        return
    path = target.partition("?")[0]
    if not any(_covers(urlsplit(resource).path, path) for resource in resources):
        raise _refused("other_resource", "it was signed for other resources than this")


def _covers(granted: str, path: str) -> bool:
    root = granted.rstrip("/")
    return path == root or path.startswith(root + "/")


def _fields(lines: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    fields: dict[str, str] = {}
    for at, line in enumerate(lines):
        if line == "Resources:":
            resources = lines[at + 1 :]
            if len(resources) > _MAX_RESOURCES or not all(item.startswith("- ") for item in resources):
                raise _malformed("its resources are not a short list")
            return fields, tuple(item.removeprefix("- ") for item in resources)
        name, _, value = line.partition(": ")
        if name in fields:
            raise _malformed(f"{name} appears twice")
        fields[name] = value
    return fields, ()


def _moment(text: str | None) -> datetime:
    if text is None or _MOMENT.fullmatch(text) is None:
        raise _malformed("it needs Issued At and Expiration Time, in RFC 3339")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _malformed("a moment in it does not exist") from None


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | None):
        raise TypeError
    return tuple(_string(item) for item in value or ())


def _optional(said: dict[str, object], name: str) -> str | None:
    """Reads an optional field. Some clients write an empty text for what they leave out."""
    return _string(said[name]) if said.get(name) else None


def _malformed(why: str) -> Unauthenticated:
    return _refused("malformed_message", why)


def _refused(reason: str, why: str) -> Unauthenticated:
    return Unauthenticated(why=f"the sign-in message does not hold: {why}", reason=reason, hint=_HOW)
