"""What a caller asks for is promised, refused with a reason, or answered: never passed over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandboxer.backends.contract import Fingerprint, Trust, VolumeMount, Wall
from sandboxer.backends.guest import FolderMount
from sandboxer.hosts.routes.records import IsolationLevel
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.sandboxes.profiles import (
    Checkpoint,
    Scope,
    WorkspaceAccess,
    WorkspaceMode,
    load_profiles,
)
from sandboxer.sandboxes.promises import (
    NOTHING,
    Promises,
    Repository,
    Wishes,
    from_json,
    promised,
    sharing,
    tasks_of,
    to_json,
)
from sandboxer.sandboxes.records import AtEnd, Inception, OnParentEnd, Sandbox
from sandboxer.sandboxes.requests import CreateRequest, check_backend, check_checkpoint, plan
from sandboxer.sandboxes.use_cases.preparation import told

PROFILES = load_profiles(Path(__file__).parents[2] / "profiles")
PLAIN = PROFILES.get("profile.agent-dev")
COMPOSE = PROFILES.get("profile.compose-e2e")
FIT = Fingerprint(healthy=True, walls=frozenset(Wall), facts={"isolation_level": "container"})
URL = "https://git.example.com/tool.git"


def of(wishes: Wishes, **more: object) -> Promises:
    given = {"inputs": {}, "trust": Trust.SEMI, "is_copy": False, **more}
    return promised(wishes, PLAIN, **given)  # type: ignore[arg-type]


def planned(account: str = "one", **wanted: object) -> Sandbox:
    wanted = {"wishes": Wishes(scope=Scope.SESSION), "consumer": {"session_id": "s-1"}, **wanted}
    who = Caller(public_key="k", account=account)
    request = CreateRequest(**wanted)  # type: ignore[arg-type]
    return plan(request, PLAIN, who, sandbox_id="sbx_1", now=datetime(2026, 11, 18, tzinfo=UTC))


def test_the_seeds_smallest_profile_means_what_it_says() -> None:
    assert COMPOSE.backend == "ext.compose-ssh"
    assert COMPOSE.isolation is IsolationLevel.CONTAINER
    assert COMPOSE.trust is Trust.ZERO
    assert COMPOSE.workspace_mode is WorkspaceMode.REMOTE_CANONICAL
    assert COMPOSE.scope is Scope.SESSION
    assert COMPOSE.idle_timeout is None
    assert COMPOSE.resources == PLAIN.resources
    assert COMPOSE.resources_max == PLAIN.resources_max
    assert COMPOSE.placement_prefer == ("sandboxer01",)
    assert COMPOSE.reachability == {"tunnel": "ops-bridge", "identity": "ops-warden"}


@pytest.mark.parametrize("name", ["compose-e2e", "vm-haskell-build", "burst", "saas"])
def test_a_profile_whose_backend_is_missing_is_refused_by_its_name(name: str) -> None:
    profile = PROFILES.get(f"profile.{name}")
    with pytest.raises(NotAvailable, match=profile.backend) as refused:
        check_backend(profile, None)
    assert refused.value.facts["capability"] == profile.backend


def test_a_wall_that_is_too_weak_is_refused_and_one_that_is_strong_enough_is_not() -> None:
    check_backend(PLAIN, FIT, Wishes(isolation=IsolationLevel.POLICY))
    check_backend(PLAIN, FIT, Wishes(isolation=IsolationLevel.CONTAINER))
    for level in (IsolationLevel.STRONG, IsolationLevel.MICROVM):
        with pytest.raises(NotAvailable, match=level) as refused:
            check_backend(PLAIN, FIT, Wishes(isolation=level))
        assert refused.value.facts["promise"] == "isolation"
    strong = replace(FIT, facts={"isolation_level": "strong"})
    check_backend(PLAIN, strong, Wishes(isolation=IsolationLevel.STRONG))


def test_a_snapshot_that_nobody_can_take_is_refused() -> None:
    check_checkpoint(PLAIN, Wishes(checkpoint=Checkpoint.FILES), FIT, keeps_files=True)
    with pytest.raises(NotAvailable, match="checkpoint memory"):
        check_checkpoint(PLAIN, Wishes(checkpoint=Checkpoint.MEMORY), FIT, keeps_files=True)
    with pytest.raises(NotAvailable, match="checkpoint files"):
        check_checkpoint(replace(PLAIN, checkpoint=Checkpoint.FILES), Wishes(), FIT, keeps_files=False)
    able = replace(FIT, facts={"checkpoint": "memory"})
    check_checkpoint(PLAIN, Wishes(checkpoint=Checkpoint.MEMORY), able, keeps_files=False)


def test_a_preferred_place_is_honoured_or_answered_with_the_reason() -> None:
    here = of(Wishes(prefer=("elsewhere", "rack-7"), fallback=("gone",)), host_names=("local", "rack-7"))
    assert [(one.wish, one.honoured) for one in here.answered] == [("placement.prefer", True)]
    away = of(Wishes(prefer=("sandboxer01",), fallback=("coulombcore",)))
    assert [(one.wish, one.honoured) for one in away.answered] == [
        ("placement.prefer", False),
        ("placement.fallback", False),
    ]
    assert "sandboxer01" in away.answered[0].reason
    second = of(Wishes(prefer=("sandboxer01",), fallback=("local",)))
    assert [one.honoured for one in second.answered] == [False, True]
    there = of(Wishes(prefer=("local",), fallback=("sandboxer01",)), host_names=("sandboxer01",))
    assert [one.honoured for one in there.answered] == [False, True]
    assert there.answered[0].reason == "there is no host local here; it stands on sandboxer01"
    of_profile = promised(Wishes(), COMPOSE, inputs={}, trust=Trust.ZERO, is_copy=False)
    assert [one.wish for one in of_profile.answered] == ["placement.prefer", "placement.fallback"]


def test_a_read_only_workspace_is_filled_before_it_is_closed() -> None:
    kept = of(Wishes(workspace_access=WorkspaceAccess.READ_ONLY))
    assert kept.folders() == (FolderMount(path="/workspace", is_read_only=True),)
    assert kept.folders(is_ready=False) == (FolderMount(path="/workspace", is_read_only=False),)
    none = of(Wishes(workspace_access=WorkspaceAccess.NONE))
    assert none.folders(is_ready=False) == none.folders() == kept.folders()
    assert of(Wishes()).folders() == ()


def test_what_contradicts_itself_is_refused() -> None:
    nobody = Wishes(workspace_access=WorkspaceAccess.NONE)
    with pytest.raises(InvalidRequest, match="empty workspace"):
        of(nobody, inputs={"repo": URL})
    mine = VolumeMount(volume_id="vol_1", path="/workspace/data")
    with pytest.raises(InvalidRequest, match=r"volumes\.0\.path"):
        of(Wishes(workspace_access=WorkspaceAccess.READ_ONLY), volumes=(mine,))
    of(Wishes(workspace_access=WorkspaceAccess.READ_ONLY), volumes=(replace(mine, is_read_only=True),))
    with pytest.raises(InvalidRequest, match=r"inputs\.repo"):
        of(Wishes(), inputs={"repo": URL}, trust=Trust.ZERO)
    with pytest.raises(InvalidRequest, match="password"):
        of(Wishes(), inputs={"repo": "https://me:secret@git.example.com/tool.git"})
    with pytest.raises(InvalidRequest, match="repo_ref"):
        of(Wishes(), inputs={"repo": URL, "repo_ref": "--upload-pack=sh"})
    with pytest.raises(InvalidRequest, match="repo_ref"):
        of(Wishes(), inputs={"repo": URL, "repo_ref": ["main"]})
    with pytest.raises(InvalidRequest, match="password"):
        of(Wishes(), inputs={"repo": "HTTPS://me:secret@git.example.com/tool.git"})


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("setup.instructions", {"wishes": Wishes(instructions="true\0")}),
        ("setup_metadata.instructions_ref", {"wishes": Wishes(instructions_ref="a\0b")}),
        ("inputs.tool", {"wishes": Wishes(), "inputs": {"tool": "a\0b"}}),
    ],
)
def test_what_no_command_could_be_given_is_refused(field: str, wanted: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=field):
        of(**wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["http://[x", "https://", "http:///tool.git", "https://h:99999/tool.git"])
def test_an_address_without_a_host_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"inputs\.repo"):
        of(Wishes(), inputs={"repo": address})


@pytest.mark.parametrize(
    ("inputs", "repository"),
    [
        ({"repo": URL}, Repository(url=URL)),
        ({"repo": URL, "repo_ref": "v1"}, Repository(url=URL, revision="v1")),
        ({"repo": f"{URL}#main"}, Repository(url=URL, revision="main")),
        ({"repo_ref": f"{URL}#main"}, Repository(url=URL, revision="main")),
        ({"repo": URL.replace("https", "HTTPS")}, Repository(url=URL)),
        ({"repo_ref": None, "compose_bundle_ref": None}, None),
    ],
)
def test_a_repository_is_known_by_its_address(
    inputs: dict[str, object], repository: Repository | None
) -> None:
    kept = of(Wishes(), inputs=inputs)
    assert kept.repository == repository
    assert kept.answered == ()


def test_a_parameter_that_is_no_address_stays_one_and_says_so() -> None:
    kept = of(Wishes(), inputs={"repo": "/home/me/tool", "repo_ref": "main"}, trust=Trust.ZERO)
    assert kept.repository is None
    assert [one.wish for one in kept.answered] == ["inputs.repo", "inputs.repo_ref"]


def test_instructions_by_reference_are_a_file_of_the_repository_or_are_handed_on() -> None:
    wishes = Wishes(instructions_ref="ci/setup.sh")
    known = of(wishes, inputs={"repo": URL})
    assert [one.promise for one in tasks_of(known)] == ["inputs.repo", "setup_metadata.instructions_ref"]
    for reference in ("ci/setup.sh", "https://docs.example.com/setup", "../etc/passwd", "/etc/passwd"):
        inputs = {} if reference == "ci/setup.sh" else {"repo": URL}
        handed = of(Wishes(instructions_ref=reference), inputs=inputs)
        assert handed.instructions_path is None
        assert [one.wish for one in handed.answered] == ["setup_metadata.instructions_ref"]


def test_a_copy_of_a_disk_does_not_run_its_profiles_instructions_again() -> None:
    profile = replace(PLAIN, setup=replace(PLAIN.setup, instructions="make"))
    wishes = Wishes(instructions="make test")
    fresh = promised(wishes, profile, inputs={}, trust=Trust.ZERO, is_copy=False)
    copy = promised(wishes, profile, inputs={}, trust=Trust.ZERO, is_copy=True)
    assert fresh.instructions == ("make", "make test")
    assert copy.instructions == ("make test",)


def test_those_who_share_a_sandbox_are_told_apart() -> None:
    consumer = {"actor": "agt", "harness": "glas-harness", "session_id": "s-1"}
    other = {**consumer, "session_id": "s-2"}
    session, agent, everybody = (Wishes(scope=scope) for scope in Scope)
    assert sharing(Wishes(), consumer, {}) is None
    assert sharing(session, {}, {}) is None
    assert sharing(session, consumer, {}) == sharing(session, {**consumer, "note": 1}, {})
    assert sharing(session, consumer, {}) != sharing(session, other, {})
    assert sharing(agent, consumer, {}) == sharing(agent, other, {})
    assert sharing(everybody, consumer, {}) == sharing(everybody, other, {})
    assert sharing(session, consumer, {"image": "base"}) != sharing(session, consumer, {"image": "other"})
    assert len({sharing(one, consumer, {}) for one in (session, agent, everybody)}) == 3


_GRANT = Inception(budget_sats=0, depth=0, slots=1, scopes=(), on_parent_end=OnParentEnd.END)


@pytest.mark.parametrize(
    "other",
    [
        {"account": "two"},
        {"wishes": Wishes(scope=Scope.SESSION, isolation=IsolationLevel.MICROVM)},
        {"wishes": Wishes(scope=Scope.SESSION, checkpoint=Checkpoint.MEMORY)},
        {"wishes": Wishes(scope=Scope.SESSION, secret_refs=("TOKEN",))},
        {"inception": _GRANT},
        {"at_end": AtEnd.STOP},
        {"ttl": "15m"},
        {"idle_timeout": "15m"},
        {"name": "mine"},
        {"labels": {"team": "search"}},
        {"quote_id": "quo_1"},
        # Another kind of name is another name.
        {"consumer": {"run_id": "s-1"}},
    ],
)
def test_nobody_is_answered_with_a_sandbox_that_lacks_what_he_asks_for(other: dict[str, object]) -> None:
    shared = planned().promises.shared_by
    assert shared is not None
    assert planned().promises.shared_by == shared
    assert planned(**other).promises.shared_by not in (shared, None)  # type: ignore[arg-type]


def test_a_scope_that_names_nobody_says_so() -> None:
    alone = planned(consumer={"actor": "agt"}).promises
    assert alone.shared_by is None
    assert [(one.wish, one.honoured) for one in alone.answered] == [("scope", False)]
    assert "consumer.session_id" in alone.answered[0].reason
    assert planned().promises.answered == ()


@pytest.mark.parametrize(
    ("secret", "printed", "shown"),
    [
        ("hunter2\n", b"it is hunter2", "it is ***"),
        ("first line\nsecond line\n", b"it is first line", "it is ***"),
        ('{\n "key": 1\n}', b'{ is no secret, "key": 1 is', "{ is no secret, *** is"),
    ],
)
def test_a_secret_is_left_out_line_by_line(secret: str, printed: bytes, shown: str) -> None:
    assert told([printed], [secret]) == shown


def test_a_secret_is_left_out_where_the_output_was_cut_off() -> None:
    assert told([b"some words and hunt"], ["hunter2"], most=19) == "some words a"


def test_promises_are_kept_as_they_were_given() -> None:
    kept = of(
        Wishes(
            scope=Scope.AGENT,
            workspace_mode=WorkspaceMode.MIRROR,
            workspace_access=WorkspaceAccess.READ_ONLY,
            instructions="make",
            instructions_ref="setup.sh",
            secret_refs=("TOKEN",),
            prefer=("elsewhere",),
        ),
        inputs={"repo": URL},
    )
    written = to_json(kept)
    assert written is not None
    assert from_json(written) == kept
    assert to_json(NOTHING) is None
    assert from_json(None) == NOTHING
