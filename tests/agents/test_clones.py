"""Shadow clones on real walls: they share nothing but a repository, whatever order they come in; and each of
the nine checks fails by what it is about, and only then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sandboxer.sdk.agent import notebook
from sandboxer.sdk.agent.checks import CHECKS, Outcome, Subject
from sandboxer.sdk.agent.clones import (
    MEETING,
    TAG,
    Clone,
    push,
    put_tasks,
    results,
    run,
    serve,
    settle,
    take,
    work,
)
from sandboxer.sdk.agent.models import Endpoint, Failed, Scripted, think
from tests.support.clones import Camp, agents_home
from tests.support.platforms import why_not_real

ALL = [one.name for one in CHECKS]


@pytest.fixture(scope="module")
def camp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Camp]:
    if why := why_not_real():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("agents")
    with agents_home(folder / "state") as home, Scripted() as model:
        yield Camp(home.client, model, folder / "keys")


@pytest.fixture
def clone(camp: Camp) -> Clone:
    return camp.clone("shadow-1")


def in_notebook(clone: Clone, command: str) -> str:
    return run(clone.sandbox, f"cd {notebook.HOME} && {command}")


def test_a_clone_passes_all_checks_has_an_account_of_its_own_and_is_raised_once(
    camp: Camp, clone: Clone
) -> None:
    before = [one.id for one in camp.client.list()]
    assert camp.clone("shadow-1").sandbox.id == clone.sandbox.id
    assert [one.id for one in camp.client.list()] == before
    assert camp.outcomes(clone)[Outcome.PASSED] == ALL
    own = json.loads(run(clone.sandbox, "sandboxer api GET /v1/accounts/me"))
    assert own["account"]["id"] != camp.client.account.me().account.id
    assert own["money"]["balance"] == 500
    # What opens it lies with whoever raised it, and no key is inside.
    assert "PRIVATE KEY" not in run(clone.sandbox, "grep -rl 'PRIVATE KEY' /root /opt /srv /tmp || true")


Act = Callable[[Camp, Clone], object]
HOOK = f"{MEETING}/hooks/update"


def _end_service(camp: Camp, clone: Clone) -> None:
    for one in clone.sandbox.processes.list():
        if one.tag == TAG:
            clone.sandbox.processes.end(one.process_id)


def _drop_key(camp: Camp, clone: Clone) -> None:
    for one in camp.client.ssh.keys():  # noqa: SIM118
        if one.sandbox_id == clone.sandbox.id:
            camp.client.ssh.revoke_key(one.id)


def _freeze(camp: Camp, clone: Clone) -> None:
    clone.sandbox.freeze()


def _thaw(camp: Camp, clone: Clone) -> None:
    clone.sandbox.thaw()


def _serve(camp: Camp, clone: Clone) -> None:
    serve(clone)


def _raise(camp: Camp, clone: Clone) -> None:
    camp.clone(clone.name)


def doing(command: str, *, at_meeting: bool = False) -> Act:
    def act(camp: Camp, clone: Clone) -> None:
        run(clone.meeting if at_meeting else clone.sandbox, f"cd /root; {command}")

    return act


_LOG = "work/log/shadow-1"
# Of each check: what breaks it, what mends it, and what is not tried then.
BROKEN: dict[str, tuple[Act, Act, list[str]]] = {
    "container": (_freeze, _thaw, ALL[1:]),
    "service": (_end_service, _serve, []),
    "ssh": (_drop_key, _raise, []),
    "git": (
        doing("cp -a work kept; for o in work/.git/objects/??/*; do chmod u+w $o; echo x > $o; break; done"),
        doing("rm -rf work; mv kept work"),
        ["sync", "task"],
    ),
    "log": (
        doing(f"cp -p {_LOG} kept; sed -i '1s/wrote/WROTE/' {_LOG}"),
        doing(f"mv kept {_LOG}"),
        ["sync", "task"],
    ),
    "sync": (doing("echo x >> work/README"), doing("git -C work checkout -q README"), ["task"]),
    "dependencies": (doing("mv /usr/bin/jq /usr/bin/kept"), doing("mv /usr/bin/kept /usr/bin/jq"), []),
    "task": (
        doing(f"mv {HOOK} kept; printf '#!/bin/sh\\nexit 1\\n' > {HOOK}; chmod 700 {HOOK}", at_meeting=True),
        doing(f"mv kept {HOOK}", at_meeting=True),
        [],
    ),
    "exposure": (
        doing("chmod 755 /root; echo 1 > .env; chmod 644 .env"),
        doing("chmod 700 /root; rm .env"),
        [],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_check_fails_by_what_it_is_about_and_no_other_does(camp: Camp, clone: Clone, name: str) -> None:
    broken, mended, untried = BROKEN[name]
    broken(camp, clone)
    try:
        seen = camp.outcomes(clone)
    finally:
        mended(camp, clone)
    assert (seen[Outcome.FAILED], seen[Outcome.NOT_TRIED]) == ([name], untried)


def test_a_model_that_is_away_is_named_and_a_task_not_tried(camp: Camp, clone: Clone) -> None:
    away: Subject = replace(camp.subject(clone), model=Endpoint("http://127.0.0.1:1/v1", "away"))
    seen = camp.outcomes(away)
    assert (seen[Outcome.FAILED], seen[Outcome.NOT_TRIED]) == (["model"], ["task"])


def test_each_check_has_been_broken() -> None:
    assert sorted([*BROKEN, "model"]) == sorted(ALL)


def test_clones_that_want_the_same_tasks_at_once_do_each_once(camp: Camp, clone: Clone) -> None:
    clones = [clone, camp.clone("shadow-2"), camp.clone("shadow-3")]
    tasks = {f"race-{number}": f"number {number}" for number in range(6)}
    put_tasks(clone, tasks)

    def all_of(one: Clone) -> list[str]:
        done = []
        while (task := work(one, camp.model)) is not None:
            done.append(task[0])
        return done

    with ThreadPoolExecutor(3) as pool:
        done = [task for one in pool.map(all_of, clones) for task in one]
    assert sorted(done) == sorted(tasks)
    there = results(clone)
    assert {task: there[task]["results"] for task in tasks} == {
        task: f"Done: {text}" for task, text in tasks.items()
    }
    # Nothing was merged: each put its commits on top of the others'.
    assert run(clone.meeting, f"git -C {MEETING} log --merges --oneline main") == ""
    for one in clones:
        assert (
            notebook.fault_of(run(one.sandbox, f"cat {notebook.HOME}/log/{one.name}") + "\n", one.name)
            is None
        )


def test_of_two_who_take_one_task_the_first_to_push_has_it(camp: Camp, clone: Clone) -> None:
    other = camp.clone("shadow-2")
    put_tasks(clone, {"wanted": "by two"})
    settle(other)
    for one in (clone, other):
        in_notebook(one, f"python3 /opt/clone/notebook.py take {one.name} wanted")
    assert push(clone)
    assert not push(other)
    # Git lets nobody past, and the late one gives its claim up.
    assert not settle(other)
    assert take(other, "wanted") is None
    # Whoever was interrupted goes on with what it has.
    assert take(clone, "wanted") == {"id": "wanted", "text": "by two"}
    assert work(clone, camp.model, "wanted") == ("wanted", "Done: by two")


def test_a_log_that_was_rewritten_is_not_taken_even_as_a_commit(camp: Camp, clone: Clone) -> None:
    at = in_notebook(clone, "git rev-parse HEAD")
    in_notebook(clone, f"sed -i '1s/wrote/WROTE/' log/{clone.name} && git commit -qam lie")
    with pytest.raises(Failed, match="changed otherwise than by adding lines"):
        settle(clone)
    assert camp.outcomes(clone)[Outcome.FAILED] == ["log"]
    in_notebook(clone, f"git reset -q --hard {at}")
    in_notebook(clone, f"tail -n 1 log/{clone.name} >> log/{clone.name} && git commit -qam lie")
    with pytest.raises(Failed, match="does not follow"):
        settle(clone)
    in_notebook(clone, f"git reset -q --hard {at}")
    assert settle(clone)


def test_a_sandbox_of_somebody_else_s_is_made_neither_a_clone_nor_a_meeting(camp: Camp) -> None:
    with camp.client.create(name="mine") as mine:
        with pytest.raises(Failed, match="another sandbox already, and no shadow clone"):
            camp.clone("mine")
        with pytest.raises(Failed, match="another sandbox already, and no meeting"):
            camp.clone("shadow-9", meeting="mine")
        assert mine.exec(["ls", notebook.HOME]).exit_code != 0
    assert "shadow-9" not in [one.name for one in camp.client.list()]


FORGED: dict[str, tuple[str, str]] = {
    "a line in the log of another": (
        "python3 /opt/clone/notebook.py note shadow-2 results/forged said < /dev/null",
        "belongs to another",
    ),
    "what another is made with": ("echo '{}' > clones/shadow-2.json", "belongs to another"),
    "a result that was there": ("echo other > results/kept", "is there already"),
    "a task that is gone": ("git rm -q tasks/kept", "is there already"),
    "a log that is a link": ("mv log/shadow-1 x; ln -s ../x log/shadow-1", "adding lines|no plain file"),
}


@pytest.mark.parametrize("what", FORGED)
def test_the_meeting_takes_of_a_clone_only_what_is_its_own(camp: Camp, clone: Clone, what: str) -> None:
    """Whatever runs in a clone may commit anything."""
    camp.clone("shadow-2")
    if "kept" not in results(clone):
        put_tasks(clone, {"kept": "do it"})
        assert work(clone, camp.model, "kept") is not None
    settle(clone)
    at = in_notebook(clone, "git rev-parse HEAD")
    command, refusal = FORGED[what]
    try:
        in_notebook(clone, f"{command}; git add -A; git commit -qm lie || test $(git rev-parse HEAD) != {at}")
        with pytest.raises(Failed, match=refusal):
            push(clone)
    finally:
        in_notebook(clone, f"git reset -q --hard {at}; rm -f x")
    assert settle(clone)


def test_the_meeting_takes_no_object_that_git_finds_broken(camp: Camp, clone: Clone) -> None:
    """A commit of nobody, which the programs of other clones may not be made for."""
    settle(clone)
    broken = "printf 'tree %s\\nparent %s\\n\\nof nobody\\n' $(git rev-parse HEAD^{tree} HEAD)"
    made = in_notebook(clone, f"{broken} | git hash-object -t commit --literally -w --stdin")
    in_notebook(clone, f"git reset -q --hard {made}")
    with pytest.raises(Failed, match="missingAuthor"):
        push(clone)
    in_notebook(clone, "git reset -q --hard meeting/main")
    # Not even beside its branch.
    assert clone.meeting.exec(["git", "-C", MEETING, "cat-file", "-e", made]).exit_code != 0
    assert settle(clone)


def test_a_clone_cannot_have_its_owner_ask_the_model_something_else(camp: Camp, clone: Clone) -> None:
    """The owner's key pays for what is asked."""
    asked: list[bytes] = []

    class Listening(Scripted):
        def ask(self, request: bytes) -> bytes:
            asked.append(request)
            return super().ask(request)

    other = '{"model": "dearest", "messages": [{"role": "user", "content": "x"}], "n": 100}'
    lie = f'#!/bin/sh\n[ "$1" = -c ] && {{ echo \'{other}\'; exit; }}; exec /usr/bin/python3 "$@"\n'
    clone.sandbox.files.write("/usr/local/bin/python3", lie, mode=0o755)
    try:
        with Listening() as model, pytest.raises(Failed, match="asks the model something else"):
            think(clone.sandbox, model, [{"role": "user", "content": "task: x"}])
    finally:
        run(clone.sandbox, "rm /usr/local/bin/python3")
    assert asked == []
