"""Says what to do after an error in the words of the door that the caller came through.

The platform writes a next step for HTTP, where an act is a method and a path (`POST /v1/quotes`). `ACTS` has
the same act as a command and as a call of the Python client; what it names (an id) is carried over. Where
whole sentences differ, because a header has no meaning elsewhere, `STEPS` has them by the error's code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote


class Door(StrEnum):
    HTTP = "http"
    CLI = "cli"
    SDK = "sdk"


class Words(NamedTuple):
    cli: str
    sdk: str


class Sentence(NamedTuple):
    # As `kernel.errors` has it.
    http: str
    cli: str
    sdk: str


# A path's parameters are `{0}`, `{1}`; where a text does not know one, its name stands there: ID, ACCOUNT.
ACTS: Mapping[str, Words] = {
    "GET /v1/sandboxes": Words("sandboxer list", "client.list()"),
    "GET /v1/sandboxes/{sandbox_id}": Words("sandboxer show {0}", 'client.get("{0}")'),
    "POST /v1/sandboxes": Words("sandboxer create", "client.create()"),
    "DELETE /v1/sandboxes/{sandbox_id}": Words("sandboxer delete {0}", 'client.sandbox("{0}").destroy()'),
    "POST /v1/sandboxes/{sandbox_id}/recreate": Words(
        "sandboxer recreate {0}", 'client.sandbox("{0}").recreate()'
    ),
    "POST /v1/sandboxes/{sandbox_id}/exec": Words(
        "sandboxer exec {0} -- COMMAND", 'client.sandbox("{0}").exec("COMMAND")'
    ),
    "GET /v1/sandboxes/{sandbox_id}/processes": Words(
        "sandboxer process list {0}", 'client.sandbox("{0}").processes.list()'
    ),
    "GET /v1/sandboxes/{sandbox_id}/files": Words(
        "sandboxer file list {0} FOLDER", 'client.sandbox("{0}").files.list("FOLDER")'
    ),
    "POST /v1/sandboxes/{sandbox_id}/files/remove": Words(
        "sandboxer file delete {0} PATH --recursive",
        'client.sandbox("{0}").files.remove("PATH", recursive=True)',
    ),
    "GET /v1/sandboxes/{sandbox_id}/files/tar": Words(
        "sandboxer cp {0}:FOLDER .", 'client.sandbox("{0}").files.tar_out("FOLDER")'
    ),
    "POST /v1/sandboxes/{sandbox_id}/thaw": Words("sandboxer thaw {0}", 'client.sandbox("{0}").thaw()'),
    "POST /v1/sandboxes/{sandbox_id}/resume": Words("sandboxer resume {0}", 'client.sandbox("{0}").resume()'),
    "PATCH /v1/sandboxes/{sandbox_id}/ttl": Words(
        "sandboxer update {0} --ttl 2h", 'client.sandbox("{0}").extend_ttl("2h")'
    ),
    "PATCH /v1/sandboxes/{sandbox_id}/egress": Words(
        "sandboxer egress allow {0} HOST", 'client.sandbox("{0}").egress.allow("HOST")'
    ),
    "PATCH /v1/egress": Words("sandboxer egress show account", "client.egress.show()"),
    "POST /v1/sandboxes/{sandbox_id}/previews": Words(
        "sandboxer preview create {0} PORT", 'client.sandbox("{0}").previews.create(PORT)'
    ),
    "GET /v1/profiles": Words("sandboxer profile list", "client.profiles()"),
    "GET /v1/host": Words("sandboxer inspect host", "client.host.report()"),
    "GET /v1/capabilities": Words("sandboxer capabilities", "client.capabilities()"),
    "GET /v1/languages": Words("sandboxer language list", "client.languages.list()"),
    "GET /v1/images": Words("sandboxer image list", "client.images.list()"),
    "GET /v1/images/{image_id}": Words("sandboxer image show {0}", 'client.images.get("{0}")'),
    "DELETE /v1/images/{image_id}": Words("sandboxer image delete {0}", 'client.images.remove("{0}")'),
    "GET /v1/snapshots": Words("sandboxer snapshot list", "client.snapshots.list()"),
    "GET /v1/snapshots/{snapshot_id}": Words("sandboxer snapshot show {0}", 'client.snapshots.get("{0}")'),
    "DELETE /v1/snapshots/{snapshot_id}": Words(
        "sandboxer snapshot delete {0}", 'client.snapshots.remove("{0}")'
    ),
    "POST /v1/snapshots/{snapshot_id}/clone": Words(
        "sandboxer snapshot clone {0}", 'client.snapshots.clone("{0}")'
    ),
    "GET /v1/volumes": Words("sandboxer volume list", "client.volumes.list()"),
    "GET /v1/volumes/{volume}": Words("sandboxer volume show {0}", 'client.volumes.get("{0}")'),
    "DELETE /v1/volumes/{volume}": Words("sandboxer volume delete {0}", 'client.volumes.remove("{0}")'),
    "POST /v1/volumes": Words("sandboxer volume create NAME", "client.volumes.create(NAME)"),
    "POST /v1/volumes/{volume}/restore": Words(
        "sandboxer volume restore {0} SNAPSHOT", 'client.volumes.restore("{0}", SNAPSHOT)'
    ),
    "GET /v1/secrets": Words("sandboxer secret list", "client.secrets.list()"),
    "PUT /v1/secrets/{name}": Words("sandboxer secret set {0}", 'client.secrets.set("{0}", VALUE)'),
    "GET /v1/jobs": Words("sandboxer job list", "client.jobs.list()"),
    "POST /v1/execute/async": Words("sandboxer run --async", "client.code.submit()"),
    "GET /v1/sessions": Words("sandboxer session list", "client.sessions.list()"),
    "GET /v1/sessions/{session_id}": Words("sandboxer session show {0}", 'client.sessions.get("{0}")'),
    "POST /v1/sessions": Words("sandboxer session create", "client.sessions.start()"),
    "POST /v1/sessions/{session_id}/restart": Words(
        "sandboxer session restart {0}", 'client.sessions.get("{0}").restart()'
    ),
    "GET /v1/services": Words("sandboxer service list", "client.services.list()"),
    "GET /v1/services/{service}/logs": Words("sandboxer service logs {0}", 'client.services.logs("{0}")'),
    "GET /v1/webhooks": Words("sandboxer webhook list", "client.webhooks.list()"),
    "GET /v1/keys": Words("sandboxer key list", "client.keys.list()"),
    "POST /v1/keys": Words("sandboxer key create NAME", "client.keys.create(NAME)"),
    "POST /v1/keys/delegated": Words("sandboxer key delegate NAME", "client.keys.delegate(NAME)"),
    "POST /v1/keys/{public_key}/bearer": Words("sandboxer key bearer {0}", "client.keys.issue_bearer()"),
    "GET /v1/ssh-keys": Words("sandboxer ssh-key list", "client.ssh.keys()"),
    "POST /v1/auth/session": Words("sandboxer wallet sign-in", "client.wallets.sign_in()"),
    "POST /v1/auth/wallets": Words("sandboxer wallet link", "client.wallets.link()"),
    "GET /v1/accounts/me": Words("sandboxer credit show", "client.account.me()"),
    "POST /v1/accounts/{account_id}/adjust": Words(
        "sandboxer credit add {0} SATS --reason …", 'client.send(calls.adjust_account("{0}", sats=SATS))'
    ),
    "GET /v1/pricing": Words("sandboxer pricing", "client.account.pricing()"),
    "POST /v1/quotes": Words("sandboxer quote", "client.account.quote()"),
    "GET /v1/payments": Words("sandboxer pay list", "client.payments.list()"),
    "POST /v1/sandboxes/{sandbox_id}/stop": Words("sandboxer stop {0}", 'client.sandbox("{0}").stop()'),
    "GET /v1/sandboxes/{sandbox_id}/egress": Words(
        "sandboxer egress show {0}", 'client.sandbox("{0}").egress.show()'
    ),
    "GET /v1/egress": Words("sandboxer egress show account", "client.egress.show()"),
    "GET /v1/sandboxes/{sandbox_id}/previews": Words(
        "sandboxer preview list {0}", 'client.sandbox("{0}").previews.list()'
    ),
    "GET /v1/sandboxes/{sandbox_id}/secrets": Words(
        "sandboxer secret list --sandbox {0}", 'client.sandbox("{0}").secrets.list()'
    ),
    "DELETE /v1/sandboxes/{sandbox_id}/secrets": Words(
        "sandboxer secret wipe {0}", 'client.sandbox("{0}").secrets.wipe()'
    ),
    "DELETE /v1/secrets/{name}": Words("sandboxer secret delete {0}", 'client.secrets.remove("{0}")'),
    "DELETE /v1/ssh-keys/{key_id}": Words("sandboxer ssh-key delete {0}", 'client.ssh.revoke_key("{0}")'),
    "GET /v1/keys/tree": Words("sandboxer key tree", "client.keys.tree()"),
    "DELETE /v1/keys/{public_key}": Words("sandboxer key delete {0}", 'client.keys.revoke("{0}")'),
    "POST /v1/keys/{public_key}/regenerate": Words(
        "sandboxer key rotate {0}", 'client.keys.regenerate("{0}")'
    ),
    "GET /v1/accounts": Words("sandboxer account list", "client.operator.accounts()"),
    "POST /v1/images/{image_id}/unlock": Words("sandboxer image unlock {0}", 'client.images.unlock("{0}")'),
    "POST /v1/images/{image_id}/transfer": Words(
        "sandboxer image transfer {0} ACCOUNT", 'client.images.transfer("{0}", ACCOUNT)'
    ),
    "POST /v1/services/{service}/redeploy": Words(
        "sandboxer service redeploy {0}", 'client.services.redeploy("{0}")'
    ),
    "DELETE /v1/services/{service}": Words("sandboxer service delete {0}", 'client.services.remove("{0}")'),
    "GET /v1/services/{service}/domains": Words(
        "sandboxer service domain list {0}", 'client.services.domains("{0}")'
    ),
    "POST /v1/sessions/{session_id}/interrupt": Words(
        "sandboxer session interrupt {0}", 'client.sessions.get("{0}").interrupt()'
    ),
    "GET /v1/webhooks/{webhook_id}/deliveries": Words(
        "sandboxer webhook deliveries {0}", 'client.webhooks.deliveries("{0}")'
    ),
    "GET /v1/auth/wallets": Words("sandboxer wallet list", "client.wallets.list()"),
    "POST /v1/gift-cards/balance": Words("sandboxer gift balance", "client.gift_cards.balance()"),
    "GET /v1/sandboxes/{sandbox_id}/terminals": Words(
        "sandboxer terminal list {0}", 'client.sandbox("{0}").terminal.list()'
    ),
    "GET /v1/refunds": Words("sandboxer refund list", "client.invoices.refunds()"),
    "GET /v1/gift-cards": Words("sandboxer gift list", "client.gift_cards.page()"),
    "GET /v1/invoices": Words("sandboxer invoice list", "client.invoices.page()"),
    "GET /openapi.json": Words("sandboxer --help", "help(client)"),
}
# Sentences that have other words at each door, by the code of the error.
STEPS: Mapping[str, Sentence] = {
    "error": Sentence(
        "Look at the facts of this error.",
        "Run it again with --json to see all of it.",
        "Look at `problem` of this error.",
    ),
    "refused": Sentence(
        "Change the request and try again.",
        "Change the command and run it again.",
        "Change the call and try again.",
    ),
    "invalid_request": Sentence(
        "Correct the named field and try again.",
        "Correct that and run it again; --help says what it takes.",
        "Correct that and try again.",
    ),
    "unauthenticated": Sentence(
        "Sign the request with a valid key; see docs/reference/auth.md.",
        "Name a key that holds: --state-dir DIR, or SANDBOXER_API_KEY.",
        "Give the client a key that holds: api_key=…, or public_key=… and secret_key=….",
    ),
    "forbidden": Sentence(
        "Use a key that may do this; GET /v1/accounts/me says what yours may.",
        "Use a key that may do this (sandboxer context use, or SANDBOXER_CREDENTIALS); sandboxer status says"
        " what yours may.",
        "Use a key that may do this; client.account.me() says what yours may.",
    ),
    "not_found": Sentence(
        "Check the id; list what exists.",
        "Check the name or id; `list` of every noun shows what there is.",
        "Check the name or id; list() of every noun returns what there is.",
    ),
    "conflict": Sentence(
        "Look at how it is now and decide again.",
        "Look at how it is now (`show` and `list` of every noun say so), then run it again.",
        "Look at how it is now and decide again.",
    ),
    "ambiguous": Sentence(
        "Name one of them by its id, or by more of it.",
        "Run it again with one of these ids; a few more letters of it are enough.",
        "Name one of them by its id; `fits` of this error lists them.",
    ),
    "unavailable": Sentence(
        "Retry later.",
        "Run it again in a while; sandboxer status says how the platform is.",
        "Call it again in a while.",
    ),
    "provision_failed": Sentence(
        "Retry; if it persists, ask the operator to run `sandboxer doctor`.",
        "Run it again; if it fails again, sandboxer doctor says what this host lacks.",
        "Call it again; if it fails again, the operator runs `sandboxer doctor`.",
    ),
    "no_capacity": Sentence(
        "Retry when other sandboxes have ended, ask for less, or remove one (GET /v1/sandboxes).",
        "Ask for less, or remove a sandbox (sandboxer list, sandboxer delete ID); sandboxer status says what"
        " is free.",
        "Ask for less, or remove a sandbox (client.list()) and call it again.",
    ),
    "image_build_failed": Sentence(
        "Remove the named obstacle and build again.",
        "Remove that obstacle and build again: sandboxer image build.",
        "Remove that obstacle and build again.",
    ),
    "chain_unavailable": Sentence(
        "Retry later; payments already sent are not lost.",
        "Run it again later; what was paid is not lost: sandboxer pay list.",
        "Call it again later; what was paid is not lost.",
    ),
    "superseded": Sentence(
        "Retry: the server that took over answers at the same address once the operator points it there.",
        "Run it again: the server that took over answers at the same address once the operator points it"
        " there.",
        "Call it again: the server that took over answers at the same address once the operator points it"
        " there.",
    ),
    "idempotency_conflict": Sentence(
        "Use a new Idempotency-Key for a new request.",
        "Run the command again: it is sent as another request then.",
        "Use a new idempotency_key.",
    ),
    "payment_needed": Sentence(
        "Pay in one of the offered ways, or sign in with an account that has credit (see `sign_in`).",
        "Use a key of an account with a balance, or buy one: sandboxer pay top-up.",
        "Give the client a payer, or the key of an account with a balance.",
    ),
    "payment_refused": Sentence(
        "Pay one of the offers in `accepts`, or see GET /v1/payments for what became of it.",
        "Pay again; sandboxer pay list says what became of this payment.",
        "Pay again; client.payments.list() says what became of this payment.",
    ),
    "second_proof_needed": Sentence(
        "Sign the message with the named factor and repeat the request with the answer.",
        "Run it again with --wallet FILE.",
        "Give the client `confirm=…`.",
    ),
    "work_needed": Sentence(
        "Find a text for which SHA-256 of `<challenge>:<text>` begins with `bits` zero bits, and"
        " repeat the request with both as `work`; the SDK and the command line do so by themselves.",
        "Run it again: the puzzle is solved by itself.",
        "Call it again: the puzzle is solved by itself.",
    ),
    "too_large": Sentence(
        "Send less, or use a streaming route.",
        "Send less; sandboxer cp copies files of any size.",
        "Send less, or write it as a file.",
    ),
    "over_budget": Sentence(
        "Wait until some of your requests are answered, ask for less, or use a streaming route.",
        "Wait until some of your commands have ended, or ask for less.",
        "Wait until some of your calls are answered, or ask for less.",
    ),
    "disk_full": Sentence(
        "Remove files, or create a sandbox with more disk_mb.",
        "Remove files, or create a sandbox with a larger --disk.",
        "Remove files, or create a sandbox with more disk_mb.",
    ),
    "fate_unknown": Sentence(
        "Repeat the request with the same Idempotency-Key: what was done is not done twice."
        " Without one, look before you repeat it.",
        "Look whether it was done before you run it again.",
        "Repeat the call with the same idempotency_key, or look whether it was done.",
    ),
    "broken": Sentence(
        "Tell the operator, with the x-request-id of the answer.",
        "Tell the operator, with the id of the request.",
        "Tell the operator, with `request_id`.",
    ),
}
# What lists the things that an error did not find.
LISTS: Mapping[str, str] = {
    "sandbox": "GET /v1/sandboxes",
    "snapshot": "GET /v1/snapshots",
    "image": "GET /v1/images",
    "volume": "GET /v1/volumes",
    "secret": "GET /v1/secrets",
    "job": "GET /v1/jobs",
    "session": "GET /v1/sessions",
    "service": "GET /v1/services",
    "webhook": "GET /v1/webhooks",
    "key": "GET /v1/keys",
    "SSH key": "GET /v1/ssh-keys",
    "payment": "GET /v1/payments",
    "language": "GET /v1/languages",
    "profile": "GET /v1/profiles",
    "process": "GET /v1/sandboxes/{sandbox_id}/processes",
    "terminal": "GET /v1/sandboxes/{sandbox_id}/terminals",
    "preview": "GET /v1/sandboxes/{sandbox_id}/previews",
    "secret in this sandbox": "GET /v1/sandboxes/{sandbox_id}/secrets",
    "domain": "GET /v1/services/{service}/domains",
    "delivery": "GET /v1/webhooks/{webhook_id}/deliveries",
    "delegated key": "GET /v1/keys/tree",
    "wallet": "GET /v1/auth/wallets",
    "account": "GET /v1/accounts",
    "invoice": "GET /v1/invoices",
    "refund": "GET /v1/refunds",
    "gift card": "GET /v1/gift-cards",
}
# Fields that the command line has as options of another name.
OPTIONS: Mapping[str, str] = {
    "resources.vcpus": "--cpus",
    "resources.memory_mb": "--memory",
    "resources.disk_mb": "--disk",
    "resources.pids": "--pids",
    "inspect=warn": "--despite-findings",
}
_ROUTE = re.compile(r"`?\b(GET|POST|PUT|PATCH|DELETE) (/(?:v1/|openapi)[\w./{}*…%-]*[\w}*…])`?")
# What only a request of HTTP has: no command and no call takes it.
_HEADER = re.compile(r"\b(Authorization|Idempotency-Key|PAYMENT-SIGNATURE|SIGN-IN-WITH-X|X-[A-Z][\w-]+)\b")
_SENTENCE = re.compile(r"(?<=[.!?]) +")
_SEGMENT = r"([\w.*…%-]+|\{\w+\})"


def in_words_of(door: Door, text: str) -> str:
    """Returns the text with every act, and every field that is an option, as this door knows it."""
    if door is Door.HTTP:
        return text
    for field, option in OPTIONS.items() if door is Door.CLI else ():
        text = text.replace(field, option)
    return _ROUTE.sub(lambda found: _act(door, found[0], f"{found[1]} {found[2]}"), text)


def next_step(door: Door, code: str, said: str) -> str:
    """Returns the next step that the platform said for an error. Where it said only what it says of every
    error of this code, or what only a request of HTTP can do, this door's own sentence stands.
    """
    retold = in_words_of(door, said)
    if (words := STEPS.get(code)) is None or door is Door.HTTP:
        return retold
    if said != words.http and not _is_http(retold):
        return retold
    return words.cli if door is Door.CLI else words.sdk


def retold(door: Door, text: str) -> str:
    """Returns what a platform said of an error, with its next step in one text, in the words of a door. A
    sentence that only a request of HTTP can follow is left out.
    """
    for words in STEPS.values() if door is not Door.HTTP else ():
        text = text.replace(words.http, words.cli if door is Door.CLI else words.sdk)
    sentences = _SENTENCE.split(in_words_of(door, text))
    if door is Door.HTTP:
        return " ".join(sentences)
    return " ".join([sentences[0], *(one for one in sentences[1:] if not _is_http(one))])


def _is_http(text: str) -> bool:
    return _HEADER.search(text) is not None or _ROUTE.search(text) is not None


def _act(door: Door, written: str, route: str) -> str:
    for pattern, words in _acts():
        if found := pattern.fullmatch(route):
            named = [_named(door, one) for one in found.groups()]
            text = (words.cli if door is Door.CLI else words.sdk).format(*named)
            return f"`{text}`" if written.startswith("`") else text
    return written


def _named(door: Door, said: str) -> str:
    if "{" in said:
        return said.strip("{}").removesuffix("_id").upper()
    return shlex.quote(unquote(said)) if door is Door.CLI and "%" in said else unquote(said)


@cache
def _acts() -> tuple[tuple[re.Pattern[str], Words], ...]:
    return tuple(
        (re.compile(re.sub(r"\\\{\w+\\\}", lambda _: _SEGMENT, re.escape(route))), words)
        for route, words in ACTS.items()
    )
