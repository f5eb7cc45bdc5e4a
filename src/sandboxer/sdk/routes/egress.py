"""What a sandbox, or all of an account, may reach outside."""

from __future__ import annotations

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import model
from sandboxer.wire import egress as wire

_WHERE = "/v1/sandboxes/{}/egress"
_ACCOUNT = "/v1/egress"


def show(sandbox_id: str) -> Call[wire.Egress]:
    return Call(method="GET", target=target(_WHERE, sandbox_id), read=model(wire.Egress))


def change(sandbox_id: str, method: str, wanted: dict[str, object]) -> Call[wire.Egress]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    where = target(_WHERE, sandbox_id)
    return Call(method=method, target=where, body=body, headers=headers, read=model(wire.Egress))


def explain(sandbox_id: str, url: str, method: str) -> Call[wire.EgressExplained]:
    body, headers = json_body({"url": url, "method": method})
    where = target(_WHERE + "/explain", sandbox_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.EgressExplained))


def denials(sandbox_id: str) -> Call[wire.EgressDenialList]:
    where = target(_WHERE + "/denials", sandbox_id)
    return Call(method="GET", target=where, read=model(wire.EgressDenialList))


def show_account() -> Call[wire.AccountEgress]:
    return Call(method="GET", target=_ACCOUNT, read=model(wire.AccountEgress))


def change_account(method: str, wanted: dict[str, object]) -> Call[wire.AccountEgress]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    return Call(method=method, target=_ACCOUNT, body=body, headers=headers, read=model(wire.AccountEgress))


def explain_account(url: str, method: str) -> Call[wire.EgressExplained]:
    body, headers = json_body({"url": url, "method": method})
    where = _ACCOUNT + "/explain"
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.EgressExplained))
