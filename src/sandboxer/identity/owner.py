"""Makes the owner's key before the server answers anything. Whoever can read `owner.json` owns the
platform.
"""

from __future__ import annotations

import json
from pathlib import Path

from sandboxer.identity.keys import OWNER_ACCOUNT, Keys, NewKey, generate, is_public_key, is_secret_key
from sandboxer.identity.seal import replace_private_file
from sandboxer.kernel.errors import Broken


async def ensure_owner(keys: Keys, path: Path, *, url: str) -> str:
    """Makes file and database agree on the owner's key; returns its public half. Safe to repeat after a
    crash.

    The file wins if it names a key the database lacks (the database is new), the database if the file is
    gone. The owner's key takes v1 signatures too, so that existing clients work on the first day.
    """
    owner = _read(path)
    if owner is None:
        known = await keys.owner()
        if known is None:
            owner = generate(OWNER_ACCOUNT, "owner", accepts_v1=True)
        else:
            owner = _owner(known.public_key, known.secret.decode())
    # Database first: a file must never promise a key that nobody knows.
    await keys.adopt_owner(owner)
    found = await keys.find(owner.public_key)
    if found is None or found.secret != owner.secret_key.encode() or not found.caller.is_owner:
        raise Broken(why=f"{path.name} names a key that the database knows otherwise; move the file away")
    content = {"public_key": owner.public_key, "secret_key": owner.secret_key, "url": url}
    text = json.dumps(content, indent=2) + "\n"
    if not path.exists() or path.read_text("utf-8") != text:
        replace_private_file(path, text)
    # Someone may have copied it about with another mode.
    path.chmod(0o600)
    return owner.public_key


def _read(path: Path) -> NewKey | None:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
        public_key, secret_key = content["public_key"], content["secret_key"]
        if not (is_public_key(public_key) and is_secret_key(secret_key)):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        # `from None`: the parser's message would carry parts of the file into a log.
        raise Broken(
            why=f"{path.name} is not an owner's file; move it away to have it written anew"
        ) from None
    return _owner(public_key, secret_key)


def _owner(public_key: str, secret_key: str) -> NewKey:
    return NewKey(
        public_key=public_key, secret_key=secret_key, account=OWNER_ACCOUNT, name="owner", accepts_v1=True
    )
