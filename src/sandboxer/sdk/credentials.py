"""Who a client is, how it signs, and whom it believes.

Where a client finds its key: arguments, then the environment, then the context in use (`sdk.contexts`), then
an `owner.json`. Where it may read none, a user of the platform's machine needs none if the operator opened a
socket to a group (unix:///run/…).

    SANDBOXER_URL          address of the platform; without it that in an owner.json, where one can be read
    SANDBOXER_PUBLIC_KEY   with SANDBOXER_SECRET_KEY: the key to sign with; one without the other is an error
    SANDBOXER_API_KEY      a bearer token (sk_…) instead of a key, for this host or over TLS
    SANDBOXER_CONTEXT      name of a context (`sandboxer login`) to use instead of the one in use
    SANDBOXER_CREDENTIALS  path of an owner.json, or of a key as `sandboxer key delegate --json` prints it
    SANDBOXER_STATE_DIR    the server's state folder, whose owner.json is taken (default /var/lib/sandboxer)

A client is not the server and must not need its settings, so it reads these few by itself.

Signature v2 as our clients use it: the few lines an SDK in any language has to repeat.

    v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}

HMAC-SHA256 under the secret key, lower-case hex. Everything is decided before the first body byte is sent, so
the server can refuse a stranger without reading what he brings.

Whose certificates a client believes: the system's and SSL_CERT_FILE's (an operator's own authority), and
those that come with Python packages, for systems that have none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import certifi

from sandboxer.sdk.contexts import LOCAL, Contexts, OwnFiles
from sandboxer.sdk.errors import MissingCredentials

DEFAULT_URL = "http://127.0.0.1:7777"
DEFAULT_STATE_DIR = "/var/lib/sandboxer"
# Where a platform of this machine is reached without a key, if its operator wants it.
DEFAULT_SOCKET = "/run/sandboxer/api.sock"
# The key of whoever has none: nothing is signed with it, since a wrong signature is refused everywhere.
NOBODY = "nobody"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls, and where."""

    public_key: str
    secret_key: str = field(repr=False)
    url: str = "http://127.0.0.1:7777"
    # Sent instead of signing.
    bearer_token: str | None = field(default=None, repr=False)


def find_credentials(
    *,
    url: str | None = None,
    public_key: str | None = None,
    secret_key: str | None = None,
    api_key: str | None = None,
    owner_file: Path | str | None = None,
    is_optional: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Credentials:
    """The first complete key found. An explicit owner file beats the environment's key.

    `is_optional`: somebody with a wallet needs none, and must not borrow the owner's by chance.
    """
    env = os.environ if environ is None else environ
    url = url or env.get("SANDBOXER_URL")
    named = env.get("SANDBOXER_CONTEXT")
    state_dir = Path(env.get("SANDBOXER_STATE_DIR") or DEFAULT_STATE_DIR)
    nearest = Path(env.get("SANDBOXER_CREDENTIALS") or state_dir / "owner.json")
    if owner_file is None and not (public_key or secret_key or api_key):
        public_key, secret_key = env.get("SANDBOXER_PUBLIC_KEY"), env.get("SANDBOXER_SECRET_KEY")
        api_key = env.get("SANDBOXER_API_KEY")
    if public_key or secret_key or api_key:
        return _given(public_key, secret_key, api_key, url or _address_in(nearest))
    # What the environment names, or the person did by `login`: but not where a folder or a file is named.
    is_elsewhere = owner_file is not None or bool(
        env.get("SANDBOXER_CREDENTIALS") or env.get("SANDBOXER_STATE_DIR")
    )
    if named or not (is_elsewhere or is_optional):
        found = _from_context(Contexts(own_files(env)), named, url)
        if found is not None:
            return found
    if owner_file is None and is_optional:
        return Credentials("", "", url or _address_in(nearest))
    if owner_file is None and (socket := _socket_for(url, nearest, env)) is not None:
        return Credentials("", "", socket)
    return _from_owner_file(Path(owner_file or nearest), url, state_dir)


def _socket_for(url: str | None, nearest: Path, env: Mapping[str, str]) -> str | None:
    """Returns the socket that was named, or the usual one where nothing was named and no key can be read."""
    if url is not None:
        return url if socket_of(url) is not None else None
    is_named = env.get("SANDBOXER_CREDENTIALS") or env.get("SANDBOXER_STATE_DIR")
    if is_named or os.access(nearest, os.R_OK) or not os.access(DEFAULT_SOCKET, os.W_OK):
        return None
    return f"unix://{DEFAULT_SOCKET}"


def leading_here(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns what of the environment leads to a platform and a key, for a program that gets one of its own.

    Keys themselves stay out: this may be printed into a file.
    """
    env = os.environ if environ is None else environ
    paths = ("SANDBOXER_CONFIG_DIR", "SANDBOXER_CREDENTIALS", "SANDBOXER_STATE_DIR")
    found = {name: env[name] for name in ("SANDBOXER_CONTEXT", "SANDBOXER_URL", *paths) if env.get(name)}
    return found | {name: os.path.abspath(found[name]) for name in paths if name in found}


def own_files(environ: Mapping[str, str] | None = None) -> OwnFiles:
    """Returns the small files of the person who runs this, whose environment this is."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or "~").expanduser()
    above = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    return OwnFiles(Path(env.get("SANDBOXER_CONFIG_DIR") or above / "sandboxer"))


def choose_context(name: str) -> None:
    """Uses this context in this process, whatever key its environment has."""
    for other in ("URL", "PUBLIC_KEY", "SECRET_KEY", "API_KEY", "CREDENTIALS", "STATE_DIR"):
        os.environ.pop(f"SANDBOXER_{other}", None)
    os.environ["SANDBOXER_CONTEXT"] = name


def _from_context(contexts: Contexts, named: str | None, url: str | None) -> Credentials | None:
    """The key of a context, for its own address alone: whoever says another address does not mean it."""
    name = named or contexts.current
    if name == LOCAL:
        return None
    kept = contexts.get(name)
    if url is not None and url.rstrip("/") != kept.url:
        if named is None:
            return None
        raise MissingCredentials(
            f"The key of context {name} is for {kept.url}, not for {url}.",
            next_step="Leave out the address, or the context.",
        )
    kept = kept.opened()
    if kept.public_key:
        return Credentials(kept.public_key, kept.secret, kept.url)
    return Credentials("", "", kept.url, kept.secret)


def _given(public_key: str | None, secret_key: str | None, api_key: str | None, url: str) -> Credentials:
    """What was given must be whole: with half of it, the owner's key would be taken instead, unnoticed."""
    if api_key and not (public_key or secret_key):
        return Credentials("", "", url, api_key)
    if public_key and secret_key and not api_key:
        return Credentials(public_key, secret_key, url)
    given = [
        name
        for name, value in (("public key", public_key), ("secret key", secret_key), ("API key", api_key))
        if value
    ]
    raise MissingCredentials(
        f"Only a {given[0]} was given." if len(given) == 1 else f"A {' and a '.join(given)} were given.",
        next_step="Set SANDBOXER_PUBLIC_KEY and SANDBOXER_SECRET_KEY, or SANDBOXER_API_KEY alone.",
    )


def _address_in(path: Path) -> str:
    """Who has a key of his own beside the server's state folder means that server, on whatever port."""
    try:
        return str(json.loads(path.read_text()).get("url") or DEFAULT_URL)
    except (OSError, ValueError, AttributeError):
        return DEFAULT_URL


def _from_owner_file(path: Path, url: str | None, state_dir: Path) -> Credentials:
    try:
        content = json.loads(path.read_text())
        # A key as `sandboxer key delegate --json` prints it says no address.
        address = url or str(content.get("url") or _address_in(state_dir / "owner.json"))
        return Credentials(str(content["public_key"]), str(content["secret_key"]), address)
    except FileNotFoundError:
        raise MissingCredentials(f"No key was given, and {path} does not exist.") from None
    except PermissionError:
        raise MissingCredentials(
            f"No key was given, and {path} is not readable for this user.",
            next_step="Run as the user who started the platform, or ask its operator for a key of your own.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MissingCredentials(
            f"{path} is not an owner.json: {error}",
            next_step="Restore it from a backup, or name another file.",
        ) from None


def demand_private(credentials: Credentials) -> None:
    """Raises MissingCredentials for a bearer token that others could read on its way: the platform refuses
    it, but only when it is too late.
    """
    url = urlsplit(credentials.url)
    if credentials.bearer_token is None or url.scheme != "http" or _is_this_host(url.hostname or ""):
        return
    raise MissingCredentials(
        f"A bearer token would go to {credentials.url} for everybody on its way to read.",
        next_step="Use https://, or SANDBOXER_PUBLIC_KEY and SANDBOXER_SECRET_KEY: a key is never sent.",
    )


def _is_this_host(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def socket_of(url: str) -> str | None:
    """Returns the file of an address like unix:///run/sandboxer/api.sock; None for every other."""
    return url.removeprefix("unix://") if url.startswith("unix://") else None


def new_nonce() -> str:
    """24 characters of `[A-Za-z0-9_-]`; works once."""
    return secrets.token_urlsafe(18)


def canonical_v2(timestamp: int, nonce: str, method: str, target: str, content_sha256: str) -> str:
    """Returns the text that is signed."""
    return f"v2:{timestamp}:{nonce}:{method}:{target}:{content_sha256}"


def signed_headers(
    credentials: Credentials,
    method: str,
    target: str,
    content_sha256: str,
    *,
    timestamp: int,
    nonce: str,
) -> Mapping[str, str]:
    """The five headers of a signed request, or the one of a bearer token. `target` is the path with its
    query, byte for byte as sent.
    """
    if credentials.bearer_token is not None:
        return {"authorization": f"Bearer {credentials.bearer_token}"}
    canonical = canonical_v2(timestamp, nonce, method, target, content_sha256)
    signature = hmac.new(credentials.secret_key.encode(), canonical.encode(), hashlib.sha256).hexdigest()
    return {
        "authorization": f"Bearer {credentials.public_key}",
        "x-timestamp": str(timestamp),
        "x-nonce": nonce,
        "x-content-sha256": content_sha256,
        "x-signature": signature,
    }


def trust_for(url: str) -> ssl.SSLContext | bool:
    """For httpx's `verify`. Without TLS nothing is loaded, which saves a client some 20 ms."""
    if not url.startswith("https:"):
        return False
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
