"""Routes of egress: a sandbox's rules, why something is allowed or not, and what was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from starlette.responses import Response

from sandboxer.access.egress.policy import Allow, Explained
from sandboxer.access.egress.rules import Action, Injection, Limits, Policy, Rule
from sandboxer.access.egress.use_cases import AccountShown, Shown
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, bind
from sandboxer.wire import egress as wire
from sandboxer.wire.operations import access as operations
from sandboxer.wire.operations.sandboxes import SandboxPath


async def show(asked: Asked[SandboxPath]) -> Response:
    return _answer(await asked.platform.access.egress.show(asked.path.sandbox_id, asked.caller))


async def replace_all(asked: AskedPathBody[SandboxPath, wire.ReplaceEgress]) -> Response:
    wanted = Policy(
        default=Action(asked.body.default),
        rules=tuple(map(_rule, asked.body.rules)),
        secrets=tuple(map(_injection, asked.body.secrets)),
        limits=_limits(asked.body.limits),
    )
    egress = asked.platform.access.egress
    return _answer(
        await egress.change(asked.path.sandbox_id, asked.caller, lambda _: wanted, version=asked.body.version)
    )


async def change(asked: AskedPathBody[SandboxPath, wire.ChangeEgress]) -> Response:
    rules_of = _changing(asked.body.add, asked.body.remove)

    def changed(policy: Policy) -> Policy:
        return replace(
            policy,
            default=policy.default if asked.body.default is None else Action(asked.body.default),
            rules=rules_of(policy.rules),
            secrets=policy.secrets
            if asked.body.secrets is None
            else tuple(map(_injection, asked.body.secrets)),
            limits=policy.limits if asked.body.limits is None else _limits(asked.body.limits),
        )

    egress = asked.platform.access.egress
    return _answer(
        await egress.change(asked.path.sandbox_id, asked.caller, changed, version=asked.body.version)
    )


async def explain(asked: AskedPathBody[SandboxPath, wire.ExplainEgress]) -> wire.EgressExplained:
    egress = asked.platform.access.egress
    return _explained(
        await egress.explain(asked.path.sandbox_id, asked.caller, asked.body.url, asked.body.method)
    )


async def denials(asked: Asked[SandboxPath]) -> wire.EgressDenialList:
    found = await asked.platform.access.egress.denials(asked.path.sandbox_id, asked.caller)
    return wire.EgressDenialList(denials=[wire.EgressDenial(**asdict(one)) for one in found])


async def show_account(asked: Asked) -> Response:
    return _account(await asked.platform.access.egress.account.show(asked.caller))


async def replace_account(asked: AskedBody[wire.ReplaceAccountEgress]) -> Response:
    wanted = tuple(map(_rule, asked.body.rules))
    rules = asked.platform.access.egress.account
    return _account(await rules.change(asked.caller, lambda _: wanted, version=asked.body.version))


async def change_account(asked: AskedBody[wire.ChangeAccountEgress]) -> Response:
    rules = asked.platform.access.egress.account
    changed = _changing(asked.body.add, asked.body.remove)
    return _account(await rules.change(asked.caller, changed, version=asked.body.version))


async def explain_account(
    asked: AskedBody[wire.ExplainEgress],
) -> wire.EgressExplained:
    rules = asked.platform.access.egress.account
    return _explained(await rules.explain(asked.caller, asked.body.url, asked.body.method))


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
    """Returns what makes a rule unique; notes beside it do not count."""
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
    return from_record(wire.RuleFacts, rule, ports=list(rule.ports), methods=list(rule.methods))


def _explained(explained: Explained) -> wire.EgressExplained:
    verdict = explained.verdict
    is_allowed = isinstance(verdict, Allow)
    if isinstance(verdict, Allow):
        reason, is_opened = "allowed_by_rule" if verdict.rule else "default", verdict.is_opened
        by = f"the rule `{verdict.rule.words()}`" if verdict.rule else "the default"
        why = f"{by} allows it; its address must be a public one"
    else:
        reason, why, is_opened = verdict.reason, verdict.why, False
    return wire.EgressExplained(
        url=explained.ask.url(),
        method=explained.ask.method or "",
        allowed=is_allowed,
        reason=reason,
        why=why,
        rule=None if verdict.rule is None else verdict.rule.words(),
        tls_opened=is_opened,
    )


BINDINGS = (
    bind(operations.GET_EGRESS, show),
    bind(operations.REPLACE_EGRESS, replace_all),
    bind(operations.CHANGE_EGRESS, change),
    bind(operations.EXPLAIN_EGRESS, explain),
    bind(operations.LIST_EGRESS_DENIALS, denials),
    bind(operations.GET_ACCOUNT_EGRESS, show_account),
    bind(operations.REPLACE_ACCOUNT_EGRESS, replace_account),
    bind(operations.CHANGE_ACCOUNT_EGRESS, change_account),
    bind(operations.EXPLAIN_ACCOUNT_EGRESS, explain_account),
)
