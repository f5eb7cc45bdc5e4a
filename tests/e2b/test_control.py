"""The control plane, through E2B's own Python SDK."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from e2b.exceptions import SandboxNotFoundException, SecretException

from e2b import AuthenticationException, Sandbox, SandboxException, SandboxQuery, SandboxState, Secret
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import api_key_of, bearer_of
from sandboxer.wire.e2b.operations import OPERATIONS
from sandboxer.wire.operations.declaration import AnyOperation
from tests.support.cli import Cli
from tests.support.e2b import new_api_key
from tests.support.platforms import Up


def left(sandbox: Sandbox) -> float:
    return (sandbox.get_info().end_at - datetime.now(UTC)).total_seconds()


def test_one_is_made_looked_at_and_killed_once(api_key: str) -> None:
    sandbox = Sandbox.create(timeout=120, metadata={"userId": "u 1/ü"}, envs={"A": "b"})
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.sandbox_id.startswith("sbx-")
    assert info.template_id == "base"
    assert info.state is SandboxState.RUNNING
    assert info.metadata == {"userId": "u 1/ü"}
    assert (info.cpu_count, info.memory_mb) == (2, 512)
    assert 100 < left(sandbox) <= 120
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()


def test_its_time_is_set_longer_and_shorter_and_connecting_never_shortens_it(api_key: str) -> None:
    with Sandbox.create(timeout=60) as sandbox:
        sandbox.set_timeout(600)
        assert 550 < left(sandbox) <= 600
        same = Sandbox.connect(sandbox.sandbox_id, timeout=30)
        assert left(same) > 550
        Sandbox.connect(sandbox.sandbox_id, timeout=900)
        assert left(sandbox) > 850
        sandbox.set_timeout(45)
        assert left(sandbox) <= 45
        with pytest.raises(SandboxException, match="400"):
            sandbox.set_timeout(int(timedelta(days=2).total_seconds()))


def test_a_paused_one_keeps_its_files_and_is_resumed_by_connecting(api_key: str) -> None:
    with Sandbox.create(timeout=100) as sandbox:
        assert sandbox.pause() is not None
        assert sandbox.get_info().state is SandboxState.PAUSED
        with pytest.raises(SandboxException, match="memory of processes cannot be kept"):
            sandbox.pause(mode="full")
        again = Sandbox.connect(sandbox.sandbox_id)
        assert again.get_info().state is SandboxState.RUNNING


def test_a_client_that_always_asks_for_memory_may_pause(up: Up, api_key: str) -> None:
    """Clients of a year could not say otherwise: 2.45 of either language among them."""
    for language, version, status in (
        ("python", "2.45.1", 204),
        ("js", "2.45.0", 204),
        ("python", "2.63.0", 400),
    ):
        with Sandbox.create(timeout=60) as sandbox:
            headers = {"X-API-Key": api_key, "lang": language, "package_version": version}
            address = f"{up.url}/e2b/sandboxes/{sandbox.sandbox_id}/pause"
            answer = httpx.post(address, headers=headers, json={"memory": True}, trust_env=False)
            assert answer.status_code == status, answer.text


def test_lists_have_pages_and_filters(api_key: str) -> None:
    made = [Sandbox.create(metadata={"run": "lists", "no": str(no)}) for no in range(3)]
    made[0].pause()
    pages = Sandbox.list(SandboxQuery(metadata={"run": "lists"}), limit=2)
    first = pages.next_items()
    assert [one.metadata["no"] for one in first] == ["2", "1"]
    assert pages.has_next
    assert [one.metadata["no"] for one in pages.next_items()] == ["0"]
    assert not pages.has_next
    for states, wanted in (([SandboxState.PAUSED], {"0"}), ([SandboxState.RUNNING], {"1", "2"})):
        query = SandboxQuery(metadata={"run": "lists"}, state=states)
        assert {one.metadata["no"] for one in Sandbox.list(query).next_items()} == wanted
    for one in made:
        one.kill()


def test_lists_may_be_oldest_first_of_one_template_and_since_a_moment(api_key: str) -> None:
    made = [Sandbox.create(metadata={"run": "order", "no": str(no)}) for no in range(3)]
    query = SandboxQuery(metadata={"run": "order"})
    pages = Sandbox.list(query, limit=2, order="asc")
    assert [one.metadata["no"] for one in pages.next_items()] == ["0", "1"]
    assert [one.metadata["no"] for one in pages.next_items()] == ["2"]
    since = made[2].get_info().started_at
    for more, wanted in (
        ({"started_after": since}, ["2"]),
        ({"started_after": since + timedelta(seconds=1)}, []),
        ({"template": "base"}, ["2", "1", "0"]),
        ({"template": "another"}, []),
    ):
        found = Sandbox.list(SandboxQuery(metadata={"run": "order"}, **more)).next_items()
        assert [one.metadata["no"] for one in found] == wanted, more
    for one in made:
        one.kill()


def test_metrics_say_what_it_may_use(api_key: str) -> None:
    with Sandbox.create() as sandbox:
        (found,) = sandbox.get_metrics()
        assert found.cpu_count == 2
        assert found.mem_total > 0
        assert found.disk_total > 0
        now = datetime.now(UTC)
        assert sandbox.get_metrics(start=now - timedelta(hours=1), end=now)
        assert not sandbox.get_metrics(start=now - timedelta(hours=2), end=now - timedelta(hours=1))


def test_a_wrong_key_an_unknown_template_and_a_strangers_sandbox_are_refused(up: Up, api_key: str) -> None:
    for wrong in ("e2b_00", "e2b_" + "a" * 40, "not a key", "sk_" + "0" * 52):
        with pytest.raises(AuthenticationException):
            Sandbox.create(api_key=wrong)
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create("no-such-template")
    with Sandbox.create() as mine:
        stranger = new_api_key(up, "stranger")
        with pytest.raises(SandboxNotFoundException):
            Sandbox.connect(mine.sandbox_id, api_key=stranger)
        assert Sandbox.kill(mine.sandbox_id, api_key=stranger) is False
        assert Sandbox.list(api_key=stranger).next_items() == []


def test_a_client_that_is_too_old_is_told_so(up: Up, api_key: str) -> None:
    headers = {"X-API-Key": api_key, "package_version": "0.16.2"}
    body = {"templateID": "base"}
    answer = httpx.post(f"{up.url}/e2b/sandboxes", headers=headers, json=body, trust_env=False)
    # What its JavaScript shows of a refusal is the message.
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    assert "too old" in answer.json()["message"]


def test_what_is_not_here_is_refused_by_name(api_key: str) -> None:
    with pytest.raises(SandboxException, match="iam"):
        Sandbox.create(iam={"tokens": {"aws": {"audience": "a", "token_type": "JWT-SVID"}}})
    with pytest.raises(SecretException, match="secrets is not available here"):
        Secret.create("NAME", "value")
    with pytest.raises(SandboxException, match=r"network\.egressProxy"):
        Sandbox.create(network={"egress_proxy": {"address": "proxy.example.com:1080"}})
    with pytest.raises(SandboxException, match="is a range"):
        Sandbox.create(network={"deny_out": ["8.8.8.0/24"]})


def test_the_same_idempotency_key_makes_one(api_key: str) -> None:
    one, same = (Sandbox.create(idempotency_key="once") for _ in range(2))
    assert one.sandbox_id == same.sandbox_id
    one.kill()


def test_volumes_and_the_network_are_as_asked_for(up: Up, api_key: str) -> None:
    with Sandboxer(url=up.url, api_key=bearer_of(api_key)) as ours:
        ours.volumes.create("kept", size_mb=32)
        for wanted, found in (
            ({"allow_internet_access": False}, "none"),
            ({"network": {"deny_out": ["0.0.0.0/0"], "allow_out": ["example.com"]}}, "allow:example.com"),
            ({}, None),
        ):
            sandbox = Sandbox.create(volume_mounts={"/data": "kept"}, **wanted)
            shown = ours.get(sandbox.sandbox_id.replace("-", "_")).info
            assert shown.network == found
            assert [one.path for one in shown.volumes] == ["/data"]
            sandbox.kill()


def test_the_network_of_a_running_one_is_replaced(up: Up, api_key: str) -> None:
    head = {"Authorization": f"Bearer {bearer_of(api_key)}"}
    with Sandbox.create() as sandbox:
        where = f"{up.url}/v1/sandboxes/{sandbox.sandbox_id.replace('-', '_')}/egress"
        for wanted, default, hosts in (
            ({"allow_out": ["example.com"], "deny_out": ["0.0.0.0/0"]}, "deny", ["example.com"]),
            ({"allow_internet_access": False}, "deny", []),
            ({"deny_out": ["8.8.8.8", "1.1.1.1/32"], "allow_out": ["8.8.8.8"]}, "allow", ["1.1.1.1", "*"]),
            # As the profile has it.
            ({}, "allow", ["*"]),
        ):
            sandbox.update_network(wanted)
            rules = httpx.get(where, headers=head, trust_env=False).json()
            assert rules["default"] == default
            assert [one["host"] for one in rules["rules"]] == hosts
        with pytest.raises(SandboxException, match="denyOut"):
            sandbox.update_network({"allow_out": ["8.8.8.8"]})
        stranger = new_api_key(up, "stranger")
        with pytest.raises(SandboxNotFoundException):
            Sandbox.update_network(sandbox.sandbox_id, {}, api_key=stranger)


def test_what_one_was_denied_its_forks_are_denied_too(up: Up, api_key: str) -> None:
    head = {"Authorization": f"Bearer {bearer_of(api_key)}"}
    with Sandbox.create(network={"deny_out": ["8.8.8.8"]}) as sandbox:
        (fork,) = sandbox.fork()
        for one in (sandbox, fork):
            where = f"{up.url}/v1/sandboxes/{one.sandbox_id.replace('-', '_')}/egress"
            rules = httpx.get(where, headers=head, trust_env=False).json()["rules"]
            assert [(rule["action"], rule["host"]) for rule in rules] == [("deny", "8.8.8.8"), ("allow", "*")]
        fork.kill()


def test_a_delegated_key_may_what_its_scopes_say_and_ends_with_its_token(up: Up, api_key: str) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        child = owner.keys.delegate("reader", ["sandboxes:read"])
        token = owner.keys.issue_bearer(child.public_key).bearer_token
        assert Sandbox.list(api_key=api_key_of(token)).next_items() == []
        with pytest.raises(SandboxException, match="403"):
            Sandbox.create(api_key=api_key_of(token))
        owner.keys.end_bearer(child.public_key)
        with pytest.raises(AuthenticationException):
            Sandbox.list(api_key=api_key_of(token)).next_items()


def test_who_may_not_change_rules_of_egress_does_not_change_them_by_this_door(up: Up, api_key: str) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        scopes = ["sandboxes:create", "sandboxes:manage", "sandboxes:destroy"]
        child = owner.keys.delegate("no network", scopes)
        key = api_key_of(owner.keys.issue_bearer(child.public_key).bearer_token)
        with Sandboxer(public_key=child.public_key, secret_key=child.secret_key, url=up.url) as worker:
            packages = worker.create(profile="profile.packages").id
        with pytest.raises(SandboxException, match="allow_internet_access=False"):
            Sandbox.create(api_key=key)
        assert Sandbox.create(api_key=key, allow_internet_access=False).kill(api_key=key)
        before = owner.sandbox(packages).egress.show()
        wanted = {"allow_out": ["elsewhere.example.org"], "deny_out": ["0.0.0.0/0"]}
        with pytest.raises(SandboxException, match="account:manage"):
            Sandbox.update_network(packages.replace("_", "-"), wanted, api_key=key)
        assert owner.sandbox(packages).egress.show() == before
        assert Sandbox.kill(packages.replace("_", "-"), api_key=key)


def test_another_network_leaves_limits_of_the_traffic_as_they_are(up: Up, api_key: str) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner, Sandbox.create() as sandbox:
        egress = owner.sandbox(sandbox.sandbox_id.replace("-", "_")).egress
        egress.replace(default="allow", rules=[], limits={"max_bytes": 5000})
        sandbox.update_network({"deny_out": ["8.8.8.8"]})
        shown = egress.show()
        assert ([rule.host for rule in shown.rules], shown.limits.max_bytes) == (["8.8.8.8", "*"], 5000)


def test_the_command_line_prints_an_environment_that_works(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Cli(up.environment)("e2b", "env", "--account", "printed", "--open")
    assert said.code == 0, said.err
    for line in said.out.split():
        monkeypatch.setenv(*line.split("=", 1))
    with Sandbox.create() as sandbox:
        assert sandbox.is_running()
    assert re.fullmatch("e2b_[0-9a-f]+", os.environ["E2B_API_KEY"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.id)
def test_strangers_and_keys_of_our_own_api_are_refused_everywhere(up: Up, operation: AnyOperation) -> None:
    path = re.sub("{[a-z_]+}", "name", operation.path.replace("{sandbox_id}", "sbx-" + "0" * 26))
    for headers in ({}, {"Authorization": "Bearer sk_" + "0" * 52}, {"X-Access-Token": "sbt_no"}):
        answer = httpx.request(operation.method, up.url + path, headers=headers, trust_env=False)
        assert answer.status_code == 401, answer.text
        assert answer.json()["code"] == 401
        assert "message" in answer.json()
