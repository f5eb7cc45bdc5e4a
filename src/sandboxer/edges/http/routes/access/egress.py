"""Egress of a sandbox: its rules, why something is allowed or not, and what was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.egress.account_rules import AccountShown
from sandboxer.access.egress.asking import Explained
from sandboxer.access.egress.decision import Allow
from sandboxer.access.egress.rules import Action, Injection, Limits, Policy, Rule
from sandboxer.access.egress.use_cases import Shown
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire import egress as wire
from sandboxer.wire.words import SandboxId

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/egress", tags=["egress"])
account_router = APIRouter(prefix="/v1/egress", tags=["egress"])


@router.get(
    "",
    operation_id="getEgress",
    response_model=wire.Egress,
    responses=failures(404, 409),
    summary="The rules that stand, and what went through",
)
async def show(request: Request, sandbox_id: SandboxId) -> Response:
    return _answer(await platform_of(request).access.egress.show(sandbox_id, caller(request)))


@router.put(
    "",
    operation_id="replaceEgress",
    response_model=wire.Egress,
    responses=failures(404, 409),
    summary="Other rules, at once; connections that they do not allow end",
)
async def replace_all(request: Request, sandbox_id: SandboxId, body: wire.ReplaceEgress) -> Response:
    wanted = Policy(
        default=Action(body.default),
        rules=tuple(map(_rule, body.rules)),
        secrets=tuple(map(_injection, body.secrets)),
        limits=_limits(body.limits),
    )
    egress = platform_of(request).access.egress
    return _answer(await egress.change(sandbox_id, caller(request), lambda _: wanted, version=body.version))


@router.patch(
    "",
    operation_id="changeEgress",
    response_model=wire.Egress,
    responses=failures(404, 409),
    summary="Add and take away rules, at once; connections that they do not allow end",
)
async def change(request: Request, sandbox_id: SandboxId, body: wire.ChangeEgress) -> Response:
    rules_of = _changing(body.add, body.remove)

    def changed(policy: Policy) -> Policy:
        return replace(
            policy,
            default=policy.default if body.default is None else Action(body.default),
            rules=rules_of(policy.rules),
            secrets=policy.secrets if body.secrets is None else tuple(map(_injection, body.secrets)),
            limits=policy.limits if body.limits is None else _limits(body.limits),
        )

    egress = platform_of(request).access.egress
    return _answer(await egress.change(sandbox_id, caller(request), changed, version=body.version))


@router.post(
    "/explain",
    operation_id="explainEgress",
    response_model=wire.EgressExplained,
    responses=failures(404, 409),
    summary="Would this be allowed, and by which rule? Asks nobody outside",
)
async def explain(request: Request, sandbox_id: SandboxId, body: wire.ExplainEgress) -> Response:
    egress = platform_of(request).access.egress
    return json_response(_explained(await egress.explain(sandbox_id, caller(request), body.url, body.method)))


@router.get(
    "/denials",
    operation_id="listEgressDenials",
    response_model=wire.EgressDenialList,
    responses=failures(404),
    summary="What it was refused lately; the same thing over and over is one entry",
)
async def denials(request: Request, sandbox_id: SandboxId) -> Response:
    found = await platform_of(request).access.egress.denials(sandbox_id, caller(request))
    return json_response(wire.EgressDenialList(denials=[wire.EgressDenial(**asdict(one)) for one in found]))


@account_router.get(
    "",
    operation_id="getAccountEgress",
    response_model=wire.AccountEgress,
    responses=failures(),
    summary="Rules that hold in all sandboxes of the account",
)
async def show_account(request: Request) -> Response:
    return _account(await platform_of(request).access.egress.account.show(caller(request)))


@account_router.put(
    "",
    operation_id="replaceAccountEgress",
    response_model=wire.AccountEgress,
    responses=failures(409),
    summary="Other rules for all sandboxes of the account, at once",
)
async def replace_account(request: Request, body: wire.ReplaceAccountEgress) -> Response:
    wanted = tuple(map(_rule, body.rules))
    rules = platform_of(request).access.egress.account
    return _account(await rules.change(caller(request), lambda _: wanted, version=body.version))


@account_router.patch(
    "",
    operation_id="changeAccountEgress",
    response_model=wire.AccountEgress,
    responses=failures(409),
    summary="Add and take away rules of all sandboxes of the account, at once",
)
async def change_account(request: Request, body: wire.ChangeAccountEgress) -> Response:
    rules = platform_of(request).access.egress.account
    changed = _changing(body.add, body.remove)
    return _account(await rules.change(caller(request), changed, version=body.version))


@account_router.post(
    "/explain",
    operation_id="explainAccountEgress",
    response_model=wire.EgressExplained,
    responses=failures(),
    summary="What do the account's rules alone say of this? Asks nobody outside",
)
async def explain_account(request: Request, body: wire.ExplainEgress) -> Response:
    rules = platform_of(request).access.egress.account
    return json_response(_explained(await rules.explain(caller(request), body.url, body.method)))


def _account(shown: AccountShown) -> Response:
    return json_response(
        wire.AccountEgress(
            version=shown.version, rules=list(map(_facts, shown.rules)), ended_connections=shown.ended
        )
    )


def _changing(
    add: Sequence[wire.Rule], remove: Sequence[wire.Rule]
) -> Callable[[tuple[Rule, ...]], tuple[Rule, ...]]:
    def changed(standing: tuple[Rule, ...]) -> tuple[Rule, ...]:
        gone = set(map(_key, map(_rule, remove)))
        rules = {_key(rule): rule for rule in standing if _key(rule) not in gone}
        for rule in map(_rule, add):
            rules.setdefault(_key(rule), rule)
        return tuple(rules.values())

    return changed


def _key(rule: Rule) -> Rule:
    """Two rules are the same whatever is noted beside them."""
    return replace(
        rule,
        host=rule.host.lower().removesuffix("."),
        ports=tuple(sorted(set(rule.ports), reverse=True)),
        methods=tuple(sorted(set(rule.methods))),
        note="",
    )


def _rule(body: wire.Rule) -> Rule:
    return Rule(
        action=Action(body.action),
        host=body.host,
        ports=tuple(body.ports),
        methods=tuple(body.methods),
        path=body.path,
        note=body.note,
    )


def _injection(body: wire.HeaderSecret) -> Injection:
    return Injection(host=body.host, header=body.header, secret=body.secret, form=body.form)


def _limits(body: wire.Limits) -> Limits:
    return Limits(max_bytes=body.max_bytes, bytes_per_s=body.bytes_per_s, connections=body.connections)


def _answer(shown: Shown) -> Response:
    policy = shown.policy.policy
    return json_response(
        wire.Egress(
            sandbox_id=shown.policy.subject,
            version=shown.policy.version,
            changed_at=shown.policy.changed_at,
            default=policy.default.value,
            rules=list(map(_facts, policy.rules)),
            secrets=[wire.HeaderSecretFacts(**asdict(one)) for one in policy.secrets],
            limits=wire.LimitFacts(**asdict(policy.limits)),
            sent_bytes=shown.traffic.sent,
            received_bytes=shown.traffic.received,
            open_connections=shown.open,
            ended_connections=shown.ended,
        )
    )


def _facts(rule: Rule) -> wire.RuleFacts:
    return wire.RuleFacts(
        action=rule.action.value,
        host=rule.host,
        ports=list(rule.ports),
        methods=list(rule.methods),
        path=rule.path,
        note=rule.note,
    )


def _explained(told: Explained) -> wire.EgressExplained:
    verdict = told.verdict
    is_allowed = isinstance(verdict, Allow)
    if isinstance(verdict, Allow):
        reason, is_opened = "allowed_by_rule" if verdict.rule else "default", verdict.is_opened
        by = f"the rule `{verdict.rule.words()}`" if verdict.rule else "the default"
        why = f"{by} allows it; its address must be a public one"
    else:
        reason, why, is_opened = verdict.reason, verdict.why, False
    return wire.EgressExplained(
        url=told.ask.url(),
        method=told.ask.method or "",
        allowed=is_allowed,
        reason=reason,
        why=why,
        rule=None if verdict.rule is None else verdict.rule.words(),
        tls_opened=is_opened,
    )
