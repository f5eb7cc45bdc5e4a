"""The platform itself: keys, profiles, the host, and what its owner may ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire.capabilities import Capabilities
from sandboxer.wire.catalogue import ProfileList
from sandboxer.wire.host import Collected, Garbage, Host
from sandboxer.wire.keys import KeyList, KeyNode, KeyReport, NewDelegatedKey, NewKey
from sandboxer.wire.sandboxes import Expired, Reaped, StaleList


def capabilities() -> Call[Capabilities]:
    return Call(method="GET", target="/v1/capabilities", read=model(Capabilities))


def profiles() -> Call[ProfileList]:
    return Call(method="GET", target="/v1/profiles", read=model(ProfileList))


def host() -> Call[Host]:
    return Call(method="GET", target="/v1/host", read=model(Host))


def stale() -> Call[StaleList]:
    return Call(method="GET", target="/v1/host/stale", read=model(StaleList))


def reap_stale() -> Call[Reaped]:
    return Call(method="POST", target="/v1/host/reap-stale", read=model(Reaped))


def garbage() -> Call[Garbage]:
    return Call(method="GET", target="/v1/host/garbage", read=model(Garbage))


def collect_garbage(*, now: bool) -> Call[Collected]:
    where = target("/v1/host/collect-garbage", query={"now": now})
    return Call(method="POST", target=where, read=model(Collected))


def expire(*, apply: bool) -> Call[Expired]:
    where = target("/v1/sandboxes/expire", query={"apply": apply})
    return Call(method="POST", target=where, read=model(Expired))


def keys() -> Call[KeyList]:
    return Call(method="GET", target="/v1/keys", read=model(KeyList))


def create_key(name: str, account: str, *, accepts_v1: bool) -> Call[NewKey]:
    body, headers = json_body({"name": name, "account": account, "accepts_v1": accepts_v1})
    return Call(method="POST", target="/v1/keys", body=body, headers=headers, read=model(NewKey))


def revoke_key(public_key: str) -> Call[None]:
    return Call(method="DELETE", target=target("/v1/keys/{}", public_key), read=nothing)


def cut_key(wish: Mapping[str, Any]) -> Call[NewDelegatedKey]:
    body, headers = json_body({name: value for name, value in wish.items() if value is not None})
    where = "/v1/keys/delegated"
    return Call(method="POST", target=where, body=body, headers=headers, read=model(NewDelegatedKey))


def key_tree() -> Call[KeyNode]:
    return Call(method="GET", target="/v1/keys/tree", read=model(KeyNode))


def regenerate_key(public_key: str) -> Call[NewKey]:
    return Call(method="POST", target=target("/v1/keys/{}/regenerate", public_key), read=model(NewKey))


def suspend_key(public_key: str, *, why: str) -> Call[None]:
    body, headers = json_body({"why": why})
    where = target("/v1/keys/{}/suspend", public_key)
    return Call(method="POST", target=where, body=body, headers=headers, read=nothing)


def unsuspend_key(public_key: str) -> Call[None]:
    return Call(method="POST", target=target("/v1/keys/{}/unsuspend", public_key), read=nothing)


def set_key_expiry(public_key: str, expires_at: str | None) -> Call[None]:
    body, headers = json_body({"expires_at": expires_at})
    where = target("/v1/keys/{}/expiry", public_key)
    return Call(method="PUT", target=where, body=body, headers=headers, read=nothing)


def validate_key(public_key: str) -> Call[KeyReport]:
    body, headers = json_body({"public_key": public_key})
    return Call(method="POST", target="/v1/keys/validate", body=body, headers=headers, read=model(KeyReport))
